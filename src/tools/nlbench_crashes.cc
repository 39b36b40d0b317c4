#include "tools/nlbench_crashes.h"

#include <csignal>

#include "base/memory_faults.h"

namespace nlsplit::inline tools {
namespace {

// What a signal handler can get at.
FlightRecords*& records_of_crashes() {
  static FlightRecords* records = nullptr;
  return records;
}

// A crash, of a kernel perhaps: the record is written, and the process ends as it would have.
void on_crash(int signal) {
  std::signal(signal, SIG_DFL);
  if (FlightRecords* records = records_of_crashes(); records != nullptr && !records->empty()) {
    switch (signal) {
      case SIGSEGV:
        records->write("this rank crashed: SIGSEGV");
        break;
      case SIGABRT:
        records->write("this rank crashed: SIGABRT");
        break;
      default:
        records->write("this rank crashed: SIGILL or SIGFPE");
        break;
    }
  }
  std::raise(signal);
}

// Of a memory fault, whose message says more: base/memory_faults.h.
void on_memory_fault(const char* why) {
  if (FlightRecords* records = records_of_crashes(); records != nullptr && !records->empty()) records->write(why);
}

}  // namespace

void record_crashes(FlightRecords& records) {
  records_of_crashes() = &records;
  before_a_memory_fault_ends_it(on_memory_fault);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which say more of a crash themselves
  for (const int signal : {SIGSEGV, SIGABRT, SIGILL, SIGFPE}) std::signal(signal, on_crash);
#else
  static_cast<void>(on_crash);
#endif
}

}  // namespace nlsplit::inline tools

#include "measure/child_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <string>
#include <utility>

namespace nlsplit::inline measure {
namespace {

// A look that comes later was itself held up: the machine, or this process, had no time.
constexpr double longest_between_looks_s = 1;

// Of all its threads; 0 if it has gone.
double processor_time_s(pid_t child) {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(child, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Read and written, also what the page cache gave.
uint64_t bytes_moved(pid_t child) {
  std::ifstream file(fmt::format("/proc/{}/io", child));
  uint64_t sum = 0, value = 0;
  for (std::string name; file >> name >> value;) {
    if (name == "rchar:" || name == "wchar:" || name == "read_bytes:") sum += value;
  }
  return sum;
}

}  // namespace

Status ChildWatch::look() {
  const Clock::time_point now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - std::exchange(last_look_, now)).count();
  const double processor_s = processor_time_s(child_);
  const uint64_t bytes = bytes_moved(child_);
  const bool got_on = processor_s > processor_s_ || bytes != bytes_;
  processor_s_ = std::max(processor_s_, processor_s);
  bytes_ = bytes;
  idle_s_ = got_on ? 0 : idle_s_ + std::min(elapsed, longest_between_looks_s);
  if (limits_.looked) limits_.looked();
  if (limits_.idle_s > 0 && idle_s_ > limits_.idle_s) {
    return lost(fmt::format("it did nothing for {:.3g} s: it used no processor time, and read and wrote nothing",
                            limits_.idle_s));
  }
  if (limits_.processor_s > 0 && processor_s_ > limits_.processor_s)
    return lost(fmt::format("it has used {:.0f} s of processor time and does not end", processor_s_));
  return ok_status();
}

}  // namespace nlsplit::inline measure

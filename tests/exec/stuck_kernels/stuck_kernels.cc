// A library of kernels whose matrix product never returns from some call on, for tests of deadlines. The environment
// says how:
//   STUCK_REAL   the library that computes         STUCK_RANK   of mpirun: whose it is; none: every rank's
//   STUCK_AFTER  calls that are well (default 0)
//   STUCK_HOW    spin, block, crash, bus (memory whose file is too short), memory (asks for more than there is), or the
//                seconds each call spins longer
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "kernels/module/kernel_module.h"

namespace {

using nlsplit::KernelCall;
using nlsplit::KernelCode;

std::atomic<int> calls{0};
void (*real_run)(const KernelCall&) = nullptr;

const char* environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

double processor_time_s() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

bool is_this_rank() {
  const char* rank = std::getenv("STUCK_RANK");
  return rank == nullptr || std::strcmp(rank, environment("OMPI_COMM_WORLD_RANK", environment("PMI_RANK", "0"))) == 0;
}

void touch_what_is_gone() {
  const int fd = ::memfd_create("gone", 0);
  volatile char* gone = static_cast<char*>(::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0));
  static_cast<void>(gone[0]);
}

void ask_for_too_much() {
  const volatile size_t too_much = size_t{1} << 60;
  volatile char* taken = new char[too_much];
  taken[0] = 1;
}

void run(const KernelCall& call) {
  real_run(call);
  if (!is_this_rank() || calls.fetch_add(1) < std::atoi(environment("STUCK_AFTER", "0"))) return;
  const char* how = environment("STUCK_HOW", "block");
  while (std::strcmp(how, "block") == 0) ::sleep(1);
  if (std::strcmp(how, "crash") == 0) std::raise(SIGSEGV);
  if (std::strcmp(how, "bus") == 0) touch_what_is_gone();
  if (std::strcmp(how, "memory") == 0) ask_for_too_much();
  const double end = std::strcmp(how, "spin") == 0 ? 1e9 : processor_time_s() + std::atof(how);
  while (processor_time_s() < end) {
  }
}

nlsplit::KernelModule make_module() {
  static std::vector<KernelCode> code;
  void* handle = ::dlopen(environment("STUCK_REAL", ""), RTLD_LOCAL | RTLD_NOW);
  const auto real =
      handle == nullptr
          ? nullptr
          : reinterpret_cast<const nlsplit::KernelModule* (*)()>(::dlsym(handle, "nlsplit_kernel_module"));
  if (real == nullptr) return {};  // of no level, so it is refused
  nlsplit::KernelModule module = *real();
  code.assign(module.code, module.code + module.count);
  module.code = code.data();
  KernelCode& matmul = code[nlsplit::catalogue_index(nlsplit::KernelName::matmul)];
  real_run = std::exchange(matmul.run, run);
  return module;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const nlsplit::KernelModule* nlsplit_kernel_module() {
  static const nlsplit::KernelModule module = make_module();  // all devices of a process ask, each in its own thread
  return &module;
}

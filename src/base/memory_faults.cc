#include "base/memory_faults.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstring>
#include <new>

#include "base/mapped_file.h"

namespace nlsplit::inline base {
namespace {

std::atomic<void (*)(const char* why)> last_words{nullptr};

// Everything here runs where nothing may be allocated and no lock taken.

// Several threads may run out of memory at once: only the first one goes on from here.
void come_first() {
  static std::atomic<pid_t> first{0};
  pid_t nobody = 0;
  if (first.compare_exchange_strong(nobody, ::gettid())) return;
  if (nobody == ::gettid()) ::_exit(exit_of_a_fault);  // the last words fail for the same reason
  for (;;) ::pause();
}

[[noreturn]] void end(const char* why) {
  if (const auto tell = last_words.load(); tell != nullptr) tell(why);
  ::_exit(exit_of_a_fault);
}

void say(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

extern "C" void on_bus_error(int signal, siginfo_t* info, void*) {
  come_first();
  const char* file = mapped_file_at(info->si_addr);
  if (file != nullptr) {
    say("error: '");
    say(file);
    say("' was truncated while it was in use, or its disk failed\n");
  } else if (info->si_code == BUS_ADRERR) {
    say("error: memory that is shared by a file is gone (SIGBUS): is /dev/shm or the folder for temporary files "
        "full?\n");
  } else {
    ::signal(signal, SIG_DFL);  // what failed is done again, and ends the process
    return;
  }
  end(file != nullptr ? "a file that it had mapped was truncated, or its disk failed (SIGBUS)"
                      : "memory that is shared by a file is gone (SIGBUS)");
}

// In MiB; 0 if it is not known.
long memory_held() {
  char text[64] = "";
  const int fd = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  const ssize_t n = fd < 0 ? -1 : ::read(fd, text, sizeof(text) - 1);
  if (fd >= 0) ::close(fd);
  if (n <= 0) return 0;
  const char* second = std::strchr(text, ' ');  // pages of the address space, then pages held
  long pages = 0;
  if (second != nullptr) std::from_chars(second + 1, text + n, pages);
  return pages * (::sysconf(_SC_PAGESIZE) / 1024) / 1024;
}

void on_no_memory() {
  come_first();
  char held[32] = "";
  *std::to_chars(held, held + sizeof(held) - 1, memory_held()).ptr = 0;
  say("error: out of memory: the system refuses to give this process more; it holds ");
  say(held);
  say(" MiB\n");
  end("the system refuses to give this process more memory");
}

}  // namespace

void before_a_memory_fault_ends_it(void (*tell)(const char* why)) { last_words = tell; }

void catch_memory_faults() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
  std::set_new_handler(on_no_memory);
}

}  // namespace nlsplit::inline base

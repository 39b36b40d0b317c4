#include "base/interrupts.h"

#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <string_view>

namespace nlsplit::inline base {
namespace {

// A signal handler has nowhere else to write.
volatile std::sig_atomic_t was_interrupted = 0;
double limit_of_interrupt_s = 1;
bool says_limit = true;

// Also in the signal handler.
void end_after(double seconds) {
  itimerval time{};
  time.it_value.tv_sec = static_cast<time_t>(seconds);
  time.it_value.tv_usec = static_cast<suseconds_t>((seconds - static_cast<double>(time.it_value.tv_sec)) * 1e6);
  ::setitimer(ITIMER_REAL, &time, nullptr);
}

extern "C" void on_interrupt(int signal) {
  if (was_interrupted != 0) {
    if (signal != SIGINT) return;  // the limit stands
    ::signal(signal, SIG_DFL);
    ::raise(signal);
    return;
  }
  was_interrupted = 1;
  constexpr double limit_at_terminal_s = 60;
  end_after(signal == SIGINT ? limit_at_terminal_s : limit_of_interrupt_s);
}

extern "C" void on_limit(int) {
  constexpr std::string_view words = "interrupted: what was under way is given up\n";
  [[maybe_unused]] const ssize_t written = says_limit ? ::write(STDERR_FILENO, words.data(), words.size()) : 0;
  ::_exit(exit_interrupted);
}

}  // namespace

void catch_interrupts(double limit_s, bool speaks) {
  says_limit = speaks;
  limit_of_interrupt_s = limit_s;
  std::signal(SIGALRM, on_limit);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) std::signal(signal, on_interrupt);
}

bool interrupted() { return was_interrupted != 0; }

void write_after_interrupt(double limit_s) {
  if (interrupted()) end_after(limit_s);
}

}  // namespace nlsplit::inline base

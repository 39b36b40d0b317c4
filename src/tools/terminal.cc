#include "tools/terminal.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>

namespace nlsplit {
namespace {

volatile std::sig_atomic_t was_interrupted = 0;  // a signal handler has nowhere else to write
bool drawn = false;

extern "C" void on_interrupt(int signal) {
  was_interrupted = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void show_progress(std::string_view phase, size_t done, size_t total) {
  static const bool on_terminal = ::isatty(STDERR_FILENO) != 0;
  if (!on_terminal) return;
  static std::chrono::steady_clock::time_point last{};
  const auto now = std::chrono::steady_clock::now();
  if (now - last < std::chrono::milliseconds(100)) return;
  last = now;
  drawn = true;
  std::fprintf(stderr, "\r\033[K%.*s %zu/%zu", static_cast<int>(phase.size()), phase.data(), done, total);
  std::fflush(stderr);
}

void clear_progress() {
  if (drawn) std::fputs("\r\033[K", stderr);
  drawn = false;
}

void catch_interrupts() { std::signal(SIGINT, on_interrupt); }
bool interrupted() { return was_interrupted != 0; }

}  // namespace nlsplit

#include "tools/terminal.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace nlsplit::inline tools {
namespace {

bool drawn = false;

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

}  // namespace nlsplit::inline tools

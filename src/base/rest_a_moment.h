// For loops that wait for another core: tells the processor that nothing is computed. A thread that yields instead
// gives its core away for milliseconds where other programs want it.
#pragma once

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <thread>
#endif

namespace nlsplit::inline base {

inline void rest_a_moment() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#else
  std::this_thread::yield();
#endif
}

}  // namespace nlsplit::inline base

// What must hold of an input that was accepted. A broken promise is a finding, as a crash is.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace nlsplit::fuzz {

inline void expect(bool holds, const std::string& promise) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", promise.c_str());
  std::abort();
}

// Every error says what is wrong.
template <class R>
bool accepted(const R& result) {
  if (!result.ok()) expect(!result.error().message.empty(), "an error has a message");
  return result.ok();
}

}  // namespace nlsplit::fuzz

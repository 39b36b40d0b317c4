// CHECK(condition, "why"): stops the program with file and line when one of our own assumptions is broken.
// Never for what a user or a file says: that is a Result (base/result.h).
#pragma once

#include <string_view>

namespace nlsplit::inline base {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view why);

// Not __FILE__: the preprocessed text would differ from one work tree to another, and ccache shares nothing between
// them.
#define CHECK(condition, why)                                                 \
  do {                                                                        \
    if (!(condition)) [[unlikely]] {                                          \
      ::nlsplit::check_failed(__builtin_FILE(), __LINE__, #condition, (why)); \
    }                                                                         \
  } while (false)

}  // namespace nlsplit::inline base

#include "base/check.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

namespace nlsplit::inline base {

void check_failed(const char* file, int line, const char* condition, std::string_view why) {
  fmt::print(stderr, "{}:{}: CHECK({}) failed: {}\n", file, line, condition, why);
  std::fflush(stderr);
  std::abort();  // not exit: a core dump and a debugger should find the stack as it was
}

}  // namespace nlsplit::inline base

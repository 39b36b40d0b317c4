// Tests, and the programs that they start, leave the user's cache of generated kernels alone.
#include <cstdlib>

namespace {

[[maybe_unused]] const int off = ::setenv("NLSPLIT_CODE_CACHE", "off", 1);

}  // namespace

// Which build of a program or library is loaded.
#pragma once

#include <string>

namespace nlsplit::inline base {

// The name of the file that holds `address` of the process, and its build id, or a hash of the file if it has none:
// "libnlsplit_kernels_v4.so 3f9a…". Empty: no file holds it.
std::string build_of(const void* address);

}  // namespace nlsplit::inline base

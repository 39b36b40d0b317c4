// Where the shared libraries lie that a program loads when it needs them.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace nlsplit::inline kernels {

// A file from beside the running program: ../lib where it was built, ../<libdir>/nlsplit where it was installed. Error:
// there is none; names the places.
Result<std::string> find_module(std::string_view name);

}  // namespace nlsplit::inline kernels

// A second row for a computation that is timed: the same by oneDNN, where the build has it (NLSPLIT_ONEDNN).
#pragma once

#include <string>

#include "kernels/catalogue.h"

namespace nlsplit {

#ifdef NLSPLIT_ONEDNN
// "<label>/onednn", unless oneDNN has no such computation. Its result is checked before it is timed; of its variants
// the one that is fastest here is taken, and the row's label names it and what oneDNN calls its code.
void add_onednn_row(const std::string& label, const ComputeDesc& desc);
#else
inline void add_onednn_row(const std::string&, const ComputeDesc&) {}
#endif

}  // namespace nlsplit

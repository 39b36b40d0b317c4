// Signatures as text, back to what they say: a profile holds nothing else of a computation.
//
//   parse_signature("conv_direct_v3 Conv(f32[8,3,8,8], const f32[16,3,3,3]) {…} + Relu -> f32[8,16,8,8]")
#pragma once

#include <string_view>

#include "kernels/catalogue.h"

namespace nlsplit::inline kernels {

// The inverse of signature(). Errors: another text; the whole of it is the fragment. Whether such a computation can be
// is not asked: verify() tells.
Result<ComputeDesc> parse_signature(std::string_view text);

}  // namespace nlsplit::inline kernels

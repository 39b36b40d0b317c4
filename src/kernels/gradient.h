// Computations of training that have no kernel: gradients and the optimizer's updates. They are described, verified and
// costed like all others, so that a Program of a training step can be planned and simulated; no executor runs them yet.
//
//   desc.kernel = "gradient"; desc.gradient_by = 0b10;    // of a Conv by its weights
//   signature(desc)    "gradient Conv(f32[8,3,8,8], by f32[16,3,3,3]) {…} -> f32[8,16,8,8]"
//   signature(update_desc(Optimizer::momentum, type))
//                      "momentum Identity(f32[16,3,3,3], f32[16,3,3,3], f32[16,3,3,3]) -> f32[16,3,3,3] f32[16,3,3,3]"
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "graph/optimizer.h"
#include "kernels/catalogue.h"

namespace nlsplit {

inline constexpr std::string_view gradient_kernel = "gradient";

inline bool is_gradient(const ComputeDesc& desc) { return desc.gradient_by != 0; }
// What forward describes, to be differentiated by the inputs in `by`.
ComputeDesc gradient_desc(ComputeDesc forward, uint64_t by);
// What its operator says. Expects what verify_gradient accepts.
Gradient gradient_of(const ComputeDesc& desc);

// What a gradient computation reads and writes, in this order: the outputs' gradients, the inputs and then the output
// that were kept; the gradients by its inputs, without those that only pass.
struct GradientOperands {
  std::vector<TensorType> reads, writes;
};
GradientOperands gradient_operands(const ComputeDesc& desc);

// Types as the op table infers them, no epilogue, a gradient that is known.
Status verify_gradient(const ComputeDesc& desc);

// reads: the weight, its gradient, the optimizer's state; writes: the weight and the state.
ComputeDesc update_desc(Optimizer optimizer, const TensorType& weight);
std::optional<Optimizer> update_of(const ComputeDesc& desc);  // none: not an update
Status verify_update(const ComputeDesc& desc);

// Neither gradients nor updates have code.
inline bool has_no_kernel(const ComputeDesc& desc) { return is_gradient(desc) || update_of(desc).has_value(); }

}  // namespace nlsplit

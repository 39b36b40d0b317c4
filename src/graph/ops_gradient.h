// Gradients of each kind of operator; ops.cc puts them into the table. ops_gradient.cc derives every formula.
#pragma once

#include "graph/ops.h"

namespace nlsplit {

// Bits of `by` are inputs that are there; the answer is what takes the gradient from the output's to theirs.
// Error: an input that the operator cannot be differentiated by.
using Differentiated = Result<Gradient>;

Differentiated gradient_conv(const GradientQuery& query);
Differentiated gradient_conv_transpose(const GradientQuery& query);
Differentiated gradient_gemm(const GradientQuery& query);
Differentiated gradient_matmul(const GradientQuery& query);
Differentiated gradient_add(const GradientQuery& query);
Differentiated gradient_sub(const GradientQuery& query);
Differentiated gradient_mul(const GradientQuery& query);
Differentiated gradient_div(const GradientQuery& query);
Differentiated gradient_pass(const GradientQuery& query);  // unchanged: sums of equal shapes, views
Differentiated gradient_relu(const GradientQuery& query);
Differentiated gradient_sigmoid(const GradientQuery& query);
Differentiated gradient_tanh(const GradientQuery& query);
Differentiated gradient_hard_swish(const GradientQuery& query);
Differentiated gradient_exp(const GradientQuery& query);
Differentiated gradient_sqrt(const GradientQuery& query);
Differentiated gradient_neg(const GradientQuery& query);
Differentiated gradient_erf(const GradientQuery& query);
Differentiated gradient_gelu(const GradientQuery& query);
Differentiated gradient_leaky_relu(const GradientQuery& query);
Differentiated gradient_clamp(const GradientQuery& query);  // Clip, HardSigmoid
Differentiated gradient_max_pool(const GradientQuery& query);
Differentiated gradient_average_pool(const GradientQuery& query);
Differentiated gradient_mean(const GradientQuery& query);  // GlobalAveragePool, ReduceMean
Differentiated gradient_batch_norm(const GradientQuery& query);
Differentiated gradient_normalize(const GradientQuery& query);  // LayerNormalization, InstanceNormalization
Differentiated gradient_lrn(const GradientQuery& query);
Differentiated gradient_softmax(const GradientQuery& query);
Differentiated gradient_copy(const GradientQuery& query);  // Concat, Transpose, Pad, Slice
Differentiated gradient_gather(const GradientQuery& query);

// What the table's formulas count in.
inline double count(const TensorType& type) { return static_cast<double>(element_count(type.shape)); }
inline double taps_of(const TensorType& weights) {  // of one output channel's window
  return static_cast<double>(element_count(Shape(weights.shape.begin() + 1, weights.shape.end())));
}

}  // namespace nlsplit

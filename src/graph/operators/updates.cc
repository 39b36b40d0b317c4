// What changes a state where it lies: the sum of gradients in a micro-batch, and in a step what an optimizer does to a
// weight. Formulas and sources: graph/optimizer.h.
#include <fmt/format.h>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

constexpr AttrSpec sgd_attrs[] = {real("learning_rate")};
constexpr AttrSpec momentum_attrs[] = {real("decay"), real("learning_rate")};
constexpr AttrSpec adam_attrs[] = {real("beta1"), real("beta2"), real("epsilon"), real("learning_rate")};

Inferred infer_accumulate(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(reals(inputs));
  if (element_count(inputs[0].shape) != element_count(inputs[1].shape))
    return invalid_input(fmt::format("a sum {} of parts {}", to_string(inputs[0]), to_string(inputs[1])));
  return std::vector<TensorType>{inputs[0]};
}

// All but the gradient. That may have another shape: it is a slice of a buffer with all gradients of a stage.
Inferred infer_update(Types inputs, const Attrs&) {
  const size_t tensors = inputs.size() == 5 ? 4 : inputs.size();
  RETURN_IF_ERROR(reals(inputs.first(tensors)));
  for (size_t i = 1; i < tensors; ++i) {
    const Shape &shape = inputs[i].shape, &weight = inputs[0].shape;
    if (i == 1 ? element_count(shape) != element_count(weight) : shape != weight)
      return invalid_input(fmt::format("an update of {} with {}", to_string(inputs[0]), to_string(inputs[i])));
  }
  std::vector<TensorType> made{inputs[0]};
  for (size_t i = 2; i < inputs.size(); ++i) made.push_back(inputs[i]);
  return made;
}
Inferred infer_adam_update(Types inputs, const Attrs& attrs) {
  if (inputs[4] != TensorType{DType::i64, {1}})
    return invalid_input(fmt::format("the number of steps is i64[1], not {}", to_string(inputs[4])));
  return infer_update(inputs, attrs);
}

Flops flops_sgd(Types, Types out, const Attrs&) { return flops(2 * count(out[0])); }
Flops flops_momentum(Types, Types out, const Attrs&) { return flops(4 * count(out[0])); }
// m: 3; v: 4; root, add, divide, scale, subtract.
Flops flops_adam(Types, Types out, const Attrs&) { return flops((3 + 4 + 5) * count(out[0])); }

}  // namespace

// clang-format off
//  operator        inputs  attributes      types              work            batch       split     gradient   traits
ROW(Accumulate,     2, 2,   no_attrs,       infer_accumulate,  flops_each,     keeps_none, no_split, of_a_step, has_kernels | not_in_onnx)
ROW(SgdUpdate,      2, 2,   sgd_attrs,      infer_update,      flops_sgd,      keeps_none, no_split, of_a_step, has_kernels | not_in_onnx)
ROW(MomentumUpdate, 3, 3,   momentum_attrs, infer_update,      flops_momentum, keeps_none, no_split, of_a_step, has_kernels | not_in_onnx)
ROW(AdamUpdate,     5, 5,   adam_attrs,     infer_adam_update, flops_adam,     keeps_none, no_split, of_a_step, has_kernels | not_in_onnx)
// clang-format on

}  // namespace nlsplit::inline graph

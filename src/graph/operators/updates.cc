// What changes a state where it lies: the sum of gradients in a micro-batch, and in a step what an optimizer does to a
// weight; and what all updates of a step share: its number, its rate, the factor that clips gradients. Formulas and
// sources: graph/optimizer.h.
#include <fmt/format.h>

#include <algorithm>

#include "graph/operators/rules.h"
#include "graph/optimizer.h"

namespace nlsplit::inline graph {
namespace {

constexpr AttrSpec sgd_attrs[] = {real("decay")};
constexpr AttrSpec momentum_attrs[] = {real("decay"), real("momentum"), integer("nesterov")};
constexpr AttrSpec adam_attrs[] = {real("beta1"), real("beta2"), real("decay"), real("epsilon")};
constexpr AttrSpec learning_rate_attrs[] = {
    integers("begins"), integer("cosine"), real("floor"), {"rates", 'd'}, integer("warmup")};
constexpr AttrSpec clip_factor_attrs[] = {real("clip")};
constexpr AttrSpec moving_average_attrs[] = {real("momentum"), real("scale")};

Inferred infer_accumulate(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(reals(inputs));
  if (element_count(inputs[0].shape) != element_count(inputs[1].shape))
    return invalid_input(fmt::format("a sum {} of parts {}", to_string(inputs[0]), to_string(inputs[1])));
  return std::vector<TensorType>{inputs[0]};
}

Status check_steps(const TensorType& type) {
  if (type == steps_type()) return ok_status();
  return invalid_input(fmt::format("the number of steps is i64[1], not {}", to_string(type)));
}

// A weight, its gradient, `states` tensors of its type; then the number of steps if it counts; the rate; the factor of
// gradients or not. The gradient may have another shape: it is a slice of a buffer with all gradients of a stage.
template <size_t states, bool counts>
Inferred infer_update(Types inputs, const Attrs&) {
  constexpr size_t tensors = 2 + states;
  RETURN_IF_ERROR(reals(inputs.first(tensors)));
  std::vector<TensorType> made{inputs[0]};
  for (size_t i = 1; i < tensors; ++i) {
    const Shape &shape = inputs[i].shape, &weight = inputs[0].shape;
    if (i == 1 ? element_count(shape) != element_count(weight) : shape != weight)
      return invalid_input(fmt::format("an update of {} with {}", to_string(inputs[0]), to_string(inputs[i])));
    if (i > 1) made.push_back(inputs[i]);
  }
  if (counts) RETURN_IF_ERROR(check_steps(inputs[tensors]));
  for (const TensorType& number : inputs.subspan(tensors + (counts ? 1 : 0))) {
    if (number != rate_type())
      return invalid_input(fmt::format("a rate and a factor are f32[1], not {}", to_string(number)));
  }
  return made;
}

Inferred infer_step_count(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(check_steps(inputs[0]));
  return std::vector<TensorType>{steps_type()};
}

Inferred infer_learning_rate(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(check_steps(inputs[0]));
  const std::vector<int64_t>& begins = attr_ints(attrs, "begins");
  if (begins.empty() || begins[0] != 0 || begins.size() != attr_floats(attrs, "rates").size() ||
      !std::ranges::is_sorted(begins))
    return invalid_input("rates need one begin each, ascending from 0 on");
  if (attr_int(attrs, "warmup") < 0 || attr_int(attrs, "cosine") < 0)
    return invalid_input("a warm-up or a decay of fewer than 0 steps");
  return std::vector<TensorType>{rate_type()};
}

Inferred infer_sum_of_squares(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(reals(inputs));
  return one_result(DType::f64, {1});
}

Inferred infer_clip_factor(Types inputs, const Attrs& attrs) {
  for (const TensorType& part : inputs) {
    if (part != TensorType{DType::f64, {1}})
      return invalid_input(fmt::format("sums of squares are f64[1], not {}", to_string(part)));
  }
  if (attr_float(attrs, "clip") < 0) return invalid_input("gradients are clipped at 0 or more");
  return std::vector<TensorType>{rate_type(), rate_type()};
}

// The gradient's part: with a factor, with a decay.
double preparing(Types in, size_t without_factor, const Attrs& attrs) {
  return (in.size() > without_factor ? 1 : 0) + (attr_float(attrs, "decay") != 0 ? 2 : 0);
}
Flops flops_sgd(Types in, Types out, const Attrs& attrs) {
  return flops((2 + preparing(in, 3, attrs)) * count(out[0]));
}
Flops flops_momentum(Types in, Types out, const Attrs& attrs) {
  const int nesterov = attr_int(attrs, "nesterov") != 0 ? 2 : 0;
  return flops((4 + nesterov + preparing(in, 4, attrs)) * count(out[0]));
}
// m: 3; v: 4; root, divide, add, divide, scale and subtract.
Flops flops_adam(Types in, Types out, const Attrs& attrs) {
  return flops((3 + 4 + 6 + preparing(in, 6, attrs)) * count(out[0]));
}
Flops flops_moving_average(Types, Types out, const Attrs&) { return flops(3 * count(out[0])); }
Flops flops_one(Types, Types, const Attrs&) { return flops(1); }
Flops flops_learning_rate(Types, Types, const Attrs&) { return flops(6); }  // of a cosine
Flops flops_sum_of_squares(Types in, Types, const Attrs&) { return flops(2 * count(in[0])); }
Flops flops_clip_factor(Types in, Types, const Attrs&) { return flops(static_cast<double>(in.size()) + 3); }

}  // namespace

// clang-format off
//  operator        inputs  attributes           types                   work                  batch       split     gradient   traits
ROW(Accumulate,     2, 2,   no_attrs,            infer_accumulate,       flops_each,           keeps_none, no_split, of_a_step, has_kernels | not_in_onnx)
ROW(MovingAverage,  2, 2,   moving_average_attrs, infer_same,            flops_moving_average, keeps_none, no_split, of_a_step, has_kernels | not_in_onnx)
ROW(SgdUpdate,      3, 4,   sgd_attrs,           (infer_update<0, false>), flops_sgd,          keeps_none, no_split, of_a_step, has_kernels | not_in_onnx)
ROW(MomentumUpdate, 4, 5,   momentum_attrs,      (infer_update<1, false>), flops_momentum,     keeps_none, no_split, of_a_step, has_kernels | not_in_onnx)
ROW(AdamUpdate,     6, 7,   adam_attrs,          (infer_update<2, true>), flops_adam,          keeps_none, no_split, of_a_step, has_kernels | not_in_onnx)
ROW(AdamWUpdate,    6, 7,   adam_attrs,          (infer_update<2, true>), flops_adam,          keeps_none, no_split, of_a_step, has_kernels | not_in_onnx)
ROW(StepCount,      1, 1,   no_attrs,            infer_step_count,       flops_one,            keeps_none, no_split, of_a_step, has_kernels | not_in_onnx)
ROW(LearningRate,   1, 1,   learning_rate_attrs, infer_learning_rate,    flops_learning_rate,  keeps_none, no_split, of_a_step, not_in_onnx)
ROW(SumOfSquares,   1, 1,   no_attrs,            infer_sum_of_squares,   flops_sum_of_squares, keeps_none, no_split, of_a_step, has_kernels | not_in_onnx)
ROW(ClipFactor,     1, -1,  clip_factor_attrs,   infer_clip_factor,      flops_clip_factor,    keeps_none, no_split, of_a_step, not_in_onnx)
// clang-format on

}  // namespace nlsplit::inline graph

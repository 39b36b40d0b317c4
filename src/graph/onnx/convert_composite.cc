// Operators that are several of ours, by the definitions in ONNX's own documents: normalisations, gated functions,
// pools over whole planes. Most of the parts have fast kernels.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/onnx/convert_chain.h"
#include "graph/operators/shapes.h"

namespace nlsplit::inline graph {
namespace {

Attrs with_axes(std::vector<int64_t> axes, bool keeps = true) {
  Attrs attrs;
  set_attr(attrs, "axes", std::move(axes));
  set_attr(attrs, "keepdims", int64_t{keeps});
  return attrs;
}

std::vector<int64_t> axes_from(size_t first, size_t rank) {
  std::vector<int64_t> axes(rank - std::min(first, rank));
  std::iota(axes.begin(), axes.end(), static_cast<int64_t>(first));
  return axes;
}

// The mean and the reciprocal deviation, too, which only training reads.
Result<std::vector<ValueId>> layer_norm_with_statistics(const ConvertContext& c) {
  if (!c.given(0) || !c.given(1)) return invalid_input("an input is missing");
  const TensorType type = c.type(0);
  const int64_t given = int_attr(c.node, "axis", -1);
  ASSIGN_OR_RETURN(const size_t axis, axis_of(given, type.shape.size()));
  const double epsilon = float_attr(c.node, "epsilon", static_cast<double>(1e-5f));
  Attrs attrs;
  set_attr(attrs, "axis", given);
  set_attr(attrs, "epsilon", epsilon);
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < 3 && c.given(i); ++i) {
    ASSIGN_OR_RETURN(inputs.emplace_back(), c.value(i));
  }
  const ValueId x = inputs[0];
  Chain chain(c);
  std::vector<ValueId> made = {chain.last(Op::LayerNormalization, std::move(inputs), std::move(attrs))};
  const std::vector<int64_t> axes = axes_from(axis, type.shape.size());
  made.push_back(chain.output(1, ".mean", Op::ReduceMean, {x}, with_axes(axes)));
  if (wants_output(c, 2)) {
    const ValueId apart = chain.step(".apart", Op::Sub, {x, made[1]});
    const ValueId square = chain.step(".square", Op::Mul, {apart, apart});
    const ValueId variance = chain.step(".variance", Op::ReduceMean, {square}, with_axes(axes));
    const ValueId raised = chain.step(".raised", Op::Add, {variance, chain.scalar(".epsilon", type.dtype, epsilon)});
    const ValueId deviation = chain.step(".deviation", Op::Sqrt, {raised});
    made.push_back(chain.output(2, ".inverse", Op::Reciprocal, {deviation}));
  }
  return chain.results(std::move(made));
}

// x / sqrt(mean(x²) + epsilon) * scale (Zhang and Sennrich, "Root mean square layer normalization", 2019).
Converted rms_norm(const ConvertContext& c) {
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  ASSIGN_OR_RETURN(const ValueId scale, c.value(1));
  const TensorType type = c.graph.type(x);
  ASSIGN_OR_RETURN(const size_t axis, axis_of(int_attr(c.node, "axis", -1), type.shape.size()));
  const double epsilon = float_attr(c.node, "epsilon", static_cast<double>(1e-5f));
  Chain chain(c);
  const ValueId square = chain.step(".square", Op::Mul, {x, x});
  const ValueId mean = chain.step(".mean", Op::ReduceMean, {square}, with_axes(axes_from(axis, type.shape.size())));
  const ValueId raised = chain.step(".raised", Op::Add, {mean, chain.scalar(".epsilon", type.dtype, epsilon)});
  const ValueId root = chain.step(".root", Op::Sqrt, {raised});
  const ValueId normal = chain.step(".normal", Op::Div, {x, root});
  return chain.result(chain.last(Op::Mul, {normal, scale}));
}

// InstanceNormalization of groups of channels, then scale and bias: one a channel, before opset 21 one a group.
Converted group_norm(const ConvertContext& c) {
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  ASSIGN_OR_RETURN(ValueId scale, c.value(1));
  ASSIGN_OR_RETURN(ValueId bias, c.value(2));
  const TensorType type = c.graph.type(x);
  const size_t rank = type.shape.size();
  const int64_t groups = int_attr(c.node, "num_groups", 0);
  if (rank < 3 || groups < 1 || type.shape[1] % groups != 0)
    return invalid_input(fmt::format("{} groups in {}", groups, to_string(type)));
  const int64_t each = type.shape[1] / groups;
  int64_t pixels = 1;
  for (size_t axis = 2; axis < rank; ++axis) pixels *= type.shape[axis];
  Chain chain(c);
  Attrs apart, normal, back;
  set_attr(apart, "shape", Shape{0, groups, each * pixels});
  set_attr(normal, "epsilon", float_attr(c.node, "epsilon", static_cast<double>(1e-5f)));
  Shape whole = type.shape;
  whole[0] = 0;
  set_attr(back, "shape", std::move(whole));
  const ValueId grouped = chain.step(".groups", Op::Reshape, {x}, std::move(apart));
  const ValueId one = filled(c, ".ones", {type.dtype, {groups}}, 1),
                zero = filled(c, ".zeros", {type.dtype, {groups}}, 0);
  const ValueId normalised = chain.step(".normal", Op::InstanceNormalization, {grouped, one, zero}, std::move(normal));
  const ValueId shaped = chain.step(".shaped", Op::Reshape, {normalised}, std::move(back));
  const auto per_channel = [&](ValueId parameter, const std::string& suffix) {
    if (c.opset < 21) {  // [groups] → [groups, each] → [channels]
      Attrs column, wide;
      set_attr(column, "shape", Shape{groups, 1});
      set_attr(wide, "shape", Shape{groups, each});
      parameter = chain.step(suffix + ".column", Op::Reshape, {parameter}, std::move(column));
      parameter = chain.step(suffix + ".wide", Op::Expand, {parameter}, std::move(wide));
    }
    Attrs attrs;
    Shape channels(rank - 1, 1);
    channels[0] = type.shape[1];
    set_attr(attrs, "shape", std::move(channels));
    return chain.step(suffix, Op::Reshape, {parameter}, std::move(attrs));
  };
  scale = per_channel(scale, ".scale");
  bias = per_channel(bias, ".bias");
  const ValueId scaled = chain.step(".scaled", Op::Mul, {shaped, scale});
  return chain.result(chain.last(Op::Add, {scaled, bias}));
}

// (x - mean) / (deviation + 1e-9), as ONNX's function has it.
Converted mean_variance_norm(const ConvertContext& c) {
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  const DType type = c.graph.type(x).dtype;
  const std::vector<int64_t> axes = ints_attr(c.node, "axes").value_or(std::vector<int64_t>{0, 2, 3});
  Chain chain(c);
  const ValueId mean = chain.step(".mean", Op::ReduceMean, {x}, with_axes(axes));
  const ValueId apart = chain.step(".apart", Op::Sub, {x, mean});
  const ValueId square = chain.step(".square", Op::Mul, {apart, apart});
  const ValueId variance = chain.step(".variance", Op::ReduceMean, {square}, with_axes(axes));
  const ValueId deviation = chain.step(".deviation", Op::Sqrt, {variance});
  const ValueId raised = chain.step(".raised", Op::Add, {deviation, chain.scalar(".epsilon", type, 1e-9)});
  return chain.result(chain.last(Op::Div, {apart, raised}));
}

Converted lp_norm(const ConvertContext& c) {
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  const int64_t p = int_attr(c.node, "p", 2);
  if (p != 1 && p != 2) return unsupported(fmt::format("p {}", p));
  Chain chain(c);
  const ValueId norm =
      chain.step(".norm", p == 1 ? Op::ReduceL1 : Op::ReduceL2, {x}, with_axes({int_attr(c.node, "axis", -1)}));
  return chain.result(chain.last(Op::Div, {x, norm}));
}

// x sigmoid(alpha x)
Converted swish(const ConvertContext& c) {
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  const double alpha = float_attr(c.node, "alpha", 1);
  Chain chain(c);
  ValueId inner = x;
  if (alpha != 1) inner = chain.step(".scaled", Op::Mul, {x, chain.scalar(".alpha", c.graph.type(x).dtype, alpha)});
  const ValueId gate = chain.step(".gate", Op::Sigmoid, {inner});
  return chain.result(chain.last(Op::Mul, {x, gate}));
}

// Over all spatial axes.
Converted global_pool(const ConvertContext& c) {
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  const TensorType type = c.graph.type(x);
  if (type.shape.size() < 3) return invalid_input("a global pool needs spatial axes");
  Attrs attrs = with_axes(axes_from(2, type.shape.size()));
  Chain chain(c);
  if (c.node.op == "GlobalMaxPool") return chain.result(chain.last(Op::ReduceMax, {x}, std::move(attrs)));
  const int64_t p = int_attr(c.node, "p", 2);
  if (p == 1 || p == 2) return chain.result(chain.last(p == 1 ? Op::ReduceL1 : Op::ReduceL2, {x}, std::move(attrs)));
  if (p < 1) return invalid_input(fmt::format("p {}", p));
  const auto power = static_cast<double>(p);
  const ValueId size = chain.step(".size", Op::Abs, {x});
  const ValueId raised = chain.step(".raised", Op::Pow, {size, chain.scalar(".p", type.dtype, power)});
  const ValueId sum = chain.step(".sum", Op::ReduceSum, {raised}, std::move(attrs));
  return chain.result(chain.last(Op::Pow, {sum, chain.scalar(".root", type.dtype, 1 / power)}));
}

}  // namespace

MaybeConverted convert_composite(const ConvertContext& c) {
  const std::string& op = c.node.op;
  if (op == "LayerNormalization" && (wants_output(c, 1) || wants_output(c, 2)))
    return all(layer_norm_with_statistics(c));
  if (op == "RMSNormalization") return one(rms_norm(c));
  if (op == "GroupNormalization") return one(group_norm(c));
  if (op == "MeanVarianceNormalization") return one(mean_variance_norm(c));
  if (op == "LpNormalization") return one(lp_norm(c));
  if (op == "Swish") return one(swish(c));
  if (op == "GlobalMaxPool" || op == "GlobalLpPool") return one(global_pool(c));
  return std::optional<std::vector<ValueId>>();
}

}  // namespace nlsplit::inline graph

// Operators that move elements or go along axes, and whose parameters became inputs in later opsets.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "graph/onnx/convert_tools.h"
#include "graph/onnx/onnx_types.h"
#include "graph/onnx/transposes.h"
#include "graph/operators/shapes.h"

namespace nlsplit::inline graph {
namespace {

Attrs slice_attrs(std::vector<int64_t> axes, std::vector<int64_t> starts, std::vector<int64_t> ends,
                  std::vector<int64_t> steps) {
  Attrs attrs;
  set_attr(attrs, "axes", std::move(axes));
  set_attr(attrs, "starts", std::move(starts));
  set_attr(attrs, "ends", std::move(ends));
  set_attr(attrs, "steps", std::move(steps));
  return attrs;
}

Converted slice(const ConvertContext& c) {
  ASSIGN_OR_RETURN(const auto starts, integers(c, "starts", 1));
  ASSIGN_OR_RETURN(const auto ends, integers(c, "ends", 2));
  ASSIGN_OR_RETURN(auto axes, integers(c, "axes", 3));
  ASSIGN_OR_RETURN(auto steps, integers(c, "steps", 4));
  if (!starts || !ends) return invalid_input("starts or ends are missing");
  if (!axes) {
    axes.emplace(starts->size());
    std::iota(axes->begin(), axes->end(), int64_t{0});
  }
  if (!steps) steps.emplace(starts->size(), 1);
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  return emit(c, Op::Slice, {x}, slice_attrs(*axes, *starts, *ends, *steps));
}

// A Slice an output.
Result<std::vector<ValueId>> split(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  const Shape shape = c.type(0).shape;
  ASSIGN_OR_RETURN(const size_t axis, axis_of(int_attr(c.node, "axis", 0), shape.size()));
  ASSIGN_OR_RETURN(auto parts, integers(c, "split", 1));
  const auto count = static_cast<int64_t>(c.node.outputs.size());
  if (!parts) {  // equal ones; since opset 18 the last may be smaller
    const int64_t said = int_attr(c.node, "num_outputs", count);
    if (said != count || (c.opset < 18 && shape[axis] % count != 0))
      return invalid_input(fmt::format("{} outputs of an extent of {}", said, shape[axis]));
    const int64_t part = (shape[axis] + count - 1) / count;
    parts.emplace();
    for (int64_t i = 0; i < count; ++i) parts->push_back(std::clamp<int64_t>(shape[axis] - i * part, 0, part));
  }
  int64_t left = shape[axis];  // sums of what a file says could overflow
  for (const int64_t part : *parts) {
    if (part < 0 || part > left)
      return invalid_input(fmt::format("a part of {} of an extent of {}", part, shape[axis]));
    left -= part;
  }
  if (std::ssize(*parts) != count || left != 0)
    return invalid_input(fmt::format("its parts are not an extent of {} for {} outputs", shape[axis], count));
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  std::vector<ValueId> made;
  int64_t start = 0;
  for (size_t i = 0; i < parts->size(); ++i) {
    const int64_t end = start + (*parts)[i];
    const std::string name = i == 0 ? c.name : fmt::format("{}.{}", c.name, i);
    ASSIGN_OR_RETURN(made.emplace_back(),
                     c.graph.add(Op::Slice, name, {x}, slice_attrs({static_cast<int64_t>(axis)}, {start}, {end}, {1}),
                                 c.node.outputs[i]));
    start = end;
  }
  return made;
}

// The triangle as a constant mask: x where it is true, else a zero.
Converted trilu(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  const TensorType type = c.type(0);
  if (type.shape.size() < 2) return invalid_input(fmt::format("{} is not a matrix", to_string(type)));
  ASSIGN_OR_RETURN(const auto given, whole_number(c, "k", 1));
  const int64_t k = given.value_or(0);
  const bool upper = int_attr(c.node, "upper", 1) != 0;
  const int64_t rows = type.shape[type.shape.size() - 2], columns = type.shape.back();
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  ASSIGN_OR_RETURN(const ValueId keeps, mask(c, ".mask", rows, columns, [&](int64_t row, int64_t column) {
                     return upper ? column - row >= k : column - row <= k;
                   }));
  return emit(c, Op::Where, {keeps, x, filled(c, ".zero", {type.dtype, {}}, 0)});
}

// Those indices at which the condition, a constant, is true.
Converted compress(const ConvertContext& c) {
  if (!c.given(0) || !c.given(1)) return invalid_input("an input is missing");
  if (c.inputs[1].constant == nullptr) return unsupported("a condition that is not constant");
  ASSIGN_OR_RETURN(const std::vector<double> condition, numbers_of(*c.inputs[1].constant, c.weights));
  const Shape shape = c.type(0).shape;
  ASSIGN_OR_RETURN(ValueId x, c.value(0));
  const bool flat = !c.node.attrs.contains("axis");
  int64_t axis = 0, extent = element_count(shape);
  if (flat) {
    Attrs attrs;
    set_attr(attrs, "shape", Shape{extent});
    ASSIGN_OR_RETURN(x, emit_helper(c, Op::Reshape, ".flat", {x}, std::move(attrs)));
  } else {
    ASSIGN_OR_RETURN(const size_t known, axis_of(int_attr(c.node, "axis", 0), shape.size()));
    axis = static_cast<int64_t>(known), extent = shape[known];
  }
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < std::min(extent, std::ssize(condition)); ++i) {
    if (condition[static_cast<size_t>(i)] != 0) kept.push_back(i);
  }
  Attrs attrs;
  set_attr(attrs, "axis", axis);
  const ValueId indices = listed(c, ".indices", kept, {std::ssize(kept)});
  return emit(c, Op::Gather, {x, indices}, std::move(attrs));
}

// Blocks of an image to channels and back: a Transpose between two shapes. The samples' axis stays.
Converted depth_to_space(const ConvertContext& c, bool back) {
  if (!c.given(0)) return invalid_input("an input is missing");
  const Shape x = c.type(0).shape;
  const int64_t block = int_attr(c.node, "blocksize", 0);
  constexpr int64_t most = int64_t{1} << 15;  // so that no product below overflows
  const bool sound = x.size() == 4 && block >= 1 && block <= most &&
                     std::ranges::all_of(x, [](int64_t extent) { return extent <= largest_extent >> 10; });
  if (!sound) return invalid_input(fmt::format("blocks of {} in {}", block, to_string(c.type(0))));
  const std::string mode = string_attr(c.node, "mode", "DCR");
  if (mode != "DCR" && mode != "CRD") return unsupported(fmt::format("mode {}", mode));
  Shape apart, together;
  std::vector<int64_t> perm;
  if (back) {
    if (x[2] % block != 0 || x[3] % block != 0) return invalid_input("its extents are not whole blocks");
    apart = {0, x[1], x[2] / block, block, x[3] / block, block};
    perm = {0, 3, 5, 1, 2, 4};
    together = {0, x[1] * block * block, x[2] / block, x[3] / block};
  } else {
    if (x[1] % (block * block) != 0) return invalid_input("its channels are not whole blocks");
    const int64_t depth = x[1] / (block * block);
    const bool columns_first = mode == "DCR";
    apart = columns_first ? Shape{0, block, block, depth, x[2], x[3]} : Shape{0, depth, block, block, x[2], x[3]};
    perm = columns_first ? std::vector<int64_t>{0, 3, 4, 1, 5, 2} : std::vector<int64_t>{0, 1, 4, 2, 5, 3};
    together = {0, depth, x[2] * block, x[3] * block};
  }
  Attrs first, turn, last;
  set_attr(first, "shape", std::move(apart));
  set_attr(turn, "perm", std::move(perm));
  set_attr(last, "shape", std::move(together));
  ASSIGN_OR_RETURN(ValueId value, c.value(0));
  ASSIGN_OR_RETURN(value, emit_helper(c, Op::Reshape, ".apart", {value}, std::move(first)));
  ASSIGN_OR_RETURN(value, emit_helper(c, Op::Transpose, ".turned", {value}, std::move(turn)));
  return emit(c, Op::Reshape, {value}, std::move(last));
}

// Each axis cut or filled up with zeros on both sides; of an odd number the larger part is at the end.
Converted center_crop_pad(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  ASSIGN_OR_RETURN(const auto wanted, integers(c, "shape", 1));
  if (!wanted) return invalid_input("shape is missing");
  const Shape shape = c.type(0).shape;
  std::vector<int64_t> axes = ints_attr(c.node, "axes").value_or(order_of(shape.size()));
  if (axes.size() != wanted->size()) return invalid_input("shape is not an extent for every axis");
  std::vector<int64_t> pads(2 * shape.size(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    ASSIGN_OR_RETURN(const size_t axis, axis_of(axes[i], shape.size()));
    const int64_t to = (*wanted)[i];
    if (to < 0 || to > largest_extent) return invalid_input(fmt::format("an extent of {}", to));
    const int64_t more = to - shape[axis], front = more / 2;  // towards zero, when it cuts too
    pads[axis] = front;
    pads[axis + shape.size()] = more - front;
  }
  Attrs attrs;
  set_attr(attrs, "pads", std::move(pads));
  set_attr(attrs, "value", 0.0);
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  return emit(c, Op::Pad, {x}, std::move(attrs));
}

// Ones on a diagonal; only the operand's shape counts.
Converted eye_like(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  const TensorType type = c.type(0);
  if (type.shape.size() != 2) return invalid_input(fmt::format("{} is not a matrix", to_string(type)));
  const int64_t k = int_attr(c.node, "k", 0);
  ASSIGN_OR_RETURN(const ValueId ones, mask(c, ".diagonal", type.shape[0], type.shape[1],
                                            [k](int64_t row, int64_t column) { return column - row == k; }));
  const int64_t said = int_attr(c.node, "dtype", 0);
  const auto known = dtype_of_onnx(said);
  if (said != 0 && !known) return unsupported(fmt::format("element type {}", said));
  Attrs attrs;
  set_attr(attrs, "to", std::string(name_of(said == 0 ? type.dtype : *known)));
  return emit(c, Op::Cast, {ones}, std::move(attrs));
}

}  // namespace

Converted convert_reduction(const ConvertContext& c, Op op) {
  if (!c.given(0)) return invalid_input("an input is missing");
  ASSIGN_OR_RETURN(auto axes, integers(c, "axes", 1));
  const bool none = !axes || axes->empty();
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  if (none && int_attr(c.node, "noop_with_empty_axes", 0) != 0) return emit(c, Op::Identity, {x});
  if (none) {
    axes.emplace(c.type(0).shape.size());
    std::iota(axes->begin(), axes->end(), int64_t{0});
  }
  Attrs attrs;
  set_attr(attrs, "axes", *axes);
  set_attr(attrs, "keepdims", int_attr(c.node, "keepdims", 1));
  return emit(c, op, {x}, std::move(attrs));
}

MaybeConverted convert_shapes(const ConvertContext& c) {
  for (const Op op : {Op::ReduceL1, Op::ReduceL2, Op::ReduceLogSum, Op::ReduceLogSumExp, Op::ReduceMax, Op::ReduceMin,
                      Op::ReduceProd, Op::ReduceSum, Op::ReduceSumSquare}) {
    if (name_of(op) == c.node.op) return one(convert_reduction(c, op));
  }
  const std::string& op = c.node.op;
  if (op == "Slice") return one(slice(c));
  if (op == "Split") return all(split(c));
  if (op == "Trilu") return one(trilu(c));
  if (op == "Compress") return one(compress(c));
  if (op == "DepthToSpace") return one(depth_to_space(c, false));
  if (op == "SpaceToDepth") return one(depth_to_space(c, true));
  if (op == "EyeLike") return one(eye_like(c));
  if (op == "CenterCropPad") return one(center_crop_pad(c));
  return std::optional<std::vector<ValueId>>();
}

}  // namespace nlsplit::inline graph

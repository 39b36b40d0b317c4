// Caches that grow where they lie: new positions are written into a tensor that is as large as it will ever be.
#include <fmt/format.h>

#include <algorithm>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

constexpr AttrSpec tensor_scatter_attrs[] = {integer("axis", -2), text("mode", "linear")};

Status check_counts(Types inputs, size_t first) {
  for (size_t i = first; i < inputs.size(); ++i) RETURN_IF_ERROR(check_scalars(inputs[i], {inputs[1].shape[0]}));
  return ok_status();
}

// ---- types

Inferred infer_tensor_scatter(Types inputs, const Attrs& attrs) {
  const Shape &past = inputs[0].shape, &update = inputs[1].shape;
  const auto refused = [&](std::string_view why) {
    return invalid_input(fmt::format("{}: {} into {}", why, to_string(inputs[1]), to_string(inputs[0])));
  };
  ASSIGN_OR_RETURN(const size_t axis, axis_of(attr_int(attrs, "axis"), past.size()));
  if (axis == 0) return refused("positions along the axis of samples");
  if (inputs[1].dtype != inputs[0].dtype || update.size() != past.size()) return refused("another type");
  for (size_t i = 0; i < past.size(); ++i) {
    if (i == axis ? update[i] > past[i] : update[i] != past[i]) return refused("it does not fit");
  }
  if (past[axis] < 1) return refused("no position");
  const std::string& mode = attr_string(attrs, "mode");
  if (mode != "linear" && mode != "circular") return invalid_input(fmt::format("a mode \"{}\"", mode));
  RETURN_IF_ERROR(check_counts(inputs, 2));
  return one_result(inputs[0].dtype, past);
}

Inferred infer_paged_scatter(Types inputs, const Attrs&) {
  const Shape &pool = inputs[0].shape, &update = inputs[1].shape, &pages = inputs[3].shape;
  if (inputs[1].dtype != inputs[0].dtype || pool.size() != 4 || update.size() != 4 || pool[0] < 1 || pool[2] < 1 ||
      update[1] != pool[1] || update[3] != pool[3])
    return invalid_input(fmt::format("{} into pages {}", to_string(inputs[1]), to_string(inputs[0])));
  if (pages.size() != 2 || !check_type({DType::boolean, {pages[1], pool[2]}}).ok() || pages[1] * pool[2] < update[2])
    return invalid_input(fmt::format("{} into the pages {}", to_string(inputs[1]), to_string(inputs[3])));
  RETURN_IF_ERROR(check_scalars(inputs[2], {update[0]}));
  RETURN_IF_ERROR(check_scalars(inputs[3], {update[0], pages[1]}));
  RETURN_IF_ERROR(check_counts(inputs, 4));
  return one_result(inputs[0].dtype, pool);
}

// ---- scalars

std::optional<int64_t> largest_of_tensor_scatter(Types inputs, const Attrs& attrs, size_t i) {
  const Shape& past = inputs[0].shape;
  const size_t axis = axis_of(attr_int(attrs, "axis"), past.size()).value();
  const int64_t steps = inputs[1].shape[axis];
  if (i == 2) return attr_string(attrs, "mode") == "circular" ? past[axis] - 1 : past[axis] - steps;
  return i == 3 ? std::optional(steps) : std::nullopt;
}

std::optional<int64_t> largest_of_paged_scatter(Types inputs, const Attrs&, size_t i) {
  const int64_t steps = inputs[1].shape[2];
  if (i == 2) return inputs[3].shape[1] * inputs[0].shape[2] - steps;
  if (i == 3) return inputs[0].shape[0] - 1;
  return i == 4 ? std::optional(steps) : std::nullopt;
}

constexpr ScalarInputs of_tensor_scatter{largest_of_tensor_scatter, nullptr};
constexpr ScalarInputs of_paged_scatter{largest_of_paged_scatter, nullptr};

// ---- pieces (piece.h)

// Positions may go anywhere along their axis; along all others the two tensors are alike.
bool tensor_scatter_piece(const PieceQuery& q, NodePiece& piece) {
  const auto axis = axis_of(attr_int(q.node.attrs, "axis"), q.out.size());
  if (!axis.ok() || *axis == q.axis) return false;
  piece.inputs[0] = piece.inputs[1] = same_axis(q);
  for (size_t i = 2; q.axis == 0 && i < q.inputs.size(); ++i) piece.inputs[i] = same_axis(q);
  return true;
}

// Heads and the elements of a position: every sample's pages are in the one pool.
bool paged_scatter_piece(const PieceQuery& q, NodePiece& piece) {
  if (q.axis != 1 && q.axis != 3) return false;
  piece.inputs[0] = piece.inputs[1] = same_axis(q);
  return true;
}

}  // namespace

// clang-format off
//  operator                  inputs attributes     types                 work      batch        split                 gradient     traits        scalars
ROW_OF_SCALARS(TensorScatter, 2, 4,  tensor_scatter_attrs, infer_tensor_scatter, no_flops, keeps_pairs, tensor_scatter_piece, of_a_cache, plain_in_onnx | changes_first, &of_tensor_scatter)
ROW_OF_SCALARS(PagedScatter,  4, 5,  no_attrs,      infer_paged_scatter,  no_flops, keeps_none,  paged_scatter_piece,  of_a_cache, not_in_onnx | changes_first,   &of_paged_scatter)
// clang-format on

}  // namespace nlsplit::inline graph

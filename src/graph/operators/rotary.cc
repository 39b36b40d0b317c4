// Rotary positions of a sequence that goes on: J. Su et al., "RoFormer: enhanced transformer with rotary position
// embedding", 2021, section 3.2.2, with pairs in two halves as in GPT-NeoX.
#include <fmt/format.h>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

Inferred infer_rotary(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(floats(inputs.first(3)));
  const Shape &x = inputs[0].shape, &table = inputs[1].shape;
  if (x.size() != 4 || x[3] < 2 || x[3] % 2 != 0 || table.size() != 2 || table[1] != x[3] / 2 || table[0] < x[2] ||
      inputs[2].shape != table)
    return invalid_input(
        fmt::format("{} turned by {} and {}", to_string(inputs[0]), to_string(inputs[1]), to_string(inputs[2])));
  RETURN_IF_ERROR(check_scalars(inputs[3], {x[0]}));
  return one_result(inputs[0].dtype, x);
}

// Four products and two sums make two elements.
Flops flops_rotary(Types, Types out, const Attrs&) { return flops(3 * count(out[0])); }

std::optional<int64_t> largest_of_rotary(Types in, const Attrs&, size_t i) {
  return i == 3 ? std::optional(in[1].shape[0] - in[0].shape[2]) : std::nullopt;
}

// Of the tables so many rows are read as there are steps, whatever the positions.
Work work_of_rotary(Types in, Types out, const Attrs& attrs, ScalarValues) {
  const Shape& x = in[0].shape;
  const Bytes of_tables = bytes(x[0] * x[2] * x[3] * size_of(in[1].dtype));
  return {flops_rotary(in, out, attrs), size_of(in[0]) + of_tables + size_of(in[3]), size_of(out[0])};
}

constexpr ScalarInputs of_rotary{largest_of_rotary, work_of_rotary};

// The tables are all samples'.
bool keeps_rotary(Types, uint64_t batched, const Attrs&) { return batched == 0b1001; }

// A later step's position is not its place in the piece.
bool rotary_piece(const PieceQuery& q, NodePiece& piece) {
  if (q.axis > 1) return false;
  piece.inputs[0] = same_axis(q);
  if (q.axis == 0) piece.inputs[3] = same_axis(q);
  return true;
}

}  // namespace

// clang-format off
//  operator                    inputs attributes types         work          batch         split         gradient    traits                                 scalars
ROW_OF_SCALARS(RotaryEmbedding, 4, 4,  no_attrs,  infer_rotary, flops_rotary, keeps_rotary, rotary_piece, of_a_cache, has_kernels | not_in_onnx | stays_f32, &of_rotary)
// clang-format on

}  // namespace nlsplit::inline graph

// A mixture of experts: of many feed-forward layers each row takes few (Shazeer et al., "Outrageously large neural
// networks: the sparsely-gated mixture-of-experts layer", 2017), each a SwiGLU (Shazeer, "GLU variants improve
// transformer", 2020).
#include <fmt/format.h>

#include <cmath>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

constexpr AttrSpec experts_attrs[] = {integer("all"), integer("first", 0)};

// Weights of halves, too, where all else is f32, as of Linear.
Inferred infer_experts(Types inputs, const Attrs& attrs) {
  std::vector<TensorType> types = {inputs[0], inputs[2], inputs[3], inputs[4], inputs[5]};
  for (size_t i = 2; i < types.size(); ++i) {
    if (types[0].dtype == DType::f32 && is_half(types[i].dtype)) types[i].dtype = DType::f32;
  }
  RETURN_IF_ERROR(reals(types));
  const Shape &x = inputs[0].shape, &which = inputs[1].shape, &gate = inputs[3].shape, &down = inputs[5].shape;
  if (!is_whole(inputs[1].dtype)) return invalid_input(fmt::format("{} are not indices", to_string(inputs[1])));
  if (x.empty() || which.size() != x.size() || inputs[2].shape != which ||
      !std::equal(x.begin(), x.end() - 1, which.begin()))
    return invalid_input(
        fmt::format("rows {} choose by {} and {}", to_string(inputs[0]), to_string(inputs[1]), to_string(inputs[2])));
  if (gate.size() != 3 || inputs[4].shape != gate || down != Shape{gate[0], gate[2], gate[1]})
    return invalid_input(
        fmt::format("experts of {}, {} and {}", to_string(inputs[3]), to_string(inputs[4]), to_string(inputs[5])));
  if (x.back() != gate[2]) return invalid_input(fmt::format("inner extents {} and {} differ", x.back(), gate[2]));
  const int64_t all = attr_int(attrs, "all"), first = attr_int(attrs, "first");
  if (first < 0 || gate[0] < 1 || all > largest_extent || first > all - gate[0])
    return invalid_input(fmt::format("experts {} to {} of {}", first, first + gate[0] - 1, all));
  if (which.back() > all) return invalid_input(fmt::format("{} of {} experts for each row", which.back(), all));
  return one_result(inputs[0].dtype, x);
}

double rows_of(Types in) {
  return in[0].shape.back() == 0 ? 0 : count(in[0]) / static_cast<double>(in[0].shape.back());
}

// Of an expert's three products, the function between them, and what a row adds up, for each of a row's choices that
// is here: on the average that part of them.
Flops flops_experts(Types in, Types, const Attrs& attrs) {
  const Shape& gate = in[3].shape;
  const double here = static_cast<double>(gate[0]) / static_cast<double>(attr_int(attrs, "all"));
  const double chosen = rows_of(in) * static_cast<double>(in[1].shape.back()) * here;
  const auto width = static_cast<double>(gate[1]), hidden = static_cast<double>(gate[2]);
  return flops(chosen * (6 * width * hidden + 3 * width + 2 * hidden));
}

// Only experts that a row chooses are read. A row does not choose a given one of N with probability 1 - k / N, its k
// being different ones; so n rows that choose independently, each expert as often as any other, leave (1 - k / N)^n of
// them out on the average.
Work work_of_experts(Types in, Types out, const Attrs& attrs) {
  const auto of_all = static_cast<double>(attr_int(attrs, "all"));
  const double missed = std::pow(1 - static_cast<double>(in[1].shape.back()) / of_all, rows_of(in));
  Work work{flops_experts(in, out, attrs), bytes(0), size_of(out[0])};
  for (size_t i = 0; i < 3; ++i) work.bytes_read += size_of(in[i]);
  for (size_t i = 3; i < 6; ++i)
    work.bytes_read += bytes(std::llround((1 - missed) * static_cast<double>(size_of(in[i]).value())));
  return work;
}

bool keeps_experts(Types in, uint64_t batched, const Attrs&) { return batched == 0b111 && in[0].shape.size() > 1; }

bool experts_piece(const PieceQuery& q, NodePiece& piece) {
  if (q.axis + 1 == q.out.size()) return false;
  for (size_t i = 0; i < 3; ++i) piece.inputs[i] = same_axis(q);
  return true;
}

}  // namespace

// clang-format off
//            operator inputs attributes    types          work           batch          split          gradient  traits                                   as it chooses
ROW_OF_CHOICE(Experts, 6, 6,  experts_attrs, infer_experts, flops_experts, keeps_experts, experts_piece, of_a_choice, takes_steps | has_kernels | not_in_onnx | reads_scaled | stays_f32, work_of_experts)
// clang-format on

}  // namespace nlsplit::inline graph

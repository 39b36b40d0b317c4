// Dropout: Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov, "Dropout: a simple way to prevent neural networks
// from overfitting", JMLR 15, 2014; what is kept is scaled in training, as in PyTorch and ONNX.
#include <fmt/format.h>

#include "graph/operators/rules.h"
#include "graph/optimizer.h"

namespace nlsplit::inline graph {
namespace {

constexpr AttrSpec dropout_attrs[] = {as_input(real("ratio", 0.5), 1)};
constexpr AttrSpec training_attrs[] = {real("ratio"), integer("seed"), integer("stream")};

Inferred infer_dropout(Types inputs, const Attrs& attrs) {
  const double ratio = attr_float(attrs, "ratio");
  if (!(ratio >= 0 && ratio <= 1)) return invalid_input(fmt::format("a ratio of {}: it is from 0 to 1", ratio));
  RETURN_IF_ERROR(reals(inputs));
  return std::vector<TensorType>{inputs[0]};
}

Inferred infer_training(Types inputs, const Attrs& attrs) {
  const double ratio = attr_float(attrs, "ratio");
  if (!(ratio >= 0 && ratio < 1))
    return invalid_input(fmt::format("a ratio of {}: a step that drops has one from 0 to below 1", ratio));
  RETURN_IF_ERROR(reals(inputs.first(1)));
  const Shape& x = inputs[0].shape;
  if (x.empty() || inputs[1] != steps_type() || inputs[2] != TensorType{DType::i64, {x[0]}})
    return invalid_input(fmt::format("samples {}, steps {} and samples' numbers {}", to_string(inputs[0]),
                                     to_string(inputs[1]), to_string(inputs[2])));
  return std::vector<TensorType>{inputs[0]};
}

// Ten rounds of ten operations make four numbers; a comparison and a product an element.
Flops flops_training(Types, Types out, const Attrs&) { return flops(27 * count(out[0])); }

bool keeps_samples(Types, uint64_t batched, const Attrs&) { return batched == 0b101; }

void back_dropout(Backward& b) { b.give(0, b.dy()); }
// The same elements, with the same factor.
void back_training(Backward& b) { b.give(0, b.add(Op::DropoutTraining, {b.dy(), b.x(1), b.x(2)}, b.attrs())); }

}  // namespace

// clang-format off
//  operator         inputs  attributes      types           work            batch          split        gradient       traits
ROW(Dropout,         1, 1,   dropout_attrs,  infer_dropout,  no_flops,       keeps_first,   first_alike, back_dropout,  is_view_of_first | plain_in_onnx)
ROW(DropoutTraining, 3, 3,   training_attrs, infer_training, flops_training, keeps_samples, no_split,    back_training, has_kernels | not_in_onnx)
// clang-format on

}  // namespace nlsplit::inline graph

// Einsum: for each combination of the result's labels a sum over those of the others, in the order of the reference.
// MatMul of types that no other kernel takes is one.
#include <algorithm>
#include <map>

#include "graph/operators/shapes.h"
#include "kernels/generated/lower.h"
#include "kernels/generated/space.h"

namespace nlsplit::inline kernels {
namespace {

// A label that is summed over: its extent, and what a step along it adds to each operand's index.
struct SummedLabel {
  int64_t extent = 1;
  std::vector<int64_t> steps;
};

// Two of which the outer one's steps are the inner one's whole length, for every operand, are one.
std::vector<SummedLabel> merged(const std::vector<SummedLabel>& labels) {
  std::vector<SummedLabel> all;
  for (const SummedLabel& label : labels) {
    const auto continues = [&](const SummedLabel& outer) {
      for (size_t i = 0; i < label.steps.size(); ++i) {
        if (outer.steps[i] != label.steps[i] * label.extent) return false;
      }
      return true;
    };
    if (label.extent == 1) continue;
    if (!all.empty() && continues(all.back())) {
      all.back().extent *= label.extent;
      all.back().steps = label.steps;
    } else {
      all.push_back(label);
    }
  }
  return all;
}

struct EinsumLoops {
  Space space;
  std::vector<SummedLabel> summed;
};

// A vector on the left is a row, on the right a column; the added axis is not in the result.
EinsumTerms matmul_terms(Types types) {
  enum : int { row = 'i', inner = 'k', column = 'j' };
  EinsumTerms terms;
  const auto lead = [](size_t axes) {
    std::vector<int> labels;
    for (size_t axis = 0; axis + 2 < axes; ++axis)
      labels.push_back(static_cast<int>(axis + 2) - static_cast<int>(axes));
    return labels;
  };
  const size_t a = types[0].shape.size(), b = types[1].shape.size();
  std::vector<int> left = lead(a), right = lead(b);
  terms.output = lead(std::max(a, b));
  if (a > 1) left.push_back(row), terms.output.push_back(row);
  left.push_back(inner), right.push_back(inner);
  if (b > 1) right.push_back(column), terms.output.push_back(column);
  terms.inputs = {left, right};
  return terms;
}

EinsumLoops einsum_loops(const ComputeDesc& desc) {
  const size_t own = desc.own_inputs();
  const std::span<const TensorType> types(desc.inputs.data(), own);
  const EinsumTerms terms =
      desc.op == Op::MatMul ? matmul_terms(types) : einsum_terms(types, attr_string(desc.attrs, "equation")).value();
  EinsumLoops loops{Space(desc.outputs[0].shape, own), {}};
  std::map<int, SummedLabel> summed;
  for (size_t i = 0; i < own; ++i) {
    const Shape& shape = types[i].shape;
    const std::vector<int64_t> strides = row_major_strides(shape);
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const int label = terms.inputs[i][axis];
      const int64_t step = shape[axis] == 1 ? 0 : strides[axis];  // a label that stands twice goes along a diagonal
      const auto kept = std::ranges::find(terms.output, label);
      if (kept != terms.output.end()) {
        loops.space.along(i, static_cast<size_t>(kept - terms.output.begin())).step += step;
        continue;
      }
      SummedLabel& sum = summed.try_emplace(label, SummedLabel{1, std::vector<int64_t>(own, 0)}).first->second;
      sum.extent = std::max(sum.extent, shape[axis]);
      sum.steps[i] += step;
    }
  }
  for (auto& [label, sum] : summed) loops.summed.push_back(std::move(sum));
  loops.summed = merged(loops.summed);
  return loops;
}

}  // namespace

std::string refuse_einsum(const ComputeDesc& desc) {
  if (desc.op == Op::MatMul && desc.own_inputs() > 2) return "its bias is added to what is rounded";
  for (const TensorType& type : desc.inputs) {
    if (element_count(type.shape) == 0) return "there is nothing to multiply";
  }
  return {};
}

Loops lower_einsum(const ComputeDesc& desc) {
  LoopWriter w;
  add_inputs(w, desc);
  const DType type = desc.outputs[0].dtype;
  const bool real = is_real(type);
  EinsumLoops einsum = einsum_loops(desc);
  einsum.space.simplify();
  w.loops.extents = einsum.space.extents();
  w.loops.axes = static_cast<int>(w.loops.extents.size());
  Fold fold{.first_axis = w.loops.axes, .end_axis = w.loops.axes + static_cast<int>(einsum.summed.size())};
  for (const SummedLabel& label : einsum.summed) w.loops.extents.push_back(label.extent);
  int product = -1;
  for (size_t i = 0; i < desc.own_inputs(); ++i) {
    int index = einsum.space.index(w, i);
    for (size_t k = 0; k < einsum.summed.size(); ++k) {
      const int64_t step = einsum.summed[k].steps[i];
      index = w.add(index, w.multiply(w.axis(fold.first_axis + static_cast<int>(k)), w.integer(step)));
    }
    const Element x = w.read(static_cast<int>(i), index);
    const int factor = real ? w.real(x) : x.term;
    product = product < 0 ? factor : w.multiply(product, factor);
  }
  const int zero = real ? w.number(0) : w.integer(0);
  int sum = w.add(zero, product);  // a sum of negative zeros is zero
  if (!einsum.summed.empty()) {
    sum = w.carried(0, w.type_of(product));
    w.loops.accumulators.push_back({zero, w.add(sum, product)});
    fold.end_accumulator = 1;
    w.loops.folds.push_back(fold);
  }
  finish(w, desc, real ? w.rounded(sum, type) : w.whole(sum, type), einsum.space.place(w));
  return std::move(w.loops);
}

}  // namespace nlsplit::inline kernels

#include "kernels/generated/lower.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace nlsplit::inline kernels {
namespace {

struct LoopFamily {
  bool (*has)(Op op);
  std::string (*refuses)(const ComputeDesc& desc);  // nullptr: none of them
  Loops (*lower)(const ComputeDesc& desc);
};

bool is_quantization(Op op) { return op == Op::QuantizeLinear || op == Op::DequantizeLinear; }
bool is_move(Op op) {
  return op == Op::Tile || op == Op::Slice || op == Op::Transpose || op == Op::Expand || op == Op::Pad ||
         op == Op::Concat;
}
bool is_gather(Op op) {
  return op == Op::GatherElements || op == Op::GatherND || op == Op::OneHot || op == Op::ReverseSequence;
}
bool is_scatter(Op op) { return op == Op::ScatterElements || op == Op::ScatterND || op == Op::MaxUnpool; }
bool is_product(Op op) { return op == Op::Einsum || op == Op::MatMul; }
bool is_window_in_loops(Op op) {
  return op == Op::Conv || op == Op::MaxPool || op == Op::AveragePool || op == Op::LpPool;
}
bool is_sampling(Op op) { return op == Op::GridSample || op == Op::RoiAlign; }

constexpr LoopFamily loop_families[] = {
    {is_function_in_loops, refuse_function, lower_elementwise},
    {is_arithmetic_in_loops, refuse_arithmetic, lower_elementwise},
    {[](Op op) { return is_comparison(op) || is_chain(op) || op == Op::Where; }, nullptr, lower_elementwise},
    {is_quantization, nullptr, lower_quantization},
    {is_move, refuse_move, lower_move},
    {is_gather, refuse_gather, lower_gather},
    {is_scatter, refuse_scatter, lower_scatter},
    {is_product, refuse_einsum, lower_einsum},
    {is_sampling, refuse_sampling, lower_sampling},
    {is_window_in_loops, refuse_windows, lower_windows},
    {[](Op op) { return op == Op::Resize; }, refuse_resize, lower_resize},
    {is_along_axes, refuse_along_axes, lower_along_axes},
};

const LoopFamily* family_of(Op op) {
  const auto* const found =
      std::ranges::find_if(loop_families, [&](const LoopFamily& family) { return family.has(op); });
  return found == std::end(loop_families) ? nullptr : found;
}

}  // namespace

bool has_loops(Op op) { return family_of(op) != nullptr; }
bool may_fold(Op op) {
  return is_scatter(op) || is_product(op) || is_sampling(op) || is_window_in_loops(op) || is_along_axes(op);
}

std::string refuse_lowering(const ComputeDesc& desc) {
  const LoopFamily* family = family_of(desc.op);
  if (family == nullptr) return fmt::format("no loops are generated for {}", name_of(desc.op));
  if (desc.outputs.size() != 1) return "it has several results";
  // The loops name every operand, and compiling takes longer than so many are worth.
  constexpr size_t most = 64;
  if (desc.inputs.size() > most || desc.epilogue.size() > most)
    return fmt::format("it has more than {} operands or steps", most);
  for (const std::vector<TensorType>* types : {&desc.inputs, &desc.outputs}) {
    for (const TensorType& type : *types) {
      if (is_scaled(type.dtype)) return fmt::format("elements of {} share scales", to_string(type));
    }
  }
  return family->refuses == nullptr ? "" : family->refuses(desc);
}

Loops lower(const ComputeDesc& desc) {
  CHECK(refuse_lowering(desc).empty(), "a computation that is lowered");
  return family_of(desc.op)->lower(desc);
}

void add_inputs(LoopWriter& w, const ComputeDesc& desc) {
  for (const TensorType& type : desc.inputs) w.add_input(type.dtype, element_count(type.shape));
  w.loops.output = {desc.outputs[0].dtype, element_count(desc.outputs[0].shape)};
}

Element with_steps(LoopWriter& w, const ComputeDesc& desc, Element x, int place) {
  auto operand = static_cast<int>(desc.own_inputs());
  for (const DescStep& step : desc.epilogue) {
    if (has(step.op, traits::is_step_with_operand))
      x = arithmetic_in_loops(w, step.op, step.attrs, x, w.read(operand++, place), x.dtype);
    else
      x = function_in_loops(w, step.op, step.attrs, x, x.dtype);
  }
  return x;
}

void finish(LoopWriter& w, const ComputeDesc& desc, const Element& x, int place) {
  if (w.loops.folds.empty()) w.loops.axes = static_cast<int>(w.loops.extents.size());
  w.loops.rows = w.loops.axes;
  w.finish(with_steps(w, desc, x, place), place);
}

}  // namespace nlsplit::inline kernels

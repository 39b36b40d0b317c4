// Computations as values: made of a graph's nodes, and as text.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/catalogue.h"

namespace nlsplit::inline kernels {

size_t ComputeDesc::operand_count() const {
  return static_cast<size_t>(
      std::ranges::count_if(epilogue, [](const DescStep& step) { return has(step.op, traits::is_step_with_operand); }));
}

std::string signature(const ComputeDesc& desc) {
  std::string text = desc.kernel.empty() ? "" : to_string(desc.kernel) + " ";
  text += fmt::format("{}(", name_of(desc.op));
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    text += fmt::format("{}{}{}", i == 0 ? "" : ", ", desc.is_weight(i) ? "const " : "", to_string(desc.inputs[i]));
  }
  text += ")";
  if (!desc.attrs.empty()) text += " " + to_string(desc.attrs);
  for (const DescStep& step : desc.epilogue) {
    text += fmt::format(" + {}", name_of(step.op));
    if (!step.attrs.empty()) text += " " + to_string(step.attrs);
  }
  text += " ->";
  for (const TensorType& type : desc.outputs) text += " " + to_string(type);
  return text;
}

std::optional<int64_t> largest_scalar(const ComputeDesc& desc, size_t i) {
  const ScalarInputs* scalars = info(desc.op).scalars;
  if (scalars == nullptr || i >= desc.own_inputs()) return std::nullopt;
  return scalars->largest(Types(desc.inputs).first(desc.own_inputs()), desc.attrs, i);
}

Work work_of(const ComputeDesc& desc, ScalarValues values) {
  if (is_in_catalogue(desc.kernel.name) && info_of(desc.kernel.name).work != nullptr)
    return info_of(desc.kernel.name).work(desc, values);
  std::vector<EpilogueStep> steps;
  for (const DescStep& step : desc.epilogue) {
    steps.push_back({step.op, has(step.op, traits::is_step_with_operand) ? ValueId(0) : ValueId(), step.attrs, {}});
  }
  return work_of(desc.op, desc.attrs, steps, Types(desc.inputs).first(desc.own_inputs()), desc.outputs, values);
}

ComputeDesc describe(const Graph& graph, const Node& node) {
  ComputeDesc desc;
  desc.op = node.op;
  desc.attrs = node.attrs;
  const auto add_input = [&](ValueId id) {
    const Value& value = graph.value(id);
    const size_t i = desc.inputs.size();
    if (value.kind == ValueKind::weight && i < 64) desc.weights |= uint64_t{1} << i;
    desc.inputs.push_back(value.type);
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].valid()) {
      CHECK(desc.inputs.size() == i, "only trailing inputs may be left out");
      add_input(node.inputs[i]);
    }
  }
  for (const EpilogueStep& step : node.epilogue) {
    desc.epilogue.push_back({step.op, step.attrs});
    if (has(step.op, traits::is_step_with_operand)) add_input(step.operand);
  }
  for (ValueId output : node.outputs) desc.outputs.push_back(graph.value(output).type);
  return desc;
}

ComputeDesc reorder_desc(const TensorType& from, int block, Level level) {
  ComputeDesc desc;
  desc.kernel = {KernelName::reorder, level};
  desc.op = Op::Identity;
  desc.inputs = {from};
  desc.outputs = {with_block(from, block)};
  return desc;
}

std::string choice_key(const ComputeDesc& desc, Level level) {
  ComputeDesc single = desc;
  single.kernel = {};
  const int64_t batch = desc.inputs[0].shape.empty() ? 1 : desc.inputs[0].shape[0];
  for (size_t i = 0; i < single.inputs.size(); ++i) {
    Shape& shape = single.inputs[i].shape;
    if (!desc.is_weight(i) && !shape.empty() && shape[0] == batch) shape[0] = 1;
  }
  for (TensorType& type : single.outputs) {
    if (!type.shape.empty() && type.shape[0] == batch) type.shape[0] = 1;
  }
  return fmt::format("{} {}", name_of(level), signature(single));
}

}  // namespace nlsplit::inline kernels

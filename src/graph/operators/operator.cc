#include "graph/operators/operator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text_reader.h"
#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

constexpr const Operator* table[] = {
#define NLS_OPERATOR(name) &rows::name,
#include "graph/operators/operators.def"
#undef NLS_OPERATOR
};

}  // namespace

Work& Work::operator+=(const Work& other) {
  flops += other.flops;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  return *this;
}

const Operator& info(Op op) { return *table[static_cast<size_t>(op)]; }

Result<std::vector<TensorType>> infer(Op op, Types inputs, const Attrs& attrs) {
  const auto scaled = [](const TensorType& type) { return is_scaled(type.dtype); };
  const auto first = std::ranges::find_if(inputs, scaled);
  if (first == inputs.end()) return info(op).infer(inputs, attrs);
  if (!has(op, traits::reads_scaled)) {
    return unsupported(fmt::format("{} does not read {}, whose elements share scales: a Cast makes f32 of them",
                                   name_of(op), to_string(*first)));
  }
  const auto real = std::ranges::find_if(inputs, is_real, &TensorType::dtype);
  std::vector<TensorType> types(inputs.begin(), inputs.end());
  for (TensorType& type : types) {
    if (scaled(type)) type.dtype = real == inputs.end() ? DType::f32 : real->dtype;
  }
  return info(op).infer(types, attrs);
}

Result<Op> parse_op(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Operator* row : table) {
    if (row->name == name) return row->op;
    names.push_back(row->name);
  }
  const std::string hint = nearest(name, names);
  return unsupported(
      fmt::format("unknown operator {}{}", name, hint.empty() ? "" : fmt::format("; did you mean {}?", hint)));
}

namespace {

Work work_of_operator(Op op, const Attrs& attrs, Types inputs, Types outputs, ScalarValues values) {
  const ScalarInputs* scalars = info(op).scalars;
  if (!values.empty() && scalars != nullptr && scalars->work != nullptr)
    return scalars->work(inputs, outputs, attrs, values);
  if (info(op).work != nullptr) return info(op).work(inputs, outputs, attrs);
  Work work{info(op).flops(inputs, outputs, attrs), bytes(0), bytes(0)};
  for (const TensorType& type : inputs) work.bytes_read += size_of(type);
  for (const TensorType& type : outputs) work.bytes_written += size_of(type);
  if (has(op, traits::takes_out)) {
    work.bytes_read = size_of(outputs[0]);
    for (const TensorType& type : inputs.subspan(1)) work.bytes_read += size_of(type);
  }
  return work;
}

}  // namespace

Work work_of(Op op, const Attrs& attrs, std::span<const EpilogueStep> epilogue, Types inputs, Types outputs,
             ScalarValues values) {
  Work work = work_of_operator(op, attrs, inputs, outputs, values);
  for (const EpilogueStep& step : epilogue) {
    work.flops += flops(count(outputs[0]));
    if (has(step.op, traits::is_step_with_operand)) work.bytes_read += size_of(outputs[0]);
  }
  return work;
}

std::vector<TensorType> input_types(const Graph& graph, const Node& node) {
  std::vector<TensorType> types;
  for (const ValueId input : node.inputs) {
    if (input.valid()) types.push_back(graph.value(input).type);
  }
  return types;
}

Work work_of(const Graph& graph, const Node& node) {
  std::vector<TensorType> outputs;
  for (const ValueId output : node.outputs) outputs.push_back(graph.value(output).type);
  return work_of(node.op, node.attrs, node.epilogue, input_types(graph, node), outputs);
}

}  // namespace nlsplit::inline graph

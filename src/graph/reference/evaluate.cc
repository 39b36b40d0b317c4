#include "graph/reference/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "graph/reference/array.h"

namespace nlsplit::inline graph {
namespace {

bool whole(const Tensor& tensor) {
  const int64_t count = element_count(tensor.type.shape);
  return tensor.type.dtype == DType::f32
             ? static_cast<int64_t>(tensor.values.size()) == count && tensor.raw.empty()
             : static_cast<int64_t>(tensor.raw.size()) == size_of(tensor.type).value() && tensor.values.empty();
}

Result<Tensor> weight_tensor(const Value& value, const WeightStore& weights) {
  if (value.state) return tensor_of(value.type, std::string(static_cast<size_t>(size_of(value.type).value()), '\0'));
  ASSIGN_OR_RETURN(std::string raw, weights.materialise(value.content));
  if (static_cast<int64_t>(raw.size()) != size_of(value.type).value()) {
    return invalid_input(
        fmt::format("weight {} is {} but has {} bytes", value.name, to_string(value.type), raw.size()));
  }
  return tensor_of(value.type, std::move(raw));
}

// Faster loops of an operator for f32 alone: long sums, images of two spatial axes.
struct F32Loops {
  Op op;
  bool needs_images;  // of four axes
  void (*run)(const Attrs& attrs, const std::vector<const Tensor*>& in, std::vector<Tensor>& out);
};

using In = const std::vector<const Tensor*>&;
using Out = std::vector<Tensor>&;

// All others have the loops of graph/reference/general.cc alone.
// clang-format off
constexpr F32Loops f32_loops[] = {
    {Op::Conv,                  true,  [](const Attrs& attrs, In in, Out out) { reference::conv(attrs, in, out[0]); }},
    {Op::ConvTranspose,         true,  [](const Attrs& attrs, In in, Out out) { reference::conv_transpose(attrs, in, out[0]); }},
    {Op::MaxPool,               true,  [](const Attrs& attrs, In in, Out out) { reference::max_pool(attrs, in, out[0]); }},
    {Op::AveragePool,           true,  [](const Attrs& attrs, In in, Out out) { reference::average_pool(attrs, in, out[0]); }},
    {Op::Gemm,                  false, [](const Attrs& attrs, In in, Out out) { reference::gemm(attrs, in, out[0]); }},
    {Op::MatMul,                false, [](const Attrs&, In in, Out out) { reference::matmul(in, out[0]); }},
};
// clang-format on

const F32Loops* loops_of(Op op) {
  const auto* const found = std::ranges::find(f32_loops, op, &F32Loops::op);
  return found == std::end(f32_loops) ? nullptr : found;
}

bool has_f32_loops(Op op, const std::vector<const Tensor*>& in, Types outputs) {
  const F32Loops* loops = loops_of(op);
  if (loops == nullptr || (loops->needs_images && outputs[0].shape.size() != 4)) return false;
  return std::ranges::all_of(in, [](const Tensor* t) { return t == nullptr || t->type.dtype == DType::f32; }) &&
         std::ranges::all_of(outputs, [](const TensorType& type) { return type.dtype == DType::f32; });
}

std::vector<Tensor> evaluate_f32(Op op, const Attrs& attrs, const std::vector<const Tensor*>& in, Types outputs) {
  std::vector<Tensor> all;
  for (const TensorType& type : outputs)
    all.push_back({type, std::vector<float>(static_cast<size_t>(element_count(type.shape)))});
  loops_of(op)->run(attrs, in, all);
  return all;
}

std::vector<Tensor> evaluate_any(Op op, const Attrs& attrs, const std::vector<const Tensor*>& in, Types outputs) {
  std::vector<reference::Array> operands, results;
  for (const Tensor* tensor : in)
    operands.push_back(tensor == nullptr ? reference::Array{} : reference::to_array(*tensor));
  for (const TensorType& type : outputs) results.push_back(reference::zeros(type));
  reference::Arrays given;
  for (size_t i = 0; i < in.size(); ++i) given.push_back(in[i] == nullptr ? nullptr : &operands[i]);
  reference::general(op, attrs, given, results);
  std::vector<Tensor> made;
  for (const reference::Array& result : results) made.push_back(to_tensor(result));
  return made;
}

}  // namespace

Tensor tensor_of(TensorType type, std::string raw) {
  CHECK(static_cast<int64_t>(raw.size()) == size_of(type).value(), "bytes of another size than their type");
  Tensor tensor{std::move(type), {}};
  if (tensor.type.dtype == DType::f32) {
    tensor.values.resize(raw.size() / sizeof(float));
    if (!raw.empty()) std::memcpy(tensor.values.data(), raw.data(), raw.size());
  } else {
    tensor.raw = std::move(raw);
  }
  return tensor;
}

std::string_view bytes_of(const Tensor& tensor) {
  if (tensor.type.dtype != DType::f32) return tensor.raw;
  return {reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * sizeof(float)};
}

std::vector<Tensor> evaluate_op(Op op, const Attrs& attrs, const std::vector<const Tensor*>& in, Types outputs) {
  CHECK(!in.empty() && in[0] != nullptr, "every op has a first input");
  for (const Tensor* input : in) CHECK(input == nullptr || whole(*input), "inputs are as large as their type says");
  std::vector<Tensor> all =
      has_f32_loops(op, in, outputs) ? evaluate_f32(op, attrs, in, outputs) : evaluate_any(op, attrs, in, outputs);
  for (const Tensor& made : all) CHECK(whole(made), "the loops keep the size");
  return all;
}

std::vector<Tensor> evaluate_op(Op op, const Attrs& attrs, std::span<const EpilogueStep> epilogue,
                                const std::vector<const Tensor*>& inputs, Types outputs) {
  CHECK(epilogue.empty() || outputs.size() == 1, "an epilogue is of one output");
  const auto binary_steps = std::ranges::count_if(
      epilogue, [](const EpilogueStep& step) { return has(step.op, traits::is_step_with_operand); });
  CHECK(binary_steps < static_cast<std::ptrdiff_t>(inputs.size()),
        "an operand for every binary step, after the op's inputs");
  auto operand = inputs.end() - binary_steps;
  std::vector<Tensor> made = evaluate_op(op, attrs, {inputs.begin(), operand}, outputs);
  for (const EpilogueStep& step : epilogue) {
    std::vector<const Tensor*> in{&made[0]};
    if (has(step.op, traits::is_step_with_operand)) in.push_back(*operand++);
    made = evaluate_op(step.op, step.attrs, in, outputs);
  }
  return made;
}

Result<std::vector<Tensor>> evaluate(const Graph& graph, const WeightStore& weights, const std::vector<Tensor>& inputs,
                                     States* states) {
  RETURN_IF_ERROR(verify(graph));
  if (inputs.size() != graph.inputs.size()) {
    return invalid_input(
        fmt::format("graph {} takes {} inputs, not {}", graph.name, graph.inputs.size(), inputs.size()));
  }
  std::vector<std::optional<Tensor>> made(graph.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = graph.value(graph.inputs[i]);
    if (inputs[i].type != value.type || !whole(inputs[i])) {
      return invalid_input(fmt::format("input {} is {}, not {} with {} values", value.name, to_string(value.type),
                                       to_string(inputs[i].type), inputs[i].values.size()));
    }
    made[graph.inputs[i].index()] = inputs[i];
  }

  for (const Node& node : graph.nodes) {
    std::vector<ValueId> reads = node.inputs;
    for (const EpilogueStep& step : node.epilogue) {
      if (step.operand.valid()) reads.push_back(step.operand);
    }
    std::vector<Tensor> loaded;  // weights live for one node only: a network's may be large
    loaded.reserve(reads.size());
    std::vector<const Tensor*> in;
    for (ValueId id : reads) {
      if (!id.valid()) {
        in.push_back(nullptr);
      } else if (graph.value(id).kind == ValueKind::weight) {
        const Value& value = graph.value(id);
        const bool kept = value.state && states != nullptr && states->contains(value.name);
        ASSIGN_OR_RETURN(Tensor tensor, kept ? states->at(value.name) : weight_tensor(value, weights));
        loaded.push_back(std::move(tensor));
        in.push_back(&loaded.back());
      } else {
        in.push_back(&*made[id.index()]);
      }
    }
    std::vector<TensorType> types;
    for (const ValueId output : node.outputs) {
      types.push_back(graph.value(output).type);
    }
    std::vector<Tensor> results = evaluate_op(node.op, node.attrs, node.epilogue, in, types);
    for (size_t i = 0; i < results.size(); ++i) made[node.outputs[i].index()] = std::move(results[i]);
  }

  if (states != nullptr) {
    for (const StateUpdate& update : state_updates(graph))
      (*states)[graph.value(update.state).name] = *made[update.value.index()];
  }
  std::vector<Tensor> outputs;
  for (ValueId id : graph.outputs) {
    if (graph.value(id).kind == ValueKind::weight) {
      ASSIGN_OR_RETURN(Tensor tensor, weight_tensor(graph.value(id), weights));
      outputs.push_back(std::move(tensor));
    } else {
      outputs.push_back(*made[id.index()]);
    }
  }
  return outputs;
}

}  // namespace nlsplit::inline graph

#include "graph/reference/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "graph/reference/loops.h"

namespace nlsplit {
namespace {

bool whole(const Tensor& tensor) {
  return tensor.type.dtype == DType::f32 &&
         static_cast<int64_t>(tensor.values.size()) == element_count(tensor.type.shape);
}

Result<Tensor> weight_tensor(const Value& value, const WeightStore& weights) {
  if (value.type.dtype != DType::f32) {
    return unsupported(
        fmt::format("weight {} is {}: the reference evaluator knows f32 only", value.name, to_string(value.type)));
  }
  ASSIGN_OR_RETURN(const std::string raw, weights.materialise(value.content));
  Tensor tensor{value.type, std::vector<float>(static_cast<size_t>(element_count(value.type.shape)))};
  if (raw.size() != tensor.values.size() * sizeof(float)) {
    return invalid_input(
        fmt::format("weight {} is {} but has {} bytes", value.name, to_string(value.type), raw.size()));
  }
  if (!raw.empty()) std::memcpy(tensor.values.data(), raw.data(), raw.size());
  return tensor;
}

}  // namespace

std::vector<Tensor> evaluate_op(Op op, const Attrs& attrs, const std::vector<const Tensor*>& in, Types outputs) {
  CHECK(!in.empty() && in[0] != nullptr, "every op has a first input");
  for (const Tensor* input : in)
    CHECK(input == nullptr || whole(*input), "inputs are f32, as large as their type says");
  std::vector<Tensor> all;
  for (const TensorType& type : outputs) {
    CHECK(type.dtype == DType::f32, "the outputs are f32");
    all.push_back({type, std::vector<float>(static_cast<size_t>(element_count(type.shape)))});
  }
  Tensor& out = all.at(0);
  auto f = [&](std::string_view name) { return attr_float(attrs, name); };

  // A table, so left as it is. No default: a new op does not compile until it is here.
  // clang-format off
  switch (op) {
    case Op::Conv: reference::conv(attrs, in, out); break;
    case Op::ConvTranspose: reference::conv_transpose(attrs, in, out); break;
    case Op::Gemm: reference::gemm(attrs, in, out); break;
    case Op::MatMul: reference::matmul(in, out); break;
    case Op::Add: reference::binary(in, out, [](double a, double b) { return a + b; }); break;
    case Op::Sub: reference::binary(in, out, [](double a, double b) { return a - b; }); break;
    case Op::Mul: reference::binary(in, out, [](double a, double b) { return a * b; }); break;
    case Op::Div: reference::binary(in, out, [](double a, double b) { return a / b; }); break;
    case Op::Sum: reference::sum(in, out); break;
    case Op::Relu: reference::unary(in, out, [](double x) { return std::max(x, 0.0); }); break;
    case Op::Sigmoid: reference::unary(in, out, [](double x) { return 1 / (1 + std::exp(-x)); }); break;
    case Op::Tanh: reference::unary(in, out, [](double x) { return std::tanh(x); }); break;
    case Op::HardSwish:
      reference::unary(in, out, [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); });
      break;
    case Op::Exp: reference::unary(in, out, [](double x) { return std::exp(x); }); break;
    case Op::Sqrt: reference::unary(in, out, [](double x) { return std::sqrt(x); }); break;
    case Op::Neg: reference::unary(in, out, [](double x) { return -x; }); break;
    case Op::Erf: reference::unary(in, out, [](double x) { return std::erf(x); }); break;
    case Op::LeakyRelu: reference::unary(in, out, [a = f("alpha")](double x) { return x < 0 ? a * x : x; }); break;
    case Op::HardSigmoid:
      reference::unary(in, out, [a = f("alpha"), b = f("beta")](double x) { return std::clamp(a * x + b, 0.0, 1.0); });
      break;
    case Op::Clip:  // not std::clamp: ONNX allows min > max, and max wins
      reference::unary(in, out, [lo = f("min"), hi = f("max")](double x) { return std::min(std::max(x, lo), hi); });
      break;
    case Op::MaxPool: reference::max_pool(attrs, in, out); break;
    case Op::AveragePool: reference::average_pool(attrs, in, out); break;
    case Op::GlobalAveragePool: reference::global_average_pool(in, out); break;
    case Op::BatchNormalization: reference::batch_normalization(attrs, in, out); break;
    case Op::LayerNormalization: reference::layer_normalization(attrs, in, out); break;
    case Op::InstanceNormalization: reference::instance_normalization(attrs, in, out); break;
    case Op::LRN: reference::lrn(attrs, in, out); break;
    case Op::Softmax: reference::softmax(attrs, in, out); break;
    case Op::Concat: reference::concat(attrs, in, out); break;
    case Op::Transpose: reference::transpose(attrs, in, out); break;
    case Op::ReduceMean: reference::reduce_mean(attrs, in, out); break;
    case Op::Pad: reference::pad(attrs, in, out); break;
    case Op::LSTM: reference::lstm(attrs, in, all); break;
    case Op::GRU: reference::gru(attrs, in, all); break;
    case Op::RNN: reference::rnn(attrs, in, all); break;
    case Op::Reshape:
    case Op::Flatten:
    case Op::Identity: reference::copy(in, out); break;
  }
  // clang-format on
  for (const Tensor& made : all) CHECK(whole(made), "the loops keep the size");
  return all;
}

std::vector<Tensor> evaluate_op(Op op, const Attrs& attrs, std::span<const EpilogueStep> epilogue,
                                const std::vector<const Tensor*>& inputs, Types outputs) {
  CHECK(epilogue.empty() || outputs.size() == 1, "an epilogue is of one output");
  const auto binary_steps =
      std::ranges::count_if(epilogue, [](const EpilogueStep& step) { return is_binary_elementwise(step.op); });
  CHECK(binary_steps < static_cast<std::ptrdiff_t>(inputs.size()),
        "an operand for every binary step, after the op's inputs");
  auto operand = inputs.end() - binary_steps;
  std::vector<Tensor> made = evaluate_op(op, attrs, {inputs.begin(), operand}, outputs);
  for (const EpilogueStep& step : epilogue) {
    std::vector<const Tensor*> in{&made[0]};
    if (is_binary_elementwise(step.op)) in.push_back(*operand++);
    made = evaluate_op(step.op, step.attrs, in, outputs);
  }
  return made;
}

Result<std::vector<Tensor>> evaluate(const Graph& graph, const WeightStore& weights,
                                     const std::vector<Tensor>& inputs) {
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
        ASSIGN_OR_RETURN(Tensor tensor, weight_tensor(graph.value(id), weights));
        loaded.push_back(std::move(tensor));
        in.push_back(&loaded.back());
      } else {
        in.push_back(&*made[id.index()]);
      }
    }
    std::vector<TensorType> types;
    for (const ValueId output : node.outputs) {
      const TensorType& type = types.emplace_back(graph.value(output).type);
      if (type.dtype != DType::f32) {
        return unsupported(
            fmt::format("node {} makes {}: the reference evaluator knows f32 only", node.name, to_string(type)));
      }
    }
    std::vector<Tensor> results = evaluate_op(node.op, node.attrs, node.epilogue, in, types);
    for (size_t i = 0; i < results.size(); ++i) made[node.outputs[i].index()] = std::move(results[i]);
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

}  // namespace nlsplit

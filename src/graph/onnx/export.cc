#include "graph/onnx/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <unordered_set>

#include "base/hash.h"
#include "graph/onnx/onnx_file.h"
#include "graph/onnx/onnx_types.h"
#include "graph/operators/operator.h"

namespace nlsplit::inline graph {
namespace {

constexpr int64_t opset = 17;

// Rounds as the hardware does, also beyond the largest float, where the language leaves the conversion open.
float to_float(double value) {
  if (std::abs(value) > static_cast<double>(std::numeric_limits<float>::max()))
    return std::copysign(std::numeric_limits<float>::infinity(), value < 0 ? -1.0f : 1.0f);
  return static_cast<float>(value);
}

OnnxAttr to_onnx(const AttrValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return to_float(*number);
  if (const auto* whole = std::get_if<int64_t>(&value)) return *whole;
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) return *list;
  if (const auto* floats = std::get_if<std::vector<double>>(&value)) {
    std::vector<float> list;
    for (const double number : *floats) list.push_back(to_float(number));
    return list;
  }
  return std::get<std::string>(value);
}

template <class T>
std::string raw_of(const T* values, size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(T)};  // little-endian, as ONNX is
}

class Exporter {
 public:
  Exporter(const Graph& graph, const WeightStore& weights) : graph_(graph), weights_(weights) {
    for (const Value& value : graph.values) names_.insert(value.name);
  }

  // Its weights are made by this exporter, of the graph it was given.
  Result<OnnxModel> run() {
    out_.opset = opset;
    out_.name = graph_.name.empty() ? "graph" : graph_.name;  // ONNX wants one
    for (const ValueId id : graph_.inputs) {
      const Value& value = graph_.value(id);
      out_.inputs.push_back({value.name, value.type.dtype, value.type.shape, true, {}});
    }
    for (const ValueId id : graph_.outputs) {
      out_.outputs.push_back(value_name(id));
      out_.output_types.push_back(graph_.value(id).type);
    }
    for (const Node& node : graph_.nodes) RETURN_IF_ERROR(add_node(node));
    RETURN_IF_ERROR(add_weights());
    return std::move(out_);
  }

 private:
  std::string value_name(ValueId id) const { return id.valid() ? graph_.value(id).name : ""; }

  // A name for a value that the graph does not have.
  std::string fresh(const std::string& wanted) {
    std::string name = wanted;
    for (int n = 2; !names_.insert(name).second; ++n) name = fmt::format("{}_{}", wanted, n);
    return name;
  }

  // Constants that ONNX wants as inputs where we have attributes.
  std::string add_integers(const std::string& wanted, const std::vector<int64_t>& values) {
    return add_constant(wanted, {DType::i64, {static_cast<int64_t>(values.size())}},
                        raw_of(values.data(), values.size()));
  }
  std::string add_scalar(const std::string& wanted, double number) {
    const float value = to_float(number);
    return add_constant(wanted, {DType::f32, {}}, raw_of(&value, 1));
  }
  std::string add_constant(const std::string& wanted, TensorType type, std::string raw) {
    std::string name = fresh(wanted);
    OnnxTensor& tensor = out_.initializers[name];
    tensor.type = std::move(type);
    tensor.raw = std::move(raw);
    return name;
  }

  // An epilogue's steps are nodes of their own again; the node's output is what the last of them makes.
  Status add_node(const Node& node) {
    if (has(node.op, traits::not_in_onnx))
      return unsupported(fmt::format("node {}: ONNX has no operator {}", node.name, name_of(node.op)));
    if (node.op == Op::LSTM || node.op == Op::GRU || node.op == Op::RNN) return add_recurrent(node);
    if (!has(node.op, traits::has_kernels) && node.epilogue.empty()) return add_general(node);
    // Their constants are written as f32.
    const bool typed = node.op == Op::Pad || node.op == Op::Clip || node.op == Op::Gelu || node.op == Op::Attention;
    if (!has(node.op, traits::has_kernels) || (typed && graph_.value(node.outputs[0]).type.dtype != DType::f32))
      return unsupported(fmt::format("node {} ({}): it cannot be written", node.name, name_of(node.op)));
    std::vector<std::string> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(value_name(id));
    while (!inputs.empty() && inputs.back().empty()) inputs.pop_back();
    const std::string last = value_name(node.outputs[0]);
    std::string made = node.epilogue.empty() ? last : fresh(node.name);
    if (node.op == Op::Attention)
      add_attention(node, made);
    else
      add_operation(node.op, node.name, std::move(inputs), node.attrs, made);
    for (size_t i = 0; i < node.epilogue.size(); ++i) {
      const EpilogueStep& step = node.epilogue[i];
      std::vector<std::string> operands{made};
      if (step.operand.valid()) operands.push_back(value_name(step.operand));
      made = i + 1 == node.epilogue.size() ? last : fresh(step.name);
      add_operation(step.op, step.name, std::move(operands), step.attrs, made);
    }
    return ok_status();
  }

  // Operators that only the reference evaluator computes.
  Status add_general(const Node& node) {
    OnnxNode out;
    out.name = node.name;
    out.op = name_of(node.op);
    for (const ValueId id : node.inputs) out.inputs.push_back(value_name(id));
    for (const ValueId id : node.outputs) out.outputs.push_back(value_name(id));
    const auto later = [&] {
      return unsupported(fmt::format("node {} ({}): not written in opset {}", node.name, out.op, opset));
    };
    std::vector<std::string> inputs_only;  // attributes of ours that are inputs there
    const auto as_integers = [&](const std::string& attr) {
      inputs_only.push_back(attr);
      return add_integers(node.name + "." + attr, attr_ints(node.attrs, attr));
    };
    const auto as_integer = [&](const std::string& attr, Shape shape) {
      inputs_only.push_back(attr);
      const int64_t value = attr_int(node.attrs, attr);
      return add_constant(node.name + "." + attr, {DType::i64, std::move(shape)}, raw_of(&value, 1));
    };
    const AttrValue* reduction = find_attr(node.attrs, "reduction");
    const bool newer_reduction = reduction != nullptr && (*reduction == AttrValue(std::string("max")) ||
                                                          *reduction == AttrValue(std::string("min")));
    switch (node.op) {
      case Op::Mish:
      case Op::BitwiseNot:
      case Op::BitwiseAnd:
      case Op::BitwiseOr:
      case Op::BitwiseXor:
      case Op::MaxPoolIndices:
      case Op::MaxUnpool:
        return later();
      case Op::ScatterElements:
      case Op::ScatterND:
        if (newer_reduction) return later();
        break;
      case Op::Cast: {
        ASSIGN_OR_RETURN(const DType to, parse_dtype(attr_string(node.attrs, "to")));
        out.attrs["to"] = int64_t{onnx_type_of(to)};
        inputs_only.emplace_back("to");
        break;
      }
      case Op::ReduceSum:
        out.inputs.push_back(as_integers("axes"));
        break;
      case Op::Expand:
        out.inputs.push_back(as_integers("shape"));
        break;
      case Op::Tile:
        out.inputs.push_back(as_integers("repeats"));
        break;
      case Op::Slice:
        for (const char* attr : {"starts", "ends", "axes", "steps"}) out.inputs.push_back(as_integers(attr));
        break;
      case Op::TopK:
        out.inputs.push_back(as_integer("k", {1}));
        break;
      case Op::CumSum:
        out.inputs.push_back(as_integer("axis", {}));
        break;
      case Op::OneHot:
        out.inputs.insert(out.inputs.begin() + 1, as_integer("depth", {}));
        break;
      case Op::GridSample: {
        const std::string& mode = attr_string(node.attrs, "mode");
        out.attrs["mode"] = mode == "linear"  ? std::string("bilinear")
                            : mode == "cubic" ? std::string("bicubic")
                                              : mode;
        inputs_only.emplace_back("mode");
        break;
      }
      case Op::Resize:
        RETURN_IF_ERROR(add_resize_inputs(node, out));
        inputs_only = {"roi", "scales", "sizes"};
        break;
      default:
        break;
    }
    for (const Attr& attr : node.attrs) {
      if (std::ranges::find(inputs_only, attr.name) == inputs_only.end()) out.attrs[attr.name] = to_onnx(attr.value);
    }
    out_.nodes.push_back(std::move(out));
    return ok_status();
  }

  // By its scales where those alone give the extents.
  Status add_resize_inputs(const Node& node, OnnxNode& out) {
    const Shape &x = graph_.value(node.inputs[0]).type.shape, &y = graph_.value(node.outputs[0]).type.shape;
    const std::vector<double>& scales = attr_floats(node.attrs, "scales");
    bool by_scales = true, by_sizes = true;
    for (size_t axis = 0; axis < x.size(); ++axis) {
      const auto in = static_cast<double>(x[axis]), made = static_cast<double>(y[axis]);
      by_scales = by_scales && std::floor(in * static_cast<double>(to_float(scales[axis]))) == made;
      by_sizes = by_sizes && made / in == scales[axis];
    }
    const auto floats = [&](const std::string& attr, const std::vector<double>& values) {
      std::vector<float> list;
      for (const double value : values) list.push_back(to_float(value));
      return add_constant(node.name + "." + attr, {DType::f32, {static_cast<int64_t>(list.size())}},
                          raw_of(list.data(), list.size()));
    };
    out.inputs.push_back(floats("roi", attr_floats(node.attrs, "roi")));
    if (by_sizes && !by_scales) {
      out.inputs.emplace_back();
      out.inputs.push_back(add_integers(node.name + ".sizes", y));
      return ok_status();
    }
    if (!by_scales)
      return unsupported(fmt::format("node {} (Resize): neither scales nor sizes alone say what it does", node.name));
    out.inputs.push_back(floats("scales", scales));
    return ok_status();
  }

  // ONNX's layout 0, between Transposes: its layout 1 would be ours, but few runtimes have it.
  Status add_recurrent(const Node& node) {
    const int64_t batch = graph_.value(node.inputs[0]).type.shape[0];
    const Shape& r = graph_.value(node.inputs[2]).type.shape;
    const size_t states = node.op == Op::LSTM ? 2 : 1;
    OnnxNode out;
    out.name = node.name;
    out.op = name_of(node.op);
    for (const Attr& attr : node.attrs) out.attrs[attr.name] = to_onnx(attr.value);
    out.attrs["hidden_size"] = r[2];
    out.inputs.push_back(add_transpose(value_name(node.inputs[0]), {1, 0, 2}, fresh(node.name + ".x")));
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (i == 4) out.inputs.emplace_back();  // sequence_lens
      out.inputs.push_back(value_name(node.inputs[i]));
      if (i < 4 || i >= 4 + states) continue;
      ASSIGN_OR_RETURN(out.inputs.back(), add_state(graph_.value(node.inputs[i]), batch, node.name + ".state"));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) out.outputs.push_back(fresh(node.name + ".steps_first"));
    const std::vector<std::string> made = out.outputs;
    out_.nodes.push_back(std::move(out));
    for (size_t i = 0; i < made.size(); ++i) {
      add_transpose(made[i], i == 0 ? std::vector<int64_t>{2, 0, 1, 3} : std::vector<int64_t>{1, 0, 2},
                    value_name(node.outputs[i]));
    }
    return ok_status();
  }

  // [batch or 1, directions, hidden] → [directions, batch, hidden]: ONNX wants a state for each sample.
  Result<std::string> add_state(const Value& state, int64_t batch, const std::string& wanted) {
    const Shape& shape = state.type.shape;
    if (state.kind != ValueKind::weight) {
      std::string each = state.name;
      if (shape[0] != batch) {
        const std::string extents = add_integers(wanted + ".shape", {batch, shape[1], shape[2]});
        each = fresh(wanted + ".each");
        add_plain("Expand", {state.name, extents}, each);
      }
      return add_transpose(each, {1, 0, 2}, fresh(wanted));
    }
    ASSIGN_OR_RETURN(const std::string raw, raw_weight(state));
    const size_t row = static_cast<size_t>(shape[2]) * sizeof(float);
    std::string bytes;
    for (int64_t d = 0; d < shape[1]; ++d) {
      for (int64_t s = 0; s < batch; ++s)
        bytes += raw.substr(static_cast<size_t>((shape[0] == 1 ? 0 : s) * shape[1] + d) * row, row);
    }
    return add_constant(wanted, {DType::f32, {shape[1], batch, shape[2]}}, std::move(bytes));
  }

  Result<std::string> raw_weight(const Value& value) const {
    auto raw = weights_.materialise(value.content);
    if (!raw) return invalid_input(fmt::format("weight {}: {}", value.name, raw.error().message));
    CHECK(static_cast<int64_t>(raw->size()) == size_of(value.type).value(), "a weight of another size than its type");
    return raw;
  }

  std::string add_transpose(const std::string& from, std::vector<int64_t> perm, const std::string& to) {
    add_plain("Transpose", {from}, to);
    out_.nodes.back().attrs["perm"] = std::move(perm);
    return to;
  }

  // ONNX has it from opset 20 on; before, its parts. The node becomes the last of them.
  void add_gelu(OnnxNode& node, std::vector<std::string>& inputs, bool by_tanh) {
    const std::string x = inputs[0], prefix = node.outputs[0];
    const auto part = [&](const std::string& op, std::vector<std::string> operands, const std::string& suffix) {
      std::string made = fresh(prefix + suffix);
      add_plain(op, std::move(operands), made);
      return made;
    };
    const auto times = [&](const std::string& value, double factor, const std::string& suffix) {
      return part("Mul", {value, add_scalar(prefix + suffix + "_factor", factor)}, suffix);
    };
    std::string curve;
    if (by_tanh) {
      const std::string square = part("Mul", {x, x}, ".square"), cube = part("Mul", {square, x}, ".cube");
      const std::string sum = part("Add", {x, times(cube, 0.044715, ".cubic")}, ".sum");
      curve = part("Tanh", {times(sum, std::sqrt(2 / std::numbers::pi), ".scaled")}, ".tanh");
    } else {
      curve = part("Erf", {times(x, std::sqrt(0.5), ".scaled")}, ".erf");
    }
    const std::string above = part("Add", {curve, add_scalar(prefix + ".one", 1)}, ".above");
    inputs = {times(above, 0.5, ".half"), x};
    node.op = "Mul";
  }

  // ONNX has it from opset 23 on; before, its parts. Heads that share keys and values are an axis of their own, along
  // which the products repeat those.
  void add_attention(const Node& node, const std::string& output) {
    const auto shape = [&](size_t i) -> const Shape& { return graph_.value(node.inputs[i]).type.shape; };
    const int64_t kv_heads = shape(1)[1], shared = shape(0)[1] / kv_heads, queries = shape(0)[2], keys = shape(1)[2];
    const auto part = [&](const std::string& op, std::vector<std::string> operands, const std::string& suffix) {
      std::string made = fresh(output + suffix);
      add_plain(op, std::move(operands), made);
      return made;
    };
    const auto reshaped = [&](const std::string& value, Shape to, const std::string& suffix) {
      return part("Reshape", {value, add_integers(output + suffix + "_shape", to)}, suffix);
    };
    const auto apart = [&](size_t i, int64_t of_a_kind, const std::string& suffix) {
      std::string value = value_name(node.inputs[i]);
      if (shared == 1) return value;
      return reshaped(value, {0, kv_heads, of_a_kind, shape(i)[2], shape(i)[3]}, suffix);
    };
    const std::string q = apart(0, shared, ".q"), v = apart(2, 1, ".v");
    std::string turned = fresh(output + ".turned_k");
    turned = add_transpose(apart(1, 1, ".k"), shared == 1 ? Shape{0, 1, 3, 2} : Shape{0, 1, 2, 4, 3}, turned);
    std::string scores = part("MatMul", {q, turned}, ".scores");
    const double scale = attr_float(node.attrs, "scale");
    if (scale != 1) scores = part("Mul", {scores, add_scalar(output + ".scale", scale)}, ".scaled");
    if (node.inputs.size() > 3) {
      const Shape& mask = shape(3);
      std::string operand = value_name(node.inputs[3]);
      if (shared > 1 && mask.size() > 2) {
        const int64_t heads = mask[mask.size() - 3];
        Shape to{mask.size() == 4 ? 0 : 1, heads == 1 ? 1 : kv_heads, heads == 1 ? 1 : shared, mask[mask.size() - 2],
                 keys};
        operand = reshaped(operand, std::move(to), ".mask_heads");
      }
      scores = part("Add", {scores, operand}, ".masked");
    }
    if (attr_int(node.attrs, "causal") != 0) {
      const std::string places = fresh(output + ".places");
      out_.weights.push_back({places, {DType::f32, {queries, keys}}, [queries, keys]() -> Result<std::string> {
                                return hidden_places(queries, keys);
                              }});
      scores = part("Add", {scores, places}, ".causal");
    }
    const std::string shares = part("Softmax", {scores}, ".shares");
    out_.nodes.back().attrs["axis"] = int64_t{-1};
    add_plain("MatMul", {shares, v}, shared == 1 ? output : fresh(output + ".apart"));
    if (shared > 1) {
      const Shape& y = graph_.value(node.outputs[0]).type.shape;
      const std::string made = out_.nodes.back().outputs[0];
      add_plain("Reshape", {made, add_integers(output + ".shape", {0, y[1], y[2], y[3]})}, output);
    }
    out_.nodes.back().name = node.name;
  }

  // Zeros where a query sees the key, as Op::Attention's `causal` has it, else what hides it.
  static std::string hidden_places(int64_t queries, int64_t keys) {
    std::vector<float> row(static_cast<size_t>(keys));
    std::string bytes;
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t j = 0; j < keys; ++j)
        row[static_cast<size_t>(j)] = j <= i + keys - queries ? 0.0f : -std::numeric_limits<float>::infinity();
      bytes += raw_of(row.data(), row.size());
    }
    return bytes;
  }

  void add_plain(const std::string& op, std::vector<std::string> inputs, const std::string& output) {
    OnnxNode& node = out_.nodes.emplace_back();
    node.name = output;
    node.op = op;
    node.inputs = std::move(inputs);
    node.outputs = {output};
  }

  void add_operation(Op op, const std::string& name, std::vector<std::string> inputs, const Attrs& attrs,
                     const std::string& output) {
    OnnxNode node;
    node.name = name;
    node.op = name_of(op);
    node.outputs = {output};
    bool plain = false;  // the attributes are ONNX's own
    switch (op) {
      case Op::Clip:
        inputs.push_back(add_scalar(output + ".min", attr_float(attrs, "min")));
        inputs.push_back(add_scalar(output + ".max", attr_float(attrs, "max")));
        break;
      case Op::Reshape:
        inputs.push_back(add_integers(output + ".shape", attr_ints(attrs, "shape")));
        break;
      case Op::Pad:
        inputs.push_back(add_integers(output + ".pads", attr_ints(attrs, "pads")));
        inputs.push_back(add_scalar(output + ".value", attr_float(attrs, "value")));
        break;
      case Op::ReduceMean:
        plain = !attr_ints(attrs, "axes").empty();
        if (!plain) node.op = name_of(Op::Identity);  // to ONNX no axes means all of them
        break;
      case Op::MatMul:
        if (inputs.size() > 2) {  // ONNX's has no bias: the node becomes the Add of it
          const std::string product = fresh(output + ".product"), bias = inputs[2];
          inputs.pop_back();
          add_plain("MatMul", std::move(inputs), product);
          node.op = name_of(Op::Add);
          inputs = {product, bias};
        }
        break;
      case Op::Gelu:
        add_gelu(node, inputs, attr_string(attrs, "approximate") == "tanh");
        break;
      case Op::LSTM:
      case Op::GRU:
      case Op::RNN:
      case Op::Attention:
        CHECK(false, "add_recurrent and add_attention write these");
      case Op::Conv:
      case Op::ConvTranspose:
      case Op::Gemm:
      case Op::Add:
      case Op::Sub:
      case Op::Mul:
      case Op::Div:
      case Op::Sum:
      case Op::Relu:
      case Op::Sigmoid:
      case Op::Tanh:
      case Op::HardSwish:
      case Op::Exp:
      case Op::Sqrt:
      case Op::Neg:
      case Op::Erf:
      case Op::LeakyRelu:
      case Op::HardSigmoid:
      case Op::MaxPool:
      case Op::AveragePool:
      case Op::GlobalAveragePool:
      case Op::BatchNormalization:
      case Op::LayerNormalization:
      case Op::InstanceNormalization:
      case Op::LRN:
      case Op::Softmax:
      case Op::Concat:
      case Op::Flatten:
      case Op::Transpose:
      case Op::Identity:
        plain = true;
        break;
      default:
        CHECK(false, "add_general writes these");
    }
    for (const Attr& attr : attrs) {
      if (plain) node.attrs[attr.name] = to_onnx(attr.value);
    }
    node.inputs = std::move(inputs);
    out_.nodes.push_back(std::move(node));
  }

  // Their bytes are made when they are written: a graph is small, what its recipes stand for need not be.
  Status add_weights() {
    std::unordered_set<std::string> read(out_.outputs.begin(), out_.outputs.end());
    for (const OnnxNode& node : out_.nodes) read.insert(node.inputs.begin(), node.inputs.end());
    for (const Value& value : graph_.values) {
      // An initial state has become a constant of another shape.
      if (value.kind != ValueKind::weight || !read.contains(value.name)) continue;
      if (!weights_.contains(value.content))
        return invalid_input(
            fmt::format("weight {}: there is no weight with content {}", value.name, hex16(value.content.value)));
      out_.weights.push_back({value.name, value.type, [this, &value] { return raw_weight(value); }});
    }
    return ok_status();
  }

  const Graph& graph_;
  const WeightStore& weights_;
  OnnxModel out_;
  std::unordered_set<std::string> names_;  // of values, the new ones too
};

}  // namespace

Status export_onnx(const Graph& graph, const WeightStore& weights, const std::string& path,
                   const OnnxWriteOptions& options) {
  Exporter exporter(graph, weights);
  auto model = exporter.run();
  if (!model) {
    Error error = model.error();
    error.message = fmt::format("cannot write '{}': {}", path, error.message);
    return error;
  }
  return write_onnx(path, *model, options);
}

}  // namespace nlsplit::inline graph

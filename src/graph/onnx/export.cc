#include "graph/onnx/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numbers>
#include <span>
#include <unordered_set>

#include "base/hash.h"
#include "graph/elements.h"
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
  std::string add_scalar(const std::string& wanted, double number, DType type = DType::f32) {
    if (type == DType::f32) number = to_float(number);
    const auto whole = is_real(type) ? 0 : static_cast<int64_t>(number);
    return add_constant(
        wanted, {type, {}},
        is_real(type) ? raw_of(type, std::span(&number, 1)) : raw_of(type, std::span<const int64_t>(&whole, 1)));
  }
  std::string add_constant(const std::string& wanted, TensorType type, std::string raw) {
    std::string name = fresh(wanted);
    OnnxTensor& tensor = out_.initializers[name];
    tensor.type = std::move(type);
    tensor.raw = std::move(raw);
    return name;
  }

  // A node without its epilogue, or one of that's steps.
  struct Operation {
    Op op;
    std::string name;
    const Attrs& attrs;
    std::vector<std::string> inputs, outputs;
    DType type;        // of the first operand
    const Node* node;  // nullptr: a step
  };
  using Writer = Status (Exporter::*)(Operation);

  // Those that are several of ONNX's operators, or have their attributes otherwise there; all others are written as
  // their rows say.
  static Writer writer_of(Op op) {
    struct Row {
      Op op;
      Writer writer;
    };
    static constexpr Row rows[] = {
        {Op::LSTM, &Exporter::add_recurrent},    {Op::GRU, &Exporter::add_recurrent},
        {Op::RNN, &Exporter::add_recurrent},     {Op::Attention, &Exporter::add_attention},
        {Op::Gelu, &Exporter::add_gelu},         {Op::MatMul, &Exporter::add_matmul},
        {Op::Cast, &Exporter::add_cast},         {Op::GridSample, &Exporter::add_grid_sample},
        {Op::Resize, &Exporter::add_resize},     {Op::ScatterElements, &Exporter::add_scatter},
        {Op::ScatterND, &Exporter::add_scatter}, {Op::ReduceMean, &Exporter::add_mean},
    };
    const auto* const found = std::ranges::find(rows, op, &Row::op);
    return found == std::end(rows) ? &Exporter::add_as_row : found->writer;
  }

  // An epilogue's steps are nodes of their own again; the node's output is what the last of them makes.
  Status add_node(const Node& node) {
    const auto missing = [](Op op, const std::string& name) {
      return unsupported(fmt::format("node {}: ONNX has no operator {}", name, name_of(op)));
    };
    if (has(node.op, traits::not_in_onnx)) return missing(node.op, node.name);
    for (const EpilogueStep& step : node.epilogue) {
      if (has(step.op, traits::not_in_onnx)) return missing(step.op, step.name);
    }
    Operation operation{node.op, node.name, node.attrs, {}, {}, graph_.value(node.inputs[0]).type.dtype, &node};
    for (const ValueId id : node.inputs) operation.inputs.push_back(value_name(id));
    while (!operation.inputs.empty() && operation.inputs.back().empty()) operation.inputs.pop_back();
    for (const ValueId id : node.outputs) operation.outputs.push_back(value_name(id));
    const std::string last = operation.outputs[0];
    if (!node.epilogue.empty()) operation.outputs[0] = fresh(node.name);
    std::string made = operation.outputs[0];
    RETURN_IF_ERROR(write(std::move(operation)));
    for (size_t i = 0; i < node.epilogue.size(); ++i) {
      const EpilogueStep& step = node.epilogue[i];
      std::vector<std::string> operands{made};
      if (step.operand.valid()) operands.push_back(value_name(step.operand));
      made = i + 1 == node.epilogue.size() ? last : fresh(step.name);
      const DType type = graph_.value(node.outputs[0]).type.dtype;
      RETURN_IF_ERROR(write({step.op, step.name, step.attrs, std::move(operands), {made}, type, nullptr}));
    }
    return ok_status();
  }

  Status write(Operation operation) {
    if (has(operation.op, traits::later_in_onnx)) return not_written(operation);
    const Writer writer = writer_of(operation.op);
    return (this->*writer)(std::move(operation));
  }
  static Error not_written(const Operation& o) {
    return unsupported(fmt::format("node {} ({}): not written in opset {}", o.name, name_of(o.op), opset));
  }
  static OnnxNode onnx_node(Operation& o) {
    OnnxNode node;
    node.name = o.name;
    node.op = name_of(o.op);
    node.inputs = std::move(o.inputs);
    node.outputs = std::move(o.outputs);
    return node;
  }

  Status add_as_row(Operation o) { return add_with(o, {}); }
  // `own`: attributes that the caller has spelled.
  Status add_with(Operation& o, std::map<std::string, OnnxAttr> own) {
    OnnxNode node = onnx_node(o);
    std::vector<const AttrSpec*> as_inputs;
    for (const AttrSpec& spec : info(o.op).attrs) {
      if (spec.onnx_input >= 0)
        as_inputs.push_back(&spec);
      else if (!own.contains(std::string(spec.name)))
        node.attrs[std::string(spec.name)] = to_onnx(*find_attr(o.attrs, spec.name));
    }
    node.attrs.merge(own);
    std::ranges::sort(as_inputs, {}, &AttrSpec::onnx_input);
    for (const AttrSpec* spec : as_inputs) {
      std::string constant = add_attr(node.outputs[0], *spec, *find_attr(o.attrs, spec->name), o.type);
      node.inputs.insert(node.inputs.begin() + spec->onnx_input, std::move(constant));
    }
    out_.nodes.push_back(std::move(node));
    return ok_status();
  }
  // Numbers are of the operand's type.
  std::string add_attr(const std::string& prefix, const AttrSpec& spec, const AttrValue& value, DType type) {
    const std::string wanted = fmt::format("{}.{}", prefix, spec.name);
    if (const auto* number = std::get_if<double>(&value)) return add_scalar(wanted, *number, type);
    if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) return add_integers(wanted, *list);
    const int64_t whole = std::get<int64_t>(value);
    return add_constant(wanted, {DType::i64, spec.onnx_list ? Shape{1} : Shape{}}, raw_of(&whole, 1));
  }

  Status add_cast(Operation o) {
    ASSIGN_OR_RETURN(const DType to, parse_dtype(attr_string(o.attrs, "to")));
    return add_with(o, {{"to", int64_t{onnx_type_of(to)}}});
  }
  Status add_grid_sample(Operation o) {
    const std::string& mode = attr_string(o.attrs, "mode");
    const bool renamed = mode == "linear" || mode == "cubic";
    return add_with(o, {{"mode", renamed ? "bi" + mode : mode}});
  }
  Status add_scatter(Operation o) {
    const std::string& reduction = attr_string(o.attrs, "reduction");
    if (reduction == "max" || reduction == "min") return not_written(o);
    return add_as_row(std::move(o));
  }
  // To ONNX no axes means all of them.
  Status add_mean(Operation o) {
    if (!attr_ints(o.attrs, "axes").empty()) return add_as_row(std::move(o));
    add_plain("Identity", std::move(o.inputs), o.outputs[0]);
    out_.nodes.back().name = o.name;
    return ok_status();
  }
  // ONNX's has no bias: the node becomes the Add of it.
  Status add_matmul(Operation o) {
    if (o.inputs.size() < 3) return add_as_row(std::move(o));
    const std::string product = fresh(o.outputs[0] + ".product"), bias = o.inputs[2];
    o.inputs.pop_back();
    add_plain("MatMul", std::move(o.inputs), product);
    add_plain("Add", {product, bias}, o.outputs[0]);
    out_.nodes.back().name = o.name;
    return ok_status();
  }

  // By its scales where those alone give the extents.
  Status add_resize(Operation o) {
    const Node& node = *o.node;
    OnnxNode out = onnx_node(o);
    for (const Attr& attr : node.attrs) {
      if (attr.name != "roi" && attr.name != "scales" && attr.name != "sizes")
        out.attrs[attr.name] = to_onnx(attr.value);
    }
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
    } else if (by_scales) {
      out.inputs.push_back(floats("scales", scales));
    } else {
      return unsupported(fmt::format("node {} (Resize): neither scales nor sizes alone say what it does", node.name));
    }
    out_.nodes.push_back(std::move(out));
    return ok_status();
  }

  // ONNX's layout 0, between Transposes: its layout 1 would be ours, but few runtimes have it.
  Status add_recurrent(Operation o) {
    const Node& node = *o.node;
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
  Status add_gelu(Operation o) {
    if (o.type != DType::f32) return not_f32(o);
    const std::string x = o.inputs[0], prefix = o.outputs[0];
    const bool by_tanh = attr_string(o.attrs, "approximate") == "tanh";
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
    add_plain("Mul", {times(above, 0.5, ".half"), x}, prefix);
    out_.nodes.back().name = o.name;
    return ok_status();
  }
  // The constants of its parts are written as f32.
  static Error not_f32(const Operation& o) {
    return unsupported(fmt::format("node {} ({}): it cannot be written", o.name, name_of(o.op)));
  }

  // ONNX has it from opset 23 on; before, its parts. Heads that share keys and values are an axis of their own, along
  // which the products repeat those.
  Status add_attention(Operation o) {
    if (o.type != DType::f32) return not_f32(o);
    const Node& node = *o.node;
    const std::string output = o.outputs[0];
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
    return ok_status();
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

  // Their bytes are made when they are written: a graph is small, what its recipes stand for need not be.
  Status add_weights() {
    std::unordered_set<std::string> read(out_.outputs.begin(), out_.outputs.end());
    for (const OnnxNode& node : out_.nodes) read.insert(node.inputs.begin(), node.inputs.end());
    for (const Value& value : graph_.values) {
      // An initial state has become a constant of another shape.
      if (value.kind != ValueKind::weight || !read.contains(value.name)) continue;
      if (value.state)
        return unsupported(fmt::format("state {}: an ONNX file keeps nothing between two executions", value.name));
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
  for (const Value& value : graph.values) {
    if (is_scaled(value.type.dtype)) {
      return unsupported(fmt::format("cannot write '{}': weight {} is {}, a type that ONNX does not have", path,
                                     value.name, to_string(value.type)));
    }
  }
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

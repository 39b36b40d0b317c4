#include "graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/text_reader.h"
#include "graph/operators/operator.h"

namespace nlsplit::inline graph {
namespace {

auto lower_bound_of(auto& attrs, std::string_view name) {
  return std::lower_bound(attrs.begin(), attrs.end(), name,
                          [](const Attr& a, std::string_view n) { return a.name.compare(n) < 0; });
}

template <class T>
const T& attr_as(const Attrs& attrs, std::string_view name) {
  const AttrValue* value = find_attr(attrs, name);
  CHECK(value != nullptr && std::holds_alternative<T>(*value), name);
  return std::get<T>(*value);
}

// A float must not read back as an integer.
std::string float_text(double value) {
  std::string number = shortest(value);
  if (number.find_first_of(".einf") == std::string::npos) number += ".0";
  return number;
}

std::string to_string(const AttrValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return fmt::format("{}", *integer);
  if (const auto* text = std::get_if<std::string>(&value)) return quote(*text);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    std::string out = "[";
    for (const int64_t element : *list) out += (out.size() > 1 ? "," : "") + std::to_string(element);
    return out + "]";
  }
  if (const auto* list = std::get_if<std::vector<double>>(&value)) {
    std::string out = "[";
    for (const double element : *list) out += (out.size() > 1 ? "," : "") + float_text(element);
    return out + "]";
  }
  return float_text(std::get<double>(value));
}

Status check_value(const Graph& graph, size_t index, std::set<std::string_view>& names) {
  const Value& value = graph.values[index];
  if (value.name.empty()) return invalid_input("a value without a name");
  if (!names.insert(value.name).second) return invalid_input(fmt::format("two values are called {}", value.name));
  if (const Status sound = check_type(value.type); !sound.ok()) {
    return invalid_input(fmt::format("value {}: {}", value.name, sound.error().message));
  }
  if (value.type.block != 0) return invalid_input(fmt::format("value {} is not row-major", value.name));
  if (is_scaled(value.type.dtype) && value.kind != ValueKind::weight)
    return invalid_input(fmt::format("value {} is {}, which only weights are", value.name, to_string(value.type)));
  if (value.kind == ValueKind::node && value.producer.index() >= graph.nodes.size()) {
    return invalid_input(fmt::format("value {} has no producer", value.name));
  }
  return ok_status();
}

Status check_node(const Graph& graph, size_t index, std::vector<bool>& made) {
  const Node& node = graph.nodes[index];
  const auto wrong = [&](const std::string& why) {
    return invalid_input(fmt::format("node {} ({}): {}", node.name, name_of(node.op), why));
  };
  for (const ValueId read : reads_of(node)) {
    if (read.index() >= graph.values.size()) return wrong("reads a value that does not exist");
    if (!made[read.index()]) return wrong(fmt::format("reads {} before it is made", graph.value(read).name));
  }
  bool absent = false;
  for (const ValueId input : node.inputs) {
    if (absent && input.valid()) return wrong("an input left out before one that is there");
    absent = absent || !input.valid();
  }
  auto types = infer(node.op, input_types(graph, node), node.attrs);
  if (!types) return wrong(types.error().message);
  if (types->size() != node.outputs.size()) return wrong("another number of outputs");
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId output = node.outputs[i];
    if (output.index() >= graph.values.size()) return wrong("writes a value that does not exist");
    const Value& value = graph.value(output);
    for (const ValueId read : reads_of(node)) {
      if (read >= output)
        return wrong(fmt::format("its output {} stands before {}, which it reads", value.name, graph.value(read).name));
    }
    if (i > 0 && output != ValueId(node.outputs[0].index() + i)) {
      return wrong(fmt::format("its output {} does not follow directly after the one before", value.name));
    }
    if (index > 0 && i == 0 && graph.nodes[index - 1].outputs[0] > output) {
      return wrong(fmt::format("its output {} stands before the previous node's", value.name));
    }
    if (value.kind != ValueKind::node || value.producer != NodeId(index) || made[output.index()]) {
      return wrong(fmt::format("value {} has another producer", value.name));
    }
    if (value.type != (*types)[i]) {
      return wrong(fmt::format("output {} is said to be {}, but is {}", value.name, to_string(value.type),
                               to_string((*types)[i])));
    }
    made[output.index()] = true;
  }
  if (!node.epilogue.empty() && node.outputs.size() != 1) return wrong("steps fused after several outputs");
  for (const EpilogueStep& step : node.epilogue) {
    const bool binary = step.op == Op::Add || step.op == Op::Mul;
    if (!binary && !has(step.op, traits::is_step))
      return wrong(fmt::format("{} cannot be fused after it", name_of(step.op)));
    if (binary != step.operand.valid())
      return wrong(fmt::format("fused {} has the wrong number of operands", name_of(step.op)));
    const TensorType& type = graph.value(node.outputs[0]).type;
    const std::vector<TensorType> operands(binary ? 2 : 1, type);
    if (binary && graph.value(step.operand).type != type)
      return wrong(fmt::format("fused {}: operand of another type", name_of(step.op)));
    if (auto fused = infer(step.op, operands, step.attrs); !fused) return wrong(fused.error().message);
  }
  return ok_status();
}

}  // namespace

namespace {

enum class Numbers : uint8_t { floats, integers, truth, scaled };

struct DTypeRow {
  DType type;
  std::string_view name;
  Numbers numbers;
  int64_t block;  // elements that are stored together
  int64_t bytes;  // of a block
};
constexpr DTypeRow dtype_rows[] = {
    {DType::f32, "f32", Numbers::floats, 1, 4},       {DType::i64, "i64", Numbers::integers, 1, 8},
    {DType::i32, "i32", Numbers::integers, 1, 4},     {DType::boolean, "bool", Numbers::truth, 1, 1},
    {DType::f16, "f16", Numbers::floats, 1, 2},       {DType::bf16, "bf16", Numbers::floats, 1, 2},
    {DType::f64, "f64", Numbers::floats, 1, 8},       {DType::i8, "i8", Numbers::integers, 1, 1},
    {DType::u8, "u8", Numbers::integers, 1, 1},       {DType::i16, "i16", Numbers::integers, 1, 2},
    {DType::u16, "u16", Numbers::integers, 1, 2},     {DType::u32, "u32", Numbers::integers, 1, 4},
    {DType::u64, "u64", Numbers::integers, 1, 8},     {DType::q8_0, "q8_0", Numbers::scaled, 32, 34},
    {DType::q4_0, "q4_0", Numbers::scaled, 32, 18},   {DType::q4_1, "q4_1", Numbers::scaled, 32, 20},
    {DType::q5_0, "q5_0", Numbers::scaled, 32, 22},   {DType::q4_k, "q4_k", Numbers::scaled, 256, 144},
    {DType::q6_k, "q6_k", Numbers::scaled, 256, 210},
};
constexpr auto dtypes = [] {
  std::array<DType, std::size(dtype_rows)> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = dtype_rows[i].type;
  return all;
}();
constexpr bool rows_in_order() {
  for (size_t i = 0; i < dtypes.size(); ++i) {
    if (static_cast<size_t>(dtypes[i]) != i) return false;
  }
  return true;
}
static_assert(rows_in_order(), "rows stand in the order of the enumerators");

const DTypeRow& row_of(DType type) { return dtype_rows[static_cast<size_t>(type)]; }

}  // namespace

std::string_view name_of(DType type) { return row_of(type).name; }

std::span<const DType> all_dtypes() { return dtypes; }

Result<DType> parse_dtype(std::string_view name) {
  for (const DTypeRow& row : dtype_rows) {
    if (row.name == name) return row.type;
  }
  std::string known;
  for (const DTypeRow& row : dtype_rows) known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  return invalid_input(fmt::format("unknown data type {}; there are {}", name, known));
}

int64_t block_of(DType type) { return row_of(type).block; }

int64_t size_of(DType type) {
  CHECK(!is_scaled(type), "an element that shares its scale has no size of its own");
  return row_of(type).bytes;
}

int64_t size_of(DType type, int64_t elements) {
  const DTypeRow& row = row_of(type);
  if (row.block == 1) return elements * row.bytes;
  CHECK(elements % row.block == 0, "whole blocks of elements that share a scale");
  return elements / row.block * row.bytes;
}

bool is_real(DType type) { return row_of(type).numbers == Numbers::floats; }
bool is_half(DType type) { return type == DType::f16 || type == DType::bf16; }
bool is_whole(DType type) { return row_of(type).numbers == Numbers::integers; }
bool is_scaled(DType type) { return row_of(type).numbers == Numbers::scaled; }

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

int64_t stored_elements(const TensorType& type) {
  const int64_t count = element_count(type.shape);
  if (type.block == 0 || count == 0) return count;
  return count / type.shape[1] * ((type.shape[1] + type.block - 1) / type.block * type.block);
}

Bytes size_of(const TensorType& type) { return bytes(size_of(type.dtype, stored_elements(type))); }

TensorType with_block(TensorType type, int block) {
  type.block = block;
  return type;
}

std::string to_string(const TensorType& type) {
  std::string out(name_of(type.dtype));
  out += '[';
  for (size_t i = 0; i < type.shape.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(type.shape[i]);
  }
  out += "]";
  if (type.block > 0) out += fmt::format("c{}", type.block);
  return out;
}

Result<TensorType> parse_tensor_type(std::string_view text) {
  const auto wrong = [&] {
    return invalid_input(fmt::format("{} is not a tensor type; write e.g. f32[1,3,224,224]", text));
  };
  TensorType type;
  for (const int block : {4, 8, 16}) {
    const std::string suffix = fmt::format("]c{}", block);
    if (!text.ends_with(suffix)) continue;
    type.block = block;
    text.remove_suffix(suffix.size() - 1);
    break;
  }
  const size_t open = text.find('[');
  if (open == std::string_view::npos || !text.ends_with(']')) return wrong();
  ASSIGN_OR_RETURN(type.dtype, parse_dtype(text.substr(0, open)));
  std::string_view list = text.substr(open + 1, text.size() - open - 2);
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    int64_t extent = 0;
    if (comma == 0 || comma > 15) return wrong();
    for (const char c : list.substr(0, comma)) {
      if (c < '0' || c > '9') return wrong();
      extent = extent * 10 + (c - '0');
    }
    type.shape.push_back(extent);
    list.remove_prefix(comma == list.size() ? comma : comma + 1);
    if (list.empty() && text[text.size() - 2] == ',') return wrong();
  }
  RETURN_IF_ERROR(check_type(type));
  return type;
}

Status check_type(const TensorType& type) {
  constexpr int64_t most = int64_t{1} << 40;
  int64_t count = 1;
  if (type.shape.size() > most_axes)
    return invalid_input(fmt::format("a tensor of {} axes; at most {} are supported", type.shape.size(), most_axes));
  for (const int64_t extent : type.shape) {
    if (extent < 0) return invalid_input(fmt::format("{} has a negative extent", to_string(type)));
    if (extent > most || (extent > 0 && count > most / extent))
      return invalid_input(fmt::format("{} is too large", to_string(type)));
    count *= std::max<int64_t>(extent, 1);
  }
  if (const int64_t block = block_of(type.dtype); block > 1 && (type.shape.empty() || type.shape.back() % block != 0))
    return invalid_input(
        fmt::format("{}: {} elements of {} share a scale, and the last axis has no whole number of such blocks",
                    to_string(type), block, name_of(type.dtype)));
  if (type.block == 0) return ok_status();
  const bool has_kernels = type.dtype == DType::f32 || is_half(type.dtype);
  const bool has_pixels = type.shape.size() == 3 || type.shape.size() == 4;
  if (!has_pixels || !has_kernels || (type.block != 4 && type.block != 8 && type.block != 16))
    return invalid_input(fmt::format(
        "{}: blocks of 4, 8 or 16 channels are of f32, f16 and bf16 tensors with three or four axes", to_string(type)));
  // A single channel takes a whole block.
  if (count > most / type.block) return invalid_input(fmt::format("{} is too large", to_string(type)));
  return ok_status();
}

const AttrValue* find_attr(const Attrs& attrs, std::string_view name) {
  const auto at = lower_bound_of(attrs, name);
  return at != attrs.end() && at->name == name ? &at->value : nullptr;
}

void set_attr(Attrs& attrs, std::string_view name, AttrValue value) {
  const auto at = lower_bound_of(attrs, name);
  if (at != attrs.end() && at->name == name)
    at->value = std::move(value);
  else
    attrs.insert(at, {std::string(name), std::move(value)});
}

int64_t attr_int(const Attrs& attrs, std::string_view name) { return attr_as<int64_t>(attrs, name); }
double attr_float(const Attrs& attrs, std::string_view name) { return attr_as<double>(attrs, name); }
const std::string& attr_string(const Attrs& attrs, std::string_view name) { return attr_as<std::string>(attrs, name); }
const std::vector<int64_t>& attr_ints(const Attrs& attrs, std::string_view name) {
  return attr_as<std::vector<int64_t>>(attrs, name);
}

const std::vector<double>& attr_floats(const Attrs& attrs, std::string_view name) {
  return attr_as<std::vector<double>>(attrs, name);
}

std::string to_string(const Attrs& attrs) {
  if (attrs.empty()) return "";
  std::string out = "{";
  for (const Attr& attr : attrs) out += (out.size() > 1 ? ", " : "") + attr.name + "=" + to_string(attr.value);
  return out + "}";
}

std::vector<ValueId> reads_of(const Node& node) {
  std::vector<ValueId> reads;
  for (const ValueId input : node.inputs) {
    if (input.valid()) reads.push_back(input);
  }
  for (const EpilogueStep& step : node.epilogue) {
    if (step.operand.valid()) reads.push_back(step.operand);
  }
  return reads;
}

std::vector<StateUpdate> state_updates(const Graph& graph) {
  std::vector<StateUpdate> updates;
  for (const Node& node : graph.nodes) {
    if (has(node.op, traits::changes_first) && graph.value(node.inputs[0]).state)
      updates.push_back({node.inputs[0], node.outputs[0]});
  }
  return updates;
}

namespace {

// Who read a state that another node changes would see it before or after, whichever runs first.
Status check_states(const Graph& graph) {
  std::vector<int> reads(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    for (const ValueId read : reads_of(node)) ++reads[read.index()];
  }
  for (const ValueId output : graph.outputs) ++reads[output.index()];
  std::vector<bool> changed(graph.values.size(), false);
  for (const StateUpdate& update : state_updates(graph)) changed[update.state.index()] = true;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (!value.state) continue;
    if (value.kind != ValueKind::weight) return invalid_input(fmt::format("state {} is not a weight", value.name));
    if (!changed[v] || reads[v] != 1)
      return invalid_input(fmt::format("state {} is to be read once, by the node that changes it", value.name));
  }
  return ok_status();
}

}  // namespace

Status verify(const Graph& graph) {
  std::set<std::string_view> names;
  std::vector<bool> made(graph.values.size(), false);
  for (size_t i = 0; i < graph.values.size(); ++i) {
    RETURN_IF_ERROR(check_value(graph, i, names));
    made[i] = graph.values[i].kind != ValueKind::node;
  }
  names.clear();
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!names.insert(graph.nodes[i].name).second)
      return invalid_input(fmt::format("two nodes are called {}", graph.nodes[i].name));
    RETURN_IF_ERROR(check_node(graph, i, made));
  }
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (graph.values[i].kind == ValueKind::input) inputs.push_back(ValueId(i));
    if (!made[i]) return invalid_input(fmt::format("value {} is made by no node", graph.values[i].name));
  }
  if (inputs != graph.inputs)
    return invalid_input("the list of inputs is not the values that are inputs, in their order");
  for (const ValueId output : graph.outputs) {
    if (output.index() >= graph.values.size() || !made[output.index()])
      return invalid_input("an output that nobody makes");
  }
  if (graph.outputs.empty()) return invalid_input("a graph without outputs");
  return check_states(graph);
}

}  // namespace nlsplit::inline graph

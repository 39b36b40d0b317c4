#include "graph/passes/precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "graph/elements.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {
namespace {

constexpr std::array<std::string_view, 3> words = {"float32", "float16", "bfloat16"};
constexpr std::array types = {DType::f32, DType::f16, DType::bf16};

// What training computes in float32 whatever the precision: sums of many elements, quotients of sums, and functions
// that make a rounding error of an operand a large one. PyTorch's autocast has a like list
// (https://docs.pytorch.org/docs/stable/amp.html, "CUDA Ops that can autocast to float32"). Gather reads rows of a
// table, of which a Cast would convert all.
constexpr std::array trained_in_f32 = {Op::BatchNormalization,
                                       Op::LayerNormalization,
                                       Op::InstanceNormalization,
                                       Op::LRN,
                                       Op::Softmax,
                                       Op::LogSoftmax,
                                       Op::ReduceSum,
                                       Op::ReduceMean,
                                       Op::ReduceL1,
                                       Op::ReduceL2,
                                       Op::Exp,
                                       Op::Log,
                                       Op::Pow,
                                       Op::Sqrt,
                                       Op::Reciprocal,
                                       Op::Gather};

class Conversion {
 public:
  Conversion(const Graph& graph, WeightStore& weights, DType type, Purpose purpose)
      : before_(graph),
        out_(graph),
        weights_(weights),
        type_(type),
        trains_(purpose == Purpose::training),
        is_output_(output_flags(graph)) {
    out_.nodes.clear();
    of_integers_.assign(graph.values.size(), false);
    for (const ContentId formula : weights.formulas()) formulas_.insert(formula);
  }

  Result<Graph> run() {
    for (const Node& node : before_.nodes) RETURN_IF_ERROR(convert(node));
    Graph done = compacted(out_, std::vector<bool>(out_.nodes.size(), false));
    RETURN_IF_ERROR(verify(done));
    return done;
  }

 private:
  bool was_float32(ValueId id) const { return id.valid() && before_.value(id).type.dtype == DType::f32; }

  // Positions, lengths, masks: a Cast from integers, and what is made of that and constants. They are exact in float32,
  // and functions of them (a rotary embedding's angles) need what float16 has lost.
  bool from_integers(const Node& node) const {
    if (node.op == Op::Cast) {
      const DType from = before_.value(node.inputs[0]).type.dtype;
      return !is_real(from) && !is_scaled(from);
    }
    bool some = false;
    for (const ValueId id : reads_of(node)) {
      if (!was_float32(id) || before_.value(id).kind == ValueKind::weight) continue;
      if (!of_integers_[id.index()]) return false;
      some = true;
    }
    return some;
  }

  Status convert(const Node& node) {
    Node now = node;
    const bool integers = from_integers(node);
    if (node.op != Op::Cast) {  // takes its operand as it is
      const DType wanted = integers || stays_f32(node.op) ? DType::f32 : type_;
      for (ValueId& id : now.inputs) id = as(id, wanted, node.name);
      for (EpilogueStep& step : now.epilogue) step.operand = as(step.operand, wanted, node.name);
    }
    auto made = infer(now.op, input_types(out_, now), now.attrs);
    if (!made.ok())
      return unsupported(
          fmt::format("node {} ({}) in {}: {}", node.name, name_of(node.op), name_of(type_), made.error().message));
    for (size_t i = 0; i < now.outputs.size(); ++i) {
      const ValueId id = now.outputs[i];
      out_.values[id.index()].type = (*made)[i];
      of_integers_[id.index()] = integers && was_float32(id);
    }
    out_.nodes.push_back(now);
    for (const ValueId id : now.outputs) {
      if (is_output_[id.index()] && out_.value(id).type.dtype != before_.value(id).type.dtype) give_back(id);
    }
    return ok_status();
  }

  bool stays_f32(Op op) const {
    return has(op, traits::stays_f32) || (trains_ && std::ranges::find(trained_in_f32, op) != trained_in_f32.end());
  }

  // Scalars and tables of positions are constants (TrainingOptions::constants).
  bool may_be_trained(const Value& value) const {
    return trains_ && element_count(value.type.shape) > 1 && !formulas_.contains(value.content);
  }

  // An output of the graph keeps its name and type; what the node makes is called otherwise.
  void give_back(ValueId id) {
    const std::string name = out_.value(id).name;
    out_.values[id.index()].name = unused_name(out_, fmt::format("{}.{}", name, name_of(type_)));
    const ValueId given = made_[{id, DType::f32}] = cast(id, DType::f32, name);
    std::ranges::replace(out_.outputs, id, given);
  }

  // The value in another type than the graph had for it, made once. Of a weight that is trained each reader has its
  // own: tied weights may be read by nodes of several stages.
  ValueId as(ValueId id, DType wanted, const std::string& reader) {
    if (!was_float32(id) || out_.value(id).type.dtype == wanted) return id;
    if (const auto known = made_.find({id, wanted}); known != made_.end()) return known->second;
    const Value value = out_.value(id);
    const std::string name = fmt::format("{}.{}", value.name, name_of(wanted));
    if (value.kind == ValueKind::weight && may_be_trained(value))
      return cast(id, wanted, unused_name(out_, fmt::format("{}.{}", name, reader)));
    if (value.kind != ValueKind::weight) return made_[{id, wanted}] = cast(finite(id), wanted, unused_name(out_, name));
    const TensorType type{wanted, value.type.shape};
    const Derivation how = wanted == DType::f16 ? Derivation::to_f16 : Derivation::to_bf16;
    return made_[{id, wanted}] = add_weight(out_, name, type, weights_.add_derived(how, {value.content}, 0, type));
  }

  // A mask may be made of numbers beyond float16's; as weights do, they stay finite.
  ValueId finite(ValueId id) {
    if (!of_integers_[id.index()]) return id;
    const Value value = out_.value(id);
    const double most = largest_of(type_);
    const ValueId made = add_value(unused_name(out_, value.name + ".finite"), value.type);
    out_.nodes.push_back(
        {Op::Clip, unused_node(value.name + ".finite"), {id}, {made}, {{"max", most}, {"min", -most}}, {}});
    return made;
  }

  ValueId cast(ValueId from, DType to, const std::string& name) {
    const ValueId made = add_value(name, {to, out_.value(from).type.shape});
    Attrs attrs = {{"to", std::string(name_of(to))}};
    out_.nodes.push_back({Op::Cast, unused_node(name + ".cast"), {from}, {made}, std::move(attrs), {}});
    return made;
  }

  ValueId add_value(std::string name, TensorType type) {
    const ValueId id(out_.values.size());
    out_.values.push_back({std::move(name), std::move(type), ValueKind::node, {}, {}});
    return id;
  }

  std::string unused_node(const std::string& wanted) const {
    std::string name = wanted;
    const auto taken = [&](const std::vector<Node>& nodes) {
      return std::ranges::find(nodes, name, &Node::name) != nodes.end();
    };
    for (int n = 2; taken(before_.nodes) || taken(out_.nodes); ++n) name = fmt::format("{}{}", wanted, n);
    return name;
  }

  const Graph& before_;
  Graph out_;  // the values keep their ids, new ones come behind them
  WeightStore& weights_;
  const DType type_;
  const bool trains_;
  const std::vector<bool> is_output_;
  std::set<ContentId> formulas_;
  std::vector<bool> of_integers_;  // of before_'s values
  std::map<std::pair<ValueId, DType>, ValueId> made_;
};

// What is in fewer bits already is not computed in float32 without rounding differently than its maker meant.
Result<Graph> as_it_is(const Graph& graph) {
  const auto narrow = std::ranges::find_if(graph.values, [](const Value& value) {
    return value.kind != ValueKind::weight && (value.type.dtype == DType::f16 || value.type.dtype == DType::bf16);
  });
  if (narrow == graph.values.end()) return graph;
  return unsupported(
      fmt::format("value {} is {}: only a network in float32 has that precision; without 'precision' it "
                  "is computed as it is",
                  narrow->name, to_string(narrow->type)));
}

}  // namespace

Result<Graph> with_precision(const Graph& graph, WeightStore& weights, DType type, Purpose purpose) {
  CHECK(std::ranges::find(types, type) != types.end(), "a precision is f32, f16 or bf16");
  if (type == DType::f32) return as_it_is(graph);
  if (type == DType::f16 && purpose == Purpose::training)
    return unsupported("float16 is for inference: its gradients need loss scaling; bfloat16 trains");
  if (const auto state = std::ranges::find(graph.values, true, &Value::state); state != graph.values.end())
    return unsupported(fmt::format("state {} is {}: a network with states has the precision it was made with",
                                   state->name, to_string(state->type)));
  return Conversion(graph, weights, type, purpose).run();
}

DType coarser(DType a, DType b) {
  if (a == DType::bf16 || b == DType::bf16) return DType::bf16;
  return a == DType::f16 || b == DType::f16 ? DType::f16 : DType::f32;
}

DType coarsest_type(const Graph& graph) {
  DType type = DType::f32;
  for (const Value& value : graph.values) type = coarser(type, value.type.dtype);
  for (const Node& node : graph.nodes) type = coarser(type, rounded_operand(node.op, input_types(graph, node)));
  return type;
}

DType rounded_operand(Op op, Types inputs) {
  const auto scaled = [](const TensorType& type) { return is_scaled(type.dtype); };
  const bool rounds =
      (op == Op::Linear && scaled(inputs[1])) || (op == Op::Experts && std::ranges::any_of(inputs, scaled));
  return rounds ? DType::bf16 : DType::f32;
}

std::span<const std::string_view> precision_words() { return words; }

Result<DType> parse_precision(std::string_view word) {
  const auto found = std::ranges::find(words, word);
  if (found != words.end()) return types[static_cast<size_t>(found - words.begin())];
  return invalid_input(fmt::format("unknown precision \"{}\"; it is {}", word, fmt::join(words, ", ")));
}

}  // namespace nlsplit::inline graph

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "graph/operators/shapes.h"
#include "graph/passes/pass_list.h"
#include "graph/passes/pattern.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {
namespace {

using Ints = std::vector<int64_t>;
using Parts = std::vector<const Node*>;

// softmax(scale q kᵀ + mask) v in its parts. All three have as many axes: three (one head), four, or five, where heads
// that share keys and values are an axis of their own.
struct Found {
  ValueId q, k, v, mask;  // k as the second factor has it, turned, if perm is empty; mask: none is ValueId()
  Ints perm;              // of the transpose that makes k of the value in k; empty: its last two axes change places
  double scale = 1;
  Parts parts;
};

// Products with numbers, and quotients by them, go into the scale.
ValueId without_numbers(const Pattern& pattern, ValueId value, Found& found) {
  while (true) {
    const Node* node = pattern.made_for_one(value, Op::Mul);
    const bool divides = node == nullptr;
    if (divides) node = pattern.made_for_one(value, Op::Div);
    if (node == nullptr) return value;
    const size_t side = !divides && pattern.number(node->inputs[0]) ? 0 : 1;
    const auto number = pattern.number(node->inputs[side]);
    const ValueId other = node->inputs[1 - side];
    if (!number || pattern.graph().value(other).type != pattern.graph().value(value).type) return value;
    found.scale = divides ? found.scale / *number : found.scale * *number;
    found.parts.push_back(node);
    value = other;
  }
}

bool along_last(const Node& node, const char* attr, size_t rank) {
  const auto axis = axis_of(attr_int(node.attrs, attr), rank);
  return axis.ok() && *axis + 1 == rank;
}

// Where(IsInf(ReduceMax(mask)), 0, shares): what the operator does by itself, a query that sees no key gives zeros.
bool is_of_hidden_rows(const Pattern& pattern, const Node& where, ValueId mask, Parts& parts) {
  const Node* test = pattern.made_by(where.inputs[0], Op::IsInf);
  if (test == nullptr || pattern.number(where.inputs[1]) != 0.0) return false;
  if (attr_int(test->attrs, "detect_negative") == 0 || attr_int(test->attrs, "detect_positive") != 0) return false;
  const Node* best = pattern.made_by(test->inputs[0], Op::ReduceMax);
  if (best == nullptr || best->inputs[0] != mask || attr_int(best->attrs, "keepdims") == 0) return false;
  const Ints& axes = attr_ints(best->attrs, "axes");
  const size_t rank = pattern.graph().value(mask).type.shape.size();
  const auto axis = axes.size() == 1 ? axis_of(axes[0], rank) : Result<size_t>(invalid_input("several"));
  parts.insert(parts.end(), {&where, test, best});
  return axis.ok() && *axis + 1 == rank;
}

// What is multiplied with v: the shares of attention that each key gets.
bool find_shares(const Pattern& pattern, ValueId shares, Found& found) {
  const Node* where = pattern.made_for_one(shares, Op::Where);
  if (where != nullptr) shares = where->inputs[2];
  const Node* softmax = pattern.made_for_one(shares, Op::Softmax);
  const size_t rank = pattern.graph().value(shares).type.shape.size();
  if (softmax == nullptr || !along_last(*softmax, "axis", rank)) return false;
  const ValueId scores = softmax->inputs[0];
  // The scores are whichever addend ends at a product; the other one is the mask.
  std::vector<std::pair<ValueId, ValueId>> ways;
  const Node* sum = pattern.made_for_one(scores, Op::Add);
  if (sum == nullptr) {
    ways.emplace_back(scores, ValueId());
  } else {
    ways.emplace_back(sum->inputs[0], sum->inputs[1]);
    ways.emplace_back(sum->inputs[1], sum->inputs[0]);
  }
  for (const auto& [raw, mask] : ways) {
    Found way;
    way.mask = mask;
    way.parts.push_back(softmax);
    if (sum != nullptr) way.parts.push_back(sum);
    if (pattern.graph().value(raw).type != pattern.graph().value(scores).type) continue;
    const Node* product = pattern.made_for_one(without_numbers(pattern, raw, way), Op::MatMul);
    if (product == nullptr || product->inputs.size() != 2) continue;
    if (where != nullptr && (!mask.valid() || !is_of_hidden_rows(pattern, *where, mask, way.parts))) continue;
    way.parts.push_back(product);
    way.q = without_numbers(pattern, product->inputs[0], way);
    way.k = without_numbers(pattern, product->inputs[1], way);
    found = std::move(way);
    return true;
  }
  return false;
}

// k may have been made by a transpose: then another one makes it as the operator wants it, or none.
void find_untransposed(const Pattern& pattern, Found& found) {
  const Node* turn = pattern.made_by(found.k, Op::Transpose);
  if (turn == nullptr || attr_ints(turn->attrs, "perm").size() < 3) return;
  found.perm = attr_ints(turn->attrs, "perm");
  std::swap(found.perm[found.perm.size() - 1], found.perm[found.perm.size() - 2]);
  found.parts.push_back(turn);
  found.k = without_numbers(pattern, turn->inputs[0], found);
}

// Every head several times, one behind the other: Reshape, Expand, Reshape. The single ones.
std::optional<ValueId> unrepeated(const Pattern& pattern, ValueId value, Parts& parts) {
  const Node* flat = pattern.made_by(value, Op::Reshape);
  const Node* wide = flat == nullptr ? nullptr : pattern.made_by(flat->inputs[0], Op::Expand);
  const Node* apart = wide == nullptr ? nullptr : pattern.made_by(wide->inputs[0], Op::Reshape);
  if (apart == nullptr) return std::nullopt;
  const auto shape = [&](ValueId of) -> const Shape& { return pattern.graph().value(of).type.shape; };
  const Shape &x = shape(apart->inputs[0]), &many = shape(flat->inputs[0]);
  if (x.size() != 4 || many.size() != 5) return std::nullopt;
  const int64_t times = many[2];
  if (shape(wide->inputs[0]) != Shape{x[0], x[1], 1, x[2], x[3]} || many != Shape{x[0], x[1], times, x[2], x[3]} ||
      shape(value) != Shape{x[0], x[1] * times, x[2], x[3]})
    return std::nullopt;
  parts.insert(parts.end(), {flat, wide, apart});
  return apart->inputs[0];
}

std::optional<Found> find(const Pattern& pattern, const Node& product) {
  const Graph& graph = pattern.graph();
  if (product.op != Op::MatMul || product.inputs.size() != 2 || !product.epilogue.empty()) return std::nullopt;
  if (graph.value(product.outputs[0]).type.dtype != DType::f32) return std::nullopt;  // others are rounded between
  Found found;
  if (!find_shares(pattern, product.inputs[0], found)) return std::nullopt;
  found.v = product.inputs[1];
  find_untransposed(pattern, found);
  // Nothing but an exchange of the last two axes is left: then heads that are repeated can be seen through.
  if (std::ranges::is_sorted(found.perm) && !found.perm.empty()) {
    Parts parts;
    const auto k = unrepeated(pattern, found.k, parts), v = unrepeated(pattern, found.v, parts);
    if (k && v && graph.value(*k).type.shape[1] == graph.value(*v).type.shape[1]) {
      found.k = *k, found.v = *v;
      found.parts.insert(found.parts.end(), parts.begin(), parts.end());
    }
  }
  return found;
}

// Nothing is left of the exponential of a score that such a number was added to, unless scores are as large themselves.
constexpr double hidden_from_sight = -1e9;
constexpr int64_t largest_mask = int64_t{1} << 26;  // elements; what is larger stays a mask

// Of so many queries and keys: zeros where the operator's `causal` sees, hidden elsewhere.
bool is_causal(const Value& mask, const WeightStore& weights, int64_t queries, int64_t keys) {
  const Shape& shape = mask.type.shape;
  if (mask.kind != ValueKind::weight || keys < queries || shape.size() < 2) return false;
  if (shape[shape.size() - 2] != queries || shape.back() != keys || element_count(shape) != queries * keys)
    return false;
  if (const auto recipe = weights.formula_of(mask.content)) {
    return recipe->formula == Formula::causal_mask && recipe->parameter <= hidden_from_sight && queries == keys &&
           weights.type(mask.content).shape == Shape{queries, keys};
  }
  if (queries * keys > largest_mask) return false;
  const auto raw = weights.materialise(mask.content);
  if (!raw.ok() || static_cast<int64_t>(raw->size()) != queries * keys * size_of(DType::f32)) return false;
  std::vector<float> row(static_cast<size_t>(keys));
  for (int64_t i = 0; i < queries; ++i) {
    const size_t bytes = row.size() * sizeof(float);
    std::memcpy(row.data(), raw->data() + static_cast<size_t>(i) * bytes, bytes);
    for (int64_t j = 0; j < keys; ++j) {
      const float value = row[static_cast<size_t>(j)];
      if (j <= i + keys - queries ? value != 0 : !(static_cast<double>(value) <= hidden_from_sight)) return false;
    }
  }
  return true;
}

// The graph with the operators in place of what they were made of.
class Rewriting {
 public:
  Rewriting(const Graph& graph, const WeightStore& weights)
      : before_(graph), weights_(weights), out_(graph), instead_(graph.nodes.size()), part_(graph.nodes.size(), false) {
    for (const Node& node : graph.nodes) names_.insert(node.name);
  }

  // product: the last of the parts. false: the operator does not fit; all stays as it was.
  bool replace(const Node& product, const Found& found) {
    const size_t values = out_.values.size();
    Nodes nodes;
    names_.erase(product.name);
    if (!build(product, found, nodes)) {
      out_.values.resize(values);
      names_.insert(product.name);
      return false;
    }
    instead_[index_of(product)] = std::move(nodes);
    part_[index_of(product)] = true;
    for (const Node* part : found.parts) part_[index_of(*part)] = true;
    return true;
  }

  // Parts that others read stay.
  Graph done() {
    std::vector<bool> is_part;
    out_.nodes.clear();
    for (size_t i = 0; i < before_.nodes.size(); ++i) {
      if (instead_[i].empty()) {
        out_.nodes.push_back(before_.nodes[i]);
        is_part.push_back(part_[i]);
      }
      for (Node& node : instead_[i]) {
        out_.nodes.push_back(std::move(node));
        is_part.push_back(false);
      }
    }
    std::vector<int> uses = use_counts(out_);
    std::vector<bool> removed(out_.nodes.size(), false);
    for (size_t i = out_.nodes.size(); i-- > 0;) {
      const Node& node = out_.nodes[i];
      const auto is_read = [&](ValueId output) { return uses[output.index()] > 0; };
      if (!is_part[i] || std::ranges::any_of(node.outputs, is_read)) continue;
      removed[i] = true;
      for (const ValueId read : reads_of(node)) --uses[read.index()];
    }
    return compacted(out_, removed);
  }

 private:
  using Nodes = std::vector<Node>;
  size_t index_of(const Node& node) const { return static_cast<size_t>(&node - before_.nodes.data()); }
  const Shape& shape(ValueId value) const { return out_.value(value).type.shape; }

  // One node more; ValueId(): the type rules refuse it.
  ValueId add(Nodes& nodes, const std::string& wanted, Op op, std::vector<ValueId> inputs, Attrs attrs) {
    Node node;
    node.op = op;
    node.name = wanted;
    for (int n = 2; !names_.insert(node.name).second; ++n) node.name = fmt::format("{}{}", wanted, n);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    const auto types = infer(op, input_types(out_, node), node.attrs);
    if (!types.ok()) return ValueId();
    const ValueId made(out_.values.size());
    out_.values.push_back({unused_name(out_, wanted), types->front(), ValueKind::node, {}, {}});
    node.outputs = {made};
    nodes.push_back(std::move(node));
    return made;
  }

  // As four axes: heads that share keys and values beside those that do not.
  ValueId four_axes(Nodes& nodes, const std::string& name, ValueId value) {
    const Shape from = shape(value);
    if (from.size() == 4) return value;
    const Shape to = from.size() == 3 ? Shape{0, 1, from[1], from[2]} : Shape{0, from[1] * from[2], from[3], from[4]};
    return add(nodes, name, Op::Reshape, {value}, {{"shape", to}});
  }

  // Nothing: it lies otherwise over the scores, whose axes have these extents.
  std::optional<ValueId> mask_of(Nodes& nodes, const std::string& name, ValueId mask, const Shape& scores) {
    const Shape from = shape(mask);
    const size_t rank = scores.size();
    if (from.size() > rank || from.empty()) return std::nullopt;
    Shape as(rank - from.size(), 1);
    as.insert(as.end(), from.begin(), from.end());
    const bool one_a_sample = std::all_of(as.begin() + 1, as.end() - 2, [](int64_t extent) { return extent == 1; });
    if (rank == 4 || from.size() <= 2 || (one_a_sample && as[0] == 1 && from.size() <= 4)) return mask;
    const bool one_a_head = rank == 5 && as[1] == scores[1] && as[2] == scores[2];
    if (!one_a_sample && !one_a_head) return std::nullopt;
    Shape to{from.size() == rank ? 0 : 1, one_a_head ? as[1] * as[2] : 1, as[rank - 2], as[rank - 1]};
    const Value& value = out_.value(mask);
    if (value.kind != ValueKind::weight) return add(nodes, name, Op::Reshape, {mask}, {{"shape", to}});
    to[0] = as[0];
    return add_weight(out_, value.name + ".heads", {value.type.dtype, to}, value.content);
  }

  bool build(const Node& product, const Found& found, Nodes& nodes) {
    const size_t rank = shape(found.q).size();
    const Shape result = shape(product.outputs[0]);
    if (rank < 3 || rank > 5 || shape(found.k).size() != rank || shape(found.v).size() != rank || result.size() != rank)
      return false;
    ValueId k = found.k;
    Ints perm = found.perm;
    for (size_t axis = perm.size(); axis < rank; ++axis) perm.push_back(static_cast<int64_t>(axis));
    if (found.perm.empty()) std::swap(perm[rank - 1], perm[rank - 2]);
    if (!std::ranges::is_sorted(perm)) k = add(nodes, product.name + ".k", Op::Transpose, {k}, {{"perm", perm}});
    if (!k.valid()) return false;
    if (rank == 5 && (shape(k)[1] != shape(found.q)[1] || shape(found.v)[1] != shape(k)[1] ||
                      shape(found.v)[2] != shape(k)[2] || (shape(k)[2] != 1 && shape(k)[2] != shape(found.q)[2])))
      return false;
    const int64_t queries = shape(found.q)[rank - 2], keys = shape(k)[rank - 2];
    Shape scores = shape(found.q);
    scores[rank - 1] = keys;
    std::vector<ValueId> inputs{four_axes(nodes, product.name + ".q4", found.q),
                                four_axes(nodes, product.name + ".k4", k),
                                four_axes(nodes, product.name + ".v4", found.v)};
    bool causal = false;
    if (found.mask.valid()) {
      causal = sees_no_later(found.mask, queries, keys);
      const auto mask = causal ? ValueId() : mask_of(nodes, product.name + ".mask4", found.mask, scores);
      if (!mask) return false;
      if (!causal) inputs.push_back(*mask);
    }
    const Attrs attrs{{"causal", int64_t{causal ? 1 : 0}}, {"scale", found.scale}};
    if (std::ranges::any_of(inputs, [](ValueId input) { return !input.valid(); })) return false;
    const ValueId made = add(nodes, product.name, Op::Attention, std::move(inputs), attrs);
    if (!made.valid()) return false;
    if (rank == 4) {
      if (shape(made) != result) return false;
      nodes.back().outputs = product.outputs;
      return true;
    }
    Shape to = result;
    to[0] = 0;
    if (shape(made)[0] != result[0] || element_count(shape(made)) != element_count(result)) return false;
    if (!add(nodes, product.name + ".heads", Op::Reshape, {made}, {{"shape", to}}).valid()) return false;
    nodes.back().outputs = product.outputs;
    return true;
  }

  // Many layers have the same mask.
  bool sees_no_later(ValueId mask, int64_t queries, int64_t keys) {
    const Value& value = out_.value(mask);
    if (value.kind != ValueKind::weight) return false;
    const std::string key = fmt::format("{} {} {} {}", value.content.value, to_string(value.type), queries, keys);
    const auto [known, added] = causal_.try_emplace(key, false);
    if (added) known->second = is_causal(value, weights_, queries, keys);
    return known->second;
  }

  const Graph& before_;
  const WeightStore& weights_;
  Graph out_;
  std::vector<Nodes> instead_;  // [node before]
  std::vector<bool> part_;      // likewise: it is removed if it has no reader any more
  std::unordered_map<std::string, bool> causal_;
  std::unordered_set<std::string> names_;  // of nodes
};

}  // namespace

// Vaswani et al., "Attention is all you need", 2017, as exporters write it: softmax(q kᵀ · scale + mask) v. A constant
// mask that hides the later positions is the operator's `causal`; heads of keys and values that are repeated, or that
// the products repeat along an axis, are shared.
Result<Graph> recognize_attention(const Graph& graph, WeightStore& weights) {
  const Pattern pattern(graph, weights);
  Rewriting out(graph, weights);
  bool any = false;
  for (const Node& node : graph.nodes) {
    const auto found = find(pattern, node);
    if (found) any = out.replace(node, *found) || any;
  }
  return any ? out.done() : graph;
}

}  // namespace nlsplit::inline graph

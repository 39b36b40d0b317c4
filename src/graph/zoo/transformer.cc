#include "graph/zoo/transformer.h"

#include <cmath>
#include <numbers>

namespace nlsplit::inline graph {
namespace {

constexpr double masked_score = -1e9;  // added to a score: nothing is left of its exponential

Attrs axes_attrs(std::vector<int64_t> axes) { return {{"axes", std::move(axes)}, {"keepdims", int64_t{1}}}; }

ValueId transpose(ZooNet& net, const std::string& name, ValueId x, std::vector<int64_t> perm) {
  return net.node(Op::Transpose, name, {x}, {{"perm", std::move(perm)}});
}

// x [batch, tokens, …, d] turned by each token's position: x cos + (x's halves exchanged) (∓sin).
ValueId rotate(ZooNet& net, const std::string& name, ValueId x, const AttentionSpec& spec) {
  const Shape shape = net.shape(x);
  const auto last = static_cast<int64_t>(shape.size()) - 1;
  const int64_t d = shape.back();
  Shape table(shape.begin() + 1, shape.end());  // [tokens, 1, …, d]
  for (size_t axis = 1; axis + 1 < table.size(); ++axis) table[axis] = 1;
  const ValueId low = rows(net, name + ".low", x, last, 0, d / 2), high = rows(net, name + ".high", x, last, d / 2, d);
  const ValueId exchanged = net.concat(name + ".exchanged", {high, low}, last);
  const ValueId cosine =
      net.table(name + ".cos_table", Formula::rotary_cos, table, spec.rotary_base, spec.rotary_factors);
  const ValueId straight = net.mul(name + ".cos", x, cosine);
  const ValueId sine =
      net.table(name + ".sin_table", Formula::rotary_sin, table, spec.rotary_base, spec.rotary_factors);
  const ValueId across = net.mul(name + ".sin", exchanged, sine);
  return net.add(name, straight, across);
}

double scale_of(const AttentionSpec& spec, int64_t d) {
  return spec.scale > 0 ? spec.scale : 1 / std::sqrt(static_cast<double>(d));
}

}  // namespace

ValueId soft_capped(ZooNet& net, const std::string& name, ValueId x, double most) {
  const ValueId part = net.mul(name + ".part", x, net.scalar(name + ".inverse", 1 / most));
  return net.mul(name, net.node(Op::Tanh, name + ".tanh", {part}), net.scalar(name + ".most", most));
}

ValueId reshape(ZooNet& net, const std::string& name, ValueId x, Shape shape) {
  return net.node(Op::Reshape, name, {x}, {{"shape", std::move(shape)}});
}

ValueId rows(ZooNet& net, const std::string& name, ValueId x, int64_t axis, int64_t first, int64_t end) {
  using Ints = std::vector<int64_t>;
  return net.node(Op::Slice, name, {x},
                  {{"axes", Ints{axis}}, {"ends", Ints{end}}, {"starts", Ints{first}}, {"steps", Ints{1}}});
}

ValueId project(ZooNet& net, const std::string& name, ValueId x, const ProjectionSpec& spec) {
  const int64_t in = net.shape(x).back();
  const DType stored = net.stored_type(name + ".weight");
  const bool rows = stored != DType::f32;
  const Op op = rows ? Op::Linear : Op::MatMul;
  const Shape shape = rows ? Shape{spec.features, in} : Shape{in, spec.features};
  const ValueId w = net.weight(name + ".weight", {stored, shape}, spec.gain / std::sqrt(static_cast<double>(in)));
  if (!spec.bias) return net.node(op, name, {x, w});
  const ValueId product = net.node(op, name + ".product", {x, w});
  return net.add(name, product, net.weight(name + ".bias", {spec.features}, 0.1));
}

ValueId layer_norm(ZooNet& net, const std::string& name, ValueId x, double epsilon) {
  const Shape width{net.shape(x).back()};
  const ValueId scale = net.weight(name + ".weight", width, 0.1, 1), bias = net.weight(name + ".bias", width, 0.1);
  return net.node(Op::LayerNormalization, name, {x, scale, bias}, {{"axis", int64_t{-1}}, {"epsilon", epsilon}});
}

ValueId rms_norm(ZooNet& net, const std::string& name, ValueId x, double epsilon) {
  const ValueId square = net.mul(name + ".square", x, x);
  const ValueId mean =
      net.node(Op::ReduceMean, name + ".mean", {square}, axes_attrs({static_cast<int64_t>(net.shape(x).size()) - 1}));
  const ValueId raised = net.add(name + ".raised", mean, net.scalar(name + ".epsilon", epsilon));
  const ValueId root = net.node(Op::Sqrt, name + ".root", {raised});
  const ValueId normal = net.node(Op::Div, name + ".normal", {x, root});
  return net.mul(name, normal, net.weight(name + ".weight", {net.shape(x).back()}, 0.1, 1));
}

ValueId gelu(ZooNet& net, const std::string& name, ValueId x) {
  const ValueId scaled = net.mul(name + ".scaled", x, net.scalar(name + ".root_half", std::numbers::sqrt2 / 2));
  const ValueId curve = net.node(Op::Erf, name + ".erf", {scaled});
  const ValueId above = net.add(name + ".above", curve, net.scalar(name + ".one", 1));
  const ValueId half = net.mul(name + ".half", above, net.scalar(name + ".one_half", 0.5));
  return net.mul(name, half, x);
}

ValueId gelu_tanh(ZooNet& net, const std::string& name, ValueId x) {
  const ValueId cube = net.mul(name + ".cube", net.mul(name + ".square", x, x), x);
  const ValueId part = net.mul(name + ".part", cube, net.scalar(name + ".cubic", 0.044715));
  const ValueId sum = net.add(name + ".sum", x, part);
  const double root = std::sqrt(2 / std::numbers::pi);
  const ValueId curve =
      net.node(Op::Tanh, name + ".tanh", {net.mul(name + ".scaled", sum, net.scalar(name + ".root", root))});
  const ValueId above = net.add(name + ".above", curve, net.scalar(name + ".one", 1));
  const ValueId half = net.mul(name + ".half", above, net.scalar(name + ".one_half", 0.5));
  return net.mul(name, half, x);
}

// Heads that share keys and values are an axis of their own, along which the product repeats them: nothing is copied.
ValueId attention(ZooNet& net, const std::string& name, ValueId q, ValueId k, ValueId v, const AttentionSpec& spec) {
  const int64_t kv_heads = spec.kv_heads == 0 ? spec.heads : spec.kv_heads, shared = spec.heads / kv_heads;
  const Shape x = net.shape(q);
  const int64_t tokens = x[1], width = x[2], d = width / spec.heads;
  const auto split = [&](const std::string& part, ValueId value, int64_t of_a_kind) {
    Shape shape{0, tokens, kv_heads};
    if (shared > 1) shape.push_back(of_a_kind);
    shape.push_back(d);
    return reshape(net, name + part, value, std::move(shape));
  };
  using Ints = std::vector<int64_t>;
  const Ints rows_last = shared > 1 ? Ints{0, 2, 3, 1, 4} : Ints{0, 2, 1, 3};     // […, tokens, d]
  const Ints columns_last = shared > 1 ? Ints{0, 2, 3, 4, 1} : Ints{0, 2, 3, 1};  // […, d, tokens]
  const Ints back = shared > 1 ? Ints{0, 3, 1, 2, 4} : Ints{0, 2, 1, 3};
  q = split(".q_heads", q, shared);
  k = split(".k_heads", k, 1);
  v = split(".v_heads", v, 1);
  if (spec.norm_epsilon > 0) {
    q = rms_norm(net, name + ".q_norm", q, spec.norm_epsilon);
    k = rms_norm(net, name + ".k_norm", k, spec.norm_epsilon);
  }
  if (spec.rotary_base > 0) {
    q = rotate(net, name + ".q_rotary", q, spec);
    k = rotate(net, name + ".k_rotary", k, spec);
  }
  q = transpose(net, name + ".q", q, rows_last);
  k = transpose(net, name + ".k", k, columns_last);
  v = transpose(net, name + ".v", v, rows_last);
  ValueId scores = net.node(Op::MatMul, name + ".scores", {q, k});
  scores = net.mul(name + ".scaled", scores, net.scalar(name + ".scale", scale_of(spec, d)));
  if (spec.softcap > 0) scores = soft_capped(net, name + ".capped", scores, spec.softcap);
  if (spec.causal) {
    // Where the window is wider than the prompt it hides nothing.
    const bool windowed = spec.window > 0 && spec.window < tokens;
    const std::vector<float> window(windowed ? 1 : 0, static_cast<float>(spec.window));
    scores = net.add(name + ".masked", scores,
                     net.table(name + ".mask", Formula::causal_mask, {tokens, tokens}, masked_score, window));
  }
  const auto last = static_cast<int64_t>(net.shape(scores).size()) - 1;
  const ValueId shares = net.node(Op::Softmax, name + ".softmax", {scores}, {{"axis", last}});
  const ValueId context = net.node(Op::MatMul, name + ".context", {shares, v});
  return reshape(net, name + ".merged", transpose(net, name + ".context_rows", context, back), {0, tokens, width});
}

ValueId attention_over_cache(ZooNet& net, const std::string& name, ValueId q, ValueId k, ValueId v,
                             const AttentionSpec& spec, const CacheSpec& cache) {
  const int64_t kv_heads = spec.kv_heads == 0 ? spec.heads : spec.kv_heads;
  const Shape x = net.shape(q);
  const int64_t tokens = x[1], d = x[2] / spec.heads;
  const std::vector<int64_t> heads_first{0, 2, 1, 3};
  const auto by_head = [&](const std::string& part, ValueId value, int64_t heads, bool is_value) {
    value = reshape(net, name + part + "_heads", value, {0, tokens, heads, d});
    if (spec.norm_epsilon > 0 && !is_value) value = rms_norm(net, name + part + "_norm", value, spec.norm_epsilon);
    value = transpose(net, name + part, value, heads_first);
    if (!cache.cosines.valid() || is_value) return value;
    return net.node(Op::RotaryEmbedding, name + part + "_rotary", {value, cache.cosines, cache.sines, cache.begins});
  };
  const bool paged = cache.page > 0;
  const auto kept = [&](const std::string& part, ValueId value) {
    const Shape shape = paged ? Shape{cache.pages, kv_heads, cache.page, d} : Shape{x[0], kv_heads, cache.positions, d};
    const ValueId past = net.state(name + ".past_" + part, {cache.type, shape});
    if (cache.type != DType::f32)
      value = net.node(Op::Cast, name + ".new_" + part, {value}, {{"to", std::string(name_of(cache.type))}});
    if (paged)
      return net.node(Op::PagedScatter, name + "." + part, {past, value, cache.begins, cache.page_table, cache.counts});
    return net.node(Op::TensorScatter, name + "." + part, {past, value, cache.begins},
                    {{"axis", int64_t{-2}}, {"mode", std::string("linear")}});
  };
  q = by_head(".q", q, spec.heads, false);
  k = by_head(".k", k, kv_heads, false);
  v = by_head(".v", v, kv_heads, true);
  const ValueId keys = kept("keys", k), values = kept("values", v);
  std::vector<ValueId> operands = {q, keys, values, cache.lengths};
  if (paged) operands.push_back(cache.page_table);
  const ValueId context = net.node(paged ? Op::PagedAttention : Op::CachedAttention, name + ".context", operands,
                                   {{"causal", int64_t{1}},
                                    {"scale", scale_of(spec, d)},
                                    {"softcap", spec.softcap},
                                    {"window", spec.window < cache.positions ? spec.window : int64_t{0}}});
  return reshape(net, name + ".merged", transpose(net, name + ".context_rows", context, heads_first),
                 {0, tokens, x[2]});
}

ValueId embed(ZooNet& net, const std::string& name, ValueId tokens, int64_t count, int64_t width, double deviation) {
  const TensorType table{net.stored_type(name + ".weight"), {count, width}};
  const ValueId w = net.weight(name + ".weight", table, deviation);
  const Attrs rows = {{"axis", int64_t{0}}};
  if (!is_half(table.dtype)) return net.node(Op::Gather, name, {w, tokens}, rows);
  return net.node(Op::Cast, name, {net.node(Op::Gather, name + ".rows", {w, tokens}, rows)},
                  {{"to", std::string(name_of(DType::f32))}});
}

double branch_gain(int64_t layers) { return 1 / std::sqrt(2 * static_cast<double>(layers)); }

}  // namespace nlsplit::inline graph

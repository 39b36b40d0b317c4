// Attention and RotaryEmbedding of opset 23 on, by the definitions in ONNX's own documents.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "graph/elements.h"
#include "graph/onnx/convert_chain.h"
#include "graph/onnx/onnx_types.h"
#include "graph/operators/shapes.h"

namespace nlsplit::inline graph {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

Attrs list_attr(const char* name, std::vector<int64_t> values) {
  Attrs attrs;
  set_attr(attrs, name, std::move(values));
  return attrs;
}

// Vaswani et al., "Attention is all you need", 2017: softmax(q kᵀ scale + bias) v, a head at a time; the bias is the
// mask, what comes later (causal) and what is no key at all (nonpad_kv_seqlen).
class AttentionChain {
 public:
  explicit AttentionChain(const ConvertContext& c) : c_(c), chain_(c) {}

  Result<std::vector<ValueId>> convert() {
    RETURN_IF_ERROR(check());
    ValueId q = heads(0, q_heads_, ".q"), k = heads(1, kv_heads_, ".k"), v = heads(2, kv_heads_, ".v");
    if (c_.given(4)) {
      ASSIGN_OR_RETURN(const ValueId past_key, c_.value(4));
      ASSIGN_OR_RETURN(const ValueId past_value, c_.value(5));
      k = chain_.output(1, ".present_key", Op::Concat, {past_key, k}, axis(2));
      v = chain_.output(2, ".present_value", Op::Concat, {past_value, v}, axis(2));
    } else if (wants_output(c_, 1) || wants_output(c_, 2)) {
      k = chain_.output(1, ".present_key", Op::Identity, {k});
      v = chain_.output(2, ".present_value", Op::Identity, {v});
    }
    const ValueId present_key = k, present_value = v;
    if (auto made = chain_.result(v); !made) return made.error();
    const Shape from = c_.graph.type(q).shape, to = c_.graph.type(k).shape;
    if (from[1] < 1 || to[1] < 1 || from[1] % to[1] != 0)
      return invalid_input(fmt::format("{} heads of queries for {} heads of keys", from[1], to[1]));
    const double scale = float_attr(c_.node, "scale", 1 / std::sqrt(static_cast<double>(from[3])));
    if (!(scale >= 0)) return unsupported(fmt::format("a scale of {}", scale));
    if (c_.given(6) && c_.inputs[6].constant == nullptr) return cached(q, k, v, scale);
    if (from[1] != to[1]) {  // each head of the keys serves several of the queries
      k = repeated(k, from[1] / to[1], ".k");
      v = repeated(v, from[1] / to[1], ".v");
    }
    const ValueId root = chain_.scalar(".scale", type_, std::sqrt(scale));  // on both sides: halves do not overflow
    const ValueId scaled_q = chain_.step(".scaled_q", Op::Mul, {q, root});
    const ValueId turned = chain_.step(".turned_k", Op::Transpose, {k}, list_attr("perm", {0, 1, 3, 2}));
    const ValueId scaled_k = chain_.step(".scaled_k", Op::Mul, {turned, root});
    const ValueId raw = chain_.step(".scores", Op::MatMul, {scaled_q, scaled_k});
    ValueId capped = raw;
    if (const double cap = float_attr(c_.node, "softcap", 0); cap != 0) {
      const ValueId limit = chain_.scalar(".softcap", type_, cap);
      const ValueId small = chain_.step(".over_cap", Op::Div, {raw, limit});
      const ValueId curved = chain_.step(".curved", Op::Tanh, {small});
      capped = chain_.step(".capped", Op::Mul, {curved, limit});
    }
    ValueId biased = capped, probability;
    ASSIGN_OR_RETURN(const ValueId bias, bias_of(from[0], from[2], to[2]));
    if (bias.valid()) biased = chain_.step(".biased", Op::Add, {capped, bias});
    probability = softmax(biased);
    if (bias.valid() && hides_rows_) {  // a query without any key gets zeros, where a softmax has no number
      Attrs which, reduced;
      set_attr(reduced, "axes", std::vector<int64_t>{-1});
      set_attr(reduced, "keepdims", int64_t{1});
      set_attr(which, "detect_negative", int64_t{1});
      set_attr(which, "detect_positive", int64_t{0});
      const ValueId best = chain_.step(".best", Op::ReduceMax, {bias}, std::move(reduced));
      const ValueId hidden = chain_.step(".hidden", Op::IsInf, {best}, std::move(which));
      probability = chain_.step(".seen", Op::Where, {hidden, chain_.scalar(".nothing", type_, 0), probability});
    }
    const ValueId y = result(probability, v);
    const int64_t mode = int_attr(c_.node, "qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3) return invalid_input(fmt::format("qk_matmul_output_mode {}", mode));
    std::vector<ValueId> made = {y, present_key, present_value};
    if (wants_output(c_, 3)) {
      const ValueId shown[] = {raw, capped, biased, probability};
      made.push_back(chain_.output(3, ".shown", Op::Identity, {shown[mode]}));
    }
    return chain_.results(std::move(made));
  }

 private:
  Status check() {
    for (const size_t i : {0, 1, 2}) {
      if (!c_.given(i)) return invalid_input("an input is missing");
    }
    type_ = c_.type(0).dtype;
    if (!is_real(type_)) return unsupported(fmt::format("operands of type {}", name_of(type_)));
    if (c_.given(4) != c_.given(5)) return invalid_input("a past key without a past value");
    const size_t rank = c_.type(0).shape.size();
    flat_ = rank == 3;
    q_heads_ = int_attr(c_.node, "q_num_heads", 0), kv_heads_ = int_attr(c_.node, "kv_num_heads", 0);
    for (const size_t i : {0, 1, 2}) {
      const Shape& shape = c_.type(i).shape;
      const int64_t heads = i == 0 ? q_heads_ : kv_heads_;
      if (shape.size() != rank || (rank != 3 && rank != 4) ||
          (flat_ && (heads < 1 || shape[2] < 1 || shape[2] % heads != 0)))
        return invalid_input(fmt::format("input {} is {}, for {} heads", i, to_string(c_.type(i)), heads));
    }
    return ok_status();
  }

  // Lengths that become known at run time: one node, as what it sees and costs depends on them.
  Result<std::vector<ValueId>> cached(ValueId q, ValueId k, ValueId v, double scale) {
    const auto precision = dtype_of_onnx(int_attr(c_.node, "softmax_precision", 0));
    if (c_.given(4) || wants_output(c_, 1) || wants_output(c_, 2) || wants_output(c_, 3))
      return unsupported("nonpad_kv_seqlen beside a past, a present or scores");
    if (float_attr(c_.node, "softcap", 0) != 0 || (precision && *precision != type_ && is_real(*precision)))
      return unsupported("nonpad_kv_seqlen that is not constant, and scores capped or in another precision");
    ASSIGN_OR_RETURN(const ValueId lengths, c_.value(6));
    std::vector<ValueId> inputs = {q, k, v, lengths};
    if (c_.given(3)) {
      ASSIGN_OR_RETURN(inputs.emplace_back(), mask_of(c_.graph.type(k).shape[2]));
    }
    Attrs attrs;
    set_attr(attrs, "causal", int_attr(c_.node, "is_causal", 0));
    set_attr(attrs, "scale", scale);
    set_attr(attrs, "softcap", 0.0);
    set_attr(attrs, "window", int64_t{0});
    if (!flat_) return chain_.results({chain_.last(Op::CachedAttention, std::move(inputs), std::move(attrs))});
    return chain_.results({flat(chain_.step(".heads", Op::CachedAttention, std::move(inputs), std::move(attrs)))});
  }

  static Attrs axis(int64_t at) {
    Attrs attrs;
    set_attr(attrs, "axis", at);
    return attrs;
  }

  // [batch, heads, steps, size]
  ValueId heads(size_t i, int64_t count, const std::string& suffix) {
    auto x = c_.value(i);  // check() has seen it
    if (!flat_) return *x;
    const int64_t size = c_.graph.type(*x).shape[2] / count;
    const ValueId apart = chain_.step(suffix + ".apart", Op::Reshape, {*x}, list_attr("shape", {0, 0, count, size}));
    return chain_.step(suffix + ".heads", Op::Transpose, {apart}, list_attr("perm", {0, 2, 1, 3}));
  }

  // Every head `times` times, one behind the other.
  ValueId repeated(ValueId x, int64_t times, const std::string& suffix) {
    const Shape shape = c_.graph.type(x).shape;
    const ValueId apart =
        chain_.step(suffix + ".single", Op::Reshape, {x}, list_attr("shape", {0, shape[1], 1, shape[2], shape[3]}));
    const ValueId wide = chain_.step(suffix + ".wide", Op::Expand, {apart}, list_attr("shape", {1, 1, times, 1, 1}));
    return chain_.step(suffix + ".all", Op::Reshape, {wide},
                       list_attr("shape", {0, shape[1] * times, shape[2], shape[3]}));
  }

  // The mask as something to add, if there is one.
  Result<ValueId> mask_of(int64_t keys) {
    ASSIGN_OR_RETURN(ValueId mask, c_.value(3));
    const TensorType type = c_.graph.type(mask);
    if (type.shape.empty() || type.shape.back() > keys)
      return invalid_input(fmt::format("a mask {} for {} keys", to_string(type), keys));
    if (type.shape.back() < keys) {  // what it does not speak of is hidden
      std::vector<int64_t> pads(2 * type.shape.size(), 0);
      pads.back() = keys - type.shape.back();
      Attrs attrs = list_attr("pads", std::move(pads));
      set_attr(attrs, "value", type.dtype == DType::boolean ? 0.0 : minus_infinity);
      mask = chain_.step(".mask", Op::Pad, {mask}, std::move(attrs));
    }
    hides_rows_ = true;
    if (type.dtype != DType::boolean) return chain_.result(mask);
    const ValueId shown = chain_.scalar(".shown_key", type_, 0),
                  hidden = chain_.scalar(".hidden_key", type_, minus_infinity);
    return chain_.result(chain_.step(".mask_bias", Op::Where, {mask, shown, hidden}));
  }

  // Of what is known at import: query i sees key j up to i + what came before, and only keys that are there.
  Result<ValueId> places(int64_t batch, int64_t queries, int64_t keys) {
    const bool causal = int_attr(c_.node, "is_causal", 0) != 0;
    std::vector<int64_t> lengths;
    if (c_.given(6)) {
      ASSIGN_OR_RETURN(lengths, integers_of(*c_.inputs[6].constant, c_.weights));
      if (std::ssize(lengths) != batch) return invalid_input("nonpad_kv_seqlen is not a length for each sample");
    }
    if (!causal && lengths.empty()) return ValueId();
    const int64_t samples = lengths.empty() ? 1 : batch, before = c_.given(4) ? c_.type(4).shape[2] : 0;
    const double size = static_cast<double>(samples) * static_cast<double>(queries) * static_cast<double>(keys);
    if (size > 0x1p26) return unsupported(fmt::format("a mask of {} x {} x {}", samples, queries, keys));
    RETURN_IF_ERROR(c_.spend(size / 16));  // quickly made, and every layer has the same
    const std::string shown = raw_of(type_, std::array{0.0}), hidden = raw_of(type_, std::array{minus_infinity});
    std::string bias;
    for (int64_t s = 0; s < samples; ++s) {
      const int64_t there = lengths.empty() ? keys : std::clamp<int64_t>(lengths[static_cast<size_t>(s)], 0, keys);
      const int64_t offset = lengths.empty() ? before : there - queries;
      for (int64_t i = 0; i < queries; ++i) {
        bool sees = false;
        for (int64_t j = 0; j < keys; ++j) {
          const bool seen = j < there && (!causal || j <= i + offset);
          sees = sees || seen;
          bias += seen ? shown : hidden;
        }
        hides_rows_ = hides_rows_ || !sees;
      }
    }
    TensorType type{type_, {queries, keys}};
    if (!lengths.empty()) type.shape.insert(type.shape.begin(), {samples, 1});
    const ContentId content = c_.weights.add_bytes(type, std::move(bias));
    return c_.graph.weight(c_.name + ".places", std::move(type), content);
  }

  Result<ValueId> bias_of(int64_t batch, int64_t queries, int64_t keys) {
    ASSIGN_OR_RETURN(const ValueId known, places(batch, queries, keys));
    if (!c_.given(3)) return known;
    ASSIGN_OR_RETURN(const ValueId mask, mask_of(keys));
    return known.valid() ? chain_.result(chain_.step(".bias", Op::Add, {mask, known})) : Result<ValueId>(mask);
  }

  // In another precision where that is asked for.
  ValueId softmax(ValueId x) {
    const auto wanted = dtype_of_onnx(int_attr(c_.node, "softmax_precision", 0));
    const auto cast = [&](ValueId value, DType to, const std::string& suffix) {
      Attrs attrs;
      set_attr(attrs, "to", std::string(name_of(to)));
      return chain_.step(suffix, Op::Cast, {value}, std::move(attrs));
    };
    const bool other = wanted && *wanted != type_ && is_real(*wanted);
    if (other) x = cast(x, *wanted, ".wide_scores");
    const ValueId soft = chain_.step(".softmax", Op::Softmax, {x}, axis(3));
    return other ? cast(soft, type_, ".narrow") : soft;
  }

  ValueId result(ValueId probability, ValueId v) {
    if (!flat_) return chain_.last(Op::MatMul, {probability, v});
    return flat(chain_.step(".heads", Op::MatMul, {probability, v}));
  }

  // [batch, steps, heads * size] of [batch, heads, steps, size]: the node's result.
  ValueId flat(ValueId apart) {
    const ValueId turned = chain_.step(".turned", Op::Transpose, {apart}, list_attr("perm", {0, 2, 1, 3}));
    return chain_.last(Op::Reshape, {turned}, list_attr("shape", {0, 0, -1}));
  }

  const ConvertContext& c_;
  Chain chain_;
  DType type_{};
  bool flat_ = false, hides_rows_ = false;
  int64_t q_heads_ = 0, kv_heads_ = 0;
};

Attrs part(int64_t axis, int64_t start, int64_t end, int64_t step = 1) {
  Attrs attrs = list_attr("axes", {axis});
  set_attr(attrs, "starts", std::vector<int64_t>{start});
  set_attr(attrs, "ends", std::vector<int64_t>{end});
  set_attr(attrs, "steps", std::vector<int64_t>{step});
  return attrs;
}

// Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021: pairs of elements turned by an
// angle that grows with their step. Worked on as [batch, steps, heads, size].
Converted rotary_embedding(const ConvertContext& c) {
  ASSIGN_OR_RETURN(ValueId x, c.value(0));
  ASSIGN_OR_RETURN(ValueId cosine, c.value(1));
  ASSIGN_OR_RETURN(ValueId sine, c.value(2));
  const Shape shape = c.graph.type(x).shape;
  const bool flat = shape.size() == 3;
  const int64_t count = int_attr(c.node, "num_heads", 0);
  if ((!flat && shape.size() != 4) || (flat && (count < 1 || shape[2] < 1 || shape[2] % count != 0)))
    return invalid_input(fmt::format("{} for {} heads", to_string(c.graph.type(x)), count));
  const int64_t size = flat ? shape[2] / count : shape[3];
  const int64_t said = int_attr(c.node, "rotary_embedding_dim", 0), turned = said == 0 ? size : said;
  if (turned < 2 || turned > size || turned % 2 != 0)
    return invalid_input(fmt::format("a rotary_embedding_dim of {} of {} elements", turned, size));
  const bool interleaved = int_attr(c.node, "interleaved", 0) != 0;
  Chain chain(c);
  x = flat ? chain.step(".heads", Op::Reshape, {x}, list_attr("shape", {0, 0, count, size}))
           : chain.step(".heads", Op::Transpose, {x}, list_attr("perm", {0, 2, 1, 3}));
  if (c.given(3)) {  // [all positions, half] at each step's position
    ASSIGN_OR_RETURN(const ValueId positions, c.value(3));
    Attrs rows;
    set_attr(rows, "axis", int64_t{0});
    cosine = chain.step(".cos_at", Op::Gather, {cosine, positions}, rows);
    sine = chain.step(".sin_at", Op::Gather, {sine, positions}, std::move(rows));
  }
  if (auto sound = chain.result(sine); !sound) return sound;
  for (const ValueId angles : {cosine, sine}) {
    const TensorType& type = c.graph.type(angles);
    if (type.shape.size() != 3 || type.shape[2] != turned / 2)
      return invalid_input(fmt::format("angles {} for {} elements", to_string(type), turned));
  }
  const int64_t steps = c.graph.type(cosine).shape[1];
  cosine = chain.step(".cos", Op::Reshape, {cosine}, list_attr("shape", {0, steps, 1, turned / 2}));
  sine = chain.step(".sin", Op::Reshape, {sine}, list_attr("shape", {0, steps, 1, turned / 2}));
  const int64_t half = turned / 2;
  const ValueId a = chain.step(".a", Op::Slice, {x}, interleaved ? part(3, 0, turned, 2) : part(3, 0, half));
  const ValueId b = chain.step(".b", Op::Slice, {x}, interleaved ? part(3, 1, turned, 2) : part(3, half, turned));
  const auto product = [&](ValueId p, ValueId q, const std::string& suffix) {
    return chain.step(suffix, Op::Mul, {p, q});
  };
  ValueId real = chain.step(".real", Op::Sub, {product(a, cosine, ".ac"), product(b, sine, ".bs")});
  ValueId imaginary = chain.step(".imaginary", Op::Add, {product(a, sine, ".as"), product(b, cosine, ".bc")});
  Attrs pair_axis, last_axis;
  set_attr(pair_axis, "axis", int64_t{interleaved ? 4 : 3});
  set_attr(last_axis, "axis", int64_t{3});
  if (interleaved) {
    if (auto sound = chain.result(imaginary); !sound) return sound;
    const Shape pairs = c.graph.type(real).shape;
    const std::vector<int64_t> column = {0, pairs[1], pairs[2], pairs[3], 1};
    real = chain.step(".real_column", Op::Reshape, {real}, list_attr("shape", column));
    imaginary = chain.step(".imaginary_column", Op::Reshape, {imaginary}, list_attr("shape", column));
  }
  ValueId y = chain.step(".pairs", Op::Concat, {real, imaginary}, std::move(pair_axis));
  if (interleaved) {
    const Shape heads = c.graph.type(x).shape;
    y = chain.step(".row", Op::Reshape, {y}, list_attr("shape", {0, heads[1], heads[2], turned}));
  }
  if (turned < size) {
    const ValueId rest = chain.step(".rest", Op::Slice, {x}, part(3, turned, size));
    y = chain.step(".whole", Op::Concat, {y, rest}, last_axis);
  }
  return chain.result(flat ? chain.last(Op::Reshape, {y}, list_attr("shape", {0, 0, shape[2]}))
                           : chain.last(Op::Transpose, {y}, list_attr("perm", {0, 2, 1, 3})));
}

}  // namespace

MaybeConverted convert_attention(const ConvertContext& c) {
  if (c.node.op == "Attention") return all(AttentionChain(c).convert());
  if (c.node.op == "RotaryEmbedding") return one(rotary_embedding(c));
  return std::optional<std::vector<ValueId>>();
}

}  // namespace nlsplit::inline graph

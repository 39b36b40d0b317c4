// Attention.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

constexpr AttrSpec attention_attrs[] = {integer("causal", 0), real("scale")};
// window: a query sees so many keys up to its own, 0: all. softcap: c tanh(score / c) instead of the scaled score, 0:
// it stays (Gemma Team, "Gemma 2", 2024).
constexpr AttrSpec cached_attrs[] = {integer("causal", 0), real("scale"), real("softcap", 0), integer("window", 0)};

// ---- types

// Queries that attend to so many keys.
Status check_mask(const TensorType& mask, const TensorType& q, int64_t keys) {
  const Shape scores{q.shape[0], q.shape[1], q.shape[2], keys};
  const auto sum = broadcast_shapes(mask.shape, scores);
  if (mask.dtype == q.dtype && !mask.shape.empty() && mask.shape.back() == keys && sum.ok() && *sum == scores)
    return ok_status();
  return invalid_input(fmt::format("a mask {} for scores {}", to_string(mask), to_string(TensorType{q.dtype, scores})));
}

Inferred infer_attention(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(floats(inputs));
  const Shape &q = inputs[0].shape, &k = inputs[1].shape, &v = inputs[2].shape;
  const auto refused = [&](std::string_view why) {
    return invalid_input(
        fmt::format("{}: q {}, k {}, v {}", why, to_string(inputs[0]), to_string(inputs[1]), to_string(inputs[2])));
  };
  if (q.size() != 4 || k.size() != 4 || v.size() != 4) return refused("not four axes each");
  for (const Shape* shape : {&q, &k, &v}) {
    if (std::ranges::any_of(*shape, [](int64_t extent) { return extent < 1; })) return refused("nothing to attend to");
  }
  if (k[0] != q[0] || v[0] != q[0]) return refused("the batches differ");
  if (k[1] != v[1] || q[1] % k[1] != 0) return refused("the heads do not share keys and values evenly");
  if (k[2] != v[2]) return refused("not a value for each key");
  if (k[3] != q[3]) return refused("queries and keys differ in size");
  if (attr_int(attrs, "causal") != 0 && k[2] < q[2]) return refused("a query that is in front of all keys");
  if (inputs.size() > 3) RETURN_IF_ERROR(check_mask(inputs[3], inputs[0], k[2]));
  return one_result(inputs[0].dtype, {q[0], q[1], q[2], v[3]});
}

Status check_sight(const Attrs& attrs) {
  const int64_t window = attr_int(attrs, "window");
  const double softcap = attr_float(attrs, "softcap");
  if (window < 0 || (window > 0 && attr_int(attrs, "causal") == 0))
    return invalid_input(fmt::format("a window of {}{}", window, window < 0 ? "" : " that is not causal"));
  if (!(softcap >= 0) || std::isinf(softcap)) return invalid_input(fmt::format("a softcap of {}", softcap));
  return ok_status();
}

// Keys and values may be halves where queries are f32.
Status check_kept_types(Types inputs) {
  RETURN_IF_ERROR(floats(inputs.first(1)));
  RETURN_IF_ERROR(floats(inputs.subspan(1, 2)));
  if (inputs[1].dtype != inputs[0].dtype && (inputs[0].dtype != DType::f32 || !is_half(inputs[1].dtype)))
    return invalid_input(fmt::format("{} of keys {}", to_string(inputs[0]), to_string(inputs[1])));
  return ok_status();
}

Inferred infer_cached(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(check_sight(attrs));
  RETURN_IF_ERROR(check_kept_types(inputs));
  const Shape &q = inputs[0].shape, &k = inputs[1].shape, &v = inputs[2].shape;
  const bool four = q.size() == 4 && k.size() == 4 && v.size() == 4;
  const auto none = [](int64_t extent) { return extent < 1; };
  if (!four || std::ranges::any_of(q, none) || std::ranges::any_of(k, none) || v[3] < 1 || k[0] != q[0] ||
      k[0] != v[0] || k[1] != v[1] || k[2] != v[2] || k[3] != q[3] || q[1] % k[1] != 0)
    return invalid_input(
        fmt::format("{} of keys {} and values {}", to_string(inputs[0]), to_string(inputs[1]), to_string(inputs[2])));
  RETURN_IF_ERROR(check_scalars(inputs[3], {q[0]}));
  if (inputs.size() > 4) RETURN_IF_ERROR(check_mask(inputs[4], inputs[0], k[2]));
  return one_result(inputs[0].dtype, {q[0], q[1], q[2], v[3]});
}

Inferred infer_paged(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(check_sight(attrs));
  RETURN_IF_ERROR(check_kept_types(inputs));
  const Shape &q = inputs[0].shape, &k = inputs[1].shape, &v = inputs[2].shape, &pages = inputs[4].shape;
  const bool four = q.size() == 4 && k.size() == 4 && v.size() == 4;
  const auto none = [](int64_t extent) { return extent < 1; };
  if (!four || std::ranges::any_of(q, none) || std::ranges::any_of(k, none) || v[3] < 1 || k[0] != v[0] ||
      k[1] != v[1] || k[2] != v[2] || k[3] != q[3] || q[1] % k[1] != 0)
    return invalid_input(fmt::format("{} of pages of keys {} and values {}", to_string(inputs[0]), to_string(inputs[1]),
                                     to_string(inputs[2])));
  if (pages.size() != 2 || pages[1] < 1) return invalid_input(fmt::format("pages {}", to_string(inputs[4])));
  RETURN_IF_ERROR(check_scalars(inputs[3], {q[0]}));
  RETURN_IF_ERROR(check_scalars(inputs[4], {q[0], pages[1]}));
  RETURN_IF_ERROR(check_type({DType::boolean, {pages[1], k[2]}}));  // no more keys than can be counted
  return one_result(inputs[0].dtype, {q[0], q[1], q[2], v[3]});
}

// ---- scalars

// All keys that a sample may have.
int64_t keys_of(Types in, bool paged) { return in[1].shape[2] * (paged ? in[4].shape[1] : 1); }

template <bool paged>
std::optional<int64_t> largest_of_attention(Types in, const Attrs&, size_t i) {
  if (i == 3) return keys_of(in, paged);
  return paged && i == 4 ? std::optional(in[1].shape[0] - 1) : std::nullopt;
}

// ---- work: a multiplication and an addition are two operations

// For each key that a query sees two products, scaled, masked, and a softmax.
Flops flops_attention(Types in, Types out, const Attrs& attrs) {
  const Shape& q = in[0].shape;
  const double queries = static_cast<double>(q[2]), keys = static_cast<double>(in[1].shape[2]);
  const bool causal = attr_int(attrs, "causal") != 0;
  const double seen = static_cast<double>(q[0] * q[1]) * queries * (causal ? keys - (queries - 1) / 2 : keys);
  return flops(seen * static_cast<double>(2 * (q[3] + out[0].shape[3]) + (in.size() > 3 ? 7 : 6)));
}

// As of attention, for each sample by its length: of the cache the keys and values that are there and in sight of a
// query are read, of a mask the columns of those that are there. Nothing of a sample without any is read but its
// length.
template <bool paged>
Work work_of_cached(Types in, Types out, const Attrs& attrs, ScalarValues values) {
  const Shape& q = in[0].shape;
  const int64_t keys = keys_of(in, paged), queries = q[2], element = size_of(in[0].dtype);
  const bool causal = attr_int(attrs, "causal") != 0, masked = !paged && in.size() > 4;
  const int64_t window = attr_int(attrs, "window") == 0 ? keys : attr_int(attrs, "window");
  const int64_t a_key = (in[1].shape[3] + in[2].shape[3]) * in[1].shape[1] * size_of(in[1].dtype);
  double seen = 0, there = 0;
  Work work{flops(0), size_of(in[3]), size_of(out[0])};
  if (paged) work.bytes_read += size_of(in[4]);
  for (int64_t sample = 0; sample < q[0]; ++sample) {
    const int64_t length =
        values[3].empty() ? keys : std::clamp<int64_t>(values[3][static_cast<size_t>(sample)], 0, keys);
    if (length == 0) continue;
    const int64_t in_sight = std::min(length, window > keys - queries ? keys : window + queries - 1);
    work.bytes_read += bytes(q[1] * queries * q[3] * element + in_sight * a_key);
    there += static_cast<double>(length);
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t up_to_own = causal ? std::clamp<int64_t>(i + 1 + length - queries, 0, length) : length;
      seen += static_cast<double>(std::min(up_to_own, window));
    }
  }
  if (masked) {
    const double share = there / static_cast<double>(q[0] * keys);
    work.bytes_read += bytes(static_cast<int64_t>(static_cast<double>(size_of(in[4]).value()) * share));
  }
  const int64_t a_score = (masked ? 7 : 6) + (attr_float(attrs, "softcap") == 0 ? 0 : 3);
  work.flops = flops(seen * static_cast<double>(q[1] * (2 * (q[3] + out[0].shape[3]) + a_score)));
  return work;
}

template <bool paged>
Flops flops_cached(Types in, Types out, const Attrs& attrs) {
  const std::vector<std::vector<int64_t>> largest(in.size());
  return work_of_cached<paged>(in, out, attrs, largest).flops;
}

template <bool paged>
constexpr ScalarInputs of_cached{largest_of_attention<paged>, work_of_cached<paged>};

// ---- the batch axis

bool keeps_cached(Types in, uint64_t batched, const Attrs&) {
  if ((batched & 15) != 15) return false;
  if (in.size() < 5) return true;
  const bool has_samples = (batched & 16) != 0;
  return in[4].shape.size() < 4 ? !has_samples : has_samples || in[4].shape[0] == 1;
}

// The pages are all samples'.
bool keeps_paged(Types, uint64_t batched, const Attrs&) { return batched == 0b11001; }

// A mask is each sample's own, or all samples'.
bool keeps_attention(Types in, uint64_t batched, const Attrs&) {
  if ((batched & 7) != 7) return false;
  if (in.size() < 4) return true;
  const bool has_samples = (batched & 8) != 0;
  return in[3].shape.size() < 4 ? !has_samples : has_samples || in[3].shape[0] == 1;
}

// ---- pieces (pieces.h)

// Samples and heads are apart; so are queries, but each needs all keys and values that it sees: of a causal one those
// up to its own, so that the last of the piece's queries still is the last of its keys. Heads that share keys and
// values are a piece if they are all of some groups, or of one group.
bool attention_piece(const PieceQuery& q, NodePiece& piece) {
  const Shape &queries = q.inputs[0].shape, &keys = q.inputs[1].shape;
  if (q.axis == 3) {
    piece.inputs[2] = same_axis(q);
    return true;
  }
  const bool masked = q.inputs.size() > 3;
  if (masked) {
    const PieceQuery scores{q.node, q.inputs, {queries[0], queries[1], queries[2], keys[2]}, q.axis, q.begin, q.end};
    piece.inputs[3] = broadcast_part(scores, q.inputs[3]);
  }
  piece.inputs[0] = same_axis(q);
  Region of_keys;
  if (q.axis == 0) of_keys = same_axis(q);
  if (q.axis == 1) {
    const int64_t shared = queries[1] / keys[1], first = q.begin / shared, last = (q.end - 1) / shared;
    const bool of_whole_groups = q.begin % shared == 0 && q.end % shared == 0;
    if (!of_whole_groups && first != last) return false;
    of_keys = along(1, first, last + 1);
  }
  if (q.axis == 2 && attr_int(q.node.attrs, "causal") != 0) {
    of_keys = along(2, 0, q.end + keys[2] - queries[2]);
    if (masked) {
      if (piece.inputs[3].axis >= 0) return false;  // cut along two axes
      piece.inputs[3] = along(q.inputs[3].shape.size() - 1, 0, of_keys.end);
    }
  }
  piece.inputs[1] = piece.inputs[2] = of_keys;
  return true;
}

// The same of what is in a cache. Of a causal one a piece of the queries cannot say which of them it has.
bool cached_piece(const PieceQuery& q, NodePiece& piece) {
  if (q.axis == 2 && attr_int(q.node.attrs, "causal") != 0) return false;
  if (q.axis == 0) piece.inputs[3] = same_axis(q);
  const bool masked = q.inputs.size() > 4 && q.axis != 3;
  if (masked) {
    const Shape &queries = q.inputs[0].shape, &keys = q.inputs[1].shape;
    const PieceQuery scores{q.node, q.inputs, {queries[0], queries[1], queries[2], keys[2]}, q.axis, q.begin, q.end};
    piece.inputs[4] = broadcast_part(scores, q.inputs[4]);
  }
  const std::vector<TensorType> of_cache(q.inputs.begin(), q.inputs.begin() + 3);
  NodePiece plain{std::vector<Region>(3), q.node.attrs};
  if (!attention_piece({q.node, of_cache, q.out, q.axis, q.begin, q.end}, plain)) return false;
  std::ranges::copy(plain.inputs, piece.inputs.begin());
  return true;
}

// Every sample's pages are in the one pool.
bool paged_piece(const PieceQuery& q, NodePiece& piece) {
  const std::vector<TensorType> without_pages(q.inputs.begin(), q.inputs.begin() + 4);
  if (q.axis != 0) return cached_piece({q.node, without_pages, q.out, q.axis, q.begin, q.end}, piece);
  piece.inputs[0] = piece.inputs[3] = piece.inputs[4] = same_axis(q);
  return true;
}

// ---- gradients

// With S = scale Q Kᵀ + mask and P = softmax(S): dV = Pᵀ dY, dS = softmax's gradient of dY Vᵀ, dQ = scale dS K,
// dK = scale dSᵀ Q. P is computed again. The queries of heads that share keys and values are rows of one matrix, so
// that sums over these heads are the products' own. A query that sees none has no shares.
void back_attention(Backward& b) {
  const Shape q = b.shape(b.x(0)), k = b.shape(b.x(1)), v = b.shape(b.x(2));
  const double scale = attr_float(b.attrs(), "scale");
  const bool masked = b.inputs() > 3 && b.x(3).valid(), causal = attr_int(b.attrs(), "causal") != 0;
  const auto rows_of = [&](ValueId value) {
    return b.reshaped(value, {k[0], k[1], q[1] / k[1] * q[2], b.shape(value).empty() ? 0 : b.shape(value).back()});
  };
  const auto product = [&](ValueId left, ValueId right) { return b.add(Op::MatMul, {left, right}); };
  const Shape by_head{q[0], q[1], q[2], k[2]};
  const Attrs keys{{"axis", int64_t{-1}}};
  const ValueId queries = rows_of(b.x(0)), dy = rows_of(b.dy());
  ValueId shares = b.reshaped(b.scaled(product(queries, b.transposed(b.x(1))), scale), by_head);
  if (masked) shares = b.add(Op::Add, {shares, b.x(3)});
  if (causal) shares = b.add(Op::Add, {shares, b.later_places(q[2], k[2])});
  shares = b.add(Op::Softmax, {shares}, keys);
  if (masked) shares = b.add(Op::Where, {b.add(Op::IsNaN, {shares}), b.constant({}, 0), shares});
  shares = rows_of(shares);
  if (b.wants(2)) b.give(2, product(b.transposed(shares), dy));
  if (!b.wants(0) && !b.wants(1) && !b.wants(3)) return;
  const ValueId ds = b.add(Op::SoftmaxGradient, {product(dy, b.transposed(b.x(2))), shares}, keys);
  if (b.wants(0)) b.give(0, b.reshaped(b.scaled(product(ds, b.x(1)), scale), q));
  if (b.wants(1)) b.give(1, b.scaled(product(b.transposed(ds), queries), scale));
  if (b.wants(3)) b.give(3, b.sum_to(b.reshaped(ds, by_head), b.shape(b.x(3))));
}

}  // namespace

// clang-format off
//  operator   inputs  attributes       types            work             batch            split            gradient        traits
ROW(Attention, 3, 4,   attention_attrs, infer_attention, flops_attention, keeps_attention, attention_piece, back_attention, has_kernels)
//  operator                    inputs attributes       types         work                 batch         split         gradient    traits                                 scalars
ROW_OF_SCALARS(CachedAttention, 4, 5,  cached_attrs,    infer_cached, flops_cached<false>, keeps_cached, cached_piece, of_a_cache, has_kernels | not_in_onnx | stays_f32, &of_cached<false>)
ROW_OF_SCALARS(PagedAttention,  5, 5,  cached_attrs,    infer_paged,  flops_cached<true>,  keeps_paged,  paged_piece,  of_a_cache, has_kernels | not_in_onnx | stays_f32, &of_cached<true>)
// clang-format on

}  // namespace nlsplit::inline graph

// Caches, and attention over what they hold, of any element types: every score, then a softmax in double.
#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

int64_t scalar(const Arrays& in, size_t i, int64_t at, int64_t largest) {
  return std::clamp<int64_t>(in[i]->wholes[static_cast<size_t>(at)], 0, largest);
}

// Where position j of a sample's head lies, in rows of the pool.
using RowOf = std::function<int64_t(int64_t sample, int64_t head, int64_t j)>;

RowOf in_pages(const Array& pages, const Shape& pool) {
  return [&pages, &pool](int64_t sample, int64_t head, int64_t j) {
    const int64_t entry = sample * pages.type.shape[1] + j / pool[2];
    const int64_t page = std::clamp<int64_t>(pages.wholes[static_cast<size_t>(entry)], 0, pool[0] - 1);
    return (page * pool[1] + head) * pool[2] + j % pool[2];
  };
}

void attend(const Attrs& attrs, const Arrays& in, const Array* mask, int64_t keys, const RowOf& row_of, Array& out) {
  const Array &q = *in[0], &k = *in[1], &v = *in[2];
  const double scale = attr_float(attrs, "scale");
  const bool causal = attr_int(attrs, "causal") != 0;
  const int64_t window = attr_int(attrs, "window");
  const double softcap = attr_float(attrs, "softcap");
  const int64_t heads = q.type.shape[1], queries = q.type.shape[2], size = q.type.shape[3];
  const int64_t shared = heads / k.type.shape[1], width = v.type.shape[3];
  const std::vector<int64_t> mask_strides =
      mask == nullptr ? std::vector<int64_t>()
                      : broadcast_strides(mask->type.shape, {q.type.shape[0], heads, queries, keys});
  std::vector<double> scores(static_cast<size_t>(keys));
  for_each_index({q.type.shape[0], heads, queries}, [&](const Shape& at) {
    const int64_t sample = at[0], head = at[1], query = at[2], row = (sample * heads + head) * queries + query;
    const int64_t length = scalar(in, 3, sample, keys);
    const int64_t seen = causal ? std::clamp<int64_t>(query + 1 + length - queries, 0, length) : length;
    const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, seen - window);
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t j = first; j < seen; ++j) {
      const int64_t key = row_of(sample, head / shared, j);
      double score = 0;
      for (int64_t p = 0; p < size; ++p) score += q.number(row * size + p) * k.number(key * size + p);
      score *= scale;
      if (softcap != 0) score = softcap * std::tanh(score / softcap);
      if (mask != nullptr) score += mask->number(offset_of({sample, head, query, j}, mask_strides));
      scores[static_cast<size_t>(j)] = score;
      largest = std::max(largest, score);
    }
    const bool sees_none = std::isinf(largest) && largest < 0;
    for (int64_t j = first; j < seen && !sees_none; ++j)
      sum += scores[static_cast<size_t>(j)] = std::exp(scores[static_cast<size_t>(j)] - largest);
    for (int64_t c = 0; c < width; ++c) {
      double value = 0;
      for (int64_t j = first; j < seen && !sees_none; ++j)
        value += scores[static_cast<size_t>(j)] * v.number(row_of(sample, head / shared, j) * width + c);
      out.set(row * width + c, sees_none ? 0 : value / sum);
    }
  });
}

void cached_attention(const Attrs& attrs, const Arrays& in, Array& out) {
  const Shape& k = in[1]->type.shape;
  const RowOf row_of = [&k](int64_t sample, int64_t head, int64_t j) { return (sample * k[1] + head) * k[2] + j; };
  attend(attrs, in, in.size() > 4 ? in[4] : nullptr, k[2], row_of, out);
}

void paged_attention(const Attrs& attrs, const Arrays& in, Array& out) {
  const Shape& pool = in[1]->type.shape;
  attend(attrs, in, nullptr, in[4]->type.shape[1] * pool[2], in_pages(*in[4], pool), out);
}

void tensor_scatter(const Attrs& attrs, const Arrays& in, Array& out) {
  const Array &past = *in[0], &update = *in[1];
  const Lines to = lines_of(past.type.shape, attr_int(attrs, "axis"));
  const int64_t steps = lines_of(update.type.shape, attr_int(attrs, "axis")).extent;
  const bool circular = attr_string(attrs, "mode") == "circular";
  out.reals = past.reals;
  out.wholes = past.wholes;
  const int64_t samples = past.type.shape[0];
  for (int64_t o = 0; o < to.outer; ++o) {
    const int64_t sample = o / (to.outer / samples);
    const int64_t begin = in.size() > 2 ? scalar(in, 2, sample, circular ? to.extent - 1 : to.extent - steps) : 0;
    const int64_t count = in.size() > 3 ? scalar(in, 3, sample, steps) : steps;
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t i = 0; i < to.inner; ++i)
        out.copy(to.at(o, i, (begin + j) % to.extent), update, (o * steps + j) * to.inner + i);
    }
  }
}

void paged_scatter(const Arrays& in, Array& out) {
  const Shape &pool = in[0]->type.shape, &update = in[1]->type.shape;
  const RowOf row_of = in_pages(*in[3], pool);
  const int64_t steps = update[2], size = update[3], room = in[3]->type.shape[1] * pool[2];
  out.reals = in[0]->reals;
  out.wholes = in[0]->wholes;
  for_each_index({update[0], update[1], steps}, [&](const Shape& at) {
    if (in.size() > 4 && at[2] >= scalar(in, 4, at[0], steps)) return;
    const int64_t row = row_of(at[0], at[1], scalar(in, 2, at[0], room - steps) + at[2]);
    const int64_t from = (at[0] * update[1] + at[1]) * steps + at[2];
    for (int64_t i = 0; i < size; ++i) out.copy(row * size + i, *in[1], from * size + i);
  });
}

void rotary_embedding(const Arrays& in, Array& out) {
  const Shape& x = in[0]->type.shape;
  const int64_t half = x[3] / 2, positions = in[1]->type.shape[0];
  for_each_index({x[0], x[1], x[2]}, [&](const Shape& at) {
    const int64_t row = ((at[0] * x[1] + at[1]) * x[2] + at[2]) * x[3];
    const int64_t position = scalar(in, 3, at[0], positions - x[2]) + at[2];
    for (int64_t i = 0; i < half; ++i) {
      const double cosine = in[1]->number(position * half + i), sine = in[2]->number(position * half + i);
      const double a = in[0]->number(row + i), b = in[0]->number(row + half + i);
      out.set(row + i, a * cosine - b * sine);
      out.set(row + half + i, b * cosine + a * sine);
    }
  });
}

}  // namespace

// clang-format off
NLS_REFERENCE(RotaryEmbedding, rotary_embedding(in, out))
NLS_REFERENCE(CachedAttention, cached_attention(attrs, in, out))
NLS_REFERENCE(PagedAttention, paged_attention(attrs, in, out))
NLS_REFERENCE(TensorScatter, tensor_scatter(attrs, in, out))
NLS_REFERENCE(PagedScatter, paged_scatter(in, out))
// clang-format on

}  // namespace nlsplit::inline graph::reference

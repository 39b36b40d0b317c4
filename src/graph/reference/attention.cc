// Attention: every score, then a softmax in double.
#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

void attention(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array &q = *inputs[0], &k = *inputs[1], &v = *inputs[2];
  const Array* mask = inputs.size() > 3 ? inputs[3] : nullptr;
  const double *query = q.reals.data(), *key = k.reals.data(), *value_of = v.reals.data();
  const double scale = attr_float(attrs, "scale");
  const bool causal = attr_int(attrs, "causal") != 0;
  const int64_t heads = q.type.shape[1], kv_heads = k.type.shape[1], queries = q.type.shape[2], d = q.type.shape[3];
  const int64_t keys = k.type.shape[2], width = v.type.shape[3];
  const std::vector<int64_t> mask_strides =
      mask != nullptr ? broadcast_strides(mask->type.shape, {q.type.shape[0], heads, queries, keys})
                      : std::vector<int64_t>();
  parallel_for(q.type.shape[0] * heads, [&](int64_t head) {
    const int64_t sample = head / heads, kv_head = sample * kv_heads + head % heads / (heads / kv_heads);
    std::vector<double> scores(static_cast<size_t>(keys));
    for (int64_t i = 0; i < queries; ++i) {
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      const int64_t seen = causal ? i + 1 + keys - queries : keys;
      for (int64_t j = 0; j < seen; ++j) {
        double& score = scores[static_cast<size_t>(j)];
        score = 0;
        for (int64_t p = 0; p < d; ++p)
          score += query[(head * queries + i) * d + p] * key[(kv_head * keys + j) * d + p];
        score *= scale;
        if (mask != nullptr) score += mask->number(offset_of({sample, head % heads, i, j}, mask_strides));
        largest = std::max(largest, score);
      }
      const bool sees_none = std::isinf(largest) && largest < 0;
      for (int64_t j = 0; j < seen; ++j) {
        double& score = scores[static_cast<size_t>(j)];
        score = sees_none ? 0 : std::exp(score - largest);
        sum += score;
      }
      for (int64_t c = 0; c < width; ++c) {
        double value = 0;
        for (int64_t j = 0; j < seen; ++j)
          value += scores[static_cast<size_t>(j)] * value_of[(kv_head * keys + j) * width + c];
        out.set((head * queries + i) * width + c, sees_none ? 0 : value / sum);
      }
    }
  });
}

}  // namespace

NLS_REFERENCE(Attention, attention(attrs, in, out))

}  // namespace nlsplit::inline graph::reference

// What the kernels of attention share: masks, lengths, and the softmax of a block of scores.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels/layout.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"

namespace nlsplit::inline kernels {

inline constexpr float no_score = -std::numeric_limits<float>::infinity();  // the largest of no scores

// How a mask of up to four axes lies over [batch, heads, queries, keys]. Strides of 0: the same for all.
struct Mask {
  const float* data = nullptr;
  int64_t sample = 0, head = 0, query = 0;

  const float* at(int64_t s, int64_t h, int64_t q, int64_t key) const {
    return data == nullptr ? nullptr : data + s * sample + h * head + q * query + key;
  }
};

inline Mask mask_of(const KernelCall& call) {
  const size_t i = call.desc->op == Op::Attention ? 3 : 4;
  if (call.desc->op == Op::PagedAttention || call.desc->own_inputs() <= i) return {};
  const Shape& shape = call.desc->inputs[i].shape;
  int64_t strides[3] = {};
  int64_t stride = shape.back();
  for (size_t back = 1; back < shape.size(); ++back) {  // from the last axis but one
    const int64_t extent = shape[shape.size() - 1 - back];
    strides[3 - back] = extent == 1 ? 0 : stride;
    stride *= extent;
  }
  return {input(call, i), strides[0], strides[1], strides[2]};
}

// How many of a sample's keys are there: all, or what input 3 says.
inline int64_t length_of(const KernelCall& call, int64_t sample, int64_t keys) {
  return call.desc->op == Op::Attention ? keys : whole_at(call, 3, sample, keys);
}

// A row's scores of a block become exponentials relative to the largest so far, and 0 behind the `seen` first. Returns
// by what all that was summed before shrinks.
inline float exponentials(float* scores, const float* mask, int64_t seen, int64_t keys, float& largest, float& sum) {
  if (mask != nullptr) map_row(scores, seen, add, scores, mask);
  const float before = largest;
  if (seen > 0) largest = std::max(before, largest_of_row(scores, seen));
  if (largest == no_score) seen = 0;  // each of them is hidden
  const Packet top = broadcast(largest);
  const auto exponential = [&](const Packet& x) { return Eigen::internal::pexp(subtract(x, top)); };
  Packet lanes = zeros();  // as sum_of_row
  int64_t i = 0;
  for (; i + width <= seen; i += width) {
    const Packet e = exponential(load(scores + i));
    store(scores + i, e);
    lanes = add(lanes, e);
  }
  if (i < seen) {
    store_part(scores + i, exponential(load_part(scores + i, seen - i)), seen - i);
    lanes = add(lanes, load_part(scores + i, seen - i));
  }
  std::fill(scores + seen, scores + keys, 0.0f);
  if (largest == before) {
    sum += sum_of_lanes(lanes);
    return 1;
  }
  const float shrink = Eigen::internal::pfirst(exponential(broadcast(before)));
  sum = sum * shrink + sum_of_lanes(lanes);
  return shrink;
}

}  // namespace nlsplit::inline kernels

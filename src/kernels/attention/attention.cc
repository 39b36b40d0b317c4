// Attention: softmax(scale q kᵀ + mask) v, a head at a time, in blocks of queries and keys (kernels/layout.h has their
// source and what lies where). Keys and values are packed once, for all queries and all heads that share them.
#include "kernels/attention/attention.h"

#include <algorithm>

#include "kernels/attention/attention_bf16.h"
#include "kernels/functions/epilogue.h"
#include "kernels/products/product.h"

namespace nlsplit::inline kernels {
namespace {

// What a worker has of its own (Attention::worker_floats).
struct Scratch {
  Scratch(const Attention& a, float* from)
      : queries(from),
        scores(queries + a.query_floats()),
        panels(scores + a.score_floats()),
        part(panels + a.score_floats()),
        largest(part + a.result_floats()),
        sum(largest + round_up(a.most_rows(), widest_vector)),
        shrink(sum + round_up(a.most_rows(), widest_vector)) {}
  float *queries, *scores, *panels, *part, *largest, *sum, *shrink;
};

class Heads {
 public:
  explicit Heads(const KernelCall& call)
      : call_(call),
        a_(attention_of(*call.desc)),
        mask_(mask_of(call)),
        epilogue_(call),
        scale_(static_cast<float>(attr_float(call.desc->attrs, "scale"))),
        causal_(attr_int(call.desc->attrs, "causal") != 0),
        keys_(workspace(call)),
        values_(keys_ + a_.batch * a_.kv_heads * a_.key_panels(level)),
        own_(values_ + a_.batch * a_.kv_heads * a_.value_panels(level)) {}

  void run() {
    parallel_for(call_, a_.batch * a_.kv_heads * a_.key_blocks(),
                 [&](int64_t i) { pack(i / a_.key_blocks(), i % a_.key_blocks() * attention_keys); });
    parallel_for_workers(call_, a_.batch * a_.heads * a_.row_blocks(), [&](int64_t i, int worker) {
      attend(i / a_.row_blocks(), i % a_.row_blocks() * attention_rows,
             Scratch(a_, own_ + worker * a_.worker_floats()));
    });
  }

 private:
  // Where the panels of a block begin. Heads are counted through over all samples.
  float* keys_at(int64_t kv_head, int64_t key) const { return keys_ + kv_head * a_.key_panels(level) + key * a_.size; }
  float* values_at(int64_t kv_head, int64_t key) const {
    return values_ + kv_head * a_.value_panels(level) + key * round_up(a_.value_size, width);
  }

  void pack(int64_t kv_head, int64_t first) const {
    const int64_t count = std::min(attention_keys, length_of(call_, kv_head / a_.kv_heads, a_.keys) - first);
    if (count <= 0) return;
    const int64_t at = kv_head * a_.keys + first;
    pack_right({input(call_, 1) + at * a_.size, 1, a_.size}, a_.size, count, keys_at(kv_head, first));
    pack_right({input(call_, 2) + at * a_.value_size, a_.value_size, 1}, count, a_.value_size,
               values_at(kv_head, first));
  }

  // A block of queries of one head.
  void attend(int64_t head, int64_t first, const Scratch& own) const {
    const int64_t rows = std::min(attention_rows, a_.queries - first), n = a_.value_size;
    const int64_t kv_head = head / a_.heads * a_.kv_heads + head % a_.heads / (a_.heads / a_.kv_heads);
    const Packet scale = broadcast(scale_);
    pack_left({input(call_, 0) + (head * a_.queries + first) * a_.size, a_.size, 1}, rows, a_.size, own.queries);
    map_row(
        own.queries, rows * a_.size, [&](const Packet& x) { return multiply(x, scale); }, own.queries);
    std::fill_n(own.largest, rows, no_score);
    std::fill_n(own.sum, rows, 0.0f);
    float* out = output(call_) + (head * a_.queries + first) * n;
    const int64_t sample = head / a_.heads, length = length_of(call_, sample, a_.keys);
    const int64_t end = causal_ ? std::clamp<int64_t>(a_.seen(first + rows - 1, length), 0, length) : length;
    if (end == 0) std::fill_n(out, rows * n, 0.0f);
    for (int64_t key = 0; key < end; key += attention_keys) {
      const int64_t count = std::min(attention_keys, length - key);
      product(rows, count, a_.size, {own.queries, 0, 0, true}, {keys_at(kv_head, key), 0, 0, true}, own.scores, {},
              nullptr);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t seen = causal_ ? std::clamp<int64_t>(a_.seen(first + r, length) - key, 0, count) : count;
        own.shrink[r] = exponentials(own.scores + r * count, mask_.at(sample, head % a_.heads, first + r, key), seen,
                                     count, own.largest[r], own.sum[r]);
      }
      product(rows, n, count, {own.scores, count, 1}, {values_at(kv_head, key), 0, 0, true}, key == 0 ? out : own.part,
              {}, own.panels);
      for (int64_t r = 0; key > 0 && r < rows; ++r) {
        const Packet shrink = broadcast(own.shrink[r]);
        map_row(
            out + r * n, n, [&](const Packet& all, const Packet& x) { return multiply_add(all, shrink, x); },
            out + r * n, own.part + r * n);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      const Packet share = broadcast(own.sum[r] == 0 ? 0.0f : 1.0f / own.sum[r]);  // no key is seen: zeros
      map_row(
          out + r * n, n, [&](const Packet& x) { return multiply(x, share); }, out + r * n);
    }
    epilogue_.apply(output(call_), out - output(call_), rows * n);
  }

  const KernelCall& call_;
  const Attention a_;
  const Mask mask_;
  const Epilogue epilogue_;
  const float scale_;
  const bool causal_;
  float *const keys_, *const values_, *const own_;
};

void run_attention(const KernelCall& call) {
  call.desc->outputs[0].dtype == DType::bf16 ? run_attention_bf16(call) : Heads(call).run();
}

}  // namespace

const KernelCode code::attention = {run_attention};

}  // namespace nlsplit::inline kernels

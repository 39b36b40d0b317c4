#include "kernels/attention/attention_bf16.h"

#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/products/pair_product.h"
#include "kernels/products/product.h"

namespace nlsplit::inline kernels {
namespace {

struct PairScratch {
  PairScratch(const PairAttention& p, float* from)
      : scores(from),
        rounded(reinterpret_cast<uint16_t*>(scores + p.a.score_floats())),
        results(scores + p.a.score_floats() + p.rounded_floats()),
        part(results + p.a.result_floats()),
        largest(part + p.a.result_floats()),
        sum(largest + p.row_floats()),
        shrink(sum + p.row_floats()),
        products(shrink + p.row_floats()) {}
  float* scores;
  uint16_t* rounded;
  float *results, *part, *largest, *sum, *shrink, *products;
};

// What becomes of a product's tiles: rows of `n` floats, times a factor.
struct ToRows {
  float* rows;
  int64_t n;
  float factor;

  void fetch_ahead(const PairSums&) const {}
  void operator()(const PairSums& sums) const {
    const Packet times = broadcast(factor);
    for (int64_t r = 0; r < sums.rows; ++r)
      map_row(
          rows + (sums.row + r) * n + sums.column, sums.columns, [&](const Packet& x) { return multiply(x, times); },
          sums.values + r * sums.floats);
  }
};

class PairHeads {
 public:
  explicit PairHeads(const KernelCall& call)
      : call_(call),
        p_{attention_of(*call.desc), level},
        scale_(static_cast<float>(attr_float(call.desc->attrs, "scale"))),
        causal_(attr_int(call.desc->attrs, "causal") != 0),
        keys_(workspace(call)),
        values_(keys_ + p_.heads() * p_.key_panels()),
        own_(keys_ + p_.panel_floats()) {}

  void run() const {
    const Attention& a = p_.a;
    parallel_for(call_, p_.heads() * a.key_blocks(),
                 [&](int64_t i) { pack(i / a.key_blocks(), i % a.key_blocks() * attention_keys); });
    parallel_for_workers(call_, a.batch * a.heads * a.row_blocks(), [&](int64_t i, int worker) {
      attend(i / a.row_blocks(), i % a.row_blocks() * attention_rows,
             PairScratch(p_, own_ + worker * p_.worker_floats()));
    });
  }

 private:
  const uint16_t* halves(size_t i) const { return static_cast<const uint16_t*>(call_.inputs[i]); }
  // Where the panels of a block begin; blocks before it are whole, and of an even number of keys.
  float* keys_at(int64_t kv_head, int64_t key) const {
    return keys_ + kv_head * p_.key_panels() + key * pairs_of(p_.a.size);
  }
  float* values_at(int64_t kv_head, int64_t key) const {
    return values_ + kv_head * p_.value_panels() + pairs_of(key) * round_up(p_.a.value_size, width);
  }

  void pack(int64_t kv_head, int64_t first) const {
    const Attention& a = p_.a;
    const int64_t count = std::min(attention_keys, a.keys - first), at = kv_head * a.keys + first;
    const int64_t pairs = pairs_of(a.size);  // they lie there already
    pack_right({reinterpret_cast<const float*>(halves(1) + at * a.size), 1, pairs}, pairs, count,
               keys_at(kv_head, first));
    pack_pair_panels({halves(2) + at * a.value_size, a.value_size, 1}, count, a.value_size, values_at(kv_head, first));
  }

  // A block of queries of one head.
  void attend(int64_t head, int64_t first, const PairScratch& own) const {
    const Attention& a = p_.a;
    const int64_t rows = std::min(attention_rows, a.queries - first), n = a.value_size;
    const int64_t kv_head = head / a.heads * a.kv_heads + head % a.heads / (a.heads / a.kv_heads);
    const PairLeft queries{halves(0) + (head * a.queries + first) * a.size, a.size};
    std::fill_n(own.largest, rows, no_score);
    std::fill_n(own.sum, rows, 0.0f);
    std::fill_n(own.results, rows * n, 0.0f);
    const int64_t end = causal_ ? std::clamp<int64_t>(a.seen(first + rows - 1, a.keys), 0, a.keys) : a.keys;
    for (int64_t key = 0; key < end; key += attention_keys) {
      const int64_t count = std::min(attention_keys, a.keys - key);
      pair_product({1, rows, count, a.size}, 0, rows, 0, count, queries, keys_at(kv_head, key), own.products,
                   ToRows{own.scores, count, scale_});
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t seen = causal_ ? std::clamp<int64_t>(a.seen(first + r, a.keys) - key, 0, count) : count;
        own.shrink[r] = exponentials(own.scores + r * count, nullptr, seen, count, own.largest[r], own.sum[r]);
      }
      round_to_bf16(own.scores, rows * count, own.rounded);
      pair_product({1, rows, n, count}, 0, rows, 0, n, PairLeft{own.rounded, count}, values_at(kv_head, key),
                   own.products, ToRows{key == 0 ? own.results : own.part, n, 1});
      for (int64_t r = 0; key > 0 && r < rows; ++r) {
        const Packet shrink = broadcast(own.shrink[r]);
        map_row(
            own.results + r * n, n, [&](const Packet& all, const Packet& x) { return multiply_add(all, shrink, x); },
            own.results + r * n, own.part + r * n);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      const Packet share = broadcast(own.sum[r] == 0 ? 0.0f : 1.0f / own.sum[r]);  // no key is seen: zeros
      map_row(
          own.results + r * n, n, [&](const Packet& x) { return multiply(x, share); }, own.results + r * n);
    }
    round_to_bf16(own.results, rows * n, static_cast<uint16_t*>(call_.outputs[0]) + (head * a.queries + first) * n);
  }

  const KernelCall& call_;
  const PairAttention p_;
  const float scale_;
  const bool causal_;
  float *const keys_, *const values_, *const own_;
};

}  // namespace

void run_attention_bf16(const KernelCall& call) { PairHeads(call).run(); }

}  // namespace nlsplit::inline kernels

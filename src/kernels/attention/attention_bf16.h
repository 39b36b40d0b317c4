// Attention of bfloat16: products of pairs (kernels/products/pair_product.h), whose sums, scores and exponentials are
// float32. The exponentials are rounded before they meet the values.
#pragma once

#include "kernels/layout.h"

namespace nlsplit::inline kernels {

// Part after part, each rounded up to widest_vector: all keys as vector panels of pairs along a head's width, all
// values as those of pairs of keys, a block of keys after the other; then of each worker scores, the same rounded,
// results, what a block of keys adds to them, three numbers a row, and what the products need.
struct PairAttention {
  Attention a;
  Isa isa;

  int64_t heads() const { return saturating_product(a.batch, a.kv_heads); }
  int64_t key_panels() const { return vector_panels(pairs_of(a.size), a.keys, isa); }
  int64_t value_panels() const { return vector_panels(pairs_of(a.keys), a.value_size, isa); }
  int64_t panel_floats() const {
    return round_up(saturating_product(heads(), saturating_sum(key_panels(), value_panels())), widest_vector);
  }
  int64_t rounded_floats() const { return round_up(pairs_of(a.most_rows() * a.most_keys()), widest_vector); }
  int64_t row_floats() const { return round_up(a.most_rows(), widest_vector); }
  int64_t product_floats() const {
    const int64_t scores = pair_scratch_floats({1, a.most_rows(), a.most_keys(), a.size}, isa),
                  results = pair_scratch_floats({1, a.most_rows(), a.value_size, a.most_keys()}, isa);
    return scores < results ? results : scores;
  }
  int64_t worker_floats() const {
    return saturating_sum(a.score_floats(), rounded_floats(), 2 * a.result_floats(), 3 * row_floats(),
                          product_floats());
  }
};

struct KernelCall;
void run_attention_bf16(const KernelCall& call);

}  // namespace nlsplit::inline kernels

// What the zoo's transformers have in common: projections, normalisations and attention over x [batch, tokens, width].
// A projection that a published checkpoint stores as one matrix for queries, keys and values is three here: the same
// numbers.
#pragma once

#include <string>
#include <vector>

#include "graph/zoo/net.h"

namespace nlsplit::inline graph {

struct ProjectionSpec {
  int64_t features;  // out
  bool bias = true;
  double gain = 1;  // of the weights' deviation
};

// x w + b; w is [in, out], "NAME.weight", or its rows as they are stored, [out, in] (ZooNet). The product is called
// "NAME.product", or NAME where there is no bias.
ValueId project(ZooNet& net, const std::string& name, ValueId x, const ProjectionSpec& spec);

ValueId layer_norm(ZooNet& net, const std::string& name, ValueId x, double epsilon);
// x / sqrt(mean(x²) + epsilon) * scale (Zhang and Sennrich, "Root mean square layer normalization", NeurIPS 2019)
ValueId rms_norm(ZooNet& net, const std::string& name, ValueId x, double epsilon);

// x Φ(x), by erf, or by its approximation with tanh (Hendrycks and Gimpel, "Gaussian error linear units", 2016).
ValueId gelu(ZooNet& net, const std::string& name, ValueId x);
ValueId gelu_tanh(ZooNet& net, const std::string& name, ValueId x);

struct AttentionSpec {
  int64_t heads;
  int64_t kv_heads = 0;    // fewer: several heads share keys and values (Ainslie et al., "GQA", 2023); 0: heads
  bool causal = false;     // no token sees a later one
  double rotary_base = 0;  // 0: queries and keys are not rotated by their positions
  std::vector<float> rotary_factors = {};  // graph/formula.h
  double norm_epsilon = 0;                 // 0: queries and keys are not normalised head by head
  int64_t window = 0;                      // a token sees so many up to itself (Beltagy et al., 2020); 0: all of them
  double scale = 0;                        // of scores; 0: 1 / sqrt(d)
  double softcap = 0;                      // c tanh(score / c) instead of the score (Gemma 2); 0: it stays
};

// softmax(scale q kᵀ + mask) v, head by head, of projections that lie side by side in the last axis.
ValueId attention(ZooNet& net, const std::string& name, ValueId q, ValueId k, ValueId v, const AttentionSpec& spec);

// What attention over a sequence that goes on needs besides (graph/zoo/llama.h).
struct CacheSpec {
  int64_t positions = 0;
  DType type = DType::f32;      // or f16: new keys and values are rounded once
  ValueId begins, lengths;      // inputs
  int64_t page = 0, pages = 0;  // LlamaSizes'
  ValueId page_table, counts;   // inputs of caches in pages
  ValueId cosines, sines;       // tables of positions; none: nothing is rotated
};
// attention() of the tokens that the cache "NAME.past_keys", "NAME.past_values" has, and of these, which it then has
// too.
ValueId attention_over_cache(ZooNet& net, const std::string& name, ValueId q, ValueId k, ValueId v,
                             const AttentionSpec& spec, const CacheSpec& cache);

// most tanh(x / most)
ValueId soft_capped(ZooNet& net, const std::string& name, ValueId x, double most);

// Rows [first, end) of an axis.
ValueId rows(ZooNet& net, const std::string& name, ValueId x, int64_t axis, int64_t first, int64_t end);
ValueId reshape(ZooNet& net, const std::string& name, ValueId x, Shape shape);

// Rows of a table of `count` by tokens.
ValueId embed(ZooNet& net, const std::string& name, ValueId tokens, int64_t count, int64_t width, double deviation);

// How much smaller the last projection of a branch is made, so that sums do not grow with depth: two a layer, as in
// GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019, section 2.3).
double branch_gain(int64_t layers);

}  // namespace nlsplit::inline graph

// The llama family: Llama itself and those that differ from it by a few terms. The zoo makes its weights, GGUF files
// have theirs (graph/gguf/import.h).
#pragma once

#include <vector>

#include "graph/zoo/net.h"

namespace nlsplit::inline graph {

struct LlamaSizes {  // Llama 3 8B's; head width even, heads a multiple of kv_heads
  int64_t layers = 32, hidden = 4096, heads = 32, kv_heads = 8, ffn = 14336, vocab = 128256, length = 128;
  int64_t head = 0;  // the width of one; 0: hidden / heads
  double epsilon = 1e-5;
  double rotary_base = 500000;
  std::vector<float> rotary_factors = {};  // of each pair's angle, which is divided by it; empty: 1
  bool biases = false;                     // of queries, keys and values: Qwen 2
  bool head_norms = false;                 // of each head's queries and keys: Qwen 3
  bool gelu = false;                       // instead of SiLU: Gemma
  double embedding_scale = 1;              // Gemma: the root of hidden
};
// Weights are called as in Hugging Face's transformers, matrices are [in, out], or [out, in] as they are stored.
Model build_llama(const LlamaSizes& sizes, ZooNet net);

}  // namespace nlsplit::inline graph

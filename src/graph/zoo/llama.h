// The llama family: Llama itself and those that differ from it by a few terms. The zoo makes its weights, GGUF files
// have theirs (graph/gguf/import.h).
#pragma once

#include <string>
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
  bool branch_norms = false;               // of what attention and feed-forward add: Gemma 2 and 3
  double embedding_scale = 1;              // Gemma: the root of hidden
  // Sliding windows (Mistral, Phi-3, Gemma 2 and 3): tokens of local layers see so many up to themselves; 0: all layers
  // see all. Of so many layers the last one sees all; 0: all layers are local. Local layers may have another base, and
  // then no factors (Gemma 3).
  int64_t window = 0, window_period = 0;
  double local_rotary_base = 0;
  double attention_scale = 0;                 // of scores; 0: 1 / sqrt(head)
  double attention_softcap = 0, softcap = 0;  // of scores and of logits: c tanh(x / c); 0: they stay (Gemma 2)
  // Of a mixture (Qwen 3 MoE): so many feed-forward layers of width ffn, of which each token takes `experts_used`; 0:
  // there is one, which all take. What a token makes of each counts by the softmax over those it takes, or, not
  // `shares_of_used`, over all.
  int64_t experts = 0, experts_used = 0;
  bool shares_of_used = true;

  // Of generation: keys and values of so many positions are kept from one execution to the next; 0: none are. An
  // execution goes on with `length` tokens of each sequence, a sample, and gives its likeliest next tokens.
  int64_t context = 0;
  int64_t candidates = 1;   // how many of these
  int64_t cache_bits = 32;  // of a kept number: 32, f32, or 16, f16
  // Of caches that sequences share: positions of a page, a divisor of the context, and pages for all sequences. 0: each
  // sequence has its own cache, of the whole context.
  int64_t page = 0, pages = 0;
};
int64_t head_of(const LlamaSizes& sizes);  // the width of one
bool is_local(const LlamaSizes& sizes, int64_t layer);
// What is wrong with the context, or with the experts; "": nothing.
std::string wrong_context(const LlamaSizes& sizes);
std::string wrong_experts(const LlamaSizes& sizes);

// Weights are called as in Hugging Face's transformers, matrices are [in, out], or [out, in] as they are stored. All
// experts of a layer are three tensors [experts, out, in], "model.layers.0.mlp.experts.gate_proj.weight" and so on.
//
// Input: input_ids i64[1, length]; output: logits f32[1, length, vocab]. With a context also
//   begins i64[1]     the position of the first of these tokens, at most context - length
//   lengths i64[1]    the positions that are there then: begins + length; 0: nobody looks at what this sequence makes.
//                     Its keys and values are written all the same: `begins` must lie behind what is to be kept
//   last i64[1, 1]    only if length > 1: which of the tokens (from 0) the next one follows
// and the outputs are, best first, scores f32[1, candidates] (of the logits) and candidates f32[1, candidates]. Tokens
// behind `last` mean nothing: the next execution writes over them. A state of each layer has its keys, another one its
// values, both f32[1, kv_heads, context, head], or f16.
//
// Caches in pages are states f32[pages, kv_heads, page, head], the same for any number of sequences. Two inputs more:
//   pages i64[1, context / page]  where the sequence's positions lie
//   counts i64[1]                 so many of these tokens are written, the first ones
Model build_llama(const LlamaSizes& sizes, ZooNet net);

}  // namespace nlsplit::inline graph

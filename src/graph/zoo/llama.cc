// Touvron et al., "LLaMA: open and efficient foundation language models", 2023, and Llama 3 (Dubey et al., "The Llama 3
// herd of models", 2024), whose sizes are the standard ones: RMSNorm, rotary positions, keys and values shared by
// groups of heads, and SwiGLU (Shazeer, "GLU variants improve transformer", 2020). One pass over all tokens at once.
#include "graph/zoo/families.h"
#include "graph/zoo/transformer.h"

namespace nlsplit::inline graph {
namespace {

constexpr double llama_epsilon = 1e-5;
constexpr double rotary_base = 500000;

ValueId decoder_layer(ZooNet& net, const std::string& name, ValueId x, const LlamaSizes& sizes) {
  const int64_t width = sizes.hidden, kv_width = width / sizes.heads * sizes.kv_heads;
  const double gain = branch_gain(sizes.layers);
  const std::string attend = name + ".self_attn", mlp = name + ".mlp";
  ValueId y = rms_norm(net, name + ".input_layernorm", x, llama_epsilon);
  const ValueId q = project(net, attend + ".q_proj", y, {.features = width, .bias = false});
  const ValueId k = project(net, attend + ".k_proj", y, {.features = kv_width, .bias = false});
  const ValueId v = project(net, attend + ".v_proj", y, {.features = kv_width, .bias = false});
  y = attention(net, attend, q, k, v,
                {.heads = sizes.heads, .kv_heads = sizes.kv_heads, .causal = true, .rotary_base = rotary_base});
  y = project(net, attend + ".o_proj", y, {.features = width, .bias = false, .gain = gain});
  x = net.add(name + ".add1", x, y);
  y = rms_norm(net, name + ".post_attention_layernorm", x, llama_epsilon);
  const ValueId gate =
      net.silu(mlp + ".act_fn", project(net, mlp + ".gate_proj", y, {.features = sizes.ffn, .bias = false}));
  const ValueId up = project(net, mlp + ".up_proj", y, {.features = sizes.ffn, .bias = false});
  y = project(net, mlp + ".down_proj", net.mul(mlp + ".gated", gate, up),
              {.features = width, .bias = false, .gain = gain});
  return net.add(name + ".add2", x, y);
}

}  // namespace

Model build_llama(const LlamaSizes& sizes, uint64_t seed) {
  ZooNet net("llama", seed);
  const ValueId tokens = net.tokens("input_ids", {1, sizes.length});
  ValueId x = embed(net, "model.embed_tokens", tokens, sizes.vocab, sizes.hidden, 1);
  for (int64_t i = 0; i < sizes.layers; ++i) x = decoder_layer(net, "model.layers." + std::to_string(i), x, sizes);
  x = rms_norm(net, "model.norm", x, llama_epsilon);
  x = project(net, "lm_head", x, {.features = sizes.vocab, .bias = false});
  return std::move(net).finish(x);
}

}  // namespace nlsplit::inline graph

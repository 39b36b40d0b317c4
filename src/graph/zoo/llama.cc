// Touvron et al., "LLaMA: open and efficient foundation language models", 2023, and Llama 3 (Dubey et al., "The Llama 3
// herd of models", 2024), whose sizes are the standard ones: RMSNorm, rotary positions, keys and values shared by
// groups of heads, and SwiGLU (Shazeer, "GLU variants improve transformer", 2020). One pass over all tokens at once.
// Qwen 2 (Yang et al., 2024), Qwen 3 (Yang et al., 2025) and Gemma (Gemma Team, 2024) are the same but for what
// LlamaSizes says.
#include "graph/zoo/llama.h"

#include "graph/zoo/transformer.h"

namespace nlsplit::inline graph {
namespace {

ValueId decoder_layer(ZooNet& net, const std::string& name, ValueId x, const LlamaSizes& sizes) {
  const int64_t head = sizes.head == 0 ? sizes.hidden / sizes.heads : sizes.head;
  const int64_t width = head * sizes.heads, kv_width = head * sizes.kv_heads;
  const double gain = branch_gain(sizes.layers);
  const std::string attend = name + ".self_attn", mlp = name + ".mlp";
  ValueId y = rms_norm(net, name + ".input_layernorm", x, sizes.epsilon);
  const ValueId q = project(net, attend + ".q_proj", y, {.features = width, .bias = sizes.biases});
  const ValueId k = project(net, attend + ".k_proj", y, {.features = kv_width, .bias = sizes.biases});
  const ValueId v = project(net, attend + ".v_proj", y, {.features = kv_width, .bias = sizes.biases});
  y = attention(net, attend, q, k, v,
                {.heads = sizes.heads,
                 .kv_heads = sizes.kv_heads,
                 .causal = true,
                 .rotary_base = sizes.rotary_base,
                 .rotary_factors = sizes.rotary_factors,
                 .norm_epsilon = sizes.head_norms ? sizes.epsilon : 0});
  y = project(net, attend + ".o_proj", y, {.features = sizes.hidden, .bias = false, .gain = gain});
  x = net.add(name + ".add1", x, y);
  y = rms_norm(net, name + ".post_attention_layernorm", x, sizes.epsilon);
  const ValueId gate = project(net, mlp + ".gate_proj", y, {.features = sizes.ffn, .bias = false});
  const ValueId open = sizes.gelu ? gelu_tanh(net, mlp + ".act_fn", gate) : net.silu(mlp + ".act_fn", gate);
  const ValueId up = project(net, mlp + ".up_proj", y, {.features = sizes.ffn, .bias = false});
  y = project(net, mlp + ".down_proj", net.mul(mlp + ".gated", open, up),
              {.features = sizes.hidden, .bias = false, .gain = gain});
  return net.add(name + ".add2", x, y);
}

}  // namespace

Model build_llama(const LlamaSizes& sizes, ZooNet net) {
  const ValueId tokens = net.tokens("input_ids", {1, sizes.length});
  ValueId x = embed(net, "model.embed_tokens", tokens, sizes.vocab, sizes.hidden, 1);
  if (sizes.embedding_scale != 1) {
    x = net.mul("model.embed_scaled", x, net.scalar("model.embed_scale", sizes.embedding_scale));
  }
  for (int64_t i = 0; i < sizes.layers; ++i) x = decoder_layer(net, "model.layers." + std::to_string(i), x, sizes);
  x = rms_norm(net, "model.norm", x, sizes.epsilon);
  x = project(net, "lm_head", x, {.features = sizes.vocab, .bias = false});
  return std::move(net).finish(x);
}

}  // namespace nlsplit::inline graph

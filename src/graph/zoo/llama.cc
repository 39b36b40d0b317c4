// Touvron et al., "LLaMA: open and efficient foundation language models", 2023, and Llama 3 (Dubey et al., "The Llama 3
// herd of models", 2024), whose sizes are the standard ones: RMSNorm, rotary positions, keys and values shared by
// groups of heads, and SwiGLU (Shazeer, "GLU variants improve transformer", 2020). One pass over all tokens at once.
// Mistral (Jiang et al., 2023), Qwen 2 (Yang et al., 2024), Qwen 3 (Yang et al., 2025), Phi-3 (Abdin et al., 2024) and
// Gemma 1 to 3 (Gemma Team, 2024 and 2025) are the same but for what LlamaSizes says.
#include "graph/zoo/llama.h"

#include <fmt/format.h>

#include <cmath>

#include "graph/zoo/transformer.h"

namespace nlsplit::inline graph {
namespace {

// Each token takes the experts whose scores are the largest.
ValueId mixture(ZooNet& net, const std::string& name, ValueId x, const LlamaSizes& sizes, double gain) {
  const auto softmax = [&](const std::string& of, ValueId scores) {
    return net.node(Op::Softmax, name + of, {scores}, {{"axis", int64_t{-1}}});
  };
  ValueId scores = project(net, name + ".gate", x, {.features = sizes.experts, .bias = false});
  if (!sizes.shares_of_used) scores = softmax(".shares", scores);
  const std::vector<ValueId> best = net.node_with_results(
      Op::TopK, name + ".chosen", {scores},
      {{"axis", int64_t{-1}}, {"k", sizes.experts_used}, {"largest", int64_t{1}}, {"sorted", int64_t{1}}},
      {name + ".best", name + ".chosen"});
  const ValueId shares = sizes.shares_of_used ? softmax(".shares", best[0]) : best[0];
  const auto weights = [&](const std::string& part, int64_t out, int64_t in, double deviation) {
    const std::string own = name + ".experts." + part + ".weight";
    return net.weight(own, {net.stored_type(own), {sizes.experts, out, in}},
                      deviation / std::sqrt(static_cast<double>(in)));
  };
  const ValueId gate = weights("gate_proj", sizes.ffn, sizes.hidden, 1),
                up = weights("up_proj", sizes.ffn, sizes.hidden, 1),
                down = weights("down_proj", sizes.hidden, sizes.ffn, gain);
  return net.node(Op::Experts, name + ".experts", {x, best[1], shares, gate, up, down},
                  {{"all", sizes.experts}, {"first", int64_t{0}}});
}

// Rows [sequences, width] of one token each, of [sequences, tokens, width]: the only one, or `last` says which.
ValueId of_last_token(ZooNet& net, const std::string& name, ValueId x, ValueId last) {
  if (!last.valid()) return reshape(net, name, x, {0, net.shape(x).back()});
  return net.node(Op::GatherND, name, {x, last}, {{"batch_dims", int64_t{1}}});
}

// `ends`: to the feed-forward goes only the last token of each sequence.
ValueId decoder_layer(ZooNet& net, const std::string& name, ValueId x, const LlamaSizes& sizes, bool local,
                      const CacheSpec& cache, bool ends, ValueId last) {
  const bool own_base = local && sizes.local_rotary_base > 0;
  const int64_t head = head_of(sizes);
  const int64_t width = head * sizes.heads, kv_width = head * sizes.kv_heads;
  const double gain = branch_gain(sizes.layers);
  const std::string attend = name + ".self_attn", mlp = name + ".mlp";
  ValueId y = rms_norm(net, name + ".input_layernorm", x, sizes.epsilon);
  const ValueId q = project(net, attend + ".q_proj", y, {.features = width, .bias = sizes.biases});
  const ValueId k = project(net, attend + ".k_proj", y, {.features = kv_width, .bias = sizes.biases});
  const ValueId v = project(net, attend + ".v_proj", y, {.features = kv_width, .bias = sizes.biases});
  const AttentionSpec spec{.heads = sizes.heads,
                           .kv_heads = sizes.kv_heads,
                           .causal = true,
                           .rotary_base = own_base ? sizes.local_rotary_base : sizes.rotary_base,
                           .rotary_factors = own_base ? std::vector<float>() : sizes.rotary_factors,
                           .norm_epsilon = sizes.head_norms ? sizes.epsilon : 0,
                           .window = local ? sizes.window : 0,
                           .scale = sizes.attention_scale,
                           .softcap = sizes.attention_softcap};
  y = sizes.context > 0 ? attention_over_cache(net, attend, q, k, v, spec, cache)
                        : attention(net, attend, q, k, v, spec);
  y = project(net, attend + ".o_proj", y, {.features = sizes.hidden, .bias = false, .gain = gain});
  if (sizes.branch_norms) y = rms_norm(net, name + ".post_attention_layernorm", y, sizes.epsilon);
  x = net.add(name + ".add1", x, y);
  if (ends) x = of_last_token(net, name + ".last", x, last);
  const char* const before_mlp = sizes.branch_norms ? ".pre_feedforward_layernorm" : ".post_attention_layernorm";
  y = rms_norm(net, name + before_mlp, x, sizes.epsilon);
  if (sizes.experts > 0) return net.add(name + ".add2", x, mixture(net, mlp, y, sizes, gain));
  const ValueId gate = project(net, mlp + ".gate_proj", y, {.features = sizes.ffn, .bias = false});
  const ValueId open = sizes.gelu ? gelu_tanh(net, mlp + ".act_fn", gate) : net.silu(mlp + ".act_fn", gate);
  const ValueId up = project(net, mlp + ".up_proj", y, {.features = sizes.ffn, .bias = false});
  y = project(net, mlp + ".down_proj", net.mul(mlp + ".gated", open, up),
              {.features = sizes.hidden, .bias = false, .gain = gain});
  if (sizes.branch_norms) y = rms_norm(net, name + ".post_feedforward_layernorm", y, sizes.epsilon);
  return net.add(name + ".add2", x, y);
}

// Of layers that see all, and of local ones.
struct Caches {
  CacheSpec all, local;
};

Caches caches_of(ZooNet& net, const LlamaSizes& sizes) {
  if (sizes.context == 0) return {};
  const Shape table{sizes.context, head_of(sizes)};
  CacheSpec cache{.positions = sizes.context,
                  .type = sizes.cache_bits == 16 ? DType::f16 : DType::f32,
                  .begins = net.tokens("begins", {1}),
                  .lengths = net.tokens("lengths", {1}),
                  .page = sizes.page,
                  .pages = sizes.pages,
                  .page_table = {},
                  .counts = {},
                  .cosines = {},
                  .sines = {}};
  if (sizes.page > 0) {
    cache.page_table = net.tokens("pages", {1, sizes.context / sizes.page});
    cache.counts = net.tokens("counts", {1});
  }
  cache.cosines =
      net.half_table("model.rotary.cosines", Formula::rotary_cos, table, sizes.rotary_base, sizes.rotary_factors);
  cache.sines =
      net.half_table("model.rotary.sines", Formula::rotary_sin, table, sizes.rotary_base, sizes.rotary_factors);
  CacheSpec local = cache;
  if (sizes.local_rotary_base > 0) {
    local.cosines =
        net.half_table("model.local_rotary.cosines", Formula::rotary_cos, table, sizes.local_rotary_base, {});
    local.sines = net.half_table("model.local_rotary.sines", Formula::rotary_sin, table, sizes.local_rotary_base, {});
  }
  return {cache, local};
}

}  // namespace

int64_t head_of(const LlamaSizes& sizes) { return sizes.head == 0 ? sizes.hidden / sizes.heads : sizes.head; }

bool is_local(const LlamaSizes& sizes, int64_t layer) {
  return sizes.window > 0 && (sizes.window_period == 0 || layer % sizes.window_period != sizes.window_period - 1);
}

std::string wrong_context(const LlamaSizes& sizes) {
  constexpr int64_t most = int64_t{1} << 24;
  if (sizes.cache_bits != 32 && sizes.cache_bits != 16)
    return fmt::format("cache_bits {} are neither 32 nor 16", sizes.cache_bits);
  if (sizes.context == 0 && sizes.cache_bits != 32) return "cache_bits need a context";
  if (sizes.context == 0 && sizes.candidates > 1) return "candidates need a context";
  if (sizes.context == 0 && (sizes.page > 0 || sizes.pages > 0)) return "pages need a context";
  if ((sizes.page == 0) != (sizes.pages == 0)) return "page and pages are given together";
  if (sizes.page > 0 && (sizes.page > sizes.context || sizes.context % sizes.page != 0))
    return fmt::format("context {} is not a multiple of page {}", sizes.context, sizes.page);
  if (sizes.pages > most) return fmt::format("pages {} are more than {}", sizes.pages, most);
  if (sizes.context == 0) return {};
  if (sizes.context < sizes.length || sizes.context > most)
    return fmt::format("context {} is not from the length, {}, to {}", sizes.context, sizes.length, most);
  if (sizes.candidates > sizes.vocab)
    return fmt::format("candidates {} is more than the {} tokens there are", sizes.candidates, sizes.vocab);
  return {};
}

std::string wrong_experts(const LlamaSizes& sizes) {
  if (sizes.experts == 0) return {};
  const auto real = [](int64_t number) { return static_cast<double>(number); };
  if (sizes.experts_used < 1 || sizes.experts_used > sizes.experts)
    return fmt::format("experts_used {} is not from 1 to {}", sizes.experts_used, sizes.experts);
  if (const double elements = real(sizes.experts) * real(sizes.ffn) * real(sizes.hidden); elements > 1e12)
    return fmt::format("the experts of a layer would have {:.2g} elements", elements);
  return {};
}

Model build_llama(const LlamaSizes& sizes, ZooNet net) {
  const ValueId tokens = net.tokens("input_ids", {1, sizes.length});
  const Caches caches = caches_of(net, sizes);
  ValueId last;
  if (sizes.context > 0 && sizes.length > 1) last = net.tokens("last", {1, 1});
  ValueId x = embed(net, "model.embed_tokens", tokens, sizes.vocab, sizes.hidden, 1);
  if (sizes.embedding_scale != 1) {
    x = net.mul("model.embed_scaled", x, net.scalar("model.embed_scale", sizes.embedding_scale));
  }
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const bool local = is_local(sizes, i);
    // Of a sequence that goes on one token's successor is wanted. What is behind the last attention is of that one
    // alone.
    x = decoder_layer(net, "model.layers." + std::to_string(i), x, sizes, local, local ? caches.local : caches.all,
                      sizes.context > 0 && i + 1 == sizes.layers, last);
  }
  x = rms_norm(net, "model.norm", x, sizes.epsilon);
  x = project(net, "lm_head", x, {.features = sizes.vocab, .bias = false});
  if (sizes.softcap > 0) x = soft_capped(net, "capped", x, sizes.softcap);
  if (sizes.context == 0) return std::move(net).finish(x);
  const std::vector<ValueId> next = net.node_with_results(
      Op::TopK, "model.next", {x},
      {{"axis", int64_t{-1}}, {"k", sizes.candidates}, {"largest", int64_t{1}}, {"sorted", int64_t{1}}},
      {"scores", "model.next.tokens"});
  const ValueId tokens_as_real = net.node(Op::Cast, "candidates", {next[1]}, {{"to", std::string("f32")}});
  return std::move(net).finish(std::vector<ValueId>{next[0], tokens_as_real});
}

}  // namespace nlsplit::inline graph

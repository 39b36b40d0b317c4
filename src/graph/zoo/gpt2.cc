// Radford et al., "Language models are unsupervised multitask learners", 2019: GPT-2's smallest, with its head, whose
// matrix is the transpose of the table of tokens.
#include "graph/zoo/families.h"
#include "graph/zoo/transformer.h"

namespace nlsplit::inline graph {
namespace {

constexpr double gpt2_epsilon = 1e-5;

ValueId decoder_layer(ZooNet& net, const std::string& name, ValueId x, const GptSizes& sizes) {
  const int64_t width = sizes.hidden;
  ValueId y = layer_norm(net, name + ".ln_1", x, gpt2_epsilon);
  const ValueId q = project(net, name + ".attn.c_attn.q", y, {.features = width});
  const ValueId k = project(net, name + ".attn.c_attn.k", y, {.features = width});
  const ValueId v = project(net, name + ".attn.c_attn.v", y, {.features = width});
  y = attention(net, name + ".attn", q, k, v, {.heads = sizes.heads, .causal = true});
  y = project(net, name + ".attn.c_proj", y, {.features = width, .gain = branch_gain(sizes.layers)});
  x = net.add(name + ".add1", x, y);
  y = layer_norm(net, name + ".ln_2", x, gpt2_epsilon);
  y = project(net, name + ".mlp.c_fc", y, {.features = 4 * width});
  y = gelu_tanh(net, name + ".mlp.act", y);
  y = project(net, name + ".mlp.c_proj", y, {.features = width, .gain = branch_gain(sizes.layers)});
  return net.add(name + ".add2", x, y);
}

}  // namespace

Model build_gpt2(const GptSizes& sizes, uint64_t seed) {
  ZooNet net("gpt2", seed);
  const int64_t width = sizes.hidden;
  const ValueId tokens = net.tokens("input_ids", {1, sizes.length});
  const ValueId table = net.weight("transformer.wte.weight", {sizes.vocab, width}, 0.1);
  ValueId x = net.node(Op::Gather, "transformer.wte", {table, tokens}, {{"axis", int64_t{0}}});
  ValueId positions = net.weight("transformer.wpe.weight", {GptSizes::positions, width}, 0.05);
  if (sizes.length < GptSizes::positions) positions = rows(net, "transformer.wpe", positions, 0, 0, sizes.length);
  x = net.add("transformer.embedded", x, positions);
  for (int64_t i = 0; i < sizes.layers; ++i) x = decoder_layer(net, "transformer.h." + std::to_string(i), x, sizes);
  x = layer_norm(net, "transformer.ln_f", x, gpt2_epsilon);
  x = net.node(Op::MatMul, "lm_head", {x, net.transposed("lm_head.weight", table)});
  return std::move(net).finish(x);
}

}  // namespace nlsplit::inline graph

// Devlin, Chang, Lee, Toutanova, "BERT: pre-training of deep bidirectional transformers for language understanding",
// NAACL 2019; base, uncased: the encoder with its embeddings and its pooler. No token is padding, so there is no mask.
#include "graph/zoo/families.h"
#include "graph/zoo/transformer.h"

namespace nlsplit::inline graph {
namespace {

constexpr double bert_epsilon = 1e-12;
constexpr int64_t kinds = 2;  // of tokens: of the first or the second sentence

ValueId encoder_layer(ZooNet& net, const std::string& name, ValueId x, const BertSizes& sizes) {
  const int64_t width = sizes.hidden;
  const std::string attend = name + ".attention.self";
  const ValueId q = project(net, attend + ".query", x, {.features = width});
  const ValueId k = project(net, attend + ".key", x, {.features = width});
  const ValueId v = project(net, attend + ".value", x, {.features = width});
  ValueId y = attention(net, attend, q, k, v, {.heads = sizes.heads});
  y = project(net, name + ".attention.output.dense", y, {.features = width});
  x = layer_norm(net, name + ".attention.output.LayerNorm", net.add(name + ".attention.output.add", y, x),
                 bert_epsilon);
  y = project(net, name + ".intermediate.dense", x, {.features = sizes.ffn});
  y = gelu(net, name + ".intermediate.activation", y);
  y = project(net, name + ".output.dense", y, {.features = width});
  return layer_norm(net, name + ".output.LayerNorm", net.add(name + ".output.add", y, x), bert_epsilon);
}

}  // namespace

Model build_bert(const BertSizes& sizes, uint64_t seed) {
  ZooNet net("bert_base", seed);
  const int64_t width = sizes.hidden;
  const ValueId tokens = net.tokens("input_ids", {1, sizes.length});
  const ValueId types = net.tokens("token_type_ids", {1, sizes.length});
  ValueId x = embed(net, "embeddings.word_embeddings", tokens, sizes.vocab, width, 1);
  x = net.add("embeddings.typed", x, embed(net, "embeddings.token_type_embeddings", types, kinds, width, 0.3));
  ValueId positions = net.weight("embeddings.position_embeddings.weight", {BertSizes::positions, width}, 0.3);
  if (sizes.length < BertSizes::positions)
    positions = rows(net, "embeddings.position_embeddings", positions, 0, 0, sizes.length);
  x = layer_norm(net, "embeddings.LayerNorm", net.add("embeddings.placed", x, positions), bert_epsilon);
  for (int64_t i = 0; i < sizes.layers; ++i) x = encoder_layer(net, "encoder.layer." + std::to_string(i), x, sizes);
  ValueId pooled = reshape(net, "pooler.token", rows(net, "pooler.first", x, 1, 0, 1), {0, width});
  pooled = net.linear("pooler.dense", pooled, width, /*after_relu=*/false);
  pooled = net.node(Op::Tanh, "pooler.activation", {pooled});
  return std::move(net).finish(std::vector<ValueId>{x, pooled});
}

}  // namespace nlsplit::inline graph

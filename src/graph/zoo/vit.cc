// Dosovitskiy et al., "An image is worth 16x16 words: transformers for image recognition at scale", ICLR 2021; B/16.
#include "graph/zoo/families.h"
#include "graph/zoo/transformer.h"

namespace nlsplit::inline graph {
namespace {

constexpr double vit_epsilon = 1e-6;

// In front of the patches, for any batch: the patches get a row of zeros there, to which it is added.
ValueId with_class_token(ZooNet& net, ValueId patches, int64_t tokens, int64_t width) {
  using Ints = std::vector<int64_t>;
  const ValueId token = net.weight("class_token", {1, width}, 0.5);
  const ValueId apart =
      net.node(Op::Pad, "class_token.apart", {patches}, {{"pads", Ints{0, 1, 0, 0, 0, 0}}, {"value", 0.0}});
  const ValueId first =
      net.node(Op::Pad, "class_token.first", {token}, {{"pads", Ints{0, 0, tokens - 1, 0}}, {"value", 0.0}});
  return net.add("class_token.joined", apart, first);
}

ValueId encoder_layer(ZooNet& net, const std::string& name, ValueId x, const VitSizes& sizes) {
  const int64_t width = sizes.hidden;
  ValueId y = layer_norm(net, name + ".ln_1", x, vit_epsilon);
  const std::string attend = name + ".self_attention";
  const ValueId q = project(net, attend + ".in_proj.q", y, {.features = width});
  const ValueId k = project(net, attend + ".in_proj.k", y, {.features = width});
  const ValueId v = project(net, attend + ".in_proj.v", y, {.features = width});
  y = attention(net, attend, q, k, v, {.heads = sizes.heads});
  y = project(net, attend + ".out_proj", y, {.features = width, .gain = branch_gain(sizes.layers)});
  x = net.add(name + ".add1", x, y);
  y = layer_norm(net, name + ".ln_2", x, vit_epsilon);
  y = project(net, name + ".mlp.0", y, {.features = sizes.ffn});
  y = gelu(net, name + ".mlp.1", y);
  y = project(net, name + ".mlp.3", y, {.features = width, .gain = branch_gain(sizes.layers)});
  return net.add(name + ".add2", x, y);
}

}  // namespace

Model build_vit(const VitSizes& sizes, uint64_t seed) {
  ZooNet net("vit_b16", seed);
  const int64_t side = sizes.image / sizes.patch, tokens = side * side + 1, width = sizes.hidden;
  ValueId x = net.input({1, 3, sizes.image, sizes.image});
  x = net.conv("conv_proj", x, {.channels = width, .kernel = sizes.patch, .stride = sizes.patch, .after_relu = false});
  x = reshape(net, "patches", x, {0, width, side * side});
  x = net.node(Op::Transpose, "patches.rows", {x}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
  x = with_class_token(net, x, tokens, width);
  x = net.add("encoder.positions", x, net.weight("encoder.pos_embedding", {1, tokens, width}, 0.2));
  for (int64_t i = 0; i < sizes.layers; ++i)
    x = encoder_layer(net, "encoder.layers.encoder_layer_" + std::to_string(i), x, sizes);
  x = layer_norm(net, "encoder.ln", x, vit_epsilon);
  x = reshape(net, "flatten", rows(net, "encoder.class", x, 1, 0, 1), {0, width});
  x = net.linear("heads.head", x, 1000, /*after_relu=*/false);
  return std::move(net).finish(x);
}

}  // namespace nlsplit::inline graph

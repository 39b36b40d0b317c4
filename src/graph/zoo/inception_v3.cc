// Szegedy, Vanhoucke, Ioffe, Shlens, Wojna, "Rethinking the inception architecture for computer vision", CVPR 2016, as
// torchvision has it, without the auxiliary classifier, which only training uses.
#include <string>

#include "graph/zoo/families.h"
#include "graph/zoo/net.h"

namespace nlsplit::inline graph {
namespace {

constexpr double inception_epsilon = 0.001;

// "Mixed_5b": its branches write paths like path(x, "branch5x5_1", …).
struct Mixed {
  ZooNet& net;
  std::string name;

  ValueId conv(const std::string& layer, ValueId x, ConvSpec spec) const {
    const std::string module = name.empty() ? layer : name + "." + layer;
    spec.bias = false;
    x = net.conv(module + ".conv", x, spec);
    return net.relu(module + ".relu", net.batch_norm(module + ".bn", x, 1, inception_epsilon));
  }
  ValueId square(const std::string& layer, ValueId x, int64_t channels, int64_t kernel, int64_t stride = 1,
                 int64_t pad = 0) const {
    return conv(layer, x, {.channels = channels, .kernel = kernel, .stride = stride, .pad = pad});
  }
  ValueId row(const std::string& layer, ValueId x, int64_t channels, int64_t width) const {
    return conv(layer, x, {.channels = channels, .kernel = 1, .kernel_w = width, .pad_w = width / 2});
  }
  ValueId column(const std::string& layer, ValueId x, int64_t channels, int64_t height) const {
    return conv(layer, x, {.channels = channels, .kernel = height, .pad = height / 2, .kernel_w = 1});
  }
  ValueId pooled(ValueId x, int64_t channels) const {
    return square("branch_pool", net.average_pool(name + ".avg_pool", x, 3, 1, 1), channels, 1);
  }
  ValueId joined(std::vector<ValueId> branches) const { return net.concat(name + ".concat", std::move(branches)); }
};

ValueId block_a(const Mixed& m, ValueId x, int64_t pool_features) {
  const ValueId one = m.square("branch1x1", x, 64, 1);
  const ValueId five = m.square("branch5x5_2", m.square("branch5x5_1", x, 48, 1), 64, 5, 1, 2);
  ValueId three = m.square("branch3x3dbl_1", x, 64, 1);
  three = m.square("branch3x3dbl_2", three, 96, 3, 1, 1);
  three = m.square("branch3x3dbl_3", three, 96, 3, 1, 1);
  return m.joined({one, five, three, m.pooled(x, pool_features)});
}

ValueId block_b(const Mixed& m, ValueId x) {
  const ValueId three = m.square("branch3x3", x, 384, 3, 2);
  ValueId twice = m.square("branch3x3dbl_1", x, 64, 1);
  twice = m.square("branch3x3dbl_2", twice, 96, 3, 1, 1);
  twice = m.square("branch3x3dbl_3", twice, 96, 3, 2);
  return m.joined({three, twice, m.net.max_pool(m.name + ".max_pool", x, 3, 2)});
}

ValueId block_c(const Mixed& m, ValueId x, int64_t narrow) {
  const ValueId one = m.square("branch1x1", x, 192, 1);
  ValueId seven = m.square("branch7x7_1", x, narrow, 1);
  seven = m.row("branch7x7_2", seven, narrow, 7);
  seven = m.column("branch7x7_3", seven, 192, 7);
  ValueId twice = m.square("branch7x7dbl_1", x, narrow, 1);
  twice = m.column("branch7x7dbl_2", twice, narrow, 7);
  twice = m.row("branch7x7dbl_3", twice, narrow, 7);
  twice = m.column("branch7x7dbl_4", twice, narrow, 7);
  twice = m.row("branch7x7dbl_5", twice, 192, 7);
  return m.joined({one, seven, twice, m.pooled(x, 192)});
}

ValueId block_d(const Mixed& m, ValueId x) {
  const ValueId three = m.square("branch3x3_2", m.square("branch3x3_1", x, 192, 1), 320, 3, 2);
  ValueId seven = m.square("branch7x7x3_1", x, 192, 1);
  seven = m.row("branch7x7x3_2", seven, 192, 7);
  seven = m.column("branch7x7x3_3", seven, 192, 7);
  seven = m.square("branch7x7x3_4", seven, 192, 3, 2);
  return m.joined({three, seven, m.net.max_pool(m.name + ".max_pool", x, 3, 2)});
}

ValueId block_e(const Mixed& m, ValueId x) {
  const ValueId one = m.square("branch1x1", x, 320, 1);
  const ValueId three = m.square("branch3x3_1", x, 384, 1);
  const ValueId wide = m.row("branch3x3_2a", three, 384, 3), high = m.column("branch3x3_2b", three, 384, 3);
  ValueId twice = m.square("branch3x3dbl_1", x, 448, 1);
  twice = m.square("branch3x3dbl_2", twice, 384, 3, 1, 1);
  const ValueId wide2 = m.row("branch3x3dbl_3a", twice, 384, 3), high2 = m.column("branch3x3dbl_3b", twice, 384, 3);
  return m.joined({one, wide, high, wide2, high2, m.pooled(x, 192)});
}

}  // namespace

Model build_inception_v3(uint64_t seed, int64_t image) {
  ZooNet net("inception_v3", seed);
  const Mixed stem{net, ""};
  ValueId x = net.input({1, 3, image, image});
  x = stem.conv("Conv2d_1a_3x3", x, {.channels = 32, .kernel = 3, .stride = 2, .after_relu = false});
  x = stem.square("Conv2d_2a_3x3", x, 32, 3);
  x = stem.square("Conv2d_2b_3x3", x, 64, 3, 1, 1);
  x = net.max_pool("maxpool1", x, 3, 2);
  x = stem.square("Conv2d_3b_1x1", x, 80, 1);
  x = stem.square("Conv2d_4a_3x3", x, 192, 3);
  x = net.max_pool("maxpool2", x, 3, 2);
  x = block_a({net, "Mixed_5b"}, x, 32);
  x = block_a({net, "Mixed_5c"}, x, 64);
  x = block_a({net, "Mixed_5d"}, x, 64);
  x = block_b({net, "Mixed_6a"}, x);
  x = block_c({net, "Mixed_6b"}, x, 128);
  x = block_c({net, "Mixed_6c"}, x, 160);
  x = block_c({net, "Mixed_6d"}, x, 160);
  x = block_c({net, "Mixed_6e"}, x, 192);
  x = block_d({net, "Mixed_7a"}, x);
  x = block_e({net, "Mixed_7b"}, x);
  x = block_e({net, "Mixed_7c"}, x);
  x = net.global_average_pool("avgpool", x);
  x = net.flatten("flatten", x);
  x = net.linear("fc", x, 1000, /*after_relu=*/false);
  return std::move(net).finish(x);
}

}  // namespace nlsplit::inline graph

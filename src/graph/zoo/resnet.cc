// He, Zhang, Ren, Sun, "Deep residual learning for image recognition", CVPR 2016. The bottleneck's stride is in its 3x3
// convolution, as in torchvision ("v1.5").
#include <string>

#include "graph/zoo/families.h"
#include "graph/zoo/net.h"

namespace nlsplit::inline graph {
namespace {

constexpr float residual_scale = 0.25f;  // of the last normalisation before a residual sum

struct Block {
  ZooNet& net;
  std::string name;  // "layer2.0"

  ValueId conv_bn(int number, ValueId x, int64_t channels, int64_t kernel, int64_t stride, float scale) {
    const std::string n = std::to_string(number);
    x = net.conv(name + ".conv" + n, x,
                 {.channels = channels, .kernel = kernel, .stride = stride, .pad = kernel / 2, .bias = false});
    return net.batch_norm(name + ".bn" + n, x, scale);
  }
  ValueId conv_bn_relu(int number, ValueId x, int64_t channels, int64_t kernel, int64_t stride) {
    return net.relu(name + ".relu" + std::to_string(number), conv_bn(number, x, channels, kernel, stride, 1));
  }

  ValueId basic(ValueId x, int64_t width, int64_t stride) {
    ValueId y = conv_bn_relu(1, x, width, 3, stride);
    y = conv_bn(2, y, width, 3, 1, residual_scale);
    return join(x, y, stride, 2);
  }

  ValueId bottleneck(ValueId x, int64_t width, int64_t stride) {
    ValueId y = conv_bn_relu(1, x, width, 1, 1);
    y = conv_bn_relu(2, y, width, 3, stride);
    y = conv_bn(3, y, 4 * width, 1, 1, residual_scale);
    return join(x, y, stride, 3);
  }

  ValueId join(ValueId x, ValueId y, int64_t stride, int last) {
    const int64_t channels = net.channels(y);
    if (stride != 1 || net.channels(x) != channels) {
      x = net.conv(name + ".downsample.0", x, {.channels = channels, .kernel = 1, .stride = stride, .bias = false});
      x = net.batch_norm(name + ".downsample.1", x);
    }
    return net.relu(name + ".relu" + std::to_string(last), net.add(name + ".add", y, x));
  }
};

}  // namespace

Model build_resnet(int depth, uint64_t seed, int64_t image) {
  CHECK(depth == 18 || depth == 50, "the depths the zoo offers");
  const std::vector<int> blocks = depth == 18 ? std::vector<int>{2, 2, 2, 2} : std::vector<int>{3, 4, 6, 3};
  ZooNet net("resnet" + std::to_string(depth), seed);
  ValueId x = net.input({1, 3, image, image});
  x = net.conv("conv1", x, {.channels = 64, .kernel = 7, .stride = 2, .pad = 3, .bias = false, .after_relu = false});
  x = net.relu("relu", net.batch_norm("bn1", x));
  x = net.max_pool("maxpool", x, 3, 2, 1);
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t width = int64_t{64} << stage;
    for (int i = 0; i < blocks[stage]; ++i) {
      const int64_t stride = i == 0 && stage > 0 ? 2 : 1;
      Block block{net, "layer" + std::to_string(stage + 1) + "." + std::to_string(i)};
      x = depth == 18 ? block.basic(x, width, stride) : block.bottleneck(x, width, stride);
    }
  }
  x = net.global_average_pool("avgpool", x);
  x = net.flatten("flatten", x);
  x = net.linear("fc", x, 1000, /*after_relu=*/false);
  return std::move(net).finish(x);
}

}  // namespace nlsplit::inline graph

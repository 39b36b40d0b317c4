// Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", CVPR 2018, table 2, width 1.0.
#include <string>

#include "graph/zoo/families.h"
#include "graph/zoo/net.h"

namespace nlsplit::inline graph {
namespace {

// Conv, BatchNormalization and ReLU6 are 0, 1, 2 of the module they are in.
ValueId conv_bn_relu6(ZooNet& net, const std::string& module, ValueId x, const ConvSpec& spec) {
  x = net.conv(module + ".0", x, spec);
  return net.relu6(module + ".2", net.batch_norm(module + ".1", x));
}

ValueId inverted_residual(ZooNet& net, const std::string& name, ValueId x, int64_t expand, int64_t channels,
                          int64_t stride) {
  const int64_t in = net.channels(x), hidden = in * expand;
  const bool adds = stride == 1 && in == channels;
  int part = 0;
  auto module = [&] { return name + ".conv." + std::to_string(part++); };
  ValueId y = x;
  if (expand != 1)
    y = conv_bn_relu6(net, module(), y, {.channels = hidden, .kernel = 1, .bias = false, .after_relu = false});
  y = conv_bn_relu6(net, module(), y,
                    {.channels = hidden, .kernel = 3, .stride = stride, .pad = 1, .groups = hidden, .bias = false});
  y = net.conv(module(), y, {.channels = channels, .kernel = 1, .bias = false});
  y = net.batch_norm(module(), y, adds ? inverted_residual_scale : 1);
  return adds ? net.add(name + ".add", x, y) : y;
}

}  // namespace

Model build_mobilenet_v2(uint64_t seed, int64_t image) {
  ZooNet net("mobilenet_v2", seed);
  ValueId x = net.input({1, 3, image, image});
  x = conv_bn_relu6(net, "features.0", x,
                    {.channels = 32, .kernel = 3, .stride = 2, .pad = 1, .bias = false, .after_relu = false});
  struct Row {  // t, c, n, s of the paper's table
    int64_t expand, channels;
    int blocks;
    int64_t stride;
  };
  int feature = 1;
  for (const Row& row :
       {Row{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}}) {
    for (int i = 0; i < row.blocks; ++i) {
      x = inverted_residual(net, "features." + std::to_string(feature++), x, row.expand, row.channels,
                            i == 0 ? row.stride : 1);
    }
  }
  x = conv_bn_relu6(net, "features." + std::to_string(feature), x,
                    {.channels = 1280, .kernel = 1, .bias = false, .after_relu = false});
  x = net.global_average_pool("avgpool", x);
  x = net.flatten("flatten", x);
  x = net.linear("classifier.1", x, 1000, /*after_relu=*/false);  // 0 is Dropout
  return std::move(net).finish(x);
}

}  // namespace nlsplit::inline graph

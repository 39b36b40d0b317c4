// Tan and Le, "EfficientNet: rethinking model scaling for convolutional neural networks", ICML 2019, table 1: B0, with
// squeeze and excitation (Hu, Shen, Sun, CVPR 2018) in every block.
#include <algorithm>
#include <string>

#include "graph/zoo/families.h"
#include "graph/zoo/net.h"

namespace nlsplit::inline graph {
namespace {

// Of a normal x: E[(x sigmoid(x))^2] is 0.36 where E[relu(x)^2] is 0.5.
constexpr double after_silu = 1.18;
constexpr double after_gate = 1.5;  // a sigmoid about halves what it gates

ValueId conv_bn(ZooNet& net, const std::string& module, ValueId x, ConvSpec spec, float scale = 1) {
  spec.bias = false;
  return net.batch_norm(module + ".1", net.conv(module + ".0", x, spec), scale);
}
ValueId conv_bn_silu(ZooNet& net, const std::string& module, ValueId x, const ConvSpec& spec) {
  return net.silu(module + ".2", conv_bn(net, module, x, spec));
}

// Each channel times a number from 0 to 1 that all channels' means decide.
ValueId squeeze_and_excite(ZooNet& net, const std::string& module, ValueId x, int64_t squeezed) {
  ValueId gate = net.global_average_pool(module + ".avgpool", x);
  gate = net.conv(module + ".fc1", gate, {.channels = squeezed, .kernel = 1});
  gate = net.silu(module + ".activation", gate);
  gate = net.conv(module + ".fc2", gate, {.channels = net.channels(x), .kernel = 1});
  gate = net.node(Op::Sigmoid, module + ".scale_activation", {gate});
  return net.mul(module, x, gate);
}

ValueId inverted_residual(ZooNet& net, const std::string& name, ValueId x, int64_t expand, int64_t kernel,
                          int64_t stride, int64_t channels) {
  const int64_t in = net.channels(x), hidden = in * expand;
  int part = 0;
  const auto module = [&] { return name + ".block." + std::to_string(part++); };
  ValueId y = x;
  if (expand != 1) y = conv_bn_silu(net, module(), y, {.channels = hidden, .kernel = 1, .after_relu = false});
  y = conv_bn_silu(net, module(), y,
                   {.channels = hidden,
                    .kernel = kernel,
                    .stride = stride,
                    .pad = kernel / 2,
                    .groups = hidden,
                    .gain = after_silu});
  y = squeeze_and_excite(net, module(), y, std::max<int64_t>(1, in / 4));
  const bool adds = stride == 1 && in == channels;
  y = conv_bn(net, module(), y, {.channels = channels, .kernel = 1, .gain = after_silu * after_gate},
              adds ? inverted_residual_scale : 1);
  return adds ? net.add(name + ".add", x, y) : y;
}

}  // namespace

Model build_efficientnet_b0(uint64_t seed, int64_t image) {
  ZooNet net("efficientnet_b0", seed);
  ValueId x = net.input({1, 3, image, image});
  x = conv_bn_silu(net, "features.0", x, {.channels = 32, .kernel = 3, .stride = 2, .pad = 1, .after_relu = false});
  struct Row {
    int64_t expand, kernel, stride, channels;
    int blocks;
  };
  int stage = 1;
  for (const Row& row : {Row{1, 3, 1, 16, 1},
                         {6, 3, 2, 24, 2},
                         {6, 5, 2, 40, 2},
                         {6, 3, 2, 80, 3},
                         {6, 5, 1, 112, 3},
                         {6, 5, 2, 192, 4},
                         {6, 3, 1, 320, 1}}) {
    for (int i = 0; i < row.blocks; ++i) {
      x = inverted_residual(net, "features." + std::to_string(stage) + "." + std::to_string(i), x, row.expand,
                            row.kernel, i == 0 ? row.stride : 1, row.channels);
    }
    ++stage;
  }
  x = conv_bn_silu(net, "features.8", x, {.channels = 1280, .kernel = 1, .after_relu = false});
  x = net.global_average_pool("avgpool", x);
  x = net.flatten("flatten", x);
  x = net.linear("classifier.1", x, 1000, /*after_relu=*/false);  // 0 is Dropout
  return std::move(net).finish(x);
}

}  // namespace nlsplit::inline graph

// Huang, Liu, van der Maaten, Weinberger, "Densely connected convolutional networks", CVPR 2017: DenseNet-121, growth
// 32, of each layer four times as many channels between its two convolutions.
#include <string>

#include "graph/zoo/families.h"
#include "graph/zoo/net.h"

namespace nlsplit::inline graph {
namespace {

constexpr int64_t growth = 32, between = 4 * growth;

ValueId norm_relu(ZooNet& net, const std::string& scope, const std::string& number, ValueId x) {
  return net.relu(scope + "relu" + number, net.batch_norm(scope + "norm" + number, x));
}

// Normalised before it is convolved, and put beside what it was made of.
ValueId dense_layer(ZooNet& net, const std::string& name, ValueId x) {
  ValueId y = norm_relu(net, name + ".", "1", x);
  y = net.conv(name + ".conv1", y, {.channels = between, .kernel = 1, .bias = false});
  y = norm_relu(net, name + ".", "2", y);
  y = net.conv(name + ".conv2", y, {.channels = growth, .kernel = 3, .pad = 1, .bias = false});
  return net.concat(name + ".concat", {x, y});
}

}  // namespace

Model build_densenet121(uint64_t seed, int64_t image) {
  ZooNet net("densenet121", seed);
  const std::string features = "features.";
  ValueId x = net.input({1, 3, image, image});
  x = net.conv(features + "conv0", x,
               {.channels = 64, .kernel = 7, .stride = 2, .pad = 3, .bias = false, .after_relu = false});
  x = norm_relu(net, features, "0", x);
  x = net.max_pool(features + "pool0", x, 3, 2, 1);
  int block = 1;
  for (const int layers : {6, 12, 24, 16}) {
    const std::string number = std::to_string(block++);
    for (int i = 1; i <= layers; ++i)
      x = dense_layer(net, features + "denseblock" + number + ".denselayer" + std::to_string(i), x);
    if (block > 4) break;
    const std::string transition = features + "transition" + number;
    x = norm_relu(net, transition + ".", "", x);
    x = net.conv(transition + ".conv", x, {.channels = net.channels(x) / 2, .kernel = 1, .bias = false});
    x = net.average_pool(transition + ".pool", x, 2, 2);
  }
  x = norm_relu(net, features, "5", x);
  x = net.global_average_pool("avgpool", x);
  x = net.flatten("flatten", x);
  x = net.linear("classifier", x, 1000, /*after_relu=*/false);
  return std::move(net).finish(x);
}

}  // namespace nlsplit::inline graph

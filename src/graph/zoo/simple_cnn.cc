// A network small enough to follow by hand, for examples and tests.
#include "graph/zoo/families.h"
#include "graph/zoo/net.h"

namespace nlsplit::inline graph {

Model build_simple_cnn(uint64_t seed, int64_t channels) {
  ZooNet net("simple_cnn", seed);
  ValueId x = net.input({1, channels, 8, 8});
  x = net.conv("conv1", x, {.channels = 16, .kernel = 3, .pad = 1, .after_relu = false});
  x = net.relu("relu1", x);
  x = net.conv("conv2", x, {.channels = 32, .kernel = 3, .pad = 1});
  x = net.relu("relu2", x);
  x = net.flatten("flatten", x);  // 32 * 8 * 8 = 2048
  x = net.linear("fc1", x, 128);
  x = net.relu("relu3", x);
  x = net.linear("fc2", x, 10);
  return std::move(net).finish(x);
}

}  // namespace nlsplit::inline graph

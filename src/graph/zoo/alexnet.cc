// Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014 (torchvision's AlexNet).
#include <string>

#include "graph/zoo/families.h"
#include "graph/zoo/net.h"

namespace nlsplit::inline graph {

Model build_alexnet(uint64_t seed) {
  ZooNet net("alexnet", seed);
  ValueId x = net.input({1, 3, 224, 224});
  x = net.conv("features.0", x, {.channels = 64, .kernel = 11, .stride = 4, .pad = 2, .after_relu = false});
  x = net.relu("features.1", x);
  x = net.max_pool("features.2", x, 3, 2);
  x = net.conv("features.3", x, {.channels = 192, .kernel = 5, .pad = 2});
  x = net.relu("features.4", x);
  x = net.max_pool("features.5", x, 3, 2);
  int index = 6;
  for (int64_t channels : {384, 256, 256}) {
    x = net.conv("features." + std::to_string(index++), x, {.channels = channels, .kernel = 3, .pad = 1});
    x = net.relu("features." + std::to_string(index++), x);
  }
  x = net.max_pool("features.12", x, 3, 2);  // 256x6x6, which torchvision's adaptive average pool leaves as it is
  x = net.flatten("flatten", x);
  x = net.linear("classifier.1", x, 4096);  // 0 and 3 are Dropout
  x = net.relu("classifier.2", x);
  x = net.linear("classifier.4", x, 4096);
  x = net.relu("classifier.5", x);
  x = net.linear("classifier.6", x, 1000);
  return std::move(net).finish(x);
}

}  // namespace nlsplit::inline graph

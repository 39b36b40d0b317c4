// Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", ICLR 2015,
// configurations D and E.
#include <string>

#include "graph/zoo/families.h"
#include "graph/zoo/net.h"

namespace nlsplit::inline graph {

Model build_vgg(int depth, uint64_t seed) {
  CHECK(depth == 16 || depth == 19, "the depths the zoo offers");
  ZooNet net("vgg" + std::to_string(depth), seed);
  ValueId x = net.input({1, 3, 224, 224});
  struct Stage {
    int convolutions;
    int64_t channels;
  };
  const int late = depth == 16 ? 3 : 4;
  int index = 0;
  auto name = [&index] { return "features." + std::to_string(index++); };
  for (const Stage& stage : {Stage{2, 64}, {2, 128}, {late, 256}, {late, 512}, {late, 512}}) {
    for (int i = 0; i < stage.convolutions; ++i) {
      const bool after_relu = index != 0;
      x = net.conv(name(), x, {.channels = stage.channels, .kernel = 3, .pad = 1, .after_relu = after_relu});
      x = net.relu(name(), x);
    }
    x = net.max_pool(name(), x, 2, 2);
  }
  x = net.flatten("flatten", x);  // 512x7x7, which torchvision's adaptive average pool leaves as it is
  x = net.linear("classifier.0", x, 4096);
  x = net.relu("classifier.1", x);
  x = net.linear("classifier.3", x, 4096);  // 2 and 5 are Dropout
  x = net.relu("classifier.4", x);
  x = net.linear("classifier.6", x, 1000);
  return std::move(net).finish(x);
}

}  // namespace nlsplit::inline graph

// Fully connected layers alone.
#include <fmt/format.h>

#include "graph/zoo/families.h"
#include "graph/zoo/net.h"

namespace nlsplit::inline graph {

Model build_mlp(const MlpSizes& sizes, uint64_t seed) {
  ZooNet net("mlp", seed);
  ValueId x = net.input({1, sizes.inputs});
  for (int64_t l = 1; l < sizes.layers; ++l) {
    x = net.linear(fmt::format("fc{}", l), x, sizes.hidden);
    x = net.relu(fmt::format("relu{}", l), x);
  }
  x = net.linear(fmt::format("fc{}", sizes.layers), x, sizes.classes);
  return std::move(net).finish(x);
}

}  // namespace nlsplit::inline graph

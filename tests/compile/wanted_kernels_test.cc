// choose_kernels with kernels that nodes shall have: parts of a layer get the whole layer's.
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"

namespace nlsplit {
namespace {

TEST(WantedKernels, AreThoseOfTheNodesThatThePartsAreOf) {
  Model model = zoo_model("resnet18").value();
  const Graph graph = optimize(model.graph, model.weights).value();
  const std::vector<Level> levels{Isa::v2, Isa::v3};
  const KernelGraph whole = choose_kernels(graph, levels).value();
  std::vector<int> origin;
  for (size_t n = 0; n < graph.nodes.size(); ++n) origin.push_back(n == 0 ? -1 : static_cast<int>(n));
  const WantedKernels wanted = wanted_kernels(whole, origin);
  ASSERT_EQ(wanted.size(), levels.size());
  // Left to itself this preference would choose others.
  const auto last = [](const ComputeDesc&, std::span<const KernelId> candidates) { return candidates.size() - 1; };
  const KernelGraph other = choose_kernels(graph, levels, last).value();
  const KernelGraph again = choose_kernels(graph, levels, last, std::nullopt, wanted).value();
  for (const Level level : levels) {
    EXPECT_TRUE(wanted.at(level)[0].empty());
    int different = 0;
    for (size_t n = 1; n < graph.nodes.size(); ++n) {
      const KernelId kernel = whole.chosen.at(level).descs[n].kernel;
      EXPECT_EQ(wanted.at(level)[n], kernel);
      EXPECT_EQ(again.chosen.at(level).descs[n].kernel, kernel);
      different += other.chosen.at(level).descs[n].kernel != kernel ? 1 : 0;
    }
    EXPECT_GT(different, 0);
  }
}

}  // namespace
}  // namespace nlsplit

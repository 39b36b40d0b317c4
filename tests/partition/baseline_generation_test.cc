// Rules of programs that generate text: whole blocks, in the proportions that each says.
#include "partition/baseline_generation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/zoo/zoo.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

// Devices of these speeds and memories, and a llama of so many blocks.
struct Case {
  Graph graph;
  Cluster cluster;
  SearchCosts costs;
};

Case llama_on(const std::vector<double>& speeds, const std::vector<double>& memories, size_t blocks,
              const std::vector<int>& hosts = {}) {
  Case made;
  Model model = value_of(zoo_model("llama?length=1&context=64&hidden=64&heads=4&kv_heads=2&ffn=128&vocab=100&layers=" +
                                   std::to_string(blocks)));
  made.graph = std::move(model.graph);
  for (size_t d = 0; d < speeds.size(); ++d) {
    const size_t host = hosts.empty() ? d : static_cast<size_t>(hosts[d]);
    while (made.cluster.hosts.size() <= host)
      made.cluster.hosts.push_back({"h" + std::to_string(made.cluster.hosts.size())});
    Device device;
    device.name = "d" + std::to_string(d);
    device.host = HostId(host);
    device.memory = bytes(static_cast<int64_t>(memories[d] * 1e6));
    made.cluster.devices.push_back(device);
    made.costs.node_seconds.emplace_back(made.graph.nodes.size(), 1 / speeds[d]);
  }
  made.costs.cut_bytes.assign(made.graph.nodes.size() + 1, 1);
  return made;
}

std::vector<Stage> stages_by(std::string_view rule, const Case& of) {
  const auto at = std::ranges::find(generation_baselines(), rule, &Baseline::name);
  return at->stages(of.graph, of.cluster, of.costs);
}

// [device]: how many nodes it has, in blocks of mean length.
std::vector<int> blocks_by(std::string_view rule, const Case& of, size_t blocks) {
  std::vector<int> counts(of.cluster.devices.size(), 0);
  const double each = static_cast<double>(of.graph.nodes.size()) / static_cast<double>(blocks);
  size_t done = 0;
  for (const Stage& stage : stages_by(rule, of)) {
    EXPECT_EQ(stage.begin, done);
    done = stage.end;
    counts[stage.devices[0].index()] += static_cast<int>(static_cast<double>(stage.end - stage.begin) / each + 0.5);
  }
  EXPECT_EQ(done, of.graph.nodes.size());
  return counts;
}

TEST(GenerationBaselines, BlocksByMemoryOrBySpeed) {
  const Case of = llama_on({1, 2, 1}, {300, 100, 200}, 12);
  EXPECT_EQ(blocks_by("even-layers", of, 12), (std::vector<int>{4, 4, 4}));
  EXPECT_EQ(blocks_by("llama.cpp", of, 12), (std::vector<int>{7, 2, 3}));  // block i at i / 13: 0 … 6 below a half
  EXPECT_EQ(blocks_by("exo", of, 12), (std::vector<int>{6, 2, 4}));
  EXPECT_EQ(blocks_by("cake", of, 12), (std::vector<int>{3, 6, 3}));
}

TEST(GenerationBaselines, TheFastestIsFilledFirstOrAllToOneLevel) {
  const Case all = llama_on({1, 2, 1}, {300, 100, 200}, 12);
  EXPECT_EQ(blocks_by("halda", all, 12), (std::vector<int>{0, 12, 0}));
  EXPECT_EQ(blocks_by("parallax", all, 12), (std::vector<int>{3, 6, 3}));
  double memory = 0;  // of the whole model
  for (const Value& value : all.graph.values) {
    if (value.kind == ValueKind::weight) memory += static_cast<double>(size_of(value.type).value()) / 1e6;
  }
  const double third = memory / 3 * 1.001;
  const Case tight = llama_on({1, 2, 1}, {memory, third, memory}, 12);
  EXPECT_EQ(blocks_by("halda", tight, 12), (std::vector<int>{8, 4, 0}));
  EXPECT_EQ(blocks_by("parallax", tight, 12), (std::vector<int>{4, 4, 4}));
  EXPECT_TRUE(stages_by("parallax", llama_on({1, 1}, {third, third}, 12)).empty());
}

TEST(GenerationBaselines, TensorEvenlyWhereTheRuleSaysSo) {
  const std::vector<Stage> four = stages_by("distributed-llama", llama_on({1, 2, 3, 4, 5}, {1, 1, 1, 1, 1}, 4));
  ASSERT_EQ(four.size(), 1u);  // two heads of keys
  EXPECT_EQ(four[0].devices, (std::vector<DeviceId>{DeviceId(0), DeviceId(1)}));
  EXPECT_EQ(four[0].split->shares, (std::vector<int64_t>{1, 1}));
  const std::vector<Stage> hosts = stages_by("megatron", llama_on({1, 1, 1}, {1, 1, 1}, 4, {0, 0, 1}));
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_TRUE(hosts[0].split && hosts[0].devices.size() == 2);
  EXPECT_FALSE(hosts[1].split);
  EXPECT_TRUE(stages_by("megatron", llama_on({1, 1}, {1, 1}, 4)).empty());
}

}  // namespace
}  // namespace nlsplit

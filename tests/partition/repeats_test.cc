#include "partition/repeats.h"

#include <gmock/gmock.h>

#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "partition/chains.h"
#include "partition/cuts.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

std::vector<double> same_bytes(const Graph& graph) { return std::vector<double>(graph.nodes.size() + 1, 1.0); }

// The first node reads an input of the network, the others the node before.
TEST(Repeats, AChainIsOneRepeatOfOneNode) {
  EXPECT_THAT(find_repeats(chain(7, 4)), ElementsAre(Repeat{1, 1, 6}));
  EXPECT_TRUE(find_repeats(chain(1, 4)).empty());
}

// Blocks of two unlike nodes between others; names mean nothing.
TEST(Repeats, BlocksOfSeveralNodes) {
  GraphBuilder builder("blocks");
  ValueId value = builder.input("x", {DType::f32, {1, 4}});
  value = builder.add(Op::Exp, "before", {value}, {}).value();
  for (int i = 0; i < 5; ++i) {
    value = builder.add(Op::Relu, fmt::format("r{}", i), {value}, {}).value();
    value = builder.add(Op::Tanh, fmt::format("other{}", i), {value}, {}).value();
  }
  value = builder.add(Op::Exp, "after", {value}, {}).value();
  builder.output(value);
  EXPECT_THAT(find_repeats(std::move(builder).finish()), ElementsAre(Repeat{1, 2, 5}));
}

// Each block adds what its first node read: a skip connection, and a value from outside that all blocks read.
TEST(Repeats, SkipsAndAValueThatAllRead) {
  GraphBuilder builder("skips");
  const ValueId mask = builder.input("mask", {DType::f32, {1, 4}});
  ValueId value = builder.input("x", {DType::f32, {1, 4}});
  value = builder.add(Op::Exp, "before", {value}, {}).value();
  for (int i = 0; i < 4; ++i) {
    const ValueId masked = builder.add(Op::Mul, fmt::format("m{}", i), {value, mask}, {}).value();
    const ValueId made = builder.add(Op::Relu, fmt::format("r{}", i), {masked}, {}).value();
    value = builder.add(Op::Add, fmt::format("a{}", i), {value, made}, {}).value();
  }
  builder.output(value);
  EXPECT_THAT(find_repeats(std::move(builder).finish()), ElementsAre(Repeat{1, 3, 4}));
}

// The same operators wired otherwise are no repeat.
TEST(Repeats, OtherWiringIsNoRepeat) {
  GraphBuilder builder("wired");
  const ValueId x = builder.input("x", {DType::f32, {1, 4}});
  const ValueId a = builder.add(Op::Exp, "a", {x}, {}).value();
  const ValueId b = builder.add(Op::Add, "b", {a, x}, {}).value();
  const ValueId c = builder.add(Op::Exp, "c", {b}, {}).value();
  builder.output(builder.add(Op::Add, "d", {c, a}, {}).value());
  EXPECT_TRUE(find_repeats(std::move(builder).finish()).empty());
}

TEST(Repeats, LayersOfTransformersAndResNets) {
  const auto repeats_of = [](const std::string& name) {
    Model model = zoo_model(name).value();
    return find_repeats(optimize(model.graph, model.weights).value());
  };
  for (const auto& [name, layers] :
       {std::pair<std::string, size_t>{"llama?layers=7&hidden=64&heads=4&kv_heads=2&ffn=128", 7},
        {"bert_base?layers=5&hidden=64&heads=4&ffn=128&vocab=100", 5},
        {"gpt2?layers=6&hidden=64&heads=4&vocab=100", 6}}) {
    const std::vector<Repeat> repeats = repeats_of(name);
    const auto largest = std::ranges::max_element(repeats, {}, [](const Repeat& r) { return r.period * r.count; });
    ASSERT_NE(largest, repeats.end()) << name;
    EXPECT_GE(largest->count + 1, layers) << name;  // the first or last layer may differ in what is beside it
    EXPECT_LE(largest->count, layers) << name;
  }
  EXPECT_GE(repeats_of("resnet50").size(), 3u);  // of its four stages' blocks
}

TEST(CoarseCuts, AreTheBordersOfBlocks) {
  // Four blocks of five nodes, narrow after the third of each.
  const Graph graph = chain(20, 4);
  std::vector<double> bytes = same_bytes(graph);
  for (size_t k = 0; k < 4; ++k) bytes[5 * k + 3] = 0.5;
  const std::vector<Repeat> repeats = {{0, 5, 4}};
  EXPECT_THAT(coarse_cuts(find_cuts(graph), repeats, bytes, 5), ElementsAre(3, 8, 13, 18, 20));
  EXPECT_EQ(coarse_cuts(find_cuts(graph), repeats, bytes, 20), find_cuts(graph));  // all, if there is room
  const std::vector<size_t> more = coarse_cuts(find_cuts(graph), repeats, bytes, 9);
  EXPECT_LE(more.size(), 9u);
  EXPECT_GT(more.size(), 5u);
  EXPECT_THAT(more, IsSupersetOf({3, 8, 13, 18, 20}));
  EXPECT_EQ(coarse_cuts(find_cuts(graph), repeats, bytes, 3).size(), 3u);
}

}  // namespace
}  // namespace nlsplit

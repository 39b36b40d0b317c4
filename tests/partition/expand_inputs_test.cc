// What shards are sent of the graph's inputs: the part they read, once.
#include "expand_cases.h"

namespace nlsplit {
namespace {

using testing::Bits;
using testing::SmallNet;
using testing::split_plan;

constexpr testing::Window five{5, 1, 1, 2, 2, 1};

// "x1 axis 2: 0-5, 3-8": what is cut where the inputs are. `local`: how many Slices of these, and of whole inputs, are
// left to the shards.
std::string input_parts(const Expanded& expanded, int* local = nullptr) {
  std::string text;
  const auto from_input = [&](ValueId value) {
    const Value& read = expanded.graph.value(value);
    return read.kind == ValueKind::input ||
           (read.kind == ValueKind::node && read.producer.index() < expanded.input_parts);
  };
  for (size_t n = 0; n < expanded.graph.nodes.size(); ++n) {
    const Node& node = expanded.graph.nodes[n];
    if (node.op != Op::Slice || !from_input(node.inputs[0])) continue;
    if (n >= expanded.input_parts) {
      if (local != nullptr) ++*local;
      continue;
    }
    text += fmt::format("{}{} axis {}: {}-{}", text.empty() ? "" : ", ", expanded.graph.value(node.inputs[0]).name,
                        attr_ints(node.attrs, "axes")[0], attr_ints(node.attrs, "starts")[0],
                        attr_ints(node.attrs, "ends")[0]);
  }
  return text;
}

Expanded expanded(const Model& model, const Plan& plan) {
  testing::expect_expands(model, plan, Bits::equal);
  auto made = expand_splits(model.graph, plan);
  CHECK(made.ok(), "no expansion");
  return std::move(*made);
}

TEST(ExpandInputs, AreCutToTheRowsWithTheirHalo) {
  SmallNet net("rows");
  const Model model = net.finish({net.conv(net.conv(net.input({2, 2, 8, 8}), 2), 2)});
  const Expanded exchanged = expanded(model, split_plan(model.graph, {SplitAxis::height, false, {1, 1}}));
  EXPECT_EQ(input_parts(exchanged), "x1 axis 2: 0-5, x1 axis 2: 3-8");
  EXPECT_EQ(exchanged.plan.stages[0].begin, 2u);
  const Expanded again = expanded(model, split_plan(model.graph, {SplitAxis::height, true, {1, 1}}));
  EXPECT_EQ(input_parts(again), "x1 axis 2: 0-6, x1 axis 2: 2-8");
  const Expanded columns = expanded(model, split_plan(model.graph, {SplitAxis::width, false, {3, 1}}));
  EXPECT_EQ(input_parts(columns), "x1 axis 3: 0-7, x1 axis 3: 5-8");
}

TEST(ExpandInputs, AreCutToSamplesAndTokens) {
  SmallNet net("samples");
  const ValueId x = net.input({4, 6, 8}), y = net.input({4, 6, 8});
  const Model model = net.finish({net.node(Op::Add, {net.project(x, 8), y})});
  EXPECT_EQ(input_parts(expanded(model, split_plan(model.graph, {SplitAxis::batch, false, {1, 3}}))),
            "x1 axis 0: 0-1, x1 axis 0: 1-4, x2 axis 0: 0-1, x2 axis 0: 1-4");
  EXPECT_EQ(input_parts(expanded(model, split_plan(model.graph, {SplitAxis::sequence, false, {1, 1}}))),
            "x1 axis 1: 0-3, x1 axis 1: 3-6, x2 axis 1: 0-3, x2 axis 1: 3-6");
}

// Channels of a convolution need all of the image: nothing is cut.
TEST(ExpandInputs, StayWholeWhereAllOfThemIsRead) {
  SmallNet net("channels");
  const Model model = net.finish({net.conv(net.input({1, 2, 8, 4}), 4)});
  EXPECT_EQ(input_parts(expanded(model, split_plan(model.graph, {SplitAxis::channels, false, {1, 1}}))), "");

  SmallNet pooled("pooled");  // every shard's rows, and all of them for a mean that both compute
  const ValueId x = pooled.input({1, 2, 8, 4});
  const ValueId rows = pooled.conv(x, 2), mean = pooled.node(Op::GlobalAveragePool, {x});
  const Model both = pooled.finish({pooled.node(Op::Mul, {rows, mean})});
  int local = 0;
  const Expanded whole = expanded(both, split_plan(both.graph, {SplitAxis::height, false, {1, 1}}));
  EXPECT_EQ(input_parts(whole, &local), "");
  EXPECT_EQ(local, 2) << "the shards cut what they have";
}

// Two layers read the image, with other halos: one message, out of which the smaller part is cut again.
TEST(ExpandInputs, PartsThatLieOverEachOtherAreSentTogether) {
  SmallNet net("branches");
  const ValueId x = net.input({1, 2, 8, 4});
  const Model model = net.finish({net.concat({net.conv(x, 2), net.conv(x, 2, five)})});
  int local = 0;
  const Expanded made = expanded(model, split_plan(model.graph, {SplitAxis::height, false, {1, 1}}));
  EXPECT_EQ(input_parts(made, &local), "x1 axis 2: 0-6, x1 axis 2: 2-8");
  EXPECT_EQ(local, 2);
}

// The same rows for two stages of the same devices travel once; those for others apart.
TEST(ExpandInputs, OnePartServesAllStagesOfADevice) {
  SmallNet net("stages");
  const ValueId x = net.input({1, 2, 8, 4});
  const ValueId first = net.conv(x, 2);
  const Model model = net.finish({net.node(Op::Add, {net.conv(first, 2, {1, 1, 1, 0, 0, 1}), net.conv(x, 2)})});
  Plan plan = split_plan(model.graph, {SplitAxis::height, false, {1, 1}});
  Stage rest = plan.stages[0];
  plan.stages[0].end = rest.begin = 1;
  plan.stages.push_back(rest);
  EXPECT_EQ(input_parts(expanded(model, plan)), "x1 axis 2: 0-5, x1 axis 2: 3-8");
  plan.stages[1].devices = {DeviceId(2), DeviceId(3)};
  const Expanded apart = expanded(model, plan);
  EXPECT_EQ(input_parts(apart), "x1 axis 2: 0-5, x1 axis 2: 3-8") << "one Slice, sent to two devices";
}

}  // namespace
}  // namespace nlsplit

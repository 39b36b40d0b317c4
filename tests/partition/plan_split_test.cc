// Splits inside layers, as plans write them.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "graph/builder.h"
#include "partition/plan.h"

namespace nlsplit {
namespace {

Graph three_relus() {
  GraphBuilder builder("relus");
  ValueId value = builder.input("x", {DType::f32, {1, 4}});
  for (const char* name : {"a", "b", "c"}) value = builder.add(Op::Relu, name, {value}, {}).value();
  builder.output(value);
  return std::move(builder).finish();
}

class SplitPlans : public ::testing::Test {
 protected:
  SplitPlans() {
    for (const char* name : {"A", "B", "C", "D", "D1", "D2", "D3", "D4"}) {
      cluster.devices.push_back({name, HostId(cluster.hosts.size()), DeviceKind::cpu, bytes(1 << 30), Isa::v3});
      cluster.hosts.push_back({std::string("host_") + name, false});
    }
  }
  Stage stage(const std::string& part) const {
    const auto parsed = parse_stages({part}, graph, cluster, nullptr);
    EXPECT_TRUE(parsed.ok()) << parsed.error().message;
    return parsed.ok() ? (*parsed)[0] : Stage{};
  }
  std::string error(const std::string& part) const {
    const auto parsed = parse_stages({part}, graph, cluster, nullptr);
    return parsed.ok() ? "no error" : parsed.error().message;
  }
  static std::vector<DeviceId> devices(const std::vector<size_t>& indices) {
    std::vector<DeviceId> ids;
    for (const size_t index : indices) ids.push_back(DeviceId(index));
    return ids;
  }

  Graph graph = three_relus();
  Cluster cluster;
};

TEST_F(SplitPlans, AnAxisWithTheDevicesThatShareIt) {
  const Stage made = stage("rest@height(A:2+B)");
  EXPECT_EQ(made.devices, devices({0, 1}));
  EXPECT_EQ(made.split, (Split{SplitAxis::height, false, {2, 1}}));
  EXPECT_EQ(made.end, 3u);
}

TEST_F(SplitPlans, EveryAxisByItsName) {
  for (const SplitAxis axis : {SplitAxis::batch, SplitAxis::height, SplitAxis::width, SplitAxis::channels,
                               SplitAxis::tensor, SplitAxis::sequence}) {
    const std::string part = "rest@" + std::string(name_of(axis)) + "(A+B)";
    EXPECT_EQ(stage(part).split, (Split{axis, false, {1, 1}})) << part;
  }
}

TEST_F(SplitPlans, HalosMayBeComputedAgain) {
  EXPECT_EQ(stage("rest@height-recompute(A+B)").split, (Split{SplitAxis::height, true, {1, 1}}));
  EXPECT_EQ(stage("rest@width-recompute(A+B)").split, (Split{SplitAxis::width, true, {1, 1}}));
}

TEST_F(SplitPlans, GroupsTakeTurns) {
  const Stage made = stage("rest@tensor(A+B:3)+tensor(C+D:3)");
  EXPECT_EQ(made.devices, devices({0, 1, 2, 3}));
  EXPECT_EQ(made.split, (Split{SplitAxis::tensor, false, {1, 3}}));
}

TEST_F(SplitPlans, RangesAndSpaceInsideTheBrackets) {
  EXPECT_EQ(stage("rest@tensor(D1..D4)").devices, devices({4, 5, 6, 7}));
  const Stage shared = stage(" rest @ batch ( D1..D3 : 2 + A ) ");
  EXPECT_EQ(shared.devices, devices({4, 5, 6, 0}));
  EXPECT_EQ(shared.split, (Split{SplitAxis::batch, false, {2, 2, 2, 1}}));
}

TEST_F(SplitPlans, DevicesWithoutAnAxisStillTakeTurns) {
  EXPECT_FALSE(stage("rest@A+B").split.has_value());
  EXPECT_EQ(stage("rest@A+B").devices, devices({0, 1}));
}

TEST_F(SplitPlans, AsText) {
  const auto parsed =
      parse_stages({"..a@height(A:2+B)", "..b@C", "rest@tensor(D1+D2)+tensor(D3+D4)"}, graph, cluster, nullptr);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  Plan plan;
  plan.stages = *parsed;
  EXPECT_EQ(to_string(plan, graph, cluster), "height(A:2+B) ..a | C ..b | tensor(D1+D2)+tensor(D3+D4) rest");
  EXPECT_EQ(stage_parts(plan, graph, cluster),
            (std::vector<std::string>{"..a@height(A:2+B)", "..b@C", "rest@tensor(D1+D2)+tensor(D3+D4)"}));
  plan.stages = {stage("rest@width-recompute(D1..D4)")};
  EXPECT_EQ(to_string(plan, graph, cluster), "width-recompute(D1..D4) all");
}

TEST_F(SplitPlans, ErrorsNameThePlace) {
  EXPECT_EQ(
      error("rest@heigth(A+B)"),
      "'rest@heigth(A+B)': layers are not split by 'heigth'; did you mean 'height'? (but by batch, height, width, "
      "channels, tensor, sequence)");
  EXPECT_EQ(error("rest@(A+B)"),
            "'rest@(A+B)': layers are not split by '' (but by batch, height, width, channels, tensor, sequence)");
  EXPECT_EQ(error("rest@batch-recompute(A+B)"),
            "'rest@batch-recompute(A+B)': 'batch-recompute': only height and width have a halo to recompute");
  EXPECT_EQ(error("rest@height(A+B"), "'rest@height(A+B': the ')' of 'height(' is missing");
  EXPECT_EQ(error("rest@height(A+B+height(C+D)"), "'rest@height(A+B+height(C+D)': the ')' of 'height(' is missing");
  EXPECT_EQ(error("rest@height A+B)"), "'rest@height A+B)': the '(' before 'height A+B)' is missing");
  EXPECT_EQ(
      error("rest@A+height(B+C)"),
      "'rest@A+height(B+C)': a stage is split inside its layers as a whole, or its devices are replicas: 'A+height' "
      "stands before the '('");
  EXPECT_EQ(error("rest@height(A+B)+C"), "'rest@height(A+B)+C': the '(' before 'C' is missing");
  EXPECT_EQ(error("rest@height(A+B) C"),
            "'rest@height(A+B) C': only '+' and another such group may follow 'height(A+B)', not 'C'");
  EXPECT_EQ(error("rest@height(A+B)+"),
            "'rest@height(A+B)+': only '+' and another such group may follow 'height(A+B)', not '+'");
  EXPECT_EQ(error("rest@height(A)"), "'rest@height(A)': 'height(A)' has one device, and a split needs two at least");
  EXPECT_EQ(error("rest@height()"), "'rest@height()': a device is missing after '(' or '+'");
  EXPECT_EQ(error("rest@height(A+A)"), "'rest@height(A+A)': device A twice in one stage");
  EXPECT_EQ(error("rest@height(A+B)+height(B+C)"), "'rest@height(A+B)+height(B+C)': device B twice in one stage");
  EXPECT_EQ(error("rest@height(A+X)"), "'rest@height(A+X)': no device is called 'X' (there are A, B, C, D, D1..D4)");
}

TEST_F(SplitPlans, ErrorsInSharesNameTheDevice) {
  const std::string must = " must be a whole number from 1 to 1000000, not ";
  EXPECT_EQ(error("rest@height(A:0+B)"), "'rest@height(A:0+B)': the share of A" + must + "'0'");
  EXPECT_EQ(error("rest@height(A+B:-1)"), "'rest@height(A+B:-1)': the share of B" + must + "'-1'");
  EXPECT_EQ(error("rest@height(A:1.5+B)"), "'rest@height(A:1.5+B)': the share of A" + must + "'1.5'");
  EXPECT_EQ(error("rest@height(A:+B)"), "'rest@height(A:+B)': the share of A" + must + "''");
  EXPECT_EQ(error("rest@height(A:99999999999999999999+B)"),
            "'rest@height(A:99999999999999999999+B)': the share of A" + must + "'99999999999999999999'");
  EXPECT_EQ(error("rest@A:2+B"),
            "'rest@A:2+B': 'A:2' is a share, and data-parallel replicas have none; a split inside the layers has them: "
            "height(A:2+B)");
}

TEST_F(SplitPlans, GroupsAreAlike) {
  const std::string alike =
      "groups that are replicas of each other are split alike, by one axis and with the same shares; ";
  EXPECT_EQ(error("rest@height(A+B)+width(C+D)"),
            "'rest@height(A+B)+width(C+D)': " + alike + "'width(C+D)' is not like 'height(A+B)'");
  EXPECT_EQ(error("rest@height(A:2+B)+height(C+D)"),
            "'rest@height(A:2+B)+height(C+D)': " + alike + "'height(C+D)' is not like 'height(A:2+B)'");
  EXPECT_EQ(error("rest@height(A+B)+height(C+D+D1)"),
            "'rest@height(A+B)+height(C+D+D1)': " + alike + "'height(C+D+D1)' is not like 'height(A+B)'");
  EXPECT_EQ(error("rest@height(A+B)+height-recompute(C+D)"),
            "'rest@height(A+B)+height-recompute(C+D)': " + alike + "'height-recompute(C+D)' is not like 'height(A+B)'");
}

// Whatever a plan is, its text means it.
TEST_F(SplitPlans, EveryPlanReadsBack) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    Plan plan;
    const size_t cut = random.below(3);  // 0: one stage
    std::vector<size_t> ends = {3};
    if (cut > 0) ends.insert(ends.begin(), cut);
    size_t begin = 0;
    for (const size_t end : ends) {
      Stage made{begin, end, {}};
      std::vector<size_t> order = {0, 1, 2, 3, 4, 5, 6, 7};
      for (size_t i = 0; i + 1 < order.size(); ++i) std::swap(order[i], order[i + random.below(order.size() - i)]);
      if (random.below(3) == 0) std::sort(order.begin(), order.end());  // ranges
      const size_t shards = 1 + random.below(4), groups = 1 + random.below(2);
      for (size_t i = 0; i < shards * groups; ++i) made.devices.push_back(DeviceId(order[i]));
      if (shards > 1) {
        Split split{static_cast<SplitAxis>(random.below(split_axis_count)), false, {}};
        const bool halo = split.axis == SplitAxis::height || split.axis == SplitAxis::width;
        split.recompute_halo = halo && random.below(2) == 0;
        const bool even = random.below(2) == 0;
        for (size_t k = 0; k < shards; ++k)
          split.shares.push_back(even ? 1 : 1 + static_cast<int64_t>(random.below(1'000'000)));
        made.split = std::move(split);
      }
      plan.stages.push_back(std::move(made));
      begin = end;
    }
    const auto parts = stage_parts(plan, graph, cluster);
    const auto parsed = parse_stages(parts, graph, cluster, nullptr);
    ASSERT_TRUE(parsed.ok()) << "seed " << seed << ": " << parsed.error().message;
    EXPECT_EQ(*parsed, plan.stages) << "seed " << seed << ": " << to_string(plan, graph, cluster);
  }
}

}  // namespace
}  // namespace nlsplit

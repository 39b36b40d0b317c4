#include "cost/corrections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  const auto parsed = parse_corrections(text, "c.json");
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(CorrectionsOfCosts, SurviveTheirText) {
  for (const CorrectionSpreads& spreads : {CorrectionSpreads{}, CorrectionSpreads{{{"A", 0.03}}, 0.05, 0.02}}) {
    const Corrections corrections{{{"A", 1.25}, {"B", 0.5}}, 1.1, spreads};
    const auto parsed = parse_corrections(to_json(corrections), "c.json");
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    EXPECT_EQ(*parsed, corrections);
  }
}

TEST(CorrectionsOfCosts, NonsenseIsRefused) {
  EXPECT_THAT(refusal("["), HasSubstr("c.json: "));
  EXPECT_THAT(refusal("{}"), HasSubstr("format"));
  EXPECT_THAT(refusal(R"({"format": "nlsplit-corrections", "version": 3})"), HasSubstr("version 1 or 2"));
  const std::string head = R"({"format": "nlsplit-corrections", "version": 1, "computing": {"A": )";
  EXPECT_EQ(refusal(head + R"(2}, "messages": 1})"), "");
  EXPECT_THAT(refusal(head + R"(0}, "messages": 1})"), HasSubstr("device A cannot take 0 times as long"));
  EXPECT_THAT(refusal(head + R"(1}, "messages": -1})"), HasSubstr("messages cannot take -1 times"));
  EXPECT_NE(refusal(head + R"("x"}, "messages": 1})"), "");
  const std::string second =
      R"({"format": "nlsplit-corrections", "version": 2, "computing": {}, "messages": 1, "spreads": )";
  EXPECT_EQ(refusal(second + R"({"computing": {"A": 0}}})"), "");
  EXPECT_THAT(refusal(second + R"({"computing": {"A": -1}}})"), HasSubstr("computing on A cannot have a spread of -1"));
  EXPECT_THAT(refusal(second + R"({"computing": {}, "plans": -1}})"), HasSubstr("plans cannot have a spread of -1"));
  EXPECT_THAT(refusal(second + R"({"computing": {}, "messages": 1e999}})"), HasSubstr("c.json"));
  EXPECT_THAT(refusal(R"({"format": "nlsplit-corrections", "version": 2, "computing": {}, "messages": 1})"),
              HasSubstr("spreads"));
}

TEST(CorrectionsOfCosts, MultiplyWhatWasMeasured) {
  Cluster cluster;
  cluster.hosts = {{"a", false}, {"b", false}};
  for (const char* name : {"A", "B"}) {
    Device device;
    device.name = name;
    cluster.devices.push_back(device);
  }
  cluster.routes = {
      {HostId(0), HostId(1), {seconds(1), bytes_per_second(100)}, {seconds(2), bytes_per_second(50)}, {}}};
  Profile profile;
  profile.kernels["k"] = {seconds(3), seconds(0.3), 5};
  profile.kernels["k"].beside = seconds(4);
  std::vector<CostSourcePtr> costs = {measured(profile), roofline(flops_per_second(8), bytes_per_second(4))};
  ASSERT_TRUE(apply({{{"A", 2}, {"B", 4}}, 2}, cluster, costs).ok());
  const MeasuredCost& kernel = costs[0]->profile()->kernels.at("k");
  EXPECT_EQ(kernel.median, seconds(6));
  EXPECT_EQ(kernel.spread, seconds(0.6));
  EXPECT_EQ(kernel.beside, seconds(8));
  EXPECT_TRUE(costs[1]->same_as(*roofline(flops_per_second(2), bytes_per_second(1))));
  EXPECT_EQ(cluster.routes[0].eager, (MessageCost{seconds(2), bytes_per_second(50)}));
  EXPECT_EQ(cluster.routes[0].rendezvous, (MessageCost{seconds(4), bytes_per_second(25)}));
  const Status unknown = apply({{{"C", 2}}, 1}, cluster, costs);
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, HasSubstr("device 'C', which this cluster has not"));
}

}  // namespace
}  // namespace nlsplit

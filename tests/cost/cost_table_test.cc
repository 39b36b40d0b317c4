#include "cost/cost_table.h"

#include <gtest/gtest.h>

namespace nlsplit {
namespace {

// 64x32 times 32x16: 2*64*32*16 = 65,536 operations, (64*32 + 32*16 + 64*16) * 4 = 14,336 bytes.
ComputeDesc product() {
  ComputeDesc desc;
  desc.kernel = "matmul_v3";
  desc.op = Op::MatMul;
  desc.inputs = {{DType::f32, {64, 32}}, {DType::f32, {32, 16}}};
  desc.outputs = {{DType::f32, {64, 16}}};
  return desc;
}

Profile profile_with(double median) {
  Profile profile;
  profile.file = "profiles/x.json";
  profile.models = {"resnet18"};
  if (median > 0) profile.kernels[signature(product())] = {seconds(median), seconds(0), 5};
  return profile;
}

CostNames names_of_one() { return {"mine.yaml", "vgg16", {"A"}}; }
CostNames names() { return {"mine.yaml", "vgg16", {"A", "B"}}; }

TEST(CostTable, RooflineIsTheSlowerOfArithmeticAndTraffic) {
  const CostTable costs({Roofline{flops_per_second(65536), bytes_per_second(14336 * 2)},
                         Roofline{flops_per_second(65536 * 4), bytes_per_second(14336)}},
                        names());
  const Cost by_arithmetic = costs.cost(DeviceId(0), product()).value();  // 1 s against 0.5 s
  EXPECT_DOUBLE_EQ(by_arithmetic.time.value(), 1);
  EXPECT_EQ(by_arithmetic.origin, CostOrigin::roofline);
  EXPECT_DOUBLE_EQ(costs.cost(DeviceId(1), product()).value().time.value(), 1);  // 0.25 s against 1 s
}

TEST(CostTable, ProfileGivesTheMeasuredMedianOfThatDevice) {
  const CostTable costs({profile_with(0.5), profile_with(0.25)}, names());
  EXPECT_EQ(costs.cost(DeviceId(0), product()).value().time, seconds(0.5));
  EXPECT_EQ(costs.cost(DeviceId(1), product()).value().time, seconds(0.25));
  EXPECT_EQ(costs.cost(DeviceId(1), product()).value().origin, CostOrigin::measured);
}

TEST(CostTable, MissingMeasurementNamesLayerDeviceModelAndCommand) {
  const CostTable costs({profile_with(0.5), profile_with(0)}, names());
  const Error error = costs.cost(DeviceId(1), product(), "fc1").error();
  EXPECT_EQ(
      error.message,
      "profiles/x.json has no measurement of layer 'fc1' for device 'B'; it was measured for resnet18, not for vgg16; "
      "measure on that machine with: nlbench profile mine.yaml -o profiles/x.json, or let it be predicted from what "
      "was "
      "measured: costs: {profile: ..., predict: true}");
  EXPECT_EQ(error.fragment, signature(product()));
  EXPECT_EQ(exit_code(error), 2);
}

TEST(CostTable, MissingMeasurementOfTheSameModelSaysNothingOfModels) {
  CostNames own = names();
  own.model = "resnet18";
  const CostTable costs({profile_with(0), profile_with(0)}, own);
  EXPECT_EQ(costs.cost(DeviceId(0), product()).error().message,
            "profiles/x.json has no measurement of a layer for device 'A'; measure on that machine with: "
            "nlbench profile mine.yaml -o profiles/x.json, or let it be predicted from what was measured: costs: "
            "{profile: ..., predict: true}");
}

TEST(CostTable, NoMeasurementIsAdvisedForASumOfGradients) {
  ComputeDesc sum;
  sum.kernel = "reduce";
  sum.op = Op::Sum;
  sum.inputs = {{DType::f32, {64}}, {DType::f32, {64}}};
  sum.outputs = {{DType::f32, {64}}};
  const std::string message = CostTable({profile_with(0)}, names_of_one()).cost(DeviceId(0), sum).error().message;
  EXPECT_EQ(message.find("nlbench profile"), std::string::npos) << message;
  EXPECT_NE(message.find("predict: true"), std::string::npos) << message;
}

TEST(CostTable, ADispatchGoesWithEachMeasuredComputation) {
  Profile profile = profile_with(0.5);
  profile.dispatch = {seconds(0.25), seconds(0), 9};
  EXPECT_EQ(CostTable({profile}, names_of_one()).cost(DeviceId(0), product()).value().time, seconds(0.75));
  const CostSource slow = slowed_down(profile, 2);
  EXPECT_EQ(CostTable({slow}, names_of_one()).cost(DeviceId(0), product()).value().time, seconds(1.5));
}

// A profile's medians are of a processor at its best; what a shared one gives on the average is what a plan will see.
TEST(CostTable, AMeasuredComputationTakesWhatItTakesOnTheAverage) {
  Profile profile = profile_with(0.5);
  profile.dispatch = {seconds(0.25), seconds(0), 9};
  profile.beside = 1;
  MeasuredCost& kernel = profile.kernels.begin()->second;
  kernel.mean = seconds(0.75);
  kernel.beside = seconds(1);
  const Cost usual = CostTable({profile}, names_of_one()).cost(DeviceId(0), product()).value();
  EXPECT_EQ(usual.time, seconds(1));
  EXPECT_EQ(usual.company, seconds(0.25));
  const Cost half_as_fast = CostTable({slowed_down(profile, 2)}, names_of_one()).cost(DeviceId(0), product()).value();
  EXPECT_EQ(half_as_fast.time, seconds(2));
  EXPECT_EQ(half_as_fast.company, seconds(0.5));
  const Cost clocked = CostTable({by_clock(profile, 2)}, names_of_one()).cost(DeviceId(0), product()).value();
  EXPECT_EQ(clocked.time, seconds(1.5)) << "a clock keeps time";
  EXPECT_EQ(clocked.company, seconds(0));
}

TEST(CostTable, WithoutCostsTheErrorNamesTheCommand) {
  const CostTable costs({NoCosts{}}, "zoo:resnet18");
  EXPECT_EQ(costs.cost(DeviceId(0), product(), "conv1").error().message,
            "device 0 has no costs, so layer 'conv1' has none; measure on that machine with: "
            "nlbench profile zoo:resnet18 -o profile.json");
}

}  // namespace
}  // namespace nlsplit

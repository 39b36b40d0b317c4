#include "cost/cost_table.h"

#include <gtest/gtest.h>

namespace nlsplit {
namespace {

// 64x32 times 32x16: 2*64*32*16 = 65,536 operations, (64*32 + 32*16 + 64*16) * 4 = 14,336 bytes.
ComputeDesc product() {
  ComputeDesc desc;
  desc.kernel = {KernelName::matmul, Isa::v3};
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
  const CostTable costs({roofline(flops_per_second(65536), bytes_per_second(14336 * 2)),
                         roofline(flops_per_second(65536 * 4), bytes_per_second(14336))},
                        names());
  const Cost by_arithmetic = costs.cost(DeviceId(0), product()).value();  // 1 s against 0.5 s
  EXPECT_DOUBLE_EQ(by_arithmetic.time.value(), 1);
  EXPECT_EQ(by_arithmetic.origin, CostOrigin::formula);
  EXPECT_DOUBLE_EQ(costs.cost(DeviceId(1), product()).value().time.value(), 1);  // 0.25 s against 1 s
}

TEST(CostTable, ProfileGivesTheMeasuredMedianOfThatDevice) {
  const CostTable costs({measured(profile_with(0.5)), measured(profile_with(0.25))}, names());
  EXPECT_EQ(costs.cost(DeviceId(0), product()).value().time, seconds(0.5));
  EXPECT_EQ(costs.cost(DeviceId(1), product()).value().time, seconds(0.25));
  EXPECT_EQ(costs.cost(DeviceId(1), product()).value().origin, CostOrigin::measured);
}

TEST(CostTable, MissingMeasurementNamesLayerDeviceModelAndCommand) {
  const CostTable costs({measured(profile_with(0.5)), measured(profile_with(0))}, names());
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
  const CostTable costs({measured(profile_with(0)), measured(profile_with(0))}, own);
  EXPECT_EQ(costs.cost(DeviceId(0), product()).error().message,
            "profiles/x.json has no measurement of a layer for device 'A'; measure on that machine with: "
            "nlbench profile mine.yaml -o profiles/x.json, or let it be predicted from what was measured: costs: "
            "{profile: ..., predict: true}");
}

TEST(CostTable, NoMeasurementIsAdvisedForASumOfGradients) {
  ComputeDesc sum;
  sum.kernel = KernelName::reduce;
  sum.op = Op::Sum;
  sum.inputs = {{DType::f32, {64}}, {DType::f32, {64}}};
  sum.outputs = {{DType::f32, {64}}};
  const std::string message =
      CostTable({measured(profile_with(0))}, names_of_one()).cost(DeviceId(0), sum).error().message;
  EXPECT_EQ(message.find("nlbench profile"), std::string::npos) << message;
  EXPECT_NE(message.find("predict: true"), std::string::npos) << message;
}

TEST(CostTable, ADispatchGoesWithEachMeasuredComputation) {
  Profile profile = profile_with(0.5);
  profile.dispatch = {seconds(0.25), seconds(0), 9};
  EXPECT_EQ(CostTable({measured(profile)}, names_of_one()).cost(DeviceId(0), product()).value().time, seconds(0.75));
  const CostSourcePtr slow = measured(profile)->slowed(2);
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
  const Cost usual = CostTable({measured(profile)}, names_of_one()).cost(DeviceId(0), product()).value();
  EXPECT_EQ(usual.time, seconds(1));
  EXPECT_EQ(usual.company, seconds(0.25));
  const Cost half_as_fast =
      CostTable({measured(profile)->slowed(2)}, names_of_one()).cost(DeviceId(0), product()).value();
  EXPECT_EQ(half_as_fast.time, seconds(2));
  EXPECT_EQ(half_as_fast.company, seconds(0.5));
  const Cost clocked = CostTable({measured(profile)->by_clock(2)}, names_of_one()).cost(DeviceId(0), product()).value();
  EXPECT_EQ(clocked.time, seconds(1.5)) << "emulated compute keeps time";
  EXPECT_EQ(clocked.company, seconds(0));
}

// Who has the costs of another need not be asked; who only reads the same file, but is slower, must be.
TEST(CostSource, SameOnlyIfEveryComputationCostsTheSame) {
  const CostSourcePtr one = measured(profile_with(0.5)), same = measured(profile_with(0.5));
  EXPECT_TRUE(one->same_as(*same));
  EXPECT_TRUE(one->slowed(2)->same_as(*same->slowed(2)));
  EXPECT_FALSE(one->same_as(*same->slowed(2)));
  EXPECT_FALSE(one->slowed(2)->same_as(*same->by_clock(2)));
  Profile profile = profile_with(0.5);
  profile.predict = true;
  EXPECT_FALSE(one->same_as(*measured(profile)));
  profile = profile_with(0.5);
  profile.file = "";
  const CostSourcePtr unread = measured(profile);
  EXPECT_TRUE(unread->same_as(*unread));
  EXPECT_FALSE(unread->same_as(*measured(profile))) << "nobody knows where it is from";
  const CostSourcePtr flat = roofline(flops_per_second(8), bytes_per_second(4));
  EXPECT_TRUE(flat->same_as(*roofline(flops_per_second(8), bytes_per_second(4))));
  EXPECT_FALSE(flat->same_as(*flat->slowed(2)));
  EXPECT_FALSE(flat->same_as(*one));
  EXPECT_FALSE(one->same_as(*flat));
  EXPECT_TRUE(no_costs()->same_as(*no_costs()));
  EXPECT_FALSE(no_costs()->same_as(*one));

  Cluster cluster;
  for (const char* name : {"A", "B", "C"}) {
    Device device;
    device.name = name;
    cluster.devices.push_back(device);
  }
  const CostTable costs({one, same, one->slowed(2)}, "test.yaml");
  EXPECT_EQ(first_with_costs_of(DeviceId(1), cluster, costs), DeviceId(0));
  EXPECT_EQ(first_with_costs_of(DeviceId(2), cluster, costs), DeviceId(2));
  cluster.devices[1].cores = 2;
  EXPECT_EQ(first_with_costs_of(DeviceId(1), cluster, costs), DeviceId(1)) << "a computation is shared by more cores";
}

TEST(CostTable, WithoutCostsTheErrorNamesTheCommand) {
  const CostTable costs({no_costs()}, "zoo:resnet18");
  EXPECT_EQ(costs.cost(DeviceId(0), product(), "conv1").error().message,
            "device 0 has no costs, so layer 'conv1' has none; measure on that machine with: "
            "nlbench profile zoo:resnet18 -o profile.json");
}

}  // namespace
}  // namespace nlsplit

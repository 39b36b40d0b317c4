#include "cost/kernel_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "cost/cost_table.h"

namespace nlsplit {
namespace {

// m × k times k × n.
ComputeDesc product(int64_t m, int64_t k, int64_t n) {
  ComputeDesc desc;
  desc.kernel = {KernelName::matmul, Isa::v3};
  desc.op = Op::MatMul;
  desc.inputs = {{DType::f32, {m, k}}, {DType::f32, {k, n}}};
  desc.outputs = {{DType::f32, {m, n}}};
  return desc;
}

// A machine that needs 5 us a call, reaches 100 GFLOP/s and 10 GB/s one after the other: exactly the form that is
// fitted.
double ideal_seconds(const ComputeDesc& desc) {
  const Work work = work_of(desc);
  return 5e-6 + work.flops.value() / 1e11 + static_cast<double>((work.bytes_read + work.bytes_written).value()) / 1e10;
}

// And one whose efficiency falls smoothly where n is small, which no sum of work explains.
double uneven_seconds(const ComputeDesc& desc) {
  const auto n = static_cast<double>(desc.outputs[0].shape[1]);
  return ideal_seconds(desc) * (1 + 4 / std::sqrt(n));
}

template <class Machine>
void measure(const ComputeDesc& desc, const Machine& machine, Profile& profile) {
  profile.kernels[signature(desc)] = {seconds(machine(desc)), seconds(0), 5};
}

template <class Machine>
Profile profile_of(const Machine& machine) {
  Profile profile;
  profile.file = "p.json";
  for (const int64_t k : {16, 64, 256, 1024}) {
    for (const int64_t n : {8, 32, 128, 512}) measure(product(4, k, n), machine, profile);
  }
  return profile;
}

double error_of(const KernelFit& fit, const ComputeDesc& desc, double truth) {
  const auto prediction = fit.predict(desc, 1);
  return prediction ? std::abs(prediction->time.value() / truth - 1) : 1e9;
}

TEST(KernelFit, FindsWhatIsASumOfWork) {
  const KernelFit fit(profile_of(ideal_seconds));
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{4, 100, 100}, {4, 48, 16}, {4, 512, 300}, {4, 2000, 700}}) {
    const ComputeDesc asked = product(m, k, n);
    EXPECT_LT(error_of(fit, asked, ideal_seconds(asked)), 0.01) << m << " " << k << " " << n;
  }
}

TEST(KernelFit, NeighboursTellWhatWorkDoesNot) {
  const KernelFit fit(profile_of(uneven_seconds));
  for (const int64_t n : {10, 48, 100, 400}) {
    const ComputeDesc asked = product(4, 128, n);
    EXPECT_LT(error_of(fit, asked, uneven_seconds(asked)), 0.12) << n;
  }
}

// With noise on every measurement, about 9 of 10 others lie within the spread that goes with their predictions.
TEST(KernelFit, TheSpreadCoversNineOfTen) {
  Random random(3);
  const auto noisy = [&](const ComputeDesc& desc) { return uneven_seconds(desc) * std::exp(0.1 * random.normal()); };
  const auto draw = [&](int64_t largest) { return 4 + static_cast<int64_t>(random.below(largest)); };
  size_t within = 0, total = 0;
  for (int machine = 0; machine < 10; ++machine) {
    Profile profile;
    for (int i = 0; i < 40; ++i) measure(product(4, draw(1000), draw(500)), noisy, profile);
    const KernelFit fit(profile);
    for (int i = 0; i < 40; ++i) {
      const ComputeDesc asked = product(4, draw(1000), draw(500));
      const auto prediction = fit.predict(asked, 1);
      ASSERT_TRUE(prediction);
      within += std::abs(prediction->time.value() / noisy(asked) - 1) <= prediction->spread ? 1 : 0;
      ++total;
    }
  }
  EXPECT_GT(within, total * 85 / 100);
  EXPECT_LT(within, total * 95 / 100) << "a spread that covers everything says nothing";
}

// The same computation at other batch sizes is known better than one of another shape, and both are said.
TEST(KernelFit, TellsAnotherBatchFromAnotherShape) {
  Random random(5);
  Profile profile;
  for (const int64_t k : {16, 64, 256, 1024, 2048}) {
    const double own = std::exp(0.5 * random.normal());  // each shape has an efficiency of its own
    for (const int64_t m : {1, 2, 4, 8})
      measure(
          product(m, k, 64), [&](const ComputeDesc& desc) { return own * ideal_seconds(desc); }, profile);
  }
  const KernelFit fit(profile);
  ASSERT_EQ(fit.quality().size(), 1u);
  const FitQuality quality = fit.quality()[0];
  EXPECT_EQ(to_string(quality.kernel), "matmul_v3");
  EXPECT_EQ(quality.op, Op::MatMul);
  EXPECT_EQ(quality.kernels, 20u);
  EXPECT_EQ(quality.computations, 5u);
  ASSERT_TRUE(quality.other_sizes.p90 && quality.other_shapes.p90);
  EXPECT_LT(*quality.other_sizes.p90 * 2, *quality.other_shapes.p90);
  EXPECT_EQ(fit.predict(product(3, 64, 64), 1)->spread, *quality.other_sizes.p90);
  EXPECT_EQ(fit.predict(product(3, 100, 64), 1)->spread, *quality.other_shapes.p90);
}

TEST(KernelFit, NeighboursTellWhatCompanyCosts) {
  Profile profile = profile_of(ideal_seconds);
  for (auto& [key, cost] : profile.kernels) cost.beside = cost.median * 1.25;
  const KernelPrediction prediction = KernelFit(profile).predict(product(4, 100, 100), 1).value();
  EXPECT_NEAR(prediction.beside / prediction.time, 1.25, 1e-9);
  profile.predict = true;
  profile.beside = 1;
  const Cost cost =
      CostTable({measured(profile)}, CostNames{"mine.yaml", "", {"A"}}).cost(DeviceId(0), product(4, 100, 100)).value();
  EXPECT_NEAR(cost.company / cost.time, 0.25, 1e-9);
}

TEST(KernelFit, OtherKindsAreNoNeighbours) {
  const KernelFit fit(profile_of(ideal_seconds));
  EXPECT_TRUE(fit.predict(product(4, 100, 100), 1));
  EXPECT_FALSE(fit.predict(product(4, 100, 100), 2)) << "another number of cores";
  ComputeDesc other = product(4, 100, 100);
  other.kernel = {KernelName::matmul, Isa::v4};
  EXPECT_FALSE(fit.predict(other, 1));
}

TEST(KernelFit, OfTooFewNothingIsPredicted) {
  Profile profile;
  for (size_t i = 0; i <= least_errors; ++i) {
    EXPECT_FALSE(KernelFit(profile).predict(product(4, 1000, 1000), 1)) << i;
    measure(product(4, 16 << i, 64), ideal_seconds, profile);
  }
  EXPECT_TRUE(KernelFit(profile).predict(product(4, 1000, 1000), 1));
}

TEST(KernelFit, WhatIsUnknownHereIsLeftOut) {
  Profile profile = profile_of(ideal_seconds);
  profile.kernels["magic_v9 MatMul(f32[4,4], f32[4,4]) -> f32[4,4]"] = {seconds(1), seconds(0), 5};
  profile.kernels["nonsense"] = {seconds(1), seconds(0), 5};
  profile.kernels[signature(product(5, 5, 5))] = {seconds(0), seconds(0), 5};  // has no logarithm
  const KernelFit fit(profile);
  EXPECT_EQ(fit.left_out(), 3u);
  EXPECT_EQ(fit.quality().size(), 1u);
}

TEST(KernelFit, IsUsedWhereTheScenarioAllowsIt) {
  Profile profile = profile_of(ideal_seconds);
  profile.dispatch = {seconds(1e-6), seconds(0), 5};
  const ComputeDesc asked = product(4, 100, 100);
  const CostNames names{"mine.yaml", "", {"A"}};
  const auto without = CostTable({measured(profile)}, names).cost(DeviceId(0), asked);
  ASSERT_FALSE(without.ok());
  EXPECT_THAT(without.error().message, ::testing::HasSubstr("predict: true"));
  profile.predict = true;
  const CostTable costs({measured(profile)}, names);
  const Cost predicted = costs.cost(DeviceId(0), asked).value();
  EXPECT_EQ(predicted.origin, CostOrigin::predicted);
  EXPECT_NEAR(predicted.time.value(), ideal_seconds(asked) + 1e-6, 0.01 * ideal_seconds(asked));
  EXPECT_EQ(costs.cost(DeviceId(0), product(4, 16, 8)).value().origin, CostOrigin::measured);
  ComputeDesc other = asked;
  other.kernel = {KernelName::matmul, Isa::v4};
  const auto none = costs.cost(DeviceId(0), other);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, ::testing::HasSubstr("too few of its kind to predict it from"));
}

}  // namespace
}  // namespace nlsplit

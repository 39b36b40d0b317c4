// What search says of a training step: replicas reduce their gradients, beside the last backward pass and behind it.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "partition/chains.h"
#include "partition/plan_scorer.h"

namespace nlsplit {
namespace {

using namespace testing;

constexpr size_t layers = 12;

// 12 layers on machines at a switch. Each takes 1 s forward, 1 s for each of both gradients, which take 100 bytes; an
// activation has 4 bytes, and there are 4 micro-batches.
class Steps {
 public:
  Steps(size_t devices, double bytes_per_s) : cluster_(star(devices, bytes_per_s)) {
    SearchCosts costs = costs_of(layers, std::vector<double>(devices, 3), 4, 4);
    StepCosts step;
    step.forward = step.inputs = step.weights = std::vector(devices, std::vector<double>(layers, 1));
    step.updates = std::vector(devices, std::vector<double>(layers, 0));
    step.gradient_bytes.assign(layers, 100);
    step.kept_bytes.assign(layers, 0);
    step.trained.assign(graph_.values.size(), false);
    costs.step = std::make_shared<const StepCosts>(std::move(step));
    scorer_.emplace(graph_, cluster_, network_.emplace(make_network(cluster_, HostId(0), HostId(0))), HostId(0),
                    HostId(0), costs);
  }
  double seconds(const std::vector<Stage>& stages) { return scorer_->score(stages).bound_seconds; }

 private:
  const Graph graph_ = chain(layers, 1);
  const Cluster cluster_;
  std::optional<Network> network_;
  std::optional<PlanScorer> scorer_;
};

const DeviceId a(0), b(1), c(2);

// Each does two micro-batches in 72 s, whose last 24 s are a backward pass; 1,200 bytes go both ways.
TEST(StepScore, ReplicasReduceBesideTheLastBackwardPass) {
  EXPECT_DOUBLE_EQ(Steps(2, 100).seconds({{0, layers, {a, b}}}), 72);
  EXPECT_DOUBLE_EQ(Steps(2, 10).seconds({{0, layers, {a, b}}}), 72 - 24 + 120);
  EXPECT_DOUBLE_EQ(Steps(2, 10).seconds({{0, layers, {a}}}), 144);
}

// 600 bytes in 120 s, beside the last 12 s of B and C, which begin when A has done its first 6 s.
TEST(StepScore, LaterStagesReduceWhileThoseBeforeThemGoOn) {
  EXPECT_NEAR(Steps(3, 5).seconds({{0, 6, {a}}, {6, layers, {b, c}}}), 6 + 0.8 + 36 + 120 - 12, 1e-9);
}

// A computes all the time: while it waits for the gradients of one micro-batch it does others' forward passes. B begins
// behind 9 s of A, and 18 s of A are behind it.
TEST(StepScore, TheFirstStageDoesNotWaitForThoseBehindIt) {
  EXPECT_NEAR(Steps(2, 100).seconds({{0, 9, {a}}, {9, layers, {b}}}), 4 * 27, 1e-9);
  EXPECT_NEAR(Steps(2, 100).seconds({{0, 3, {a}}, {3, layers, {b}}}), 3 + 0.04 + 4 * 27 + 6 + 0.04, 1e-9);
}

}  // namespace
}  // namespace nlsplit

// What nlsim and nlbench say where a run is not the scenario's: no GPU, no links; and of what a GPU has no kernel for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string with_a_gpu(const std::string& model, const std::string& workload) {
  return fmt::format(R"(model: {}
workload: {{{}}}
devices:
  A: {{host: a, memory: 4GiB, isa: v2, costs: {{roofline: {{compute: 10GFLOPS, memory: 10GBps}}}}}}
  G: {{host: b, kind: cuda, memory: 8GiB, costs: {{roofline: {{compute: 10TFLOPS, memory: 1TBps}}}}}}
links:
  - {{between: [a, b], bandwidth: 1Gbps, latency: 10us}}
source: a
sink: a
plans:
  mine: [..relu1@A, rest@G]
)",
                     model, workload);
}

nlohmann::json json_of(const std::string& path) { return nlohmann::json::parse(value_of(read_file(path))); }

class Conditions : public ::testing::Test {
 protected:
  const Scratch scratch_;
  const std::string scenario_ =
      scratch_.write("gpu.yaml", with_a_gpu("zoo:simple_cnn", "mode: inference, batch: 4, micro_batches: [2]"));
  // A GPU that is nowhere, also on a machine that has one.
  const std::string run_ =
      "run " + scenario_ + " --plan mine --transport threads --repeats 1 --gpu-backend /nowhere/gpu.so";
};

TEST_F(Conditions, AMissingGpuIsAnErrorThatNamesTheWayRound) {
  const Outcome outcome = nlbench(run_);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("error: device G: no GPU: there is no /nowhere/gpu.so"), HasSubstr("--gpu-missing cpu")));
}

TEST_F(Conditions, ACpuInPlaceOfAGpuIsNotComparedWithThePrediction) {
  const Outcome outcome = nlbench(run_ + " --gpu-missing cpu --check --json " + scratch_ / "run.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("\npredicted "), Not(HasSubstr("(measured")),
                    HasSubstr("\nnote        the CPU computed in place of the GPU of G: these times are not")));
  const nlohmann::json run = json_of(scratch_ / "run.json");
  EXPECT_EQ(run.at("conditions").at("cpu_in_place_of_gpu"), nlohmann::json({"G"}));
  EXPECT_FALSE(run.at("predicted").contains("makespan_error"));
}

TEST_F(Conditions, DevicesOfSeveralHostsOnOneMachineAreSaid) {
  scratch_.write("small.yaml", small_scenario());
  const std::string run =
      "run " + scratch_ / "small.yaml" + " --transport threads --repeats 1 --json " + scratch_ / "r";
  const Outcome outcome = nlbench(run + " --plan mine");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("(measured"), HasSubstr("\nnote        A, B, C ran on one machine: ")));
  const nlohmann::json conditions = json_of(scratch_ / "r").at("conditions");
  EXPECT_EQ(conditions.at("on_one_machine"), nlohmann::json({"A", "B", "C"}));
  EXPECT_TRUE(conditions.at("cpu_in_place_of_gpu").empty());
  EXPECT_TRUE(json_of(scratch_ / "r").at("predicted").contains("makespan_error"));

  const Outcome alone = nlbench("run zoo:mlp --batch 2 --transport threads --repeats 1 --json " + scratch_ / "r");
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_THAT(alone.out, Not(HasSubstr("note ")));
  EXPECT_TRUE(json_of(scratch_ / "r").at("conditions").at("on_one_machine").empty());
}

TEST_F(Conditions, WhatTheProcessHeldInMemoryIsSaid) {
  scratch_.write("small.yaml", small_scenario());
  const std::string run = "run " + scratch_ / "small.yaml" + " --plan mine --transport threads --repeats 1 --json ";
  const Outcome outcome = nlbench(run + scratch_ / "r");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\nmemory      process of A, B, C: "));
  const nlohmann::json report = json_of(scratch_ / "r"), processes = report.at("conditions").at("processes");
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_EQ(processes[0].at("devices"), nlohmann::json({"A", "B", "C"}));
  int64_t arenas = 0;
  for (const nlohmann::json& device : report.at("devices")) arenas += device.at("arena_bytes").get<int64_t>();
  EXPECT_EQ(processes[0].at("arena_bytes"), arenas);
  EXPECT_GT(processes[0].at("peak_bytes"), arenas);
}

// Beside the arena there are code and small things: not the file of the weights, and no copy of the optimizer's zeros.
TEST_F(Conditions, AnArenaIsNearlyAllThatATrainingHolds) {
  constexpr int64_t weights = int64_t{3} * 2048 * 2048 * 4;  // but for the last, small layer
  const std::string training = scratch_.write("training.yaml", R"(
model: "zoo:mlp?layers=4&inputs=2048&hidden=2048"
workload: {mode: training, batch: 2, micro_batches: [2], optimizer: adam}
devices: {A: {host: here, memory: 4GiB, costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}}}
source: here
sink: here
plans: {one: [rest@A]}
)");
  for (const char* command : {"train --steps 2", "run --warmup 1 --repeats 1"}) {
    const Outcome outcome =
        nlbench(fmt::format("{} {} --plan one --transport threads --json {}", command, training, scratch_ / "r"));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const nlohmann::json held = json_of(scratch_ / "r").at("conditions").at("processes").at(0);
    const int64_t kept = std::string(command).starts_with("run") ? weights : 0;  // for the next repeat
    EXPECT_LT(held.at("peak_bytes").get<int64_t>() - held.at("arena_bytes").get<int64_t>(), kept + weights) << command;
  }
}

TEST_F(Conditions, TrainingOnAGpuIsSimulatedAndRefused) {
  const std::string training = scratch_.write(
      "training.yaml", with_a_gpu("zoo:simple_cnn", "mode: training, batch: 4, micro_batches: [2], optimizer: sgd"));
  const Outcome ranked = nlsim("rank " + training);
  ASSERT_EQ(ranked.code, 0) << ranked.err;
  EXPECT_THAT(ranked.out, AllOf(StartsWith("note  "), HasSubstr("computations have no GPU kernel here; the roofline")));
  const Outcome simulated = nlsim("simulate " + training + " --plan mine");
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  EXPECT_THAT(simulated.out, StartsWith("note  "));
  for (const char* command : {"run", "train"}) {
    const Outcome outcome = nlbench(fmt::format("{} {} --plan mine --transport threads{}", command, training,
                                                std::string(command) == "train" ? " --steps 1" : ""));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("error: device G is a GPU, and nothing trains on a GPU"));
  }
}

TEST_F(Conditions, WhatAGpuHasKernelsForNeedsNoNote) {
  const Outcome outcome = nlsim("simulate " + scenario_ + " --plan mine");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, Not(HasSubstr("note  ")));
}

}  // namespace
}  // namespace nlsplit

// `nlsim profile import` as a user meets it. The trace is one that ONNX Runtime 1.32 wrote of five runs of zoo:resnet18
// at batch 1 (SessionOptions.enable_profiling, one thread), with those arguments that are read. Those of PyTorch and in
// Nsight Systems' form: scripts/export/profiles.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "testing/paths.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string ort_trace = NLS_SOURCE_DIR "/tests/tools/traces/ort_resnet18.json";

class ProfileImport : public ::testing::Test {
 protected:
  Outcome import(const std::string& trace, const std::string& more = {}, const std::string& model = "zoo:resnet18") {
    return nlsim(fmt::format("profile import {} --ort {} -o {} {}", model, trace, costs_, more));
  }
  // The trace, changed.
  std::string changed(const std::function<void(json&)>& change) {
    json trace = json::parse(value_of(read_file(ort_trace)));
    change(trace);
    return scratch_.write("trace.json", trace.dump());
  }

  Scratch scratch_;
  std::string costs_ = scratch_ / "costs.json";
};

TEST_F(ProfileImport, KeepsTheTimeOfARun) {
  // Every execution alike, so that medians add up: operators of 10 us, 10 us apart, in a millisecond.
  const std::string trace = changed([](json& events) {
    int execution = 0, operators = 0;
    for (json& event : events) {
      if (event["cat"] == "Node") {
        event["ts"] = execution * 1'000'000 + 20 * operators++;
        event["dur"] = 10;
      } else if (event["name"] == "model_run") {
        event["ts"] = 1'000'000 * execution++;
        event["dur"] = 1000;
        operators = 0;
      }
    }
  });
  const Outcome outcome = import(trace);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("matched   100.0 % of the operators' time"));
  EXPECT_THAT(outcome.out, HasSubstr("batch 1   1 ms on one device with these costs, 1 ms by the profile (+0.0 %; "
                                     "median of 4 executions"));
  EXPECT_THAT(outcome.out, ::testing::Not(HasSubstr("disturbed")));
  const json costs = json::parse(value_of(read_file(costs_)));
  EXPECT_EQ(costs["machine"], "ONNX Runtime, CPUExecutionProvider");
  EXPECT_EQ(costs["models"], json::array({"resnet18"}));
}

// In each execution another operator was interrupted, for half a millisecond.
TEST_F(ProfileImport, SaysThatOtherProgramsTookTime) {
  const std::string trace = changed([](json& events) {
    int execution = 0, operators = 0;
    for (json& event : events) {
      if (event["cat"] == "Node") {
        const int one = operators++;
        event["ts"] = execution * 1'000'000 + 20 * one + (one > 2 * execution ? 500 : 0);
        event["dur"] = one == 2 * execution ? 510 : 10;
      } else if (event["name"] == "model_run") {
        event["ts"] = 1'000'000 * execution++;
        event["dur"] = 1500;
        operators = 0;
      }
    }
  });
  const Outcome outcome = import(trace);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("1 ms on one device with these costs, 1.5 ms by the profile (-33.3 %"));
  EXPECT_THAT(outcome.out, HasSubstr("The profile was disturbed"));
}

TEST_F(ProfileImport, MatchesPyTorchsOperatorsByOrderAndShapes) {
  const Outcome outcome = nlsim(fmt::format("profile import zoo:resnet18 --torch {} -o {}",
                                            NLS_SOURCE_DIR "/tests/tools/traces/torch_resnet18.json", costs_));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("matched   100.0 % of the operators' time: by name 0.0 %, by order "));
  EXPECT_THAT(outcome.out, HasSubstr("median of 4 executions"));
  EXPECT_EQ(json::parse(value_of(read_file(costs_)))["machine"], "PyTorch, CPU");
}

TEST_F(ProfileImport, MatchesNsightsKernelsByTheirRanges) {
  const std::string trace = NLS_SOURCE_DIR "/tests/tools/traces/nsys_resnet18.sqlite";
  const Outcome outcome =
      nlsim(fmt::format("profile import zoo:resnet18 --nsys {} --profiled-batch 1 -o {}", trace, costs_));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("matched   100.0 % of the operators' time: by name 100.0 %"));
  EXPECT_THAT(outcome.out, HasSubstr("median of 4 executions"));
  const Outcome mixed =
      nlsim(fmt::format("profile import zoo:resnet18 --ort {} --nsys {} -o {}", ort_trace, trace, costs_));
  EXPECT_EQ(mixed.code, 2);
  EXPECT_THAT(mixed.err, HasSubstr("profiles of one device are of one runtime"));
}

TEST_F(ProfileImport, RanksAScenario) {
  ASSERT_EQ(import(ort_trace).code, 0);
  const std::string scenario = scratch_.write("s.yaml", R"(model: zoo:resnet18
workload: {mode: inference, batch: 4, micro_batches: [4]}
devices:
  A: &machine {host: a, memory: 8GiB, costs: costs.json}
  B: {<<: *machine, host: b}
links:
  - {between: [a, b], bandwidth: 1Gbps, latency: 50us}
source: a
sink: a
)");
  const Outcome ranked = nlsim("rank " + scenario);
  EXPECT_EQ(ranked.code, 0) << ranked.err;
}

// Batch 1 in operators of 10 us, batch 3 in operators of 30: batch 2 is half-way.
TEST_F(ProfileImport, DrawsALineBetweenBatches) {
  const auto of_batch = [&](int batch, int microseconds) {
    const std::string trace = changed([&](json& events) {
      for (json& event : events) {
        if (event["cat"] != "Node") continue;
        event["dur"] = microseconds;
        for (json& tensor : event["args"]["output_type_shape"]) tensor.begin().value()[0] = batch;
      }
    });
    return scratch_.write(fmt::format("b{}.json", batch), value_of(read_file(trace)));
  };
  const auto time_of_convolutions = [&](const std::string& traces, int batch) {
    const Outcome outcome = import(traces, fmt::format("--batch {}", batch));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    double sum = 0;
    const json costs = json::parse(value_of(read_file(costs_)));
    for (const json& kernel : costs["kernels"]) {
      if (kernel["signature"].get<std::string>().find(" Conv(") != std::string::npos)
        sum += kernel["median_s"].get<double>();
    }
    return sum;
  };
  const std::string one = of_batch(1, 10), three = of_batch(3, 30), both = one + " " + three;
  EXPECT_THAT(import(both, "--batch 2").out,
              HasSubstr("assumed   2 samples: on a straight line between batches 1 and 3"));
  const double at_1 = time_of_convolutions(one, 1), at_3 = time_of_convolutions(three, 3);
  ASSERT_GT(at_1, 0);
  EXPECT_NEAR(at_3, 3 * at_1, 1e-9);
  EXPECT_NEAR(time_of_convolutions(both, 2), 2 * at_1, 1e-9);
}

TEST_F(ProfileImport, RefusesWhatItCannotKnow) {
  const auto expect_refused = [](const Outcome& outcome, const std::string& why) {
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(why));
  };
  expect_refused(import(ort_trace, {}, "zoo:resnet50"), "have no time in the profile");
  expect_refused(import(ort_trace, "--batch 2"), "micro-batches of 2 samples, and the profile is of batch 1");
  EXPECT_EQ(import(ort_trace, "--batch 2 --scale").code, 0);
  expect_refused(import(ort_trace, "--warm-up 5"), "5 executions at batch 1");
  expect_refused(import(ort_trace, "--max-unmatched 7"), "--max-unmatched: '7' has no unit");
  expect_refused(import(ort_trace, "--max-unmatched 101%"), "--max-unmatched must be from 0% to 100%, not 101%");
  expect_refused(import(changed([](json& events) {
                   for (json& event : events) {
                     if (event["cat"] == "Node") event["args"].erase("output_type_shape");
                   }
                 })),
                 "--profiled-batch");
  expect_refused(import(changed([](json& events) { events[3]["args"]["provider"] = "CUDAExecutionProvider"; })),
                 "event 4 of the list");
  expect_refused(import(changed([](json& events) { events[3]["dur"] = -1; })), "\"dur\" is negative");
  expect_refused(import(changed([](json& events) {
                   for (json& event : events) {
                     if (event["args"].value("op_name", "") == "Gemm") event["args"]["op_name"] = "Strange";
                     if (event["name"] == "fc_kernel_time") {
                       event["name"] = "strange_kernel_time";
                       event["dur"] = 100000;
                     }
                   }
                 })),
                 "belongs to no node of the network");
}

TEST_F(ProfileImport, BadFilesNameTheirPlace) {
  const std::string text = value_of(read_file(ort_trace));
  const std::string cut = scratch_.write("cut.json", text.substr(0, text.size() / 2));
  EXPECT_THAT(import(cut).err, HasSubstr("cut.json: the file ends in the middle"));
  EXPECT_EQ(import(cut).code, 2);
  EXPECT_THAT(import(scratch_.write("t.json", "[1, x]")).err, HasSubstr("t.json: byte 5: this is not JSON"));
  EXPECT_THAT(import(scratch_.write("t.json", "{}")).err, HasSubstr("this is not a trace"));
  EXPECT_THAT(import(scratch_.write("t.json", "[]")).err, HasSubstr("no event \"model_run\""));
}

}  // namespace
}  // namespace nlsplit

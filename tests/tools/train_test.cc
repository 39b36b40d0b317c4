// Training, as a user does it: on data in files, under several plans, interrupted and gone on with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "base/npy.h"
#include "graph/onnx_file.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using json = nlohmann::json;

constexpr const char* learning =
    "model: zoo:simple_cnn?channels=1\n"
    "workload: {mode: training, batch: 12, micro_batches: 3, optimizer: adam, learning_rate: 0.002}\n"
    "topology: {kind: star, hosts: 3, link: {bandwidth: 1Gbps, latency: 50us}}\n"
    "devices: {m: {hosts: h0..h2, memory: 1GiB, costs: {roofline: {compute: 20GFLOPS, memory: 10GBps}}}}\n"
    "source: h0\n"
    "sink: h1\n"
    "search: {schedules: [1f1b], keep: 5}\n"
    "plans:\n"
    "  one: [rest@m0]\n"
    "  halves: [..relu2@m0, rest@m1]\n"
    "  back: [..relu1@m2, ..relu2@m1, rest@m0]\n"
    "  away: [rest@m1]\n"
    "  copies: [rest@m0+m1]\n";
// With stages that are split inside their layers, which not every training allows.
constexpr const char* split_plans =
    "  columns: [rest@tensor(m0+m1)]\n"
    "  pieces: [..relu2@height(m0+m1), rest@m2]\n";

class TrainCommand : public ::testing::Test {
 protected:
  // Images of two kinds, bright above or below, 50 of them.
  TrainCommand() {
    NpyArray images{{samples, 1, 8, 8}, std::vector<float>(samples * 64)};
    std::string labels(samples * 8, '\0');
    for (size_t s = 0; s < samples; ++s) {
      labels[s * 8] = static_cast<char>(s % 2);
      for (size_t p = 0; p < 64; ++p)
        images.values[s * 64 + p] =
            static_cast<float>((p < 32) == (s % 2 == 0)) + static_cast<float>((s * 7 + p * 5) % 11) / 22;
    }
    CHECK(write_npy(scratch_ / "x.npy", images).ok(), "a test cannot write its files");
    std::string header = "{'descr': '<i8', 'fortran_order': False, 'shape': (50,), }";
    header.append(118 - header.size() - 1, ' ');
    header += '\n';
    scratch_.write("y.npy", std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(118) + '\0' + header + labels);
    data_ = "--data input=" + (scratch_ / "x.npy") + " --data labels=" + (scratch_ / "y.npy");
    validation_ = "--validation input=" + (scratch_ / "x.npy") + " --validation labels=" + (scratch_ / "y.npy");
    scenario_ = scratch_.write("s.yaml", learning);
  }

  std::string arguments(const std::string& plan, const std::string& more) const {
    return fmt::format("train {} --plan {} {} --json - {}", scenario_, plan, data_, more);
  }
  json train(const std::string& plan, const std::string& more) const {
    const Outcome run = nlbench(arguments(plan, "--transport threads " + more));
    EXPECT_EQ(run.code, 0) << run.err;
    return run.code == 0 ? json::parse(run.out) : json();
  }
  std::string error(const std::string& more, int code = 2) const {
    const Outcome run = nlbench(fmt::format("train {} --plan one --transport threads {}", scenario_, more));
    EXPECT_EQ(run.code, code) << run.out << run.err;
    return run.err;
  }

  static constexpr size_t samples = 50;
  const Scratch scratch_;
  std::string data_, validation_, scenario_;
};

TEST_F(TrainCommand, LearnsAlikeUnderEveryPlan) {
  const std::string how = "--epochs 5 --evaluate-every 7 " + validation_;
  const json one = train("one", how);
  ASSERT_TRUE(one.contains("losses"));
  EXPECT_EQ(one.at("steps"), 21);  // 250 samples in batches of 12
  EXPECT_EQ(one.at("losses").size(), 21);
  ASSERT_EQ(one.at("evaluations").size(), 3);
  EXPECT_EQ(one.at("evaluations").back().at("step"), 21);
  EXPECT_LT(one.at("evaluations").back().at("loss"), one.at("evaluations").front().at("loss"));
  EXPECT_EQ(one.at("evaluations").back().at("accuracy"), 1.0);
  EXPECT_GT(one.at("predicted_step_s").get<double>(), 0);
  EXPECT_GT(one.at("step_s").get<double>(), 0);
  for (const char* plan : {"halves", "back", "away"}) {
    SCOPED_TRACE(plan);
    const json split = train(plan, how);
    EXPECT_EQ(split.at("losses"), one.at("losses"));
    EXPECT_EQ(split.at("evaluations"), one.at("evaluations"));
  }
  const json copies = train("copies", how);
  for (size_t i = 0; i < 21; ++i)
    EXPECT_NEAR(copies.at("losses")[i].get<double>(), one.at("losses")[i].get<double>(), 1e-3) << i;
  const Outcome ranks = mpirun(3, arguments("back", how));
  ASSERT_EQ(ranks.code, 0) << ranks.err;
  EXPECT_EQ(json::parse(ranks.out).at("losses"), one.at("losses"));
}

// Under another plan, with other ranks: the bits of the undisturbed training.
TEST_F(TrainCommand, GoesOnUnderAnotherPlanFromWhereItWas) {
  const json whole = train("halves", "--steps 20 --seed 3 --output " + (scratch_ / "whole.safetensors"));
  const std::string from = "--checkpoint " + (scratch_ / "c");
  train("halves", "--steps 9 --seed 3 --save-every 4 " + from);
  const json rest = train("back", "--steps 20 --resume " + from + " --output " + (scratch_ / "rest.safetensors"));
  ASSERT_TRUE(rest.contains("losses"));
  EXPECT_EQ(rest.at("first_step"), 9);
  ASSERT_EQ(rest.at("losses").size(), 11);
  for (size_t i = 0; i < 11; ++i) EXPECT_EQ(rest.at("losses")[i], whole.at("losses")[9 + i]) << i;
  const std::string weights = value_of(read_file(scratch_ / "rest.safetensors"));
  EXPECT_EQ(weights, value_of(read_file(scratch_ / "whole.safetensors")));
  // All steps are done: who starts it again gets what it would have written.
  const json none = train("one", "--steps 20 --resume " + from + " --output " + (scratch_ / "none.safetensors"));
  EXPECT_TRUE(none.at("losses").empty());
  EXPECT_EQ(value_of(read_file(scratch_ / "none.safetensors")), weights);
}

// Stages that are split inside their layers. A checkpoint has whole weights, so any plan goes on from it.
TEST_F(TrainCommand, LearnsAlikeUnderSplitsInsideLayers) {
  scratch_.write("s.yaml", std::string(learning) + split_plans);
  const std::string how = "--steps 12 --evaluate-every 6 " + validation_;
  const json one = train("one", how);
  ASSERT_TRUE(one.contains("losses"));
  const auto expect_near = [](const json& found, const json& wanted) {
    ASSERT_EQ(found.at("losses").size(), wanted.at("losses").size());
    for (size_t i = 0; i < wanted.at("losses").size(); ++i)
      EXPECT_NEAR(found.at("losses")[i].get<double>(), wanted.at("losses")[i].get<double>(), 1e-3) << i;
  };
  for (const char* plan : {"columns", "pieces"}) {
    SCOPED_TRACE(plan);
    const json split = train(plan, how);
    ASSERT_TRUE(split.contains("losses"));
    expect_near(split, one);
    EXPECT_NEAR(split.at("evaluations")[1].at("loss").get<double>(), one.at("evaluations")[1].at("loss").get<double>(),
                1e-3);
  }
  const Outcome ranks = mpirun(3, arguments("pieces", how));
  ASSERT_EQ(ranks.code, 0) << ranks.err;
  EXPECT_EQ(json::parse(ranks.out).at("losses"), train("pieces", how).at("losses"));
  for (const char* plan : {"pieces", "one", "columns"}) {
    SCOPED_TRACE(plan);
    const std::string from = fmt::format("--checkpoint {}", scratch_ / plan);
    train("columns", "--steps 6 " + from);
    const json rest = train(plan, "--steps 12 --resume " + from);
    ASSERT_EQ(rest.at("losses").size(), 6);
    for (size_t i = 0; i < 6; ++i)
      EXPECT_NEAR(rest.at("losses")[i].get<double>(), one.at("losses")[6 + i].get<double>(), 1e-3) << i;
  }
}

// ZeRO: no replica has all of the optimizer's tensors; the checkpoint does, and one device goes on from it.
TEST_F(TrainCommand, ReplicasKeepSharesOfTheOptimizersTensors) {
  const std::string from = "--checkpoint " + (scratch_ / "c");
  const json copies = train("copies", "--steps 12");
  std::string sharded = learning;
  sharded.replace(sharded.find("optimizer: adam"), 15, "optimizer: adam, zero: 1");
  scratch_.write("s.yaml", sharded);
  const json shares = train("copies", "--steps 12 " + from);
  ASSERT_TRUE(shares.contains("losses"));
  EXPECT_EQ(shares.at("losses"), copies.at("losses"));  // two terms have one order
  scratch_.write("s.yaml", learning);
  const json rest = train("one", "--steps 20 --resume " + from), whole = train("copies", "--steps 20");
  for (size_t i = 0; i < 8; ++i)
    EXPECT_NEAR(rest.at("losses")[i].get<double>(), whole.at("losses")[12 + i].get<double>(), 1e-3) << i;
}

// The sums of gradients are shared too: with a micro-batch a replica they have one order, with several another one.
TEST_F(TrainCommand, ReplicasKeepSharesOfTheGradients) {
  const std::string from = "--checkpoint " + (scratch_ / "c");
  const auto use = [&](int micro_batches, int zero) {
    std::string text = learning;
    const std::string old = "micro_batches: 3, optimizer: adam";
    text.replace(text.find(old), old.size(),
                 fmt::format("micro_batches: {}, optimizer: adam, zero: {}", micro_batches, zero));
    scratch_.write("s.yaml", text);
  };
  use(2, 0);
  const json copies = train("copies", "--steps 12");
  use(2, 2);
  EXPECT_EQ(train("copies", "--steps 12 " + from).at("losses"), copies.at("losses"));
  use(6, 0);
  const json whole = train("one", "--steps 20"), rest = train("one", "--steps 20 --resume " + from);
  for (size_t i = 0; i < 8; ++i)
    EXPECT_NEAR(rest.at("losses")[i].get<double>(), whole.at("losses")[12 + i].get<double>(), 1e-3) << i;
  use(6, 2);
  const json shares = train("copies", "--steps 20");
  for (size_t i = 0; i < 20; ++i)
    EXPECT_NEAR(shares.at("losses")[i].get<double>(), whole.at("losses")[i].get<double>(), 1e-3) << i;
  use(3, 2);
  const Outcome uneven = nlbench(fmt::format("train {} --plan copies --transport threads --steps 1", scenario_));
  EXPECT_EQ(uneven.code, 2);
  EXPECT_THAT(uneven.err, HasSubstr("zero: 2 reduces the gradients of each micro-batch")) << "its own reason";
}

// The weights are shared too: evaluations, checkpoints and other plans know whole ones, and all bits are those of
// stage 2.
TEST_F(TrainCommand, ReplicasKeepSharesOfTheWeights) {
  const auto use = [&](int micro_batches, int zero) {
    scratch_.write("s.yaml", with(learning, "micro_batches: 3, optimizer: adam",
                                  fmt::format("micro_batches: {}, optimizer: adam, zero: {}", micro_batches, zero)) +
                                 "  three: [rest@m0+m1+m2]\n");
  };
  const std::string from = "--checkpoint " + (scratch_ / "c"), how = "--steps 12 --evaluate-every 5 " + validation_;
  use(2, 0);
  const json copies = train("copies", how);
  use(2, 3);
  const json shares = train("copies", how + " " + from);
  EXPECT_EQ(shares.at("losses"), copies.at("losses"));
  EXPECT_EQ(shares.at("evaluations"), copies.at("evaluations"));
  const Outcome ranks = mpirun(2, arguments("copies", how));
  ASSERT_EQ(ranks.code, 0) << ranks.err;
  EXPECT_EQ(json::parse(ranks.out).at("losses"), copies.at("losses"));
  EXPECT_EQ(json::parse(ranks.out).at("evaluations"), copies.at("evaluations"));
  use(2, 0);
  const json whole = train("copies", "--steps 20"), on_two = train("copies", "--steps 20 --resume " + from);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(on_two.at("losses")[i], whole.at("losses")[12 + i]) << i;
  use(6, 2);
  const json gradients = train("three", "--steps 8"), on_three = train("three", "--steps 20 --resume " + from);
  use(6, 3);
  EXPECT_EQ(train("three", "--steps 8").at("losses"), gradients.at("losses"));
  EXPECT_EQ(train("three", "--steps 20 --resume " + from).at("losses"), on_three.at("losses"));
  use(3, 3);
  const Outcome uneven = nlbench(fmt::format("train {} --plan copies --transport threads --steps 1", scenario_));
  EXPECT_EQ(uneven.code, 2);
  EXPECT_THAT(uneven.err, HasSubstr("zero: 3 reduces the gradients of each micro-batch")) << "its own reason";
}

// Each replica adds the squares of its share. Where two replicas add two gradients there is one order of sums.
TEST_F(TrainCommand, ClipsGradientsOfWhichReplicasKeepShares) {
  const auto use = [&](int zero) {
    const std::string clipped = fmt::format("micro_batches: 2, clip: 0.5, optimizer: adam, zero: {}", zero);
    scratch_.write("s.yaml", with(learning, "micro_batches: 3, optimizer: adam", clipped) +
                                 "  front: {stages: [..relu2@m0+m1, rest@m2], schedule: list}\n");
  };
  for (const char* plan : {"copies", "front"}) {
    use(0);
    const json whole = train(plan, "--steps 6");
    EXPECT_GT(whole.at("gradient_norms")[0].get<double>(), 0.5) << "clipped";
    for (const int zero : {1, 2, 3}) {
      use(zero);
      const json shares = train(plan, "--steps 6");
      EXPECT_EQ(shares.at("gradient_norms"), whole.at("gradient_norms")) << plan << " " << zero;
      EXPECT_EQ(shares.at("losses"), whole.at("losses")) << plan << " " << zero;
    }
  }
}

// By the micro-batch's statistics: the bits depend on neither cuts, recomputation nor a pause, running statistics
// included.
TEST_F(TrainCommand, NormalizesByTheSamplesAlikeUnderEveryPlan) {
  const std::string by_samples =
      "{mode: training, batch: 4, micro_batches: 2, learning_rate: 0.001, batch_norm: batch}";
  const auto use = [&](const std::string& workload) {
    std::string text = with(learning, "zoo:simple_cnn?channels=1", "zoo:mobilenet_v2?image=32");
    text = with(text, "{mode: training, batch: 12, micro_batches: 3, optimizer: adam, learning_rate: 0.002}", workload);
    text = text.substr(0, text.find("  one:")) + "  one: [rest@m0]\n  halves: [..features.8@m0, rest@m1]\n";
    scratch_.write("s.yaml", text);
  };
  const auto run = [&](const std::string& plan, const std::string& more) {
    const Outcome done = nlbench(fmt::format("train {} --plan {} --transport threads {}", scenario_, plan, more));
    EXPECT_EQ(done.code, 0) << done.err;
    return done.out;
  };
  use(by_samples);
  const std::string file = scratch_ / "w.safetensors";
  EXPECT_THAT(run("one", "--steps 4 --output " + file), HasSubstr("batch norm  by the mean and variance of each"));
  const std::string wanted = value_of(read_file(file));
  EXPECT_THAT(wanted, HasSubstr("features.0.1.running_mean"));
  run("halves", "--steps 4 --output " + file);
  EXPECT_EQ(value_of(read_file(file)), wanted);
  run("halves", "--steps 2 --checkpoint " + (scratch_ / "c"));
  run("one", "--steps 4 --resume --checkpoint " + (scratch_ / "c") + " --output " + file);
  EXPECT_EQ(value_of(read_file(file)), wanted);
  use(with(by_samples, "batch_norm", "recompute: full, batch_norm"));
  run("halves", "--steps 4 --output " + file);
  EXPECT_EQ(value_of(read_file(file)), wanted) << "recomputation moves running statistics";
  use(with(by_samples, "batch_norm: batch", "batch_norm: frozen"));
  EXPECT_THAT(run("one", "--steps 1 --output " + file), HasSubstr("batch norm  frozen"));
  EXPECT_EQ(value_of(read_file(file)).find("running_mean"), std::string::npos);
  use(with(by_samples, "micro_batches: 2", "micro_batches: 4"));
  const Outcome one = nlbench(fmt::format("train {} --plan one --transport threads --steps 1", scenario_));
  EXPECT_EQ(one.code, 2);
  EXPECT_THAT(one.err, AllOf(HasSubstr("batch_norm: batch"), HasSubstr("f32[1,576,1,1]"), HasSubstr("no variance")));
}

// The same elements drop under every plan, recomputed or not, in other micro-batches and after a pause; others with
// another seed. Evaluation drops none.
TEST_F(TrainCommand, DropsAlikeUnderEveryPlan) {
  OnnxFile file(13);
  file.input("x", {1, 16});
  file.node("Dropout", {"x", "ratio"}, "a", "drop1");
  file.floats("ratio", {}, {0.5F});
  std::vector<float> weights;
  for (int i = 0; i < 16 * 16; ++i) weights.push_back(static_cast<float>((i * 7) % 31 - 15) / 60);
  file.floats("w1", {16, 16}, weights);
  file.node("MatMul", {"a", "w1"}, "b", "fc1");
  file.node("Relu", {"b"}, "c", "relu");
  file.node("Dropout", {"c", "ratio"}, "d", "drop2");
  file.floats("w2", {16, 4}, std::vector<float>(weights.begin(), weights.begin() + 64));
  file.node("MatMul", {"d", "w2"}, "y", "fc2");
  file.output("y");
  const std::string model = scratch_.write("m.onnx", file.model().SerializeAsString());
  const std::string dropping =
      "{mode: training, batch: 12, micro_batches: 4, optimizer: adam, learning_rate: 0.01, seed: 5}";
  const auto use = [&](const std::string& workload) {
    std::string text = with(learning, "zoo:simple_cnn?channels=1", model);
    text = with(text, "{mode: training, batch: 12, micro_batches: 3, optimizer: adam, learning_rate: 0.002}", workload);
    text = text.substr(0, text.find("  one:")) +
           "  one: [rest@m0]\n  halves: [..fc1@m0, rest@m1]\n  three: [..drop1@m2, ..drop2@m1, rest@m0]\n  copies: "
           "[rest@m0+m1]\n";
    scratch_.write("s.yaml", text);
  };
  const std::string output = scratch_ / "w.safetensors";
  const auto weights_of = [&](const std::string& plan, const std::string& more) {
    const Outcome done =
        nlbench(fmt::format("train {} --plan {} --transport threads --output {} {}", scenario_, plan, output, more));
    EXPECT_EQ(done.code, 0) << done.err;
    return value_of(read_file(output));
  };
  const auto losses_of = [&](const std::string& plan) {
    const Outcome done =
        nlbench(fmt::format("train {} --plan {} --transport threads --steps 9 --json -", scenario_, plan));
    EXPECT_EQ(done.code, 0) << done.err;
    return json::parse(done.out).at("losses").get<std::vector<double>>();
  };
  use(dropping);
  const std::string wanted = weights_of("one", "--steps 9");
  for (const char* plan : {"halves", "three"}) EXPECT_EQ(weights_of(plan, "--steps 9"), wanted) << plan;
  weights_of("three", "--steps 4 --checkpoint " + (scratch_ / "c"));
  EXPECT_EQ(weights_of("halves", "--steps 9 --resume --checkpoint " + (scratch_ / "c")), wanted);
  const std::vector<double> losses = losses_of("one"), copies = losses_of("copies");
  use(with(dropping, "seed: 5", "seed: 5, recompute: full"));
  EXPECT_EQ(weights_of("halves", "--steps 9"), wanted);
  use(with(dropping, "micro_batches: 4", "micro_batches: 2"));
  const std::vector<double> larger = losses_of("one");
  use(with(dropping, "seed: 5", "seed: 6"));
  EXPECT_NE(weights_of("one", "--steps 9"), wanted);
  const std::vector<double> others = losses_of("one");
  double apart = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(copies[i], losses[i], 1e-5) << i;
    EXPECT_NEAR(larger[i], losses[i], 1e-5) << i;
    apart = std::max(apart, std::abs(others[i] - losses[i]));
  }
  EXPECT_GT(apart, 1e-3) << "another seed drops others";
}

// An epoch takes every sample once, whatever the batch was before.
TEST_F(TrainCommand, CountsEpochsInSamples) {
  const std::string from = "--checkpoint " + (scratch_ / "c");
  train("one", "--steps 10 " + from);  // 120 samples of 12
  scratch_.write("s.yaml", with(learning, "batch: 12, micro_batches: 3", "batch: 20, micro_batches: 2"));
  const json rest = train("one", "--epochs 4 --resume " + from);  // 200 samples
  EXPECT_EQ(rest.at("losses").size(), 4);
  EXPECT_EQ(rest.at("steps"), 14);
  EXPECT_THAT(error(data_ + " --epochs 2 --resume " + from), HasSubstr("has taken 200 samples, and 100 are asked for"));
}

// The last update may spoil the weights, of which the loss before it says nothing.
TEST_F(TrainCommand, SavesNoWeightsThatAreNoNumbers) {
  const std::string c = scratch_ / "c";
  train("one", "--steps 2 --checkpoint " + c);
  NpyArray large{{samples, 1, 8, 8}, std::vector<float>(samples * 64, 1e35F)};
  ASSERT_TRUE(write_npy(scratch_ / "large.npy", large).ok());
  scratch_.write("s.yaml", with(learning, "adam, learning_rate: 0.002", "sgd, learning_rate: 1e6"));
  const std::string how =
      fmt::format("--data input={} --data labels={} --steps 1 ", scratch_ / "large.npy", scratch_ / "y.npy");
  EXPECT_THAT(error(how + "--checkpoint " + (scratch_ / "other")),
              HasSubstr("which is not a number, and is not saved"));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "other"));
}

TEST_F(TrainCommand, LogsTheNormOfGradientsThatAreClipped) {
  scratch_.write("s.yaml", with(learning, "learning_rate: 0.002", "learning_rate: 0.002, clip: 0.5"));
  const json one = train("one", "--steps 3"), split = train("halves", "--steps 3");
  ASSERT_EQ(one.at("gradient_norms").size(), 3);
  EXPECT_GT(one.at("gradient_norms")[0].get<double>(), 0);
  EXPECT_EQ(split.at("gradient_norms"), one.at("gradient_norms"));
}

TEST_F(TrainCommand, RefusesTokensThatTheNetworkDoesNotKnow) {
  const std::string tokens =
      scratch_.write("t.txt", "some text that has an e with an accent: \xc3\xa9, twice \xc3\xa9");
  const std::string gpt = with(learning, "simple_cnn?channels=1", "gpt2?layers=1&hidden=16&heads=2&vocab=128&length=4");
  const std::string scenario =
      scratch_.write("gpt.yaml", gpt.substr(0, gpt.find("plans:")) + "plans:\n  one: [rest@m0]\n");
  const Outcome run = nlbench(fmt::format("train {} --plan one --transport threads --data {}", scenario, tokens));
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("t.txt: sample"), HasSubstr("and the network knows 128")));
}

TEST_F(TrainCommand, SavesWhenItIsInterrupted) {
  const std::string c = scratch_ / "c", pid = scratch_ / "pid";
  std::thread user([&] {
    for (int i = 0; i < 200; ++i) {  // until it trains
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const auto out = read_file(scratch_ / "log");
      if (out.ok() && out->find("step  ") != std::string::npos) break;
    }
    run_command(fmt::format("kill -TERM $(cat {})", pid));
  });
  const Outcome run = run_command(fmt::format(
      "{}/nlbench train {} --plan halves --transport threads {} --steps 100000 --log-every 5 --checkpoint {} > {} & "
      "echo $! > {}; wait $!",
      NLS_BIN_DIR, scenario_, data_, c, scratch_ / "log", pid));
  user.join();
  EXPECT_EQ(run.code, 130) << run.err;
  EXPECT_THAT(value_of(read_file(scratch_ / "log")), HasSubstr("--resume continues there"));
  const json place = json::parse(value_of(read_file(c + "/checkpoint.json")));
  const int64_t done = place.at("steps");
  EXPECT_GT(done, 0);
  EXPECT_LT(done, 100000);
  EXPECT_EQ(place.at("samples"), done * 12);
  const json rest = train("one", fmt::format("--steps {} --resume --checkpoint {}", done + 2, c));
  EXPECT_EQ(rest.at("first_step"), done);
}

// A limit on the size of files stands for a disk that is full.
TEST_F(TrainCommand, KeepsTheCheckpointBeforeWhereTheDiskIsFull) {
  const std::string saved = scratch_ / "saved", c = scratch_ / "c";
  ASSERT_EQ(nlsim(fmt::format("lower {} --plan halves --train --save {}", scenario_, saved)).code, 0);
  const auto steps = [&](int count) {
    return fmt::format("{}/nlbench train {} {} --steps {} --transport threads --checkpoint {} > /dev/null", NLS_BIN_DIR,
                       saved, data_, count, c);
  };
  ASSERT_EQ(run_command(steps(3)).code, 0);
  const std::string before = value_of(read_file(c + "/weights.safetensors"));
  const Outcome full = run_command(fmt::format("(ulimit -f 100; {} --resume)", steps(6)));
  EXPECT_EQ(full.code, 2);
  EXPECT_THAT(full.err, HasSubstr("too large"));
  EXPECT_EQ(value_of(read_file(c + "/weights.safetensors")), before);
  for (const std::string& folder : {c, std::filesystem::path(c).parent_path().string()})
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      EXPECT_THAT(entry.path().filename().string(), ::testing::Not(HasSubstr("nlsplit-")));
  EXPECT_EQ(run_command(steps(6) + " --resume").code, 0);
}

TEST_F(TrainCommand, SaysWhatIsWrong) {
  EXPECT_THAT(error("--steps 3 --epochs 2"), HasSubstr("--steps excludes --epochs"));
  EXPECT_THAT(error("--evaluate-every 2"), HasSubstr("--evaluate-every needs --validation"));
  EXPECT_THAT(error("--resume"), HasSubstr("--resume needs --checkpoint DIR"));
  EXPECT_THAT(error("--steps 2 --resume --checkpoint " + (scratch_ / "none")), HasSubstr("none/checkpoint.json"));
  EXPECT_THAT(error("--data input=" + (scratch_ / "x.npy")),
              AllOf(HasSubstr("no array 'labels'"), HasSubstr("there are input")));
  EXPECT_THAT(error("--data " + scenario_), HasSubstr("data are FILE.npz"));
  EXPECT_THAT(error(data_ + " --output " + (scratch_ / "nowhere/w.safetensors")), HasSubstr("nowhere"));
  EXPECT_THAT(error(data_ + " --output " + std::filesystem::path(scratch_ / "x").parent_path().string()),
              HasSubstr("Is a directory"));
  EXPECT_THAT(error(data_ + " --checkpoint /proc/nowhere/c"), HasSubstr("/proc/nowhere"));
  EXPECT_THAT(error(data_ + " --tensorboard /proc/nowhere"), HasSubstr("/proc/nowhere"));
  const Outcome ranks = mpirun(2, arguments("halves", "--tensorboard /proc/nowhere"));  // the others do not wait for it
  EXPECT_EQ(ranks.code, 2) << ranks.err;
  EXPECT_THAT(ranks.err, HasSubstr("/proc/nowhere"));
  const std::string c = "--checkpoint " + (scratch_ / "c");
  train("one", "--steps 2 " + c);
  EXPECT_THAT(error(data_ + " --steps 4 " + c), HasSubstr("is there already: --resume continues it"));
  EXPECT_THAT(error(data_ + " --steps 1 --resume " + c), HasSubstr("has 2 steps done, and 1 are asked for"));
  EXPECT_THAT(error("--steps 4 --resume " + c), HasSubstr("other data"));
  scratch_.write("s.yaml", with(learning, "adam", "sgd"));
  EXPECT_THAT(error(data_ + " --steps 4 --resume " + c),
              HasSubstr("the session has no conv1.bias.m: was it another optimizer or batch_norm?"));
  scratch_.write("s.yaml", with(learning, "optimizer: adam", "optimizer: momentum"));
  EXPECT_THAT(error(data_ + " --steps 4 --resume " + c), HasSubstr("weight.momentum, which the session keeps"));
  scratch_.write("s.yaml", learning);
  NpyArray none{{samples, 1, 8, 8}, std::vector<float>(samples * 64, std::numeric_limits<float>::quiet_NaN())};
  ASSERT_TRUE(write_npy(scratch_ / "none.npy", none).ok());
  const auto with_images = [&](const std::string& file) {
    return fmt::format("--data input={} --data labels={} --steps 9", scratch_ / file, scratch_ / "y.npy");
  };
  EXPECT_THAT(error(with_images("none.npy")), HasSubstr("has nan, which is not a number"));
  NpyArray huge{{samples, 1, 8, 8}, std::vector<float>(samples * 64, 3e38F)};
  ASSERT_TRUE(write_npy(scratch_ / "huge.npy", huge).ok());
  EXPECT_THAT(error(with_images("huge.npy")),
              AllOf(HasSubstr("the loss of step"), HasSubstr("--check-numbers says where")));
  EXPECT_THAT(error(with_images("huge.npy") + " --check-numbers"),
              AllOf(HasSubstr("the first that makes no number out of numbers: "), HasSubstr("of device m0, segment")));
  const std::string inference =
      with(learning, "mode: training, batch: 12, micro_batches: 3, optimizer: adam, learning_rate: 0.002",
           "mode: inference, batch: 12, micro_batches: 3");
  scratch_.write("s.yaml", with(inference, "1f1b", "streaming"));
  EXPECT_THAT(error(""), HasSubstr("does not train"));
}

}  // namespace
}  // namespace nlsplit

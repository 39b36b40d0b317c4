// The programs as a user meets them: rank, simulate, lower, save, run, profile, and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "testing/paths.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Programs : public ::testing::Test {
 protected:
  Scratch scratch_;
  std::string scenario_ = scratch_.write("s.yaml", small_scenario());
};

TEST_F(Programs, EveryBundledScenarioRanks) {
  for (const auto& entry : std::filesystem::directory_iterator(NLS_SOURCE_DIR "/scenarios")) {
    if (entry.path().extension() != ".yaml") continue;
    const Outcome outcome = nlsim("rank " + entry.path().string() + " --top 2");
    EXPECT_EQ(outcome.code, 0) << entry.path() << outcome.err;
    EXPECT_EQ(outcome.err, "") << entry.path();                 // no progress bar in a pipe
    for (const char* part : {"s/s", "verdict", "why", "next"})  // samples, tokens
      EXPECT_THAT(outcome.out, HasSubstr(part)) << entry.path();
  }
}

// The results and losses of a session's JSON, without the times.
json results_of(const std::string& file) {
  const json all = json::parse(value_of(read_file(file)));
  return {{"results", all.at("results")}, {"losses", all.at("losses")}};
}

TEST_F(Programs, AScenariosProgramsAreASession) {
  const std::string scenario = NLS_SOURCE_DIR "/scenarios/train_and_evaluate.yaml";
  const std::string sequence = " --sequence \"train*3 evaluate\"";
  const Outcome lowered = nlsim("lower " + scenario + " --plan thirds --session");
  ASSERT_EQ(lowered.code, 0) << lowered.err;
  const std::string text = scratch_.write("s.session", lowered.out);
  const Outcome timed = nlsim("session " + scenario + " --plan thirds --json -" + sequence);
  ASSERT_EQ(timed.code, 0) << timed.err;
  const Outcome again = nlsim("session " + text + " --on " + scenario + " --json -" + sequence);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, timed.out);
  const json times = json::parse(timed.out);
  EXPECT_EQ(times.at("tiers").size(), 2u);
  for (const json& tier : times.at("tiers")) EXPECT_EQ(tier.at("execution_end_s").size(), 4u);

  // On one device, by threads and over MPI: the same bits.
  const std::string one = scratch_.write("one.yaml", "{name: one, stages: [rest@m0]}\n");
  const Outcome alone = nlbench("session " + scenario + " --plan-file " + one + sequence +
                                " --transport threads --json " + (scratch_ / "one.json"));
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_THAT(alone.out, HasSubstr("losses of train: 2."));
  EXPECT_THAT(alone.out, HasSubstr("evaluate/"));
  const Outcome saved = nlsim("lower " + scenario + " --plan thirds --session --save " + (scratch_ / "saved"));
  ASSERT_EQ(saved.code, 0) << saved.err;
  EXPECT_THAT(saved.out, AllOf(HasSubstr("nlbench session " + (scratch_ / "saved")), HasSubstr("--transport threads")));
  const Outcome threads = nlbench("session " + (scratch_ / "saved") + sequence + " --transport threads --json " +
                                  (scratch_ / "threads.json"));
  ASSERT_EQ(threads.code, 0) << threads.err;
  const Outcome over_mpi =
      mpirun(3, "session " + scenario + " --plan thirds" + sequence + " --json " + (scratch_ / "mpi.json"));
  ASSERT_EQ(over_mpi.code, 0) << over_mpi.err;
  EXPECT_EQ(results_of(scratch_ / "mpi.json"), results_of(scratch_ / "threads.json"));
  EXPECT_EQ(results_of(scratch_ / "mpi.json").at("losses"), results_of(scratch_ / "one.json").at("losses"));
  json by_name[2];
  for (const int i : {0, 1}) {
    const json all = results_of(scratch_ / (i == 0 ? "one.json" : "mpi.json"));
    for (const json& result : all.at("results")) by_name[i][result.at("name").get<std::string>()] = result.at("values");
  }
  EXPECT_EQ(by_name[0], by_name[1]);

  // With --check the program compares them itself.
  const Outcome checked = nlbench("session " + (scratch_ / "saved") + sequence +
                                  " --transport threads --check --json " + (scratch_ / "checked.json"));
  ASSERT_EQ(checked.code, 0) << checked.out << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("\ncheck       equal to the unsplit run, bit for bit ("));
  const json check = json::parse(value_of(read_file(scratch_ / "checked.json"))).at("check");
  EXPECT_EQ(check.at("equal"), true);
  EXPECT_EQ(check.at("outputs").size(), by_name[0].size());
  const Outcome checked_over_mpi = mpirun(3, "session " + scenario + " --plan thirds --check" + sequence);
  EXPECT_EQ(checked_over_mpi.code, 0) << checked_over_mpi.err;
  EXPECT_THAT(checked_over_mpi.out, HasSubstr("equal to the unsplit run, bit for bit ("));

  const Outcome unknown = nlbench("session " + scenario + " --plan thirds --transport threads --sequence rehearse");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("has no program rehearse; there are train, evaluate"));
  const Outcome alone_on = nlsim("session " + text + sequence);
  EXPECT_EQ(alone_on.code, 2);
  EXPECT_THAT(alone_on.err, HasSubstr("--on SCENARIO says on which machines"));
}

// Replicas add gradients in another order, so weights and what they evaluate to are compared within a tolerance.
TEST_F(Programs, ASessionOfReplicasIsCheckedWithinATolerance) {
  const std::string scenario = NLS_SOURCE_DIR "/scenarios/train_and_evaluate.yaml";
  const std::string plan = scratch_.write("copies.yaml", "{name: copies, stages: [rest@m0+m1]}\n");
  const std::string command =
      "session " + scenario + " --plan-file " + plan + " --sequence \"train*2 evaluate\" --transport threads --check";
  const Outcome ran = nlbench(command);
  ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("(gradients of micro-batches are added in another order)"));
  const Outcome strict = nlbench(command + " --tolerance 0");
  EXPECT_EQ(strict.code, 1) << strict.out;
  EXPECT_THAT(strict.out, HasSubstr("equal bits were expected"));
  EXPECT_THAT(strict.err, HasSubstr("the plan's results are not those of the unsplit network"));
}

TEST_F(Programs, ACheckOfASessionSeesAnotherResult) {
  const std::string scenario = NLS_SOURCE_DIR "/scenarios/train_and_evaluate.yaml", folder = scratch_ / "saved";
  ASSERT_EQ(nlsim("lower " + scenario + " --plan halves --session --save " + folder).code, 0);
  std::string text = value_of(read_file(folder + "/session.nls"));
  for (size_t at; (at = text.find(" fingerprint")) != std::string::npos;)
    text.erase(at, 29);  // we change it on purpose
  text = with(text, " = Relu(", " = Tanh(");
  ASSERT_TRUE(write_file(folder + "/session.nls", text).ok());
  const std::string run = "session " + folder + " --transport threads --check --sequence ";
  const Outcome nothing = nlbench(run + "''");
  EXPECT_EQ(nothing.code, 2) << nothing.out;
  EXPECT_THAT(nothing.err, HasSubstr("--check: the --sequence runs nothing"));
  const Outcome outcome = nlbench(run + "train");
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("differ from the unsplit run"));
  ASSERT_TRUE(write_file(folder + "/unsplit.nls", "nlsplit session 1\nsession none\n").ok());
  const Outcome broken = nlbench(run + "train");
  EXPECT_EQ(broken.code, 2);
  EXPECT_THAT(broken.err, HasSubstr("unsplit.nls"));
}

// What has no network beside it cannot be compared with one.
TEST_F(Programs, ACheckOfASessionNeedsTheNetwork) {
  const std::string counter = NLS_SOURCE_DIR "/scenarios/counter.session";
  const Outcome text = nlbench("session " + counter + " --sequence init --transport threads --check");
  EXPECT_EQ(text.code, 2);
  EXPECT_THAT(text.err, HasSubstr("counter.session holds Programs, but not the network that they are made of"));
  const std::string training = scratch_.write(
      "t.yaml",
      with(with(small_scenario(), "mode: inference", "mode: training"), "schedules: [streaming]", "schedules: [1f1b]"));
  ASSERT_EQ(nlsim("lower " + training + " --plan mine --train --save " + (scratch_ / "t")).code, 0);
  const Outcome trains = nlbench("session " + (scratch_ / "t") + " --sequence train --transport threads --check");
  EXPECT_EQ(trains.code, 2);
  EXPECT_THAT(trains.err, HasSubstr("is for `nlbench train`, which gives it its inputs while it runs"));
  EXPECT_EQ(nlbench("session " + counter + " --sequence init --transport threads --check --tolerance 0.2").code, 2);
}

TEST_F(Programs, ProgramsOfOtherSizesShareTheirWeights) {
  const std::string scenario = NLS_SOURCE_DIR "/scenarios/batch_buckets.yaml";
  const Outcome timed = nlsim("session " + scenario + " --plan halves --sequence \"one*5 eight one*5\"");
  ASSERT_EQ(timed.code, 0) << timed.err;
  const Outcome ran =
      nlbench("session " + scenario + " --plan halves --transport threads --check --sequence \"one*5 eight one*5\"");
  ASSERT_EQ(ran.code, 0) << ran.err;
  for (const char* part : {"11 executions on 2 devices", "one/", "eight/", "equal to the unsplit run, bit for bit"})
    EXPECT_THAT(ran.out, HasSubstr(part));
}

TEST_F(Programs, TrainingIsRankedSimulatedAndPrinted) {
  const std::string text = with(with(small_scenario(), "mode: inference", "mode: training, optimizer: adam"),
                                "schedules: [streaming]", "schedules: [1f1b, zb_h1]");
  const std::string file = scratch_.write("train.yaml", text);
  const Outcome ranked = nlsim("rank " + file);
  ASSERT_EQ(ranked.code, 0) << ranked.err;
  for (const char* part : {"training simple_cnn, batch 8", "its phases", "F ", "I ", "W ", "nlbench run"})
    EXPECT_THAT(ranked.out, HasSubstr(part));
  const Outcome timed = nlsim("simulate " + file + " --plan mine --json - --trace " + (scratch_ / "t.json") +
                              " --goal " + (scratch_ / "t.goal"));
  ASSERT_EQ(timed.code, 0) << timed.err;
  const json answer = json::parse(timed.out);
  EXPECT_NEAR(answer.at("throughput_per_s").get<double>() * answer.at("makespan_s").get<double>(), 8, 1e-9);
  for (const json& device : answer.at("devices")) {
    double sum = 0;
    for (const auto& [phase, time] : device.at("phases_s").items()) sum += time.get<double>();
    EXPECT_NEAR(sum, device.at("compute_s").get<double>(), 1e-12);
    EXPECT_GT(device.at("phases_s").at("step").get<double>(), 0);
    EXPECT_EQ(device.at("phases_s").at("R"), 0);
  }
  EXPECT_THAT(value_of(read_file(scratch_ / "t.json")), HasSubstr("\"phase\":\"I\""));
  EXPECT_THAT(value_of(read_file(scratch_ / "t.goal")), ::testing::StartsWith("num_ranks 3\n"));
  const Outcome printed = nlsim("lower " + file + " --plan mine");
  ASSERT_EQ(printed.code, 0) << printed.err;
  for (const char* part :
       {" = ConvWeightGradient(", " = SoftmaxCrossEntropy(", " makes f32[16,3,3,3]", " = AdamUpdate(", "phase step"})
    EXPECT_THAT(printed.out, HasSubstr(part));
}

// A rate that changes, weight decay, clipping by the norm of all gradients: the bits of one device, step after step.
TEST_F(Programs, ATrainingStepHasSettings) {
  const std::string settings =
      "mode: training, clip: 0.5, optimizer: {adamw: {rate: {peak: 0.01, warmup: 2, cosine: {steps: 3}}, decay: 0.1, "
      "no_decay: norms_and_biases}}";
  const std::string file = scratch_.write("train.yaml", with(with(small_scenario(), "mode: inference", settings),
                                                             "schedules: [streaming]", "schedules: [1f1b, zb_h1]"));
  const Outcome ran =
      nlbench("run " + file + " --plan mine --transport threads --check --steps 5 --json " + (scratch_ / "r.json"));
  ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("equal to the unsplit run, bit for bit"));
  EXPECT_THAT(ran.out, HasSubstr("\ngradients   norm "));
  const json answer = json::parse(value_of(read_file(scratch_ / "r.json")));
  ASSERT_EQ(answer.at("gradient_norms").size(), 5u);
  for (const json& norm : answer.at("gradient_norms")) EXPECT_GT(norm.get<double>(), 0);
  const Outcome once =
      nlbench("run " + file + " --plan mine --transport threads --check --output " + (scratch_ / "w.npy"));
  ASSERT_EQ(once.code, 0) << once.out << once.err;
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "w.gradient_norm.npy"));
  const Outcome printed = nlsim("lower " + file + " --plan mine");
  for (const char* part :
       {" = SumOfSquares(", "send squares_1 to A", "recv squares_2 from C", "gradient_norm, clip_factor = ClipFactor(",
        "send clip_factor to B", "recv clip_factor from A", "recv gradient_norm from A", "decay=0.0, ", "decay=0.1, ",
        "steps = StepCount(steps)"})
    EXPECT_THAT(printed.out, HasSubstr(part));
  const Outcome ranked = nlsim("rank " + file);
  EXPECT_EQ(ranked.code, 0) << ranked.err;
  // Each replica of a stage has all of its gradients, and computes the factor itself.
  const std::string replicas = scratch_.write(
      "replicas.yaml", with(with(with(small_scenario(), "[1, 2, 4]", "[4]"), "mode: inference", settings),
                            "schedules: [streaming]", "schedules: [gpipe]") +
                           "  copies: [..relu2@A+B, rest@C]\n");
  const Outcome copies = nlbench("run " + replicas + " --plan copies --transport threads --check");
  ASSERT_EQ(copies.code, 0) << copies.out << copies.err;
  EXPECT_THAT(copies.out, HasSubstr("gradients of micro-batches are added in another order"));
}

// Pipelines have the bits of the unsplit step, replicas add in another order; both are checked, and profiled.
TEST_F(Programs, ATrainingStepRunsAndIsChecked) {
  for (const std::string optimizer : {"sgd", "momentum", "adam", "adamw"}) {
    const std::string file =
        scratch_.write("train.yaml", with(with(small_scenario(), "mode: inference",
                                               "mode: training, optimizer: " + optimizer + ", learning_rate: 0.125"),
                                          "schedules: [streaming]", "schedules: [1f1b, zb_h1]"));
    const Outcome ran = nlbench("run " + file + " --plan mine --transport threads --check --repeats 2 --json " +
                                (scratch_ / "r.json") + " --output " + (scratch_ / "w.npy"));
    ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("equal to the unsplit run, bit for bit"));
    EXPECT_THAT(ran.out, HasSubstr("\nloss        2."));  // of ten classes and random weights: about ln 10
    EXPECT_THAT(value_of(read_file(scratch_ / "r.json")), HasSubstr("\"losses\": [\n    2."));
    EXPECT_TRUE(std::filesystem::exists(scratch_ / "w.npy"));
    EXPECT_TRUE(std::filesystem::exists(scratch_ / "w.conv1.bias.npy"));
    EXPECT_EQ(std::filesystem::exists(scratch_ / "w.conv1.bias.momentum.npy"), optimizer == "momentum");
    EXPECT_EQ(std::filesystem::exists(scratch_ / "w.conv1.bias.m.npy"), optimizer.starts_with("adam"));
    std::filesystem::remove(scratch_ / "w.conv1.bias.momentum.npy");
    const Outcome printed = nlsim("lower " + file + " --plan mine");
    EXPECT_THAT(printed.out, HasSubstr("rates=[0.125], "));
  }
  // Steps that follow each other learn the batch by heart, split as well as unsplit.
  const Outcome steps =
      nlbench("run " + (scratch_ / "train.yaml") + " --plan mine --transport threads --check --steps 5");
  ASSERT_EQ(steps.code, 0) << steps.out << steps.err;
  EXPECT_THAT(steps.out, HasSubstr(" in step 5"));
  EXPECT_THAT(steps.out, HasSubstr("\nsteps       5 in "));
  EXPECT_THAT(steps.out, HasSubstr("equal to the unsplit run, bit for bit"));
  const std::string replicas =
      scratch_.write("replicas.yaml", with(with(with(with(small_scenario(), "[1, 2, 4]", "[4]"), "mode: inference",
                                                     "mode: training, optimizer: momentum"),
                                                "schedules: [streaming]", "schedules: [1f1b]"),
                                           "mine: [..relu1@A, ..relu2@B, rest@C]", "mine: [rest@A+B]"));
  const Outcome ran = nlbench("run " + replicas + " --plan mine --transport threads --check");
  ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("gradients of micro-batches are added in another order"));
  // What was measured predicts a step.
  const Outcome profiled = nlbench("profile " + replicas + " --budget 2s -o " + (scratch_ / "p.json"));
  ASSERT_EQ(profiled.code, 0) << profiled.err;
  const std::string measured = value_of(read_file(scratch_ / "p.json"));
  for (const char* part : {"MomentumUpdate", "ConvWeightGradient", "SoftmaxCrossEntropyGradient",
                           "reduce Sum(f32[1024], f32[1024], f32[1024]) -> f32[1024]", "\"simple_cnn\""})
    EXPECT_THAT(measured, HasSubstr(part));
}

// Half the bytes on every link, and a split run equal to the unsplit one.
TEST_F(Programs, AModelInHalvesIsSimulatedAndRun) {
  const std::string half = scratch_.write(
      "half.yaml", with(small_scenario(), "model: zoo:simple_cnn", "model: {zoo: simple_cnn, precision: float16}"));
  const Outcome plain = nlsim("simulate " + scenario_ + " --plan mine --json -");
  const Outcome timed = nlsim("simulate " + half + " --plan mine --json -");
  ASSERT_EQ(timed.code, 0) << timed.err;
  const json before = json::parse(plain.out).at("links"), after = json::parse(timed.out).at("links");
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i)
    EXPECT_EQ(2 * after[i].at("bytes").get<int64_t>(), before[i].at("bytes").get<int64_t>()) << after[i];
  const Outcome ran = nlbench("run " + half + " --plan mine --check --transport threads --repeats 1");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("bit for bit"));
  EXPECT_EQ(nlbench("run zoo:simple_cnn --precision bfloat16 --transport threads --repeats 1").code, 0);
}

TEST_F(Programs, RankingIsTheSameEveryTime) {
  const std::string first = nlsim("rank " + scenario_ + " --csv -").out;
  EXPECT_THAT(first, HasSubstr("rank,name,plan,micro_batches"));
  EXPECT_EQ(nlsim("rank " + scenario_ + " --csv -").out, first);
}

TEST_F(Programs, RankingAsJson) {
  const Outcome outcome = nlsim("rank " + scenario_ + " --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json answer = json::parse(outcome.out);
  EXPECT_EQ(answer.at("format"), "nlsplit-ranking");
  EXPECT_EQ(answer.at("model"), "simple_cnn");
  double last = 1e300;
  bool own = false;
  for (const json& plan : answer.at("plans")) {
    EXPECT_LE(plan.at("throughput_per_s").get<double>(), last * (1 + 1e-12));
    last = plan.at("throughput_per_s");
    EXPECT_NEAR(plan.at("throughput_per_s").get<double>() * plan.at("makespan_s").get<double>(), 8, 1e-6);
    EXPECT_LE(plan.at("busiest_device_share").get<double>(), 1 + 1e-9);
    EXPECT_LE(plan.at("busiest_link_share").get<double>(), 1 + 1e-9);
    own = own || plan.at("name") == "mine";
  }
  EXPECT_TRUE(own);
  for (const char* respect : {"throughput", "latency", "memory"}) {
    for (const char* kind : {"split", "single", "copies"})
      EXPECT_TRUE(answer.at("verdict").at(respect).at(kind).is_number());
  }
}

TEST_F(Programs, RobustRankingNeedsNoiseAndKeepsNumbers) {
  const Outcome refused = nlsim("rank " + scenario_ + " --robust");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("an order by what 95 of 100 runs reach needs noise, and this scenario has none"));
  const std::string noisy = scratch_.write(
      "noisy.yaml", small_scenario() + "noise: {runs: 3, stragglers: [{device: B, slowdown: 9, probability: 90%}]}\n");
  const Outcome ranked = nlsim("rank " + noisy + " --robust --json -");
  ASSERT_EQ(ranked.code, 0) << ranked.err;
  const json first = json::parse(ranked.out).at("plans").at(0);
  EXPECT_NE(first.at("rank"), 1);
  // Numbers and runs mean the same to `simulate`.
  const auto simulated = [&](const std::string& more) {
    const Outcome outcome =
        nlsim(fmt::format("simulate {} --plan {} --json - {}", noisy, first.at("rank").get<int>(), more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out).at("makespan_s").get<double>();
  };
  EXPECT_DOUBLE_EQ(simulated(""), first.at("makespan_s").get<double>());
  const json& makespan = first.at("with_noise").at("makespan_s");
  EXPECT_DOUBLE_EQ(simulated(fmt::format("--noise-run {}", makespan.at("p95_run").get<int>())), makespan.at("p95"));
  EXPECT_EQ(nlsim("simulate " + noisy + " --noise-run 4").code, 2);
  EXPECT_EQ(nlsim("simulate " + scenario_ + " --noise-run 1").code, 2);
}

TEST_F(Programs, SavedPlansComeBack) {
  ASSERT_EQ(nlsim("rank " + scenario_ + " --save-plans " + (scratch_ / "plans")).code, 0);
  const json by_number = json::parse(nlsim("simulate " + scenario_ + " --plan 2 --json -").out);
  const json by_file =
      json::parse(nlsim("simulate " + scenario_ + " --json - --plan-file " + (scratch_ / "plans/02.yaml")).out);
  EXPECT_EQ(by_number.at("plan"), by_file.at("plan"));
  EXPECT_EQ(by_number.at("makespan_s"), by_file.at("makespan_s"));
}

TEST_F(Programs, TraceIsOfTheProgram) {
  const std::string file = scratch_ / "trace.json";
  const Outcome outcome = nlsim("simulate " + scenario_ + " --plan mine --trace " + file);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json trace = json::parse(value_of(read_file(file)));
  const std::string program = nlsim("lower " + scenario_ + " --plan mine").out;
  EXPECT_THAT(program, HasSubstr("fingerprint " + trace.at("otherData").at("fingerprint").get<std::string>()));
  double last = 0;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") last = std::max(last, event.at("ts").get<double>() + event.at("dur").get<double>());
  }
  EXPECT_NEAR(last, trace.at("otherData").at("makespan_s").get<double>() * 1e6, 1e-3);
}

TEST_F(Programs, ASavedPlanRunsAlone) {
  const std::string folder = scratch_ / "saved";
  ASSERT_EQ(nlsim("lower " + scenario_ + " --plan mine --save " + folder).code, 0);
  const Outcome threads =
      nlbench(fmt::format("run {} --transport threads --check --repeats 2 --json {} --trace {} --output {}", folder,
                          scratch_ / "run.json", scratch_ / "run.trace", scratch_ / "threads.npy"));
  ASSERT_EQ(threads.code, 0) << threads.err;
  EXPECT_THAT(threads.out, HasSubstr("equal to the unsplit run, bit for bit"));
  EXPECT_THAT(threads.out, HasSubstr("predicted"));
  EXPECT_TRUE(json::accept(value_of(read_file(scratch_ / "run.json"))));
  EXPECT_TRUE(json::accept(value_of(read_file(scratch_ / "run.trace"))));
  const Outcome mpi = mpirun(3, fmt::format("run {} --check --repeats 2 --output {}", folder, scratch_ / "mpi.npy"));
  ASSERT_EQ(mpi.code, 0) << mpi.err;
  EXPECT_THAT(mpi.out, HasSubstr("bit for bit"));
  EXPECT_EQ(value_of(read_file(scratch_ / "threads.npy")), value_of(read_file(scratch_ / "mpi.npy")));
}

// --check is worth something only if it can fail.
TEST_F(Programs, CheckSeesAnotherResult) {
  const std::string folder = scratch_ / "saved";
  ASSERT_EQ(nlsim("lower " + scenario_ + " --plan mine --save " + folder).code, 0);
  std::string text = value_of(read_file(folder + "/program.nls"));
  text.erase(text.find(" fingerprint"), 29);  // we change it on purpose
  text = with(text, " + Relu kernel", " + Tanh kernel");
  ASSERT_TRUE(write_file(folder + "/program.nls", text).ok());
  std::filesystem::remove(folder + "/predicted.json");
  const Outcome outcome = nlbench("run " + folder + " --transport threads --check --repeats 1");
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out + outcome.err, HasSubstr("differ from the unsplit run"));
}

TEST_F(Programs, ProfileThenRankOnMeasurements) {
  const std::string profile = scratch_ / "p.json";
  std::string text = small_scenario();
  for (int i = 0; i < 3; ++i)
    text = with(text, "costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}", "costs: p.json");
  const std::string scenario = scratch_.write("measured.yaml", text);
  const Outcome measured = nlbench(fmt::format("profile {} -o {} --budget 2s", scenario, profile));
  ASSERT_EQ(measured.code, 0) << measured.err;
  const Outcome ranked = nlsim("rank " + scenario);
  EXPECT_EQ(ranked.code, 0) << ranked.err;
  EXPECT_THAT(ranked.out, HasSubstr("measured, 0 by formula"));
}

// Between unlike levels values travel row-major, and what that costs is measured too.
TEST_F(Programs, ProfileOfUnlikeLevelsHoldsWhatTheirMessagesCost) {
  std::string text = small_scenario();
  for (int i = 0; i < 3; ++i)
    text = with(text, "costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}", "costs: p.json");
  text = with(text, "isa: v2", "isa: v3, cores: 2");
  const std::string scenario = scratch_.write("measured.yaml", text), profile = scratch_ / "p.json";
  const Outcome measured = nlbench(fmt::format("profile {} -o {} --budget 1s", scenario, profile));
  ASSERT_EQ(measured.code, 0) << measured.err;
  const std::string written = value_of(read_file(profile));
  EXPECT_THAT(written, HasSubstr("reorder_v2 Identity"));
  EXPECT_THAT(written, HasSubstr(" on 2 cores"));
  EXPECT_THAT(written, HasSubstr("\"kernel\": \"conv_"));  // a choice between two of them
  const Outcome ranked = nlsim("rank " + scenario);
  EXPECT_EQ(ranked.code, 0) << ranked.err;
  EXPECT_THAT(ranked.out, HasSubstr("measured, 0 by formula"));
}

TEST_F(Programs, ABareModelRuns) {
  const Outcome outcome =
      nlbench("run zoo:simple_cnn --transport threads --repeats 1 --output " + (scratch_ / "y.npy"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "y.npy"));
}

TEST_F(Programs, ABareModelsLevelIsChosen) {
  EXPECT_THAT(nlsim("lower zoo:simple_cnn --isa v2").out, HasSubstr("device cpu0 cpu host localhost isa v2"));
  EXPECT_THAT(nlsim("lower zoo:simple_cnn --isa armv8-a").out, HasSubstr("isa neon"));
  EXPECT_EQ(nlbench("run zoo:simple_cnn --isa v2 --transport threads --repeats 1").code, 0);
  const Outcome scenario = nlbench("run " + scenario_ + " --isa v2 --transport threads");
  EXPECT_EQ(scenario.code, 2);
  EXPECT_THAT(scenario.err, HasSubstr("--isa is for a model alone"));
}

TEST_F(Programs, ShowIsTextThatParses) {
  const Outcome plain = nlsim("show zoo:simple_cnn"), fused = nlsim("show zoo:simple_cnn --fused");
  EXPECT_THAT(plain.out, HasSubstr("= Relu(%conv1)"));
  EXPECT_THAT(fused.out, HasSubstr(R"(as "conv1" + Relu as "relu1")"));
}

TEST_F(Programs, ShowRunsThePassesItIsAskedFor) {
  const auto show = [](const std::string& arguments) { return nlsim("show zoo:simple_cnn " + arguments); };
  EXPECT_EQ(show("--passes none").out, show("").out);
  EXPECT_EQ(show("--passes all").out, show("--fused").out);
  EXPECT_NE(show("").out, show("--fused").out);
  EXPECT_EQ(show("--passes all,-fuse_elementwise").out, show("").out) << "there is nothing else to do";
  EXPECT_EQ(show("--passes remove_dead,fuse_elementwise").out, show("--fused").out);
  const Outcome unknown = show("--passes fuse_elementwis");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("no pass is called \"fuse_elementwis\", did you mean fuse_elementwise?"));
  EXPECT_THAT(unknown.err, HasSubstr("there are remove_dropout, remove_identity, "));
  EXPECT_EQ(show("--passes fuse_elementwise,-remove_dead").code, 2);
  EXPECT_EQ(show("--passes all --fused").code, 2);
  const Outcome help = show("--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("--passes LIST"));
  EXPECT_THAT(help.out, HasSubstr("Drops nodes from which no output can be reached."));
}

// The exported file is the same network as the model it came from: it computes the same bits.
TEST_F(Programs, AnExportedModelRunsTheSame) {
  const std::string file = scratch_ / "simple_cnn.onnx", again = scratch_ / "again/simple_cnn.onnx";
  const Outcome outcome = nlsim("export zoo:simple_cnn --batch 4 -o " + file);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "wrote simple_cnn to " + file + "\n");
  EXPECT_THAT(nlsim("show " + file).out, HasSubstr("input %input f32[4,3,8,8]"));
  for (const auto& [what, npy] : {std::pair{std::string("zoo:simple_cnn"), "a.npy"}, std::pair{file, "b.npy"}}) {
    ASSERT_EQ(
        nlbench(fmt::format("run {} --batch 4 --transport threads --repeats 1 --output {}", what, scratch_ / npy)).code,
        0);
  }
  EXPECT_EQ(value_of(read_file(scratch_ / "a.npy")), value_of(read_file(scratch_ / "b.npy")));
  // A file exports to itself, at its own batch and back at another's.
  std::filesystem::create_directory(scratch_ / "again");
  ASSERT_EQ(nlsim("export " + file + " -o " + again).code, 0);
  EXPECT_EQ(value_of(read_file(again)), value_of(read_file(file)));
  ASSERT_EQ(nlsim("export " + file + " --batch 1 -o " + again).code, 0);
  EXPECT_EQ(nlsim("show " + again + " --batch 4").out, nlsim("show " + file).out);
}

}  // namespace
}  // namespace nlsplit

// `nlbench profile` and `nlsim profile show` as a user meets them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "testing/paths.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Profiles : public ::testing::Test {
 protected:
  Outcome measure(const std::string& more = "--budget 200ms") const {
    return nlbench(fmt::format("profile {} -o {} {}", scenario_, file_, more));
  }
  json read() const { return json::parse(value_of(read_file(file_))); }
  void write(const json& profile) const { scratch_.write("p.json", profile.dump()); }

  static std::string measured_scenario(const std::string& costs) {
    std::string text = small_scenario();
    for (int i = 0; i < 3; ++i)
      text = with(text, "costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}", "costs: " + costs);
    return text;
  }

  Scratch scratch_;
  std::string scenario_ = scratch_.write("s.yaml", measured_scenario("p.json"));
  std::string file_ = scratch_ / "p.json";
};

TEST_F(Profiles, GoOnWhereTheyStopped) {
  const Outcome first = measure();
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("kernels of simple_cnn on "));
  const json whole = read();
  EXPECT_EQ(whole["version"], 2);
  EXPECT_GT(whole["dispatch"]["median_s"].get<double>(), 0);
  EXPECT_GT(whole["kernels"][0]["mean_s"].get<double>(), 0);
  EXPECT_THAT(first.out, HasSubstr("times as long as these medians"));
  // Half of them are lost, and what is left was measured so well that nothing could be better.
  json half = whole;
  half["kernels"] = json::array();
  for (size_t i = 0; i < whole["kernels"].size() / 2; ++i) {
    half["kernels"].push_back(whole["kernels"][i]);
    half["kernels"].back()["median_s"] = 0.5;
    half["kernels"].back()["spread_s"] = 0;
  }
  write(half);
  const Outcome second = measure();
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr(fmt::format(", {} of them from before", half["kernels"].size())));
  const json again = read();
  ASSERT_EQ(again["kernels"].size(), whole["kernels"].size());
  for (size_t i = 0; i < whole["kernels"].size(); ++i) {
    EXPECT_EQ(again["kernels"][i]["signature"], whole["kernels"][i]["signature"]);
    EXPECT_EQ(again["kernels"][i]["median_s"] == 0.5, i < half["kernels"].size());
  }
  ASSERT_EQ(measure("--fresh --budget 200ms").code, 0);
  const json fresh = read();
  for (const json& kernel : fresh["kernels"]) EXPECT_LT(kernel["median_s"].get<double>(), 0.5);
}

// Stopped after the first of many sizes.
TEST_F(Profiles, CtrlCKeepsWhatWasMeasured) {
  const std::string scenario =
      scratch_.write("m.yaml", with(with(measured_scenario("p.json"), "zoo:simple_cnn", "zoo:mobilenet_v2"),
                                    "  mine: [..relu1@A, ..relu2@B, rest@C]\n", "  mine: [rest@A]\n"));
  const std::string command = fmt::format("{}/nlbench profile {} -o {} --budget 20s", NLS_BIN_DIR, scenario, file_);
  const Outcome stopped = run_command(
      fmt::format("sh -c '{} & p=$!; while [ ! -e {} ] && kill -0 $p; do sleep 0.01; done; kill -INT $p; wait $p'",
                  command, file_));
  EXPECT_EQ(stopped.code, 130) << stopped.err;
  EXPECT_THAT(stopped.out, HasSubstr("the same command resumes where this one stopped"));
  const size_t kept = read()["kernels"].size();
  EXPECT_GT(kept, 0u);
  const Outcome rest = nlbench(fmt::format("profile {} -o {} --budget 1ms", scenario, file_));
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_THAT(rest.out, HasSubstr(fmt::format(", {} of them from before", kept)));
  EXPECT_GT(read()["kernels"].size(), kept);
  EXPECT_THAT(rest.out, ::testing::Not(HasSubstr("are missing")));
}

TEST_F(Profiles, OfSomethingElseAreLeftAlone) {
  ASSERT_EQ(measure().code, 0);
  const json good = read();
  const auto refused = [&](const json& known, const std::string& options, const std::string& why) {
    write(known);
    const std::string before = value_of(read_file(file_));
    const Outcome outcome = measure(options);
    EXPECT_EQ(outcome.code, 2) << why;
    EXPECT_THAT(outcome.err, HasSubstr(why));
    EXPECT_THAT(outcome.err, HasSubstr("--fresh"));
    EXPECT_EQ(value_of(read_file(file_)), before);
  };
  json other = good;
  other["machine"] = "an abacus";
  refused(other, "", "holds measurements of an abacus, and this machine is " + good["machine"].get<std::string>());
  other = good;
  other["beside"] = 2;
  refused(other, "--beside 1", "was measured with --beside 2, not 1");
  other = good;
  other["version"] = 1;
  refused(other, "", "this profile has version 1; this program reads version 2");
  scratch_.write("p.json", good.dump().substr(0, 500));
  const Outcome outcome = measure();
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("the file ends in the middle: it was cut short"));
  EXPECT_EQ(measure("--fresh --budget 1ms").code, 0);
}

// What was measured alone is kept when company is measured too.
TEST_F(Profiles, CompanyIsAdded) {
  ASSERT_EQ(measure().code, 0);
  json known = read();
  for (json& kernel : known["kernels"]) {
    EXPECT_FALSE(kernel.contains("beside_s"));
    kernel["median_s"] = 0.5;
    kernel["spread_s"] = 0;
  }
  write(known);
  const Outcome both = measure("--beside 1 --budget 200ms");
  ASSERT_EQ(both.code, 0) << both.err;
  const json again = read();
  EXPECT_EQ(again["beside"], 1);
  for (const json& kernel : again["kernels"]) {
    EXPECT_EQ(kernel["median_s"], 0.5);
    EXPECT_GT(kernel["beside_s"].get<double>(), 0);
    EXPECT_LT(kernel["beside_s"].get<double>(), 0.5);
  }
}

// Minutes in which a shared processor is fast and such in which it is not are averaged.
TEST_F(Profiles, MoreIsPooledWithWhatIsThere) {
  ASSERT_EQ(measure("--beside 1 --budget 200ms").code, 0);
  json known = read();
  for (json& kernel : known["kernels"]) {
    kernel["median_s"] = 0.5;
    kernel["mean_s"] = 0.75;
    kernel["beside_s"] = 1;
    kernel["spread_s"] = 0;
    kernel["repeats"] = 10;
  }
  write(known);
  const Outcome more = measure("--beside 1 --more --budget 200ms");
  ASSERT_EQ(more.code, 0) << more.err;
  const json both = read();
  ASSERT_EQ(both["kernels"].size(), known["kernels"].size());
  for (const json& kernel : both["kernels"]) {
    const int added = kernel["repeats"].get<int>() - 10;
    ASSERT_GE(added, 5);
    const double weight = 10.0 / (10 + added);
    EXPECT_NEAR(kernel["median_s"].get<double>(), weight * 0.5, 0.02) << "kernels of simple_cnn take microseconds";
    EXPECT_NEAR(kernel["mean_s"].get<double>(), weight * 0.75, 0.02);
    EXPECT_GT(kernel["beside_s"].get<double>(), 1e-4);
    EXPECT_LT(kernel["beside_s"].get<double>(), 1);
  }
  EXPECT_EQ(both.value("choices", json()), known.value("choices", json()));
  EXPECT_EQ(measure("--more --fresh").code, 2);
}

// One file serves several models.
TEST_F(Profiles, ModelsAddUp) {
  ASSERT_EQ(measure("--budget 1ms").code, 0);
  json profile = read();
  const size_t kernels = profile["kernels"].size();
  profile["models"] = {"another"};
  profile["kernels"].push_back({{"signature", "k"}, {"median_s", 1}, {"spread_s", 0}, {"repeats", 9}});
  write(profile);
  ASSERT_EQ(measure("--budget 1ms").code, 0);
  EXPECT_EQ(read()["models"], (json{"another", "simple_cnn"}));
  EXPECT_EQ(read()["kernels"].size(), kernels + 1);
}

TEST_F(Profiles, ShowSaysWhatIsInThem) {
  ASSERT_EQ(measure().code, 0);
  const Outcome shown = nlsim("profile show --kernels " + file_);
  ASSERT_EQ(shown.code, 0) << shown.err;
  for (const std::string part : {"machine ", "models    simple_cnn", "ago, alone", "slowness  x", "dispatch ",
                                 "GFLOP/s", "shapes only", "Conv(f32["})
    EXPECT_THAT(shown.out, HasSubstr(part));
  const Outcome figures = nlsim("profile show --kernels --json - " + file_);
  ASSERT_EQ(figures.code, 0) << figures.err;
  const json answer = json::parse(figures.out), profile = read();
  EXPECT_EQ(answer["kernels"].size(), profile["kernels"].size());
  double share = 0;
  size_t kernels = 0;
  for (const json& kind : answer["kinds"]) {
    share += kind["share"].get<double>();
    kernels += kind["kernels"].get<size_t>();
    EXPECT_GT(kind["bytes_per_s"].get<double>(), 0);
  }
  EXPECT_NEAR(share, 1, 1e-9);
  EXPECT_EQ(kernels, profile["kernels"].size());
  const std::string copy = scratch_.write("copy.json", profile.dump());
  EXPECT_THAT(nlsim("profile show " + file_ + " " + copy).out, HasSubstr("the first one counts"));
  const Outcome against = nlsim("profile show " + file_ + " --against " + copy);
  EXPECT_EQ(against.code, 0) << against.err;
  EXPECT_THAT(against.out, HasSubstr("that are not here, predicted"));
}

// Of a GPU also what copies take; on a backend that stands for one.
TEST_F(Profiles, OfAGpuHaveItsCopies) {
  std::string text = small_scenario();
  for (int i = 0; i < 3; ++i)
    text = with(text, "kind: cpu, memory: 64MiB, isa: v2, costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}",
                "kind: cuda, memory: 64MiB, costs: p.json");
  scratch_.write("s.yaml", text);
  const std::string fake = fmt::format(" --gpu-backend {}/../lib/libfake_gpu.so", NLS_BIN_DIR);
  const Outcome refused = measure("--budget 1ms --gpu-backend /nowhere.so");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("no GPU: there is no /nowhere.so"));
  const Outcome first = measure("--budget 1ms" + fake);
  ASSERT_EQ(first.code, 0) << first.err;
  json profile = read();
  EXPECT_THAT(profile["copies"]["gpu"].get<std::string>(), HasSubstr("in place of a GPU"));
  for (const char* memory : {"pinned", "pageable"}) {
    for (const char* direction : {"in", "out"})
      EXPECT_GT(profile["copies"][memory][direction]["bytes_per_s"].get<double>(), 1e6);
    EXPECT_GT(profile["copies"][memory]["both_bytes_per_s"].get<double>(), 1e6);
  }
  // What is there is not measured again.
  profile["copies"]["pinned"]["in"]["bytes_per_s"] = 25e9;
  profile["copies"]["pinned"]["in"]["latency_s"] = 8e-6;
  write(profile);
  ASSERT_EQ(measure("--budget 1ms" + fake).code, 0);
  EXPECT_EQ(read()["copies"], profile["copies"]);
  const Outcome shown = nlsim("profile show " + file_);
  EXPECT_THAT(shown.out, HasSubstr("copies    a CPU of level"));
  EXPECT_THAT(shown.out, HasSubstr("pinned    to it 8 us + 25 GB/s (±"));
  EXPECT_EQ(json::parse(nlsim("profile show --json - " + file_).out)["copies"], profile["copies"]);
  // And plans go over that bus: the source is on the host, the GPU is behind it.
  const Outcome lowered = nlsim("lower --plan mine " + scenario_);
  ASSERT_EQ(lowered.code, 0) << lowered.err;
  EXPECT_THAT(lowered.out, HasSubstr("device A cuda host a.A "));
  EXPECT_THAT(lowered.out, HasSubstr("device a host host a "));
  const Outcome hosts = nlsim("hostfile --plan mine " + scenario_);
  EXPECT_EQ(hosts.out, "a\nb\nc\na\nc\n") << "machines, which mpirun knows";
  EXPECT_EQ(nlbench("run --hosts --places --plan mine " + scenario_).out, "a.A\nb.B\nc.C\na\nc\n");
}

TEST_F(Profiles, ShowRefusesWhatIsNone) {
  EXPECT_EQ(nlsim("profile").code, 2);
  EXPECT_EQ(nlsim("profile show").code, 2);
  const Outcome missing = nlsim("profile show nowhere.json");
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("nowhere.json"));
  const Outcome none = nlsim("profile show " + scenario_);
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("this is not JSON"));
}

// Equal shards of the whole network, on every axis that the search may split: plans with such shards are ranked.
TEST_F(Profiles, HoldTheSplitsThatAreSearched) {
  const std::string text = with(measured_scenario("p.json"), "splits: [layer, replicate]", "splits: [layer, channels]");
  scratch_.write("s.yaml", text);
  const Outcome measured = measure();
  ASSERT_EQ(measured.code, 0) << measured.err;
  const Outcome ranked = nlsim("rank " + scenario_);
  EXPECT_EQ(ranked.code, 0) << ranked.err;
  EXPECT_THAT(ranked.out, HasSubstr(" of them split inside layers"));
}

// A kernel that was not measured is an error, or a prediction where the scenario allows it.
TEST_F(Profiles, AreFilledByPredictions) {
  ASSERT_EQ(measure().code, 0);
  json profile = read(), without = profile;
  without["kernels"] = json::array();
  // Convolutions of two samples are taken out; those of other sizes are left, and more are made up, to be enough.
  for (const json& kernel : profile["kernels"]) {
    const std::string key = kernel["signature"];
    if (!key.starts_with("conv_") || key.find("(f32[2,") == std::string::npos) without["kernels"].push_back(kernel);
    for (const int batch : {16, 32, 64, 128, 256, 512, 1024, 2048}) {
      if (!key.starts_with("conv_") || key.find("(f32[8,") == std::string::npos) continue;
      json larger = kernel;
      std::string other = key;
      for (size_t at; (at = other.find("f32[8,")) != std::string::npos;)
        other.replace(at, 6, fmt::format("f32[{},", batch));
      larger["signature"] = other;
      larger["median_s"] = kernel["median_s"].get<double>() * batch / 8;
      without["kernels"].push_back(larger);
    }
  }
  write(without);
  const Outcome strict = nlsim("rank " + scenario_);
  EXPECT_EQ(strict.code, 2);
  EXPECT_THAT(strict.err, HasSubstr("predict: true"));
  const std::string allowing = scratch_.write("t.yaml", measured_scenario("{profile: p.json, predict: true}"));
  const Outcome ranked = nlsim("rank " + allowing);
  EXPECT_EQ(ranked.code, 0) << ranked.err;
  EXPECT_THAT(ranked.out, HasSubstr(" predicted (±"));
  EXPECT_THAT(ranked.out, HasSubstr(" %"));
}

// Of devices of different levels, which take each other's messages row-major, and with messages in bfloat16: all
// conversions are there, those of replicas' gradients at sizes that others are predicted from.
TEST_F(Profiles, HoldWhatMessagesOfTrainingNeed) {
  const std::string scenario =
      scratch_.write("t.yaml",
                     "model: zoo:simple_cnn\n"
                     "workload: {mode: training, batch: 8, micro_batches: [2], optimizer: momentum}\n"
                     "network: {messages: bf16}\n"
                     "devices:\n"
                     "  A: {host: a, memory: 1GiB, isa: v2, costs: {profile: p.json, predict: true}}\n"
                     "  B: {host: b, memory: 1GiB, isa: v3, costs: {profile: p.json, predict: true}}\n"
                     "links: [{between: [a, b], bandwidth: 1Gbps, latency: 100us}]\n"
                     "source: a\nsink: a\n"
                     "plans: {halves: [..relu1@A, rest@B], replicas: [rest@A+B]}\n");
  const Outcome made = nlbench(fmt::format("profile {} -o {} --budget 1s", scenario, file_));
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string kernels = value_of(read_file(file_));
  EXPECT_THAT(kernels, HasSubstr(R"(cast_v2 Cast(f32[1024]) {to=\"bf16\"})"));
  EXPECT_THAT(kernels, HasSubstr(R"(cast_v3 Cast(bf16[1024]) {to=\"f32\"})"));
  for (const std::string plan : {"halves", "replicas"}) {
    const Outcome simulated = nlsim(fmt::format("simulate {} --plan {}", scenario, plan));
    EXPECT_EQ(simulated.code, 0) << simulated.err;
  }
}

// What attention over a cache takes depends on what is in it, so it is measured with several lengths; the rest of the
// network is not.
TEST_F(Profiles, MeasureCachesAtSeveralLengths) {
  const std::string scenario =
      scratch_.write("g.yaml",
                     "model: zoo:llama?layers=2&hidden=32&heads=4&kv_heads=2&ffn=64&vocab=200\n"
                     "workload: {mode: generation, prompt: 16, tokens: 241, chunk: 8}\n"
                     "devices: {a: {host: h, memory: 64MiB, costs: p.json}}\n"
                     "source: h\nsink: h\n");
  const Outcome made = nlbench(fmt::format("profile {} -o {} --budget 500ms", scenario, file_));
  ASSERT_EQ(made.code, 0) << made.err;
  std::map<std::string, std::vector<std::pair<int64_t, double>>> times;  // by computation: bytes moved; -1: all
  const json profile = read();
  for (const json& kernel : profile["kernels"]) {
    const std::string key = kernel["signature"];
    const size_t at = key.find(" moving ");
    times[key.substr(0, at)].emplace_back(at == key.npos ? -1 : std::stoll(key.substr(at + 8)), kernel["median_s"]);
  }
  size_t attend = 0;
  for (auto& [computation, of] : times) {
    if (computation.find("CachedAttention") == computation.npos) {
      EXPECT_EQ(of.size(), 1u) << computation;
      continue;
    }
    ++attend;
    std::ranges::sort(of);
    ASSERT_EQ(of.size(), 4u) << computation;
    EXPECT_EQ(of[0].first, -1) << computation;
    EXPECT_LT(of[1].second, of[0].second) << "nothing is seen: " << computation;
  }
  EXPECT_EQ(attend, 2u) << "of prompts and of tokens";
  // Predictions take what is there by then.
  const auto tpot = [&](const std::string& prompt) {
    const std::string text = value_of(read_file(scenario));
    const std::string other = scratch_.write(
        "h.yaml", with(with(text, "prompt: 16, tokens: 241", prompt), "chunk: 8", "chunk: 8, context: 256"));
    const Outcome ranked = nlsim(fmt::format("rank {} --json -", other));
    EXPECT_EQ(ranked.code, 0) << ranked.err;
    return ranked.code == 0
               ? json::parse(ranked.out).at("plans").at(0).at("generation").at("next_token_s").get<double>()
               : 0.0;
  };
  EXPECT_LT(tpot("prompt: 8, tokens: 2"), tpot("prompt: 248, tokens: 2"));
}

}  // namespace
}  // namespace nlsplit

// Every way an experiment can be wrong: the place and the reason. And what a right one becomes.
#include "sweep/experiment.h"

#include <gmock/gmock.h>

#include "sweep/experiments.h"

namespace nlsplit {
namespace {

using namespace testing;  // NOLINT
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view good = R"(pipeline:
  devices: 4
  micro_batches: 8
  times: [1s, 1s, 1s]
axes:
  schedule: [1f1b, zb_v]
  message: [0s, 1ms]
)";

struct Bad {
  const char* from;
  const char* to;
  const char* expected;  // the error's first line
};

const Bad pipelines[] = {
    // clang-format off
    {"pipeline:", "pipelines:", "e.yaml:1:1: unknown key 'pipelines' in the experiment: did you mean 'pipeline'? Its keys are scenario, pipeline, tier, axes"},
    {"pipeline:\n", "scenario: s.yaml\npipeline:\n", "e.yaml:1:1: an experiment needs either 'scenario' or 'pipeline'"},
    {"axes:\n  schedule: [1f1b, zb_v]\n  message: [0s, 1ms]\n", "", "e.yaml:1:1: the experiment lacks 'axes'"},
    {"axes:", "tier: fast\naxes:", "e.yaml:5:7: 'tier' is for scenarios: a pipeline is played without links that contend"},
    {"axes:", "tier: quick\naxes:", "e.yaml:5:7: unknown tier 'quick'; it is 'fast' or 'simgrid'"},
    {"  message:", "  messages:", "e.yaml:7:3: unknown key 'messages' in axes: did you mean 'message'?"},
    {"  message:", "  link_speed:", "e.yaml:7:3: unknown key 'link_speed' in axes; its keys are schedule, micro_batches,"},
    {"[1f1b, zb_v]", "[]", "e.yaml:6:13: axis schedule is empty: it needs at least one value"},
    {"[1f1b, zb_v]", "[1f1b, 1f1b]", "e.yaml:6:20: 1f1b is given twice"},
    {"zb_v]", "zb_w]", "e.yaml:6:20: unknown schedule 'zb_w'; did you mean 'zb_v'?"},
    {"zb_v]", "online: longest]", "e.yaml:6:28: unknown online policy 'longest' (there are longest_path, backward_first)"},
    {"zb_v]", "{file: none.csv}]", "e.yaml:6:27: "},
    {"zb_v]", "{files: x}]", "e.yaml:6:21: unknown key 'files' in a schedule: did you mean 'file'?"},
    {"1ms]", "fast]", "e.yaml:7:17: "},
    {"1ms]", "1]", "e.yaml:7:17: "},
    {"  schedule: [1f1b, zb_v]\n", "", "e.yaml:6:3: axes lack 'schedule'"},
    {"  micro_batches: 8\n", "", "e.yaml:5:3: neither the pipeline nor the axes say 'micro_batches'"},
    {"  devices: 4\n", "", "e.yaml:5:3: neither the pipeline nor the axes say 'devices'"},
    {"devices: 4", "devices: none", "e.yaml:2:12: 'none' is not a whole number; a number of devices is expected"},
    {"devices: 4", "devices: 0", "e.yaml:2:12: a number of devices must be from 1 to 1024, not 0"},
    {"[1s, 1s, 1s]", "[1s, 1s]", "e.yaml:4:10: times are F, or F, I and W, e.g. [10ms, 12ms, 8ms]; these are 2"},
    {"[1s, 1s, 1s]", "[0s, 1s, 1s]", "e.yaml:4:11: a stage that takes no time makes no schedule"},
    {"  message: [0s, 1ms]", "  seeds: 3", "e.yaml:6:3: seeds change nothing: there is no jitter; add e.g. jitter: [0%, 20%]"},
    {"  message: [0s, 1ms]", "  jitter: [10%]\n  seed: [1]\n  seeds: 3", "e.yaml:9:3: 'seed' and 'seeds' are the same axis"},
    {"  message: [0s, 1ms]", "  jitter: [10]", "e.yaml:7:12: '10' has no unit; a percentage is expected, e.g. 5%"},
    {"  message: [0s, 1ms]", "  straggler: {4: [1, 2]}", "e.yaml:7:15: unknown device '4'; there are 0, 1, 2, 3"},
    {"  message: [0s, 1ms]", "  straggler: [1, 2]", "e.yaml:7:14: a map from devices to lists is expected, e.g. {0: [1, 2]}"},
    {"  message: [0s, 1ms]", "  straggler: {1: [0.5]}", "e.yaml:7:19: a slowdown must be a number from 1 to 1000000, not '0.5'"},
    {"  message: [0s, 1ms]", "  times: [1s]", "e.yaml:7:11: the pipeline has 3 times, this has 1"},
    {"  message: [0s, 1ms]", "  placement: [w]", "e.yaml:7:15: unknown placement 'w'; it is 'chain', 'loop', 'v' or 'mirrored'"},
    {"axes:", "  speed: [1, 1]\naxes:", "e.yaml:5:10: 2 speeds for 4 devices"},
    {"axes:", "  memory: 1GiB\naxes:", "e.yaml:5:11: 'memory' needs 'kept'"},
    {"axes:", "  kept: [1B, 1B, 1B]\naxes:", "e.yaml:5:9: 'kept' takes one size, or two"},
    {"axes:", "  message: []\naxes:", "e.yaml:5:12: the list of message times is empty"},
    // clang-format on
};

TEST(ExperimentErrors, OfPipelines) {
  for (const Bad& bad : pipelines) {
    SCOPED_TRACE(bad.to);
    const std::string error = error_of(with(std::string(good), bad.from, bad.to));
    EXPECT_THAT(error, StartsWith(bad.expected));
    EXPECT_THAT(error, HasSubstr("\n  | "));
  }
  EXPECT_EQ(error_of(std::string(good)), "");
  EXPECT_THAT(error_of(with(std::string(good), "axes:\n", "axes: [\n")), HasSubstr("this is not YAML"));
  EXPECT_EQ(error_of(""), "e.yaml: this experiment is empty");
}

TEST(ExperimentErrors, OfScenarios) {
  const Scratch scratch;
  scratch.write("s.yaml", training_scenario());
  scratch.write("plain.yaml", small_scenario());
  const std::string without = with(small_scenario(), "plans:\n  mine: [..relu1@A, ..relu2@B, rest@C]\n", "");
  scratch.write("without.yaml", without);
  scratch.write("broken.yaml", with(training_scenario(), "sink: a", "sinc: a"));
  scratch.write("links.yaml", training_scenario("1Gbps", "noise: {background: [{link: wire, share: 30%}]}"));
  const std::string file = scratch / "e.yaml", text = "scenario: s.yaml\naxes:\n  schedule: [1f1b]\n";
  const auto refuse = [&](const std::string& from, const std::string& to, const std::string& expected) {
    SCOPED_TRACE(to);
    EXPECT_THAT(error_of(with(text, from, to), file), StartsWith((scratch / "") + expected));
  };
  refuse("s.yaml", "none.yaml", "e.yaml:1:11: ");
  refuse("s.yaml", "without.yaml", "e.yaml:1:11: " + (scratch / "without.yaml") + " has no plans of its own");
  refuse("s.yaml", "broken.yaml", "broken.yaml:9:1: unknown key 'sinc' in the scenario");
  refuse("[1f1b]", "[1f1b]\n  plan: [mone]",
         "e.yaml:4:10: unknown plan 'mone': did you mean 'mine'?; the scenario has mine, single");
  refuse("[1f1b]", "[1f1b]\n  plan: [1]",
         "e.yaml:4:10: '1': a sweep takes plans by name, numbers are of a ranking; there are mine, single");
  refuse("[1f1b]", "[1f1b]\n  micro_batches: [3]", "e.yaml:4:19: 3 micro-batches do not divide the batch of 8 evenly");
  refuse("[1f1b]", "[1f1b]\n  link_speed: {wyre: [1]}", "e.yaml:4:16: unknown link 'wyre': did you mean 'wire'?");
  refuse("[1f1b]", "[1f1b]\n  link_speed: [0]",
         "e.yaml:4:16: a factor must be a number from 1e-06 to 1000000, not '0'");
  refuse("[1f1b]", "[1f1b]\n  device_speed: {C: [1]}", "e.yaml:4:18: unknown device 'C'");
  refuse("[1f1b]", "[1f1b]\n  device_speed: {}", "e.yaml:4:17: axis device_speed_factor is empty: it names no device");
  refuse("[1f1b]", "[1f1b]\n  noise: [on]", "e.yaml:4:11: " + (scratch / "s.yaml") + " has no noise");
  refuse("[1f1b]", "[1f1b]\n  noise: [maybe]", "e.yaml:4:11: unknown noise 'maybe'; it is 'off' or 'on'");
  refuse("[1f1b]", "[1f1b]\n  seeds: 2", "e.yaml:3:3: seeds change nothing: there is no noise");
  refuse("[1f1b]", "[1f1b]\n  message: [1ms]", "e.yaml:4:3: unknown key 'message' in axes");
  refuse("[1f1b]", "[online: longest_path]", "e.yaml:3:22: online policies are asked in pipelines only");
  EXPECT_THAT(error_of(with(with(text, "s.yaml", "links.yaml"), "[1f1b]", "[1f1b]\n  noise: [on]"), file),
              HasSubstr("the scenario's noise disturbs links, which the fast tier does not see: tier: simgrid"));
}

TEST(Experiment, LeavesToAPlanWhatIsItsOwn) {
  const Scratch scratch;
  scratch.write("s.yaml", training_scenario());
  const Experiment experiment = experiment_of("scenario: s.yaml\naxes: {link_speed: [1, 0.5]}\n", scratch / "e.yaml");
  // mine: gpipe and 1f1b (the default of training), 2 and 4 micro-batches; single: gpipe, 2.
  EXPECT_EQ(grid_of(experiment)->size(), 2u * (2 * 2 + 1));
}

TEST(Experiment, TakesSchedulesOfAllKinds) {
  const Scratch scratch;
  scratch.write("mine.csv", "0F0,0B0\n");
  const Experiment experiment = experiment_of(
      "pipeline: {devices: 1, micro_batches: 1, times: [1s, 1s, 1s]}\n"
      "axes: {schedule: [1f1b, online: longest_path, 'online:backward_first', file: mine.csv]}\n",
      scratch / "e.yaml");
  std::vector<std::string> texts;
  for (const AxisValue& value : experiment.axes.at(0).values) texts.push_back(value.text);
  EXPECT_EQ(texts, (std::vector<std::string>{"1f1b", "online:longest_path", "online:backward_first", "file:mine.csv"}));
}

}  // namespace
}  // namespace nlsplit

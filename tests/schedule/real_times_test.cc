// Schedules that use durations: list, search, and online policies with their logs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/index.h"
#include "base/random.h"
#include "schedule/online.h"
#include "schedule/shapes.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

double makespan_of(std::string_view policy, const ScheduleInput& input) {
  return evaluate(input, make_schedule(policy, input).value()).value().makespan;
}

// Stages of unlike times with messages between them.
ScheduleInput unlike(std::string_view like_policy, int devices, int stages, int micro_batches, uint64_t seed) {
  Random random(seed);
  ScheduleInput input = training_shape(like_policy, devices, stages, micro_batches);
  for (auto* times : {&input.stage_seconds, &input.input_gradient_seconds, &input.weight_gradient_seconds}) {
    for (auto& stage : *times) {
      for (double& seconds : stage) seconds = random.uniform(0.3, 2);
    }
  }
  for (double& seconds : input.message_seconds) seconds = 0.3;
  return input;
}

// Any plan: replicas, devices with several stages.
ScheduleInput any_plan(uint64_t seed, bool training) {
  Random random(seed);
  ScheduleInput input;
  input.micro_batches = 1 + static_cast<int>(random.below(9));
  input.devices = 1 + static_cast<int>(random.below(4));
  const size_t stages = 1 + random.below(5);
  for (size_t s = 0; s < stages; ++s) {
    const auto first = static_cast<int>(random.below(static_cast<uint64_t>(input.devices)));
    std::vector<int>& on = input.stage_devices.emplace_back(std::vector{first});
    if (input.devices > 1 && random.below(3) == 0) on.push_back((first + 1) % input.devices);
    for (auto* times : {&input.stage_seconds, &input.input_gradient_seconds, &input.weight_gradient_seconds}) {
      if (!training && times != &input.stage_seconds) continue;
      std::vector<double>& seconds = times->emplace_back();
      for (size_t r = 0; r < on.size(); ++r) seconds.push_back(random.uniform(0.1, 2));
    }
    input.message_seconds.push_back(random.uniform(0, 0.5));
    if (training) {
      input.kept_until_input_gradient.push_back(bytes(2 + static_cast<int64_t>(random.below(4))));
      input.kept_until_weight_gradient.push_back(bytes(static_cast<int64_t>(random.below(3))));
    }
  }
  return input;
}

TEST(ListSchedule, IsWholeForEveryPlan) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    for (const bool training : {false, true}) {
      SCOPED_TRACE(fmt::format("seed {} training {}", seed, training));
      const ScheduleInput input = any_plan(seed, training);
      const auto fault = find_fault(input, make_schedule("list", input).value());
      EXPECT_FALSE(fault.has_value()) << fault->reason;
    }
  }
}

TEST(ListSchedule, MeetsTheZeroBubbleSchedulesWhereTheyAreBest) {
  // The last of 4 devices begins after 3 T_F, works for 8 T; nothing is shorter.
  EXPECT_NEAR(makespan_of("list", training_shape("zb_h2", 4, 4, 8)), 3 + 8 * 3, 1e-9);
  // T_W short: ZB-H2's fixed order leaves (p - 1)(T_F + T_I - 2 T_W) = 9 on top of 48, this one less.
  const ScheduleInput input = training_shape("zb_h2", 4, 4, 8, {2, 3, 1});
  EXPECT_LT(makespan_of("list", input), makespan_of("zb_h2", input));
}

TEST(ListSchedule, KeepsToTheMemory) {
  ScheduleInput input = training_shape("1f1b", 4, 4, 8);
  input.kept_until_input_gradient.assign(4, bytes(2));
  input.kept_until_weight_gradient.assign(4, bytes(1));
  for (const int64_t memory : {2, 4, 8, 16}) {
    input.device_memory.assign(4, bytes(memory));
    const SlotTiming timing = evaluate(input, make_schedule("list", input).value()).value();
    for (const Bytes kept : timing.peak_kept) EXPECT_LE(kept.value(), memory);
  }
  input.device_memory.assign(4, bytes(1));
  EXPECT_EQ(error_of("list", input),
            "memory: with 0 micro-batches under way device 0 keeps 0 B of 1 B and cannot take 0F0");
  EXPECT_EQ(error_of("search", input), error_of("list", input));
}

// A V whose first device is the bottleneck and never waits: its orders are equally long but for the rounding of sums.
TEST(ListSchedule, OfEquallyLongOrdersTakesTheOneWithTheFewestMicroBatchesUnderWay) {
  constexpr int micro_batches = 16, window = 2;  // with one under way the first device waits
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    ScheduleInput input = training_shape("zb_v", 2, 4, micro_batches);
    for (size_t s = 0; s < 4; ++s) {
      const double seconds = (s == 1 || s == 2 ? 0.2 : 1) * random.uniform(0.07, 0.09);
      input.stage_seconds[s] = input.input_gradient_seconds[s] = input.weight_gradient_seconds[s] = {seconds};
    }
    const OnlinePolicy& policy = *find_online_policy("longest_path").value();
    const OnlineRun narrow = run_online(input, policy, {.window = window}).value();
    EXPECT_NEAR(narrow.makespan, run_online(input, policy, {.window = micro_batches}).value().makespan, 1e-9);
    EXPECT_EQ(make_schedule("list", input)->devices, narrow.table.devices) << "seed " << seed;
  }
}

TEST(SearchSchedule, IsNeverWorseThanAnyOtherAndBetterOnUnlikeMachines) {
  int better = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const bool v = seed % 2 == 1;
    const ScheduleInput input = unlike(v ? "zb_v" : "1f1b", 4, v ? 8 : 4, 6, seed);
    double best = 1e9;
    for (const SchedulePolicy& policy : all_schedules()) {
      if (policy.mode == ScheduleMode::inference || policy.name == "search") continue;
      const auto table = make_schedule(policy.name, input);
      if (table.ok()) best = std::min(best, evaluate(input, *table).value().makespan);
    }
    const double found = makespan_of("search", input);
    EXPECT_LE(found, best) << "seed " << seed;
    better += found < best * 0.99 ? 1 : 0;
    // Nothing is shorter than what its busiest device has to do.
    double busiest = 0;
    const SlotTiming timing = evaluate(input, make_schedule("gpipe", input).value()).value();
    for (const double busy : timing.busy) busiest = std::max(busiest, busy);
    EXPECT_GE(found, busiest);
  }
  EXPECT_GE(better, 2);
}

TEST(SearchSchedule, AnswersTheSameTwiceAndKeepsToTheMemory) {
  ScheduleInput input = unlike("zb_v", 2, 4, 4, 7);
  input.kept_until_input_gradient.assign(4, bytes(2));
  input.kept_until_weight_gradient.assign(4, bytes(1));
  input.device_memory.assign(2, bytes(6));
  const SlotTable table = make_schedule("search", input).value();
  EXPECT_EQ(table.devices, make_schedule("search", input)->devices);
  const auto fault = find_fault(input, table);
  EXPECT_FALSE(fault.has_value()) << fault->reason;
}

TEST(SearchSchedule, ServesInferenceToo) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const ScheduleInput input = any_plan(seed, false);
    EXPECT_LE(makespan_of("search", input), makespan_of("fill_drain", input));
    EXPECT_LE(makespan_of("search", input), makespan_of("list", input));
  }
}

TEST(Online, TheLogReplaysBitForBit) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    for (const OnlinePolicy& policy : all_online_policies()) {
      const bool training = seed % 3 != 0;
      const ScheduleInput input = any_plan(seed, training);
      SCOPED_TRACE(fmt::format("seed {} {}", seed, policy.name));
      const OnlineRun run = run_online(input, policy, {.jitter = 0.5, .seed = seed}).value();
      const auto fault = find_fault(input, run.table);
      ASSERT_FALSE(fault.has_value()) << fault->reason;
      SlotPlayer player(input);
      ASSERT_TRUE(player.play(run.table, &run.slot_seconds));
      EXPECT_EQ(player.makespan(), run.makespan);
      for (size_t d = 0; d < run.slot_starts.size(); ++d) {
        for (size_t i = 0; i < run.slot_starts[d].size(); ++i)
          ASSERT_EQ(player.spans()[d][i].start, run.slot_starts[d][i]) << "device " << d << " slot " << i;
      }
      // Asked again it answers the same.
      EXPECT_EQ(run_online(input, policy, {.jitter = 0.5, .seed = seed})->table.devices, run.table.devices);
    }
  }
}

TEST(Online, AStragglerDelaysAnOnlineScheduleLess) {
  // Planned for equal devices; then device 2 takes half as long again. The plan keeps its order, the online policy does
  // not, and neither keeps more than 4 micro-batches anywhere.
  ScheduleInput planned = training_shape("1f1b", 4, 4, 8);
  planned.kept_until_input_gradient.assign(4, bytes(1));
  planned.kept_until_weight_gradient.assign(4, bytes(1));
  planned.device_memory.assign(4, bytes(4));
  ScheduleInput slowed = planned;
  for (auto* times : {&slowed.stage_seconds, &slowed.input_gradient_seconds, &slowed.weight_gradient_seconds})
    (*times)[2][0] *= 1.5;
  const double as_planned = evaluate(slowed, make_schedule("1f1b", planned).value()).value().makespan;
  const OnlineRun online = run_online(slowed, **find_online_policy("longest_path"), {}).value();
  EXPECT_LT(online.makespan, 0.9 * as_planned);
  EXPECT_GE(online.makespan, 8 * 1.5 * 3);  // what device 2 has to do
  const SlotTiming timing = evaluate(slowed, online.table).value();
  EXPECT_LE(*std::ranges::max_element(timing.peak_micro_batches), 4);
}

TEST(Online, ErrorsSayWhatIsWrong) {
  EXPECT_EQ(find_online_policy("no_such").error().message,
            "unknown online policy 'no_such' (there are longest_path, backward_first)");
  EXPECT_THAT(run_online(any_plan(1, false), all_online_policies()[0], {.window = 2}).error().message,
              HasSubstr("a window is for training"));
  const OnlinePolicy lazy = {
      "lazy", "", [](std::span<const ReadySlot>, const DeviceState&) -> std::optional<size_t> { return std::nullopt; }};
  EXPECT_EQ(run_online(any_plan(1, true), lazy, {}).error().message, "online policy lazy left every device waiting");
}

TEST(Online, AStretchIsWhatSlotsTakeAndNobodyKnows) {
  const ScheduleInput input = training_shape("1f1b", 3, 3, 6);
  const OnlinePolicy& policy = **find_online_policy("longest_path");
  OnlineOptions options;
  options.stretch = [](int device, const ScheduledSlot& slot) { return device == 1 && slot.micro_batch > 2 ? 3 : 1; };
  const OnlineRun run = run_online(input, policy, options).value(), plain = run_online(input, policy, {}).value();
  for (size_t i = 0; i < run.table.devices[1].size(); ++i) {
    const ScheduledSlot& slot = run.table.devices[1][i];
    if (slot.phase == Phase::step) continue;
    EXPECT_EQ(run.slot_seconds[1][i], slot.micro_batch > 2 ? 3 : 1);
  }
  EXPECT_GT(run.makespan, plain.makespan);
  EXPECT_EQ(run.table.devices[2][0], plain.table.devices[2][0]);  // nothing was slow yet
  SlotPlayer player(input);
  EXPECT_TRUE(player.play(run.table, &run.slot_seconds));
  EXPECT_EQ(player.makespan(), run.makespan);
}

}  // namespace
}  // namespace nlsplit

// Schedule tables as text, and the formulas they are known for.
#include "schedule/schedules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "base/random.h"
#include "schedule/assign.h"
#include "schedule/evaluate.h"

namespace nlsplit {
namespace {

// "0: 0F0 0F1 | 1: 1F0 1F1 | instances 2": device: stage, phase, micro-batch.
std::string text_of(const SlotTable& table) {
  std::string text;
  for (size_t d = 0; d < table.devices.size(); ++d) {
    text += fmt::format("{}:", d);
    for (const ScheduledSlot& slot : table.devices[d])
      text += fmt::format(" {}{}{}", slot.stage, name_of(slot.phase), slot.micro_batch);
    text += " | ";
  }
  return text + fmt::format("instances {}", table.instances);
}

std::string schedule(std::string_view name, const ScheduleInput& input) {
  auto table = make_schedule(name, input);
  return table.ok() ? text_of(*table) : table.error().message;
}

std::string names() {
  std::vector<std::string_view> all;
  for (const SchedulePolicy& policy : all_schedules()) all.push_back(policy.name);
  return fmt::format("{}", fmt::join(all, ", "));
}

TEST(Schedules, StreamingRunsMicroBatchesAsTheyComeWithTwoInstances) {
  EXPECT_EQ(schedule("streaming", {3, 2, {{0}, {1}}, {{1}, {1}}}), "0: 0F0 0F1 0F2 | 1: 1F0 1F1 1F2 | instances 2");
}

// Replica 1 is four times as fast, but a micro-batch needs 2 s on the link to it: from 2 s on, one every 2 s.
TEST(Schedules, ReplicasBehindASlowLinkGetWhatItCarries) {
  ScheduleInput input{6, 2, {{0, 1}}, {{2, 0.5}}};
  EXPECT_EQ(schedule("streaming", input), "0: 0F3 | 1: 0F0 0F1 0F2 0F4 0F5 | instances 2");
  input.ways_in = {{{}, {2, {{0, 2.0}}}}};
  EXPECT_EQ(schedule("streaming", input), "0: 0F0 0F2 0F4 | 1: 0F1 0F3 0F5 | instances 2");
  input.ways_out = {{{}, {4, {{1, 4.0}}}}};  // and twice as long for the way back
  EXPECT_EQ(schedule("streaming", input), "0: 0F0 0F1 0F2 0F4 | 1: 0F3 0F5 | instances 2");
}

// A micro-batch comes every 0.5 s. The first replica is at the sink, outputs of the second travel for 0.5 s. The first
// one takes the last micro-batch, though it would deliver the first one sooner too: the batch takes 3 s, not 3.5 s.
TEST(Schedules, TheReplicaWithTheShortestWayOutIsTheLast) {
  ScheduleInput input{4, 3, {{0}, {1, 2}}, {{0.5}, {1, 1}}};
  input.ways_out = {{}, {{}, {0.5, {{0, 0.5}}}}};
  EXPECT_EQ(schedule("streaming", input), "0: 0F0 0F1 0F2 0F3 | 1: 1F1 1F3 | 2: 1F0 1F2 | instances 2");
}

// One fast link leaves the source, which is lane 0; those behind it take 1, 2 and 2 s. Who waits for a slow one keeps
// nobody else from the fast one.
TEST(Schedules, ASlowLinkDoesNotKeepOthersFromAFastOne) {
  ScheduleInput input{48, 3, {{0, 1, 2}}, {{0.5, 0.5, 0.5}}};
  input.ways_in = {{{1, {{0, 0.01}, {1, 1.0}}}, {2, {{0, 0.01}, {2, 2.0}}}, {2, {{0, 0.01}, {3, 2.0}}}}};
  const SlotTable table = make_schedule("streaming", input).value();
  EXPECT_EQ(table.devices[0].size(), 24u);
  EXPECT_EQ(table.devices[1].size(), 12u);
  EXPECT_EQ(table.devices[2].size(), 12u);
}

TEST(Schedules, OneMicroBatchNeedsOneInstance) {
  EXPECT_EQ(schedule("streaming", {1, 2, {{0}, {1}}, {{1}, {1}}}), "0: 0F0 | 1: 1F0 | instances 1");
}

TEST(Schedules, StreamingHoldsAsManyAsItIsTold) {
  ScheduleInput input{8, 2, {{0}, {1}}, {{1}, {1}}};
  input.in_flight = 3;
  EXPECT_EQ(make_schedule("streaming", input)->instances, 3);
  input.stage_devices = {{0}, {0}};  // on one device it is a window: three for each stage
  EXPECT_EQ(make_schedule("streaming", input)->instances, 6);
}

// A stage split over two devices, that exchange halves in the middle: stages 0 and 1 are its front halves, 2 and 3 what
// follows the exchange. Both devices begin at once, and two micro-batches are under way as of one stage.
TEST(Streaming, ShardsOfAStageRunSideBySide) {
  ScheduleInput input{3, 2, {{0}, {1}, {0}, {1}}, {{1}, {1}, {1}, {1}}};
  input.needs = {{}, {}, {0, 1}, {0, 1}};
  input.pipeline_stages = 1;
  EXPECT_EQ(schedule("streaming", input), "0: 0F0 2F0 0F1 2F1 0F2 2F2 | 1: 1F0 3F0 1F1 3F1 1F2 3F2 | instances 2");
  // A device that would wait for a slower one takes the next micro-batch meanwhile.
  input.stage_seconds = {{1}, {5}, {1}, {1}};
  EXPECT_EQ(schedule("streaming", input), "0: 0F0 0F1 2F0 0F2 2F1 2F2 | 1: 1F0 3F0 1F1 3F1 1F2 3F2 | instances 2");
  input.needs = {{}, {}, {0, 1}, {3}};
  EXPECT_FALSE(make_schedule("streaming", input).ok());
}

TEST(Schedules, SequentialHasOneDeviceAtWork) {
  // GPipe, figure 2b: S stages of t seconds one after the other for every micro-batch, so 1 / S of the devices' time.
  for (const int stages : {1, 2, 4}) {
    for (const int micro_batches : {1, 3, 8}) {
      ScheduleInput input{micro_batches, stages, {}, {}};
      for (int s = 0; s < stages; ++s) {
        input.stage_devices.push_back({s});
        input.stage_seconds.push_back({2.0});
      }
      const SlotTiming timing = evaluate(input, make_schedule("sequential", input).value()).value();
      EXPECT_DOUBLE_EQ(timing.makespan, 2.0 * stages * micro_batches);
      EXPECT_NEAR(timing.bubble(), 1 - 1.0 / stages, 1e-12);
    }
  }
}

TEST(Schedules, FillDrainHasAnInstanceForEveryMicroBatch) {
  EXPECT_EQ(schedule("fill_drain", {4, 2, {{1}, {0}}, {{1}, {1}}}),
            "0: 1F0 1F1 1F2 1F3 | 1: 0F0 0F1 0F2 0F3 | instances 4");
}

TEST(Schedules, EqualReplicasTakeTurns) {
  EXPECT_EQ(schedule("streaming", {4, 3, {{0}, {1, 2}}, {{1}, {5, 5}}}),
            "0: 0F0 0F1 0F2 0F3 | 1: 1F0 1F2 | 2: 1F1 1F3 | instances 2");
}

TEST(Schedules, IdleEqualReplicasTakeTurnsToo) {
  // Micro-batches come every 10 s, each takes 1 s: replica 0 is always free, but would otherwise do all the work.
  EXPECT_EQ(schedule("streaming", {4, 3, {{0}, {1, 2}}, {{10}, {1, 1}}}),
            "0: 0F0 0F1 0F2 0F3 | 1: 1F0 1F2 | 2: 1F1 1F3 | instances 2");
}

TEST(Schedules, AReplicaTwiceAsFastTakesTwoThirds) {
  // Finish times on the fast one 1 2 3 …, on the slow one 2 4 6 …; a tie goes to who has taken fewer.
  const ScheduleInput input{9, 2, {{0, 1}}, {{1, 2}}};
  const SlotTable table = make_schedule("streaming", input).value();
  EXPECT_EQ(table.devices[0].size(), 6u);
  EXPECT_EQ(table.devices[1].size(), 3u);
}

TEST(Schedules, ADeviceWithTwoStagesPrefersTheLaterOne) {
  // A B A, one second each, no time for messages. At t = 2 A has stage 2 of micro-batch 0 and stage 0 of micro-batch 2
  // to choose from.
  EXPECT_EQ(schedule("streaming", {3, 2, {{0}, {1}, {0}}, {{1}, {1}, {1}}}),
            "0: 0F0 0F1 2F0 2F1 0F2 2F2 | 1: 1F0 1F1 1F2 | instances 3");
}

TEST(Schedules, ErrorsNameWhatIsWrong) {
  EXPECT_EQ(schedule("streming", {1, 1, {{0}}, {{1}}}),
            "unknown schedule 'streming'; did you mean 'streaming'? (there are " + names() + ")");
  EXPECT_EQ(schedule("streaming", {0, 1, {{0}}, {{1}}}), "a schedule needs at least one micro-batch");
  EXPECT_EQ(schedule("streaming", {1, 1, {}, {}}), "a schedule needs at least one stage");
  EXPECT_EQ(schedule("streaming", {1, 1, {{0}, {}}, {{1}, {}}}), "stage 1 has no device");
  EXPECT_EQ(schedule("streaming", {1, 1, {{3}}, {{1}}}), "stage 0: no device 3");
  EXPECT_EQ(schedule("streaming", {1, 2, {{1, 1}}, {{1, 1}}}), "stage 0: device 1 twice");
  EXPECT_EQ(schedule("streaming", {1, 1, {{0}}, {{-1}}}), "stage 0: impossible time -1");
}

TEST(Schedules, PhaseNamesParseBack) {
  for (const Phase phase :
       {Phase::init, Phase::forward, Phase::input_gradient, Phase::weight_gradient, Phase::recompute, Phase::step}) {
    EXPECT_EQ(parse_phase(name_of(phase)).value(), phase);
  }
  EXPECT_EQ(parse_phase("B").error().message, "unknown phase 'B'; there are init, F, I, W, R and step");
}

TEST(Schedules, FillDrainHasThePublishedBubble) {
  // GPipe: S equal stages of t seconds, M micro-batches: (M + S - 1) t, so the bubble is (S - 1) / (M + S - 1).
  for (const int stages : {1, 2, 4, 7}) {
    for (const int micro_batches : {1, 3, 8}) {
      ScheduleInput input{micro_batches, stages, {}, {}};
      for (int s = 0; s < stages; ++s) {
        input.stage_devices.push_back({s});
        input.stage_seconds.push_back({2.0});
      }
      const SlotTiming timing = evaluate(input, make_schedule("fill_drain", input).value()).value();
      EXPECT_DOUBLE_EQ(timing.makespan, 2.0 * (micro_batches + stages - 1));
      EXPECT_NEAR(timing.bubble(), (stages - 1.0) / (micro_batches + stages - 1), 1e-12);
    }
  }
}

TEST(Schedules, EveryTableOfRandomPlansRunsEachSlotOnceAndBoundsWhatIsInFlight) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    ScheduleInput input;
    input.micro_batches = 1 + static_cast<int>(random.below(12));
    input.devices = 1 + static_cast<int>(random.below(4));
    const size_t stages = 1 + random.below(5);
    for (size_t s = 0; s < stages; ++s) {
      std::vector<int> devices;
      const auto first = static_cast<int>(random.below(static_cast<uint64_t>(input.devices)));
      const int replicas = 1 + static_cast<int>(random.below(2)) * (input.devices > 1 ? 1 : 0);
      for (int r = 0; r < replicas; ++r) devices.push_back((first + r) % input.devices);
      std::vector<double> seconds;
      for (size_t r = 0; r < devices.size(); ++r) seconds.push_back(random.uniform(0.1, 2));
      input.stage_devices.push_back(devices);
      input.stage_seconds.push_back(seconds);
    }
    for (const SchedulePolicy& policy : all_schedules()) {
      if (policy.mode == ScheduleMode::training || policy.name == "search") continue;
      SCOPED_TRACE(fmt::format("seed {} {}", seed, policy.name));
      const SlotTable table = policy.make(input).value();
      const auto fault = find_fault(input, table);
      EXPECT_FALSE(fault.has_value()) << fault->reason;
      for (const auto& order : table.devices) {
        if (policy.name == "list") continue;  // takes them as they come from replicas
        std::map<int, int> last;              // by stage: micro-batches go through a stage of a device in order
        for (const ScheduledSlot& slot : order) {
          const auto [at, added] = last.emplace(slot.stage, slot.micro_batch);
          if (!added) {
            EXPECT_LT(at->second, slot.micro_batch);
            at->second = slot.micro_batch;
          }
        }
      }
      EXPECT_LE(table.instances, input.micro_batches);
      EXPECT_EQ(text_of(table), text_of(policy.make(input).value()));
    }
  }
}

}  // namespace
}  // namespace nlsplit

// Every policy for training against the bubble and the memory its paper says it has, measured by playing the table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/index.h"
#include "base/random.h"
#include "schedule/shapes.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

const std::vector<StageTimes> unlike_times = {{1, 1, 1}, {2, 3, 1}, {10, 12, 8}, {3, 3, 2}, {5, 5, 1}};

// Plays the policy; what it takes must be what the devices compute plus `bubble`.
SlotTiming timing_of(std::string_view policy, const ScheduleInput& input) {
  return evaluate(input, make_schedule(policy, input).value()).value();
}

TEST(TrainingPolicies, GpipeAnd1f1bHaveThePublishedBubbleAndMemory) {
  for (const int p : {1, 2, 3, 4, 8}) {
    for (const int m : {1, 2, p, 4 * p}) {
      for (const StageTimes& t : unlike_times) {
        SCOPED_TRACE(fmt::format("p {} m {} F {} I {} W {}", p, m, t.forward, t.input_gradient, t.weight_gradient));
        const SlotTiming gpipe = timing_of("gpipe", training_shape("gpipe", p, p, m, t));
        EXPECT_NEAR(gpipe.makespan, (m + p - 1) * t.all(), 1e-9);
        EXPECT_NEAR(gpipe.bubble(), (p - 1.0) / (m + p - 1), 1e-12);
        const SlotTiming one = timing_of("1f1b", training_shape("1f1b", p, p, m, t));
        EXPECT_NEAR(one.makespan, (m + p - 1) * t.all(), 1e-9);
        EXPECT_NEAR(one.inner_bubble(), (p - 1) * t.all(), 1e-9);
        for (int i = 0; i < p; ++i) {
          EXPECT_EQ(gpipe.peak_micro_batches[at(i)], m);
          EXPECT_EQ(one.peak_micro_batches[at(i)], std::min(m, p - i));
        }
      }
    }
  }
}

TEST(TrainingPolicies, InterleavedAndLoopedHaveAVthOfTheBubble) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int v : {1, 2, 4}) {
      for (const int m : {p, 2 * p, 4 * p}) {
        for (const StageTimes& t : unlike_times) {
          SCOPED_TRACE(fmt::format("p {} v {} m {} F {} I {}", p, v, m, t.forward, t.input_gradient));
          // T of a whole device's model part is v times a stage's: (p - 1) T / v seconds, (p - 1) / (v m) of the ideal.
          const double ideal = v * m * t.all();
          for (const char* policy : {"interleaved", "looped_bfs"}) {
            const SlotTiming timing = timing_of(policy, training_shape(policy, p, v * p, m, t));
            EXPECT_NEAR(timing.makespan - ideal, (p - 1) * t.all(), 1e-9) << policy;
            EXPECT_NEAR(timing.makespan / ideal - 1, (p - 1.0) / (v * m), 1e-12) << policy;
            const int most = *std::ranges::max_element(timing.peak_micro_batches);
            if (policy == std::string_view("looped_bfs"))
              EXPECT_EQ(most, v * m);
            else  // Korthikanti et al.: 1 + (p - 1) / (v p) of the p v stages' worth that 1F1B keeps
              EXPECT_EQ(most, std::min(v * m, v == 1 ? p : v * p + p - 1));
          }
        }
      }
    }
  }
}

// The papers' T_B is the input gradient's. T_W at most T_I and T_F, else W does not fit where it is meant to go.
TEST(TrainingPolicies, ZeroBubbleChainsHaveThePublishedBubbleAndMemory) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int m : {p, 2 * p, 4 * p}) {
      for (const StageTimes& t : unlike_times) {
        SCOPED_TRACE(fmt::format("p {} m {} F {} I {} W {}", p, m, t.forward, t.input_gradient, t.weight_gradient));
        const SlotTiming h1 = timing_of("zb_h1", training_shape("zb_h1", p, p, m, t));
        EXPECT_NEAR(h1.inner_bubble(), (p - 1) * (t.forward + t.input_gradient - t.weight_gradient), 1e-9);
        EXPECT_NEAR(h1.makespan - m * t.all(), h1.inner_bubble(), 1e-9);
        for (const int kept : h1.peak_micro_batches) EXPECT_EQ(kept, p);
        if (m < 2 * p - 1) continue;  // so many are kept; with fewer it is not full
        const SlotTiming h2 = timing_of("zb_h2", training_shape("zb_h2", p, p, m, t));
        EXPECT_NEAR(h2.inner_bubble(), (p - 1) * (t.forward + t.input_gradient - 2 * t.weight_gradient), 1e-9);
        for (const int kept : h2.peak_micro_batches) EXPECT_EQ(kept, 2 * p - 1);
      }
    }
  }
}

TEST(TrainingPolicies, ZeroBubbleH2IsASlantWithoutBubble) {
  // Device i begins i T_F late and ends as much later: the update of a device must not wait for the others'.
  const ScheduleInput input = training_shape("zb_h2", 4, 4, 12);
  const SlotTiming timing = timing_of("zb_h2", input);
  EXPECT_EQ(timing.inner_bubble(), 0);
  EXPECT_EQ(timing.makespan, 12 * 3 + 3);
}

TEST(TrainingPolicies, ZbVHasNoBubbleForEqualTimesWithTheMemoryOf1f1b) {
  for (const int p : {1, 2, 3, 4, 8}) {
    for (const int m : {2 * p, 2 * p + 1, 4 * p}) {
      SCOPED_TRACE(fmt::format("p {} m {}", p, m));
      const SlotTiming timing = timing_of("zb_v", training_shape("zb_v", p, 2 * p, m));
      EXPECT_EQ(timing.inner_bubble(), 0);
      for (const int kept : timing.peak_micro_batches) EXPECT_EQ(kept, 2 * p);
    }
  }
}

TEST(TrainingPolicies, ZbVFindsWhatThePublishedGeneratorFinds) {
  // github.com/sail-sg/zero-bubble-pipeline-parallelism, scheduler/zbv.py, run on these figures.
  const auto bubble = [](int p, int m, StageTimes t, double message) {
    return timing_of("zb_v", training_shape("zb_v", p, 2 * p, m, t, message)).inner_bubble();
  };
  EXPECT_NEAR(bubble(4, 8, {10, 10, 10}, 0), 0, 1e-9);
  EXPECT_NEAR(bubble(4, 8, {10, 10, 10}, 1), 14, 1e-9);
  EXPECT_NEAR(bubble(8, 32, {10, 12, 8}, 1), 90, 1e-9);
}

// The published formula counts a forward and the backward beside it as one thing of T_F&B: what either gives is there
// at its end. This plays a table so: F directly before the B of another stage are one, but for a device's first B,
// which
//  the implementation leaves alone ("to further reduce bubble size").
double makespan_of_pairs(const ScheduleInput& input, const SlotTable& table, const StageTimes& t, double pair_seconds) {
  struct Atom {
    std::vector<ScheduledSlot> slots;
    double seconds = 0;
  };
  const auto seconds = [&](Phase phase) {
    return phase == Phase::forward ? t.forward : phase == Phase::input_gradient ? t.input_gradient : t.weight_gradient;
  };
  std::vector<std::vector<Atom>> devices;
  for (const std::vector<ScheduledSlot>& order : table.devices) {
    std::vector<Atom>& atoms = devices.emplace_back();
    bool gradients = false;
    for (size_t i = 0; i < order.size(); ++i) {
      if (order[i].phase == Phase::step) continue;
      const bool pair = gradients && order[i].phase == Phase::forward && i + 1 < order.size() && order[i + 1].whole &&
                        order[i + 1].stage != order[i].stage;
      if (pair) {
        atoms.push_back({{order[i], order[i + 1], order[i + 2]}, pair_seconds});
        i += 2;
        continue;
      }
      gradients = gradients || order[i].phase == Phase::input_gradient;
      if (order[i].whole) {
        atoms.push_back({{order[i], order[i + 1]}, t.backward()});
        ++i;
      } else {
        atoms.push_back({{order[i]}, seconds(order[i].phase)});
      }
    }
  }
  const auto stages = static_cast<int>(input.stage_devices.size());
  std::map<std::tuple<Phase, int, int>, double> finish;
  std::vector<size_t> next(devices.size(), 0);
  std::vector<double> free(devices.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t d = 0; d < devices.size(); ++d) {
      if (next[d] == devices[d].size()) continue;
      const Atom& atom = devices[d][next[d]];
      double start = free[d];
      bool ready = true;
      for (const ScheduledSlot& slot : atom.slots) {
        std::tuple<Phase, int, int> needed = {slot.phase, slot.stage, slot.micro_batch};
        if (slot.phase == Phase::forward && slot.stage > 0) std::get<1>(needed) = slot.stage - 1;
        if (slot.phase == Phase::input_gradient && slot.stage < stages - 1) std::get<1>(needed) = slot.stage + 1;
        if (std::get<1>(needed) == slot.stage) continue;  // of this device, earlier in its order
        const auto found = finish.find(needed);
        ready = ready && found != finish.end();
        if (ready) start = std::max(start, found->second);
      }
      if (!ready) continue;
      free[d] = start + atom.seconds;
      for (const ScheduledSlot& slot : atom.slots) finish[{slot.phase, slot.stage, slot.micro_batch}] = free[d];
      ++next[d];
      moved = true;
    }
  }
  for (size_t d = 0; d < devices.size(); ++d) EXPECT_EQ(next[d], devices[d].size());
  return *std::ranges::max_element(free);
}

TEST(TrainingPolicies, DualPipeHasThePublishedBubbleAndMemory) {
  for (const int p : {2, 4, 6, 8}) {
    for (const int m : {2 * p, 2 * p + 2, 4 * p}) {
      for (const bool mirrored : {true, false}) {
        const char* policy = mirrored ? "dualpipe" : "dualpipe_v";
        const int devices = mirrored ? p : p / 2;
        const int pairs = mirrored ? m / 2 : m;  // of every device: two stages' micro-batches
        for (const StageTimes& t : unlike_times) {
          const ScheduleInput input = training_shape(policy, devices, p, m, t);
          const SlotTable table = make_schedule(policy, input).value();
          const SlotTiming timing = evaluate(input, table).value();
          const double pair = t.forward + t.backward();
          SCOPED_TRACE(
              fmt::format("{} p {} m {} F {} I {} W {}", policy, p, m, t.forward, t.input_gradient, t.weight_gradient));
          const double published = (p / 2 - 1) * (pair + t.backward() - 3 * t.weight_gradient);
          const double bubble = makespan_of_pairs(input, table, t, pair) - 2 * pairs * t.all();
          if (t.forward == t.input_gradient)
            EXPECT_NEAR(bubble, published, 1e-9);
          else  // drawn for T_F = T_I; what the shorter one saves is not in the formula
            EXPECT_LE(bubble, published + 1e-9);
          // Here what F gives leaves before the backward beside it begins.
          EXPECT_LE(timing.makespan - 2 * pairs * t.all(), published + 1e-9);
          EXPECT_EQ(*std::ranges::max_element(timing.peak_micro_batches), p + 1);
        }
      }
    }
  }
}

TEST(TrainingPolicies, EveryTableIsWhole) {
  int made = 0;
  for (const SchedulePolicy& policy : all_schedules()) {
    if (policy.mode == ScheduleMode::inference || policy.name == "search") continue;
    for (const int p : {1, 2, 3, 4, 8}) {
      for (const int v : {1, 2, 4}) {
        if (!make_placement(policy.placement, p, v * p).ok()) continue;
        for (const int m : {1, 2, p, 2 * p, 4 * p}) {
          const ScheduleInput input = training_shape(policy.name, p, v * p, m, {2, 3, 1}, 0.25);
          const auto table = make_schedule(policy.name, input);
          SCOPED_TRACE(fmt::format("{} p {} v {} m {}", policy.name, p, v, m));
          if (!table.ok()) {
            EXPECT_THAT(table.error().message, HasSubstr("there are"));
            continue;
          }
          ++made;
          const auto fault = find_fault(input, *table);
          EXPECT_FALSE(fault.has_value()) << fault->reason;
          EXPECT_GE(table->instances, 1);
          EXPECT_LE(table->instances, m);
        }
      }
    }
  }
  EXPECT_GT(made, 200);
}

TEST(TrainingPolicies, UnlikeStagesChangeNothingOfAStaticOrderAndBreakNoOther) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    for (const SchedulePolicy& policy : all_schedules()) {
      if (policy.mode == ScheduleMode::inference || policy.name == "search") continue;
      const int p = 2 * (1 + static_cast<int>(random.below(3)));
      const int stages = policy.placement == StagePlacement::chain || policy.placement == StagePlacement::mirrored ||
                                 policy.placement == StagePlacement::any
                             ? p
                             : 2 * p;
      ScheduleInput input = training_shape(policy.name, p, stages, 2 * p);
      for (auto* times : {&input.stage_seconds, &input.input_gradient_seconds, &input.weight_gradient_seconds}) {
        for (auto& stage : *times) {
          for (double& seconds : stage) seconds = random.uniform(0.1, 2);
        }
      }
      for (double& seconds : input.message_seconds) seconds = random.uniform(0, 0.5);
      SCOPED_TRACE(fmt::format("seed {} {}", seed, policy.name));
      const auto fault = find_fault(input, make_schedule(policy.name, input).value());
      EXPECT_FALSE(fault.has_value()) << fault->reason;
    }
  }
}

TEST(TrainingPolicies, ReplicatedStagesAreLinesSideBySide) {
  // Two lines of 1F1B on devices 0 1 and 2 3; the first takes the even micro-batches.
  ScheduleInput input = training_shape("1f1b", 2, 2, 5);
  input.devices = 4;
  input.stage_devices = {{0, 2}, {1, 3}};
  for (auto* times : {&input.stage_seconds, &input.input_gradient_seconds, &input.weight_gradient_seconds})
    *times = {{1, 1}, {1, 1}};
  const SlotTable table = make_schedule("1f1b", input).value();
  const auto text = [](const std::vector<ScheduledSlot>& order) {
    std::string all;
    for (const ScheduledSlot& slot : order) all += to_string(slot) + " ";
    return all;
  };
  EXPECT_EQ(text(table.devices[0]), "0F0 0F2 0I0 0W0 0F4 0I2 0W2 0I4 0W4 0step ");
  EXPECT_EQ(text(table.devices[3]), "1F1 1I1 1W1 1F3 1I3 1W3 1step ");
  EXPECT_FALSE(find_fault(input, table).has_value());
  input.stage_devices = {{0, 2}, {1}};
  for (auto* times : {&input.stage_seconds, &input.input_gradient_seconds, &input.weight_gradient_seconds})
    *times = {{1, 1}, {1}};
  EXPECT_EQ(error_of("1f1b", input),
            "schedule 1f1b needs one stage a device, and the same number of replicas in every stage");
}

TEST(TrainingPolicies, ErrorsSayWhatIsNeeded) {
  ScheduleInput forward = training_shape("1f1b", 2, 2, 4);
  forward.input_gradient_seconds.clear();
  forward.weight_gradient_seconds.clear();
  EXPECT_THAT(error_of("1f1b", forward),
              HasSubstr("schedule 1f1b is for training; for inference there are streaming, fill_drain, sequential"));
  EXPECT_THAT(error_of("streaming", training_shape("1f1b", 2, 2, 4)),
              HasSubstr("schedule streaming is for inference; for training there are gpipe"));
  EXPECT_EQ(error_of("interleaved", training_shape("interleaved", 4, 8, 6)),
            "schedule interleaved needs a multiple of 4 micro-batches, one for each device; there are 6");
  EXPECT_EQ(
      error_of("interleaved", training_shape("zb_v", 2, 4, 4)),
      "schedule interleaved needs stages dealt out in turn: p devices, a multiple of p stages, stage s on device s "
      "mod p");
  EXPECT_EQ(error_of("zb_v", training_shape("interleaved", 2, 4, 4)),
            "schedule zb_v needs the stages in a V: p devices, 2p stages, stages s and 2p - 1 - s on device s");
  EXPECT_EQ(
      error_of("dualpipe", training_shape("1f1b", 4, 4, 8)),
      "schedule dualpipe needs two pipelines against each other: an even number p of devices, p stages, stage s on "
      "devices s and p - 1 - s");
  EXPECT_EQ(error_of("dualpipe", training_shape("dualpipe", 4, 4, 7)),
            "schedule dualpipe needs an even number of micro-batches, at least 8, twice the devices; there are 7");
  EXPECT_EQ(error_of("dualpipe_v", training_shape("dualpipe_v", 2, 4, 3)),
            "schedule dualpipe_v needs at least 4 micro-batches, one for each stage; there are 3");
  EXPECT_EQ(
      make_placement(StagePlacement::v, 4, 6).error().message,
      "6 stages on 4 devices: placement v means the stages in a V: p devices, 2p stages, stages s and 2p - 1 - s on "
      "device s");
}

}  // namespace
}  // namespace nlsplit

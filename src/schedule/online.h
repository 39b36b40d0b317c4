// Online policies: a pure function that chooses the next slot whenever a device is free and has ready slots. Its
// decisions are logged as a table of slots, which can be replayed.
//
//   ASSIGN_OR_RETURN(const OnlinePolicy* policy, find_online_policy("longest_path"));
//   ASSIGN_OR_RETURN(OnlineRun run, run_online(input, *policy, {}));
//   SlotPlayer(input).play(run.table, &run.slot_seconds)    // the same times again, bit for bit
//
// run_online() here uses the input's durations, with jitter if wanted. The simulator (sim/runner.h) and the executor
// (exec/device_run.h) run Programs online and call the policy, each with its own clock.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "schedule/schedules.h"

namespace nlsplit::inline schedules {

// A slot whose inputs are there.
struct ReadySlot {
  ScheduledSlot slot;
  double since = 0;      // when the last input came
  double remaining = 0;  // length of the critical path from its start to the end of the step, by mean durations
};

// The state of a device, as the policy sees it.
struct DeviceState {
  int device = 0;
  double now = 0;
  std::span<const ScheduledSlot> done;  // its slots so far, in order
  int64_t kept_bytes = 0;               // run_online only; elsewhere a slot without free buffer instances is not ready
  std::span<const ScheduledSlot> table = {};  // replay only: the order it has to follow
};

struct OnlinePolicy {
  std::string_view name;
  std::string_view what;
  // The place in `ready` (never empty) of the slot to start; nothing: wait for more. Pure: equal arguments, equal
  // answers, or a log would not replay.
  std::optional<size_t> (*next)(std::span<const ReadySlot> ready, const DeviceState& state) = nullptr;
};
std::span<const OnlinePolicy> all_online_policies();
Result<const OnlinePolicy*> find_online_policy(std::string_view name);
// Follows DeviceState::table: the next slot, once it is ready. It repeats the decisions of a policy that never waits at
// the same times. Not among all_online_policies; find_online_policy finds it by its name, "replay".
const OnlinePolicy& replay_policy();

struct OnlineOptions {
  // Training: micro-batches between their first F and their W on stage 0; 0: all. Fewer keep less memory.
  int window = 0;
  // Every slot takes its duration times a number drawn evenly from 1 to 1 + jitter.
  double jitter = 0;
  uint64_t seed = 1;
  // Instead of jitter: a factor of each slot's duration, which the policy does not know beforehand.
  std::function<double(int device, const ScheduledSlot& slot)> stretch = {};
};
struct OnlineRun {
  SlotTable table;                                // what was decided
  std::vector<std::vector<double>> slot_seconds;  // [device][slot of the table]: what they took, jitter included
  std::vector<std::vector<double>> slot_starts;   // [device][slot]
  double makespan = 0;
};
// Forwards whose memory does not fit wait. A micro-batch goes to the replica that would finish it first. Error: the
// policy or the memory left every device waiting.
Result<OnlineRun> run_online(const ScheduleInput& input, const OnlinePolicy& policy, const OnlineOptions& options);

}  // namespace nlsplit::inline schedules

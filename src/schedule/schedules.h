// Scheduling policies: pure functions from (stages, micro-batches, times) to a table of slots for each device.
//
//   ASSIGN_OR_RETURN(SlotTable table, make_schedule("streaming", input));
//   table.devices[d] = {{stage 0, forward, micro-batch 0}, {0, forward, 1}, …}   in the order device d runs them
//
// Adding one: one file, one row in schedules.cc, one test with its published bubble and memory formulas.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace nlsplit {

// F forward; I input gradient; W weight gradient (B, a whole backward, is I then W); R recompute; step: the optimizer's
// update.
enum class Phase : uint8_t { init, forward, input_gradient, weight_gradient, recompute, step };
std::string_view name_of(Phase phase);  // init F I W R step
Result<Phase> parse_phase(std::string_view text);

struct ScheduledSlot {
  int stage = 0;
  Phase phase = Phase::forward;
  int micro_batch = 0;
  friend bool operator==(const ScheduledSlot&, const ScheduledSlot&) = default;
};

struct ScheduleInput {
  int micro_batches = 1;
  int devices = 0;                                 // of the plan, numbered from 0
  std::vector<std::vector<int>> stage_devices;     // [stage]: its device, or its replicas
  std::vector<std::vector<double>> stage_seconds;  // [stage][replica]: F of one micro-batch

  // Training only, else empty: the times of the other phases, and for policies that mind memory what a stage keeps of
  // one micro-batch from F until I, and from then until W.
  std::vector<std::vector<double>> input_gradient_seconds = {}, weight_gradient_seconds = {};  // [stage][replica]
  std::vector<Bytes> kept_until_input_gradient = {}, kept_until_weight_gradient = {};          // [stage]
  std::vector<Bytes> device_memory = {};  // [device]: left for what is kept; empty: no limit

  bool training() const { return !input_gradient_seconds.empty(); }
};

struct SlotTable {
  std::vector<std::vector<ScheduledSlot>> devices;  // in the order they run
  int banks = 1;  // how many micro-batches' worth of every communication buffer a device holds
};

struct SchedulePolicy {
  std::string_view name;
  std::string_view what;  // one line with its source
  Result<SlotTable> (*make)(const ScheduleInput& input);
};

std::span<const SchedulePolicy> all_schedules();
Result<SlotTable> make_schedule(std::string_view name,
                                const ScheduleInput& input);  // error: unknown name, with the list

}  // namespace nlsplit

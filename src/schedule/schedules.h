// Scheduling policies: pure functions from (stages, micro-batches, times) to a table of slots for each device.
//
//   ASSIGN_OR_RETURN(SlotTable table, make_schedule("streaming", input));
//   table.devices[d] = {{stage 0, forward, micro-batch 0}, {0, forward, 1}, …}   in the order device d runs them
//
// Adding one: one file, one row in schedules.def, one test with its published bubble and memory formulas.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace nlsplit::inline schedules {

// F forward; I input gradient; W weight gradient (B, a whole backward, is I then W); R recompute; step: the optimizer's
// update.
enum class Phase : uint8_t { init, forward, input_gradient, weight_gradient, recompute, step };
std::string_view name_of(Phase phase);  // init F I W R step
Result<Phase> parse_phase(std::string_view text);

struct ScheduledSlot {
  int stage = 0;
  Phase phase = Phase::forward;
  int micro_batch = 0;
  // Of I: it and the W directly after it are one backward, B, and the gradient leaves when both are done, as where one
  // call computes both. Without it the gradient leaves after I.
  bool whole = false;
  friend bool operator==(const ScheduledSlot&, const ScheduledSlot&) = default;
};

// The time of a micro-batch's messages on the routes into a replica, or on the routes out of it.
struct Way {
  double seconds = 0;                              // alone
  std::vector<std::pair<uint32_t, double>> lanes;  // link directions that other messages share, and how long each is
                                                   // busy
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
  std::vector<Bytes> device_memory = {};               // [device]: left for what is kept; empty: no limit
  std::vector<std::vector<double>> step_seconds = {};  // [stage][replica]; empty: no time

  // Of a micro-batch's message from stage s to s + 1, or of its gradient back, if the stages are on different devices.
  // It occupies no device. Empty: no time.
  std::vector<double> message_seconds = {};  // [stage], the last one's means nothing
  // Forward-only: [stage][replica], from the source and from stages with one device, and to the sink. None for a stage
  // whose replicas are equal and have equal routes. Empty: for no stage.
  std::vector<std::vector<Way>> ways_in = {}, ways_out = {};
  int in_flight = 0;  // for `streaming`: micro-batches to a buffer; 0: two

  // Where layers are split over devices their shards are stages that run side by side (partition/expand.h).
  std::vector<std::vector<int>> needs =
      {};                   // [stage]: the earlier ones it takes something from; empty: each the one before
  int pipeline_stages = 0;  // as many as there were before layers were split; 0: as many as there are

  bool training() const { return !input_gradient_seconds.empty(); }
};

struct SlotTable {
  std::vector<std::vector<ScheduledSlot>> devices;  // in the order they run
  int instances = 1;  // how many micro-batches' worth of every communication buffer a device holds
  // At most so many micro-batches between the first stage and the last: F of micro-batch m on stage 0 waits for F of
  // micro-batch m - in_flight on the last stage. 0: as many as the orders let in.
  int in_flight = 0;
  // Every buffer that holds a micro-batch has room for so many at least, whatever the orders need: an online policy may
  // want others.
  int room = 0;
};

enum class ScheduleMode { inference, training, both };

// Which stages a policy wants on which device; schedule/placement.h makes and checks them.
enum class StagePlacement {
  any,
  chain,     // one stage a device
  loop,      // p devices, v·p stages: stage s on device s mod p
  v,         // p devices, 2p stages: stages s and 2p - 1 - s on device s
  mirrored,  // p devices, p stages: stage s on devices s and p - 1 - s, once for each direction
};

struct SchedulePolicy {
  std::string_view name;
  std::string_view what;    // one line
  std::string_view source;  // the paper and its section; empty: none
  ScheduleMode mode = ScheduleMode::inference;
  StagePlacement placement = StagePlacement::any;
  Result<SlotTable> (*make)(const ScheduleInput& input) = nullptr;
};

std::string_view name_of(ScheduleMode mode);         // inference training both
std::string_view name_of(StagePlacement placement);  // any chain loop v mirrored

std::span<const SchedulePolicy> all_schedules();
Result<const SchedulePolicy*> find_schedule(std::string_view name);  // error: unknown, with the list

// "file:mine.csv" is a schedule too: the file's, its ranks being the devices (schedule/pipeline_csv.h).
inline constexpr std::string_view schedule_file_prefix = "file:";
// And "online:longest_path" (schedule/online_choice.h): the table is then that of its base.

// Errors: unknown name; a file that cannot be read or does not fit; a policy for training without the times of training
// or the reverse; a placement, a number of micro-batches or of stages that the policy cannot serve.
Result<SlotTable> make_schedule(std::string_view name, const ScheduleInput& input);

}  // namespace nlsplit::inline schedules

// Simulates a table of slots with the input's durations: makespan, idle times, kept memory.
//
//   ASSIGN_OR_RETURN(SlotTiming timing, evaluate(input, table));
//   timing.slots[d][i]     when the i-th slot of device d starts and finishes
//
// The rules are those of the Program without its buffers and shared links: a device runs its slots in order; F of a
// stage waits for F of the stage before, I for I of the stage after, on the last stage for F; between devices a message
// takes message_seconds; of a whole backward the gradient leaves after its W. What lowering adds (buffers, contended
// links, all-reduce) the simulator says.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/readiness.h"
#include "schedule/schedules.h"

namespace nlsplit::inline schedules {

struct SlotSpan {
  double start = 0;
  double finish = 0;
};

struct SlotTiming {
  std::vector<std::vector<SlotSpan>> slots;  // [device][place in its order]
  double makespan = 0;
  std::vector<double> busy;             // [device]
  std::vector<double> idle_between;     // [device]: idle between its first slot and its last
  std::vector<int> peak_micro_batches;  // [device]: of all its stages together, from F until W; inference: 0
  std::vector<Bytes> peak_kept;         // [device]

  double bubble() const;        // idle share of all devices' time until the makespan, 0 to 1
  double inner_bubble() const;  // the longest of idle_between: what the zero-bubble papers call the bubble
};

// What is wrong with a table, and where. The device and slot are -1 where the fault is that something is missing.
struct TableFault {
  int device = -1;
  int slot = -1;
  std::string reason;
};

// How messages call a place. A file's slots have columns of their own, because some of its cells are idle.
struct SlotNames {
  std::string_view device = "device";
  const std::vector<std::vector<int>>* columns = nullptr;  // [device][slot]

  std::string of(int device_index, int slot) const;  // "slot 3 of device 1"; slots count from 1
};

// Every micro-batch exactly once through every phase of every stage, on a device that hosts the stage and all on the
// same one; a step for every stage of a device after its last W; devices do not wait for each other in a circle; what
// is kept fits. Training tables have F, I, W and step, others F.
std::optional<TableFault> find_fault(const ScheduleInput& input, const SlotTable& table, const SlotNames& names = {});

// Error: the fault, as "slot 3 of device 1 (1F0): …".
Result<SlotTiming> evaluate(const ScheduleInput& input, const SlotTable& table);

// The most a device keeps on the way through this order.
Bytes most_kept(const ScheduleInput& input, const std::vector<ScheduledSlot>& order);

std::string to_string(const ScheduledSlot& slot);  // "2F0", as PyTorch writes it; "2step"

// The same play for a search that asks a million times: the table is known to hold every slot once; only whether it can
// be played and what it takes is new. No strings, no allocation after the first call.
class SlotPlayer {
 public:
  explicit SlotPlayer(const ScheduleInput& input);

  // False: devices wait for each other in a circle. `slot_seconds` [device][slot]: instead of the input's durations.
  bool play(const SlotTable& table, const std::vector<std::vector<double>>* slot_seconds = nullptr);

  double makespan() const { return makespan_; }
  const std::vector<std::vector<SlotSpan>>& spans() const { return spans_; }
  const std::vector<size_t>& reached() const { return next_; }  // [device]: the first slot that was not played
  // What the slot must wait for on another place: a slot; none for F of stage 0 and for step.
  std::optional<ScheduledSlot> waits_for(const SlotTable& table, const ScheduledSlot& slot) const;
  double seconds(int device, const ScheduledSlot& slot) const;

 private:
  size_t key(Phase phase, int stage, int micro_batch) const;
  double message(int from_stage, int from_device, int to_device) const;

  const ScheduleInput& input_;
  int stages_, micro_batches_;
  std::vector<std::vector<int>> replica_of_;  // [stage][device]: -1 if it does not host it
  std::vector<double> finish_;                // [key]: -1 not yet
  std::vector<int> device_of_;                // [stage · micro-batches + micro-batch]: where it was run
  Sleepers sleepers_;                         // devices, each on a [key]
  std::vector<size_t> next_;
  std::vector<double> free_;
  std::vector<uint32_t> runnable_;
  std::vector<std::vector<SlotSpan>> spans_;
  double makespan_ = 0;
};

}  // namespace nlsplit::inline schedules

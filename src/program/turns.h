// Whose turn it is on a device that is run online: the one way in which the simulator and the executor ask a policy.
//
//   turns.ready(7, true, {slot, now, remaining});      // all that slot 7 waits for is there
//   turns.next(now)                                    // the device is free: 7, or nothing if the policy waits
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "program/online.h"

namespace nlsplit::inline program {

class DeviceTurns {
 public:
  // `table`: what a replay follows. The policy and the table must outlive this.
  DeviceTurns(int device, const OnlinePolicy& policy, std::span<const ScheduledSlot> table)
      : device_(device), policy_(&policy), table_(table) {}

  // `number` is the caller's name of the slot; a policy is shown those that are ready by when they became so, then by
  // number. Who is not `asked_about` has its turn before all that are, the lowest
  // number first.
  void ready(int number, bool asked_about, const ReadySlot& slot);

  // Whose turn is next, now that the device is free; it is then no longer among those that are ready.
  std::optional<int> next(double now);

  // For messages: "could run 0F1, 0F2; its table has 0F3 next, which is not ready". Empty: nothing is ready.
  std::string waiting() const;
  std::string_view policy() const { return policy_->name; }

 private:
  struct Unasked {
    int number;
    ScheduledSlot slot;
  };
  void begin(const ScheduledSlot& slot);

  int device_;
  const OnlinePolicy* policy_;
  std::span<const ScheduledSlot> table_;
  std::vector<ReadySlot> ready_;
  std::vector<int> numbers_;  // of ready_
  std::vector<Unasked> unasked_;
  std::vector<ScheduledSlot> done_;
};

}  // namespace nlsplit::inline program

// Which slot a device runs next in an online run: the simulator and the executor both call the policy through this.
//
//   turns.ready(7, true, {slot, now, remaining});      // all inputs of slot 7 are there
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

  // A slot has become ready; `number` is the caller's number of it. The policy sees the ready slots in the order in
  // which they became ready, then by number. A slot with `asked_about` false runs before all others, without the
  // policy, the lowest number first.
  void ready(int number, bool asked_about, const ReadySlot& slot);

  // The slot to run, now that the device is free. It is removed from the ready slots.
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

// The queue of requests that wait for a slot of the batch, first come, first served; beyond a limit they are refused.
// Like the batch, the same code for the real server and the simulated one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "serving/batch.h"

namespace nlsplit::inline serving {

struct WaitingRequest {
  uint64_t id = 0;
  int64_t prompt = 0, tokens = 0;  // as Batch::join takes them
};

struct JoinedRequest {
  uint64_t id = 0;
  SlotChoice taken;
};

// Of a request that waits and the sequence that a slot has or had last: as CommonPrefix.
using CommonPrefixOf = std::function<int64_t(uint64_t id, size_t slot)>;

class Admission {
 public:
  // most_waiting: beside those that run.
  Admission(BatchForm form, int64_t most_waiting) : batch_(std::move(form)), most_waiting_(most_waiting) {}

  Batch& batch() { return batch_; }
  const Batch& batch() const { return batch_; }
  int64_t waiting() const { return std::ssize(waiting_); }

  // false: there are as many as may wait and run.
  bool offer(const WaitingRequest& request);
  // The one that waited longest takes a free slot, as Batch::slot_for says. Nothing: none waits, or no slot is free.
  // Before the next call `common` must know that the slot has another sequence.
  std::optional<JoinedRequest> admit(const CommonPrefixOf& common);
  // The batch's next execution. A preempted request waits again, in front of all others.
  BatchStep step();
  // false: it does not wait.
  bool withdraw(uint64_t id);

 private:
  Batch batch_;
  int64_t most_waiting_;
  std::deque<WaitingRequest> waiting_;
  std::vector<uint64_t> in_slot_ = std::vector<uint64_t>(static_cast<size_t>(batch_.form().slots), 0);  // had it last
};

}  // namespace nlsplit::inline serving

// Writes new inputs of micro-batches between executions that were chosen at once (Choice::refill): gets each ended
// instance of device 0, and calls `write` for a micro-batch once its previous inputs are no longer needed.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "program/session.h"

namespace nlsplit::inline exec {

class Refills {
 public:
  explicit Refills(const Sequence& sequence);

  // Before the executions. `write`: as Chosen::refill_with.
  void begin(std::function<void(int execution, int micro_batch)> write);
  // By any thread, before what waits for the instance begins.
  void ended(uint32_t instance);

 private:
  const std::vector<Refilling>& refillings_;
  std::vector<std::vector<uint32_t>> waiting_;  // [instance]: refillings that it is in the way of
  std::mutex mutex_;                            // for what follows
  std::vector<size_t> missing_;                 // [refilling]: instances that have not ended
  std::function<void(int, int)> write_;
};

}  // namespace nlsplit::inline exec

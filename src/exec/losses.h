// LossRecord: records the losses of training steps, and the norms of their gradients. The steps follow each other
// without a barrier, and each overwrites the outputs of the one before.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "program/session.h"

namespace nlsplit::inline exec {

struct ExecutionLoss {
  int64_t execution = 0;
  double mean = 0;                                                  // over its micro-batches
  double gradient_norm = std::numeric_limits<double>::quiet_NaN();  // not a number: the step does not clip
};

class LossRecord {
 public:
  // Of one device. The sequence is borrowed.
  LossRecord(const Sequence& sequence, int device);
  bool empty() const { return values_.empty(); }
  void begin();                                           // before the sequence runs, again
  void ended(uint32_t instance, const std::byte* arena);  // DeviceRunOptions::ended; several threads may
  std::vector<ExecutionLoss> means() const;               // of the executions whose losses come here

 private:
  const DeviceProgram& device_;
  const Instance* instances_;   // the device's
  std::vector<int64_t> place_;  // [instance]: index of values_; -1: it makes no loss
  std::vector<float> values_;   // [execution][micro-batch]
  std::vector<char> made_;      // the same: whether it came here
  std::vector<int> norm_of_;    // [instance]: the execution whose norm it makes; -1: none
  std::vector<float> norms_;    // [execution]
  size_t executions_ = 0, micro_batches_ = 0;
};

}  // namespace nlsplit::inline exec

// LossRecord: the losses of training steps that follow each other without a barrier: what one leaves in its output the
// next one overwrites.
#pragma once

#include <cstdint>
#include <vector>

#include "program/session.h"

namespace nlsplit::inline exec {

struct ExecutionLoss {
  int64_t execution = 0;
  double mean = 0;  // over its micro-batches
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
  size_t executions_ = 0, micro_batches_ = 0;
};

}  // namespace nlsplit::inline exec

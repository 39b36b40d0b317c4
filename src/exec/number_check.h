// NumberCheck: finds the computation that first makes NaN or an infinity. It checks the results of every computation of
// a device, which takes a second pass over memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "program/session.h"

namespace nlsplit::inline exec {

class NumberCheck {
 public:
  // Of one device. The sequence is borrowed.
  NumberCheck(const Sequence& sequence, int device);
  void ended(uint32_t instance, const std::byte* arena);  // DeviceRunOptions::ended; several threads may
  // The first computation with such a result and finite operands, and the place in its result; empty: none.
  const std::string& found() const { return found_; }

 private:
  const Program& program_;
  const DeviceProgram& device_;
  const Instance* instances_;  // the device's
  std::mutex mutex_;
  std::string found_;
};

}  // namespace nlsplit::inline exec

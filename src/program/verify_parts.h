// What verify (program/verify.h) consists of, beside what it shares with others.
#pragma once

#include <vector>

#include "program/dependencies.h"
#include "program/verify.h"

namespace nlsplit::inline program {

// Every instruction of a device: its operands fit, its kernel exists and accepts, its workspace suffices, and nothing
// but the kernel a weight is packed for touches it. The structure must be sound. A description that several devices
// share is judged once.
class InstructionChecker {
 public:
  explicit InstructionChecker(const Program& program) : program_(program), known_(program.descs.size(), false) {}
  Status check(size_t device);

 private:
  Status check_instr(const DeviceProgram& device, const Instr& instr, std::vector<bool>& read_packed);
  // read_packed: [buffer]: a kernel reads it as it is packed.
  Status check_kernel(const DeviceProgram& device, const Instr& instr, std::vector<bool>& read_packed);

  const Program& program_;
  std::vector<bool> known_;  // [desc]: it was judged
};

// Buffers that overlap in their arena must never hold values at the same time.
class OverlapChecker {
 public:
  OverlapChecker(const Program& program, const Dependencies& dependencies, const std::vector<uint32_t>& order);
  Status check(size_t device) const;

 private:
  const Program& program_;
  const Dependencies& dependencies_;
  const std::vector<uint32_t>& order_;
};

}  // namespace nlsplit::inline program

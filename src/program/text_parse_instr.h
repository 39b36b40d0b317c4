// One line of a segment → Instr: what is moved, reduced or computed, with the names of its device's buffers.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text_reader.h"
#include "program/program.h"

namespace nlsplit::inline program {

class InstrParser {
 public:
  // Computations are added to `program`; devices: by name. All of them must outlive the parser; `file` is for messages.
  InstrParser(TextReader& in, std::string file, Program& program, const std::map<std::string, int>& devices)
      : in_(in), file_(std::move(file)), program_(program), devices_(devices) {}

  // What stands behind "collective", up to its {. buffers: of its device.
  Result<Collective> collective(const std::unordered_map<std::string, BufferId>& buffers);
  // The current line of `in`, which belongs to this device, with its buffers by name.
  Result<Instr> parse(const DeviceProgram& device, const std::unordered_map<std::string, BufferId>& buffers);

 private:
  Result<Instr> instruction();
  Result<Operand> operand();
  Result<std::pair<int64_t, int64_t>> split_range(std::string_view range);
  Result<std::vector<Operand>> operands(std::string_view closing);
  Result<int> device();
  Status transfer(Instr& instr);
  Status movement(Instr& instr);
  Status compute(Instr& instr, std::string_view word);
  int intern(const ComputeDesc& desc);

  TextReader& in_;
  std::string file_;
  Program& program_;
  const std::map<std::string, int>& devices_;
  const DeviceProgram* device_ = nullptr;  // of the line being read
  const std::unordered_map<std::string, BufferId>* buffers_ = nullptr;
  std::unordered_map<std::string, int> descs_;  // by signature and weights
};

}  // namespace nlsplit::inline program

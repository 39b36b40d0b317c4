#include "planning/profile_sums.h"

#include <fmt/format.h>

#include <array>

#include "base/units.h"

namespace nlsplit::inline planning {
namespace {

constexpr int64_t least_elements = 1 << 8, most_elements = 1 << 20, growth = 4;
constexpr std::array<int64_t, 4> operand_counts = {2, 3, 4, 8};

Buffer vector_buffer(const std::string& name, BufferKind kind, int64_t elements, int64_t offset) {
  Buffer buffer;
  buffer.name = name;
  buffer.type = {DType::f32, {elements}};
  buffer.kind = kind;
  buffer.bytes = size_of(buffer.type);
  buffer.offset = offset;
  return buffer;
}

}  // namespace

Program sums_program(const std::string& model, const Device& device, const std::string& host) {
  Program program;
  program.name = fmt::format("{} [sums of gradients]", model);
  DeviceProgram& out = program.devices.emplace_back();
  out.name = device.name;
  out.kind = device.kind;
  out.host = host;
  out.level = device.level;
  out.cores = device.cores;
  const BufferId terms(0), sum(1);
  out.buffers.push_back(vector_buffer("terms", BufferKind::input, operand_counts.back() * most_elements, 0));
  out.buffers.push_back(vector_buffer("sum", BufferKind::output, most_elements, out.buffers[0].stride()));
  out.arena = bytes(out.buffers[1].offset + out.buffers[1].stride());
  out.memory = out.arena;
  Segment& segment = out.segments.emplace_back();
  segment.name = "F0";
  for (int64_t elements = least_elements; elements <= most_elements; elements *= growth) {
    for (const int64_t count : operand_counts) {
      Instr& instr = segment.instrs.emplace_back();
      instr.opcode = Opcode::reduce;
      for (int64_t i = 0; i < count; ++i) instr.reads.push_back({terms, i * elements, (i + 1) * elements});
      instr.writes = {{sum, 0, elements}};
      instr.label = fmt::format("sum of {} times {}", count, elements);
    }
  }
  out.order.push_back({0, 0, {}});
  return program;
}

}  // namespace nlsplit::inline planning

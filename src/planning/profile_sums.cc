#include "planning/profile_sums.h"

#include <fmt/format.h>

#include <array>

#include "base/units.h"
#include "program/append_buffer.h"
#include "program/data_movement.h"

namespace nlsplit::inline planning {
namespace {

constexpr int64_t least_elements = 1 << 8, most_elements = 1 << 20, growth = 4;
constexpr std::array<int64_t, 4> operand_counts = {2, 3, 4, 8};

Instr labelled_cast(Program& program, const DeviceProgram& device, const Operand& from, const Operand& to) {
  Instr instr = cast_instr(program, device, from, to);
  const TensorType type = type_of(device, to);
  instr.label = fmt::format("{} as {}", type.shape[0], name_of(type.dtype));
  return instr;
}

}  // namespace

Program sums_program(const std::string& model, const Device& device, const std::string& host, DType messages) {
  Program program;
  program.name = fmt::format("{} [sums of gradients]", model);
  DeviceProgram& out = program.devices.emplace_back();
  out.name = device.name;
  out.kind = device.kind;
  out.host = host;
  out.level = device.level;
  out.cores = device.cores;
  const BufferId terms =
      append_buffer(out, "terms", {DType::f32, {operand_counts.back() * most_elements}}, BufferKind::input);
  const BufferId sum = append_buffer(out, "sum", {DType::f32, {most_elements}}, BufferKind::output);
  const bool converts = messages != DType::f32;
  const BufferId message =
      converts ? append_buffer(out, "message", {messages, {most_elements}}, BufferKind::scratch) : BufferId();
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
    if (!converts) continue;
    segment.instrs.push_back(labelled_cast(program, out, {terms, 0, elements}, {message, 0, elements}));
    segment.instrs.push_back(labelled_cast(program, out, {message, 0, elements}, {sum, 0, elements}));
  }
  out.order.push_back({0, 0, {}});
  return program;
}

}  // namespace nlsplit::inline planning

// Program → text. text_parse.cc is the way back; both follow the grammar of docs/program.md.
#include "program/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/hash.h"
#include "base/text_reader.h"
#include "program/text_words.h"

namespace nlsplit::inline program {
namespace {

using Out = std::back_insert_iterator<std::string>;

void print_operand(std::string& out, const DeviceProgram& device, const Operand& operand) {
  if (!operand.buffer.valid()) {
    out += no_operand_word;
    return;
  }
  out += name_word(device.buffer(operand.buffer).name);
  if (!operand.whole()) fmt::format_to(Out(out), "[{}:{}]", operand.begin, operand.end);
}

void print_operands(std::string& out, const DeviceProgram& device, std::span<const Operand> operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i > 0) out += ", ";
    print_operand(out, device, operands[i]);
  }
}

void print_attrs(std::string& out, const Attrs& attrs) {
  if (!attrs.empty()) out += " " + to_string(attrs);
}

// Nothing where the operands are stored as these types.
void print_types(std::string& out, const DeviceProgram& device, std::string_view word,
                 std::span<const Operand> operands, std::span<const TensorType> types) {
  const auto stored_as = [&](const Operand& operand, const TensorType& type) {
    return operand.buffer.valid() && type_of(device, operand) == type;
  };
  if (std::ranges::equal(operands, types, stored_as)) return;
  fmt::format_to(Out(out), " {}", word);
  for (const TensorType& type : types) fmt::format_to(Out(out), " {}", to_string(type));
}

void print_compute(std::string& out, const Program& program, const DeviceProgram& device, const Instr& instr) {
  const ComputeDesc& desc = program.descs[static_cast<size_t>(instr.desc)];
  const std::span<const Operand> reads(instr.reads);
  size_t next = reads.size() - std::min(desc.operand_count(), reads.size());
  fmt::format_to(Out(out), "{}(", name_of(desc.op));
  print_operands(out, device, reads.subspan(0, next));
  out += ")";
  print_attrs(out, desc.attrs);
  for (const DescStep& step : desc.epilogue) {
    fmt::format_to(Out(out), " + {}", name_of(step.op));
    if (has(step.op, traits::is_step_with_operand) && next < reads.size()) {
      out += "(";
      print_operand(out, device, reads[next++]);
      out += ")";
    }
    print_attrs(out, step.attrs);
  }
  fmt::format_to(Out(out), " kernel {}", to_string(desc.kernel));
  if (instr.workspace.buffer.valid()) {
    out += " workspace ";
    print_operand(out, device, instr.workspace);
  }
  print_types(out, device, takes_word, instr.reads, desc.inputs);
  print_types(out, device, makes_word, instr.writes, desc.outputs);
}

void print_instr(std::string& out, const Program& program, const DeviceProgram& device, const Instr& instr) {
  const auto peer = [&] { return name_word(program.devices[static_cast<size_t>(instr.peer)].name); };
  switch (instr.opcode) {
    case Opcode::send:
      out += "send ";
      print_operand(out, device, instr.reads[0]);
      fmt::format_to(Out(out), " to {} tag {}", peer(), instr.tag);
      break;
    case Opcode::recv:
      out += "recv ";
      print_operand(out, device, instr.writes[0]);
      fmt::format_to(Out(out), " from {} tag {}", peer(), instr.tag);
      break;
    case Opcode::compute:
      print_operands(out, device, instr.writes);
      out += " = ";
      print_compute(out, program, device, instr);
      break;
    case Opcode::reduce:
    case Opcode::copy:
    case Opcode::pack:
    case Opcode::unpack:
      print_operands(out, device, instr.writes);
      fmt::format_to(Out(out), " = {}(", name_of(instr.opcode));
      print_operands(out, device, instr.reads);
      out += ")";
      if (instr.opcode == Opcode::pack || instr.opcode == Opcode::unpack) {
        fmt::format_to(Out(out), " axis {} begin {} end {}", instr.axis, instr.begin, instr.end);
      }
      break;
  }
  if (!instr.label.empty()) fmt::format_to(Out(out), " as {}", quote(instr.label));
}

void print_buffer(std::string& out, const DeviceProgram& device, const Buffer& buffer) {
  fmt::format_to(Out(out), "  buffer {} {} {}", name_word(buffer.name), to_string(buffer.type), name_of(buffer.kind));
  if (buffer.kind == BufferKind::view) {
    fmt::format_to(Out(out), " of {}\n", name_word(device.buffer(buffer.of).name));
    return;
  }
  fmt::format_to(Out(out), " bytes {} instances {}", buffer.bytes.value(), buffer.instances);
  if (buffer.max) fmt::format_to(Out(out), " max {}", *buffer.max);
  if (const auto& part = buffer.part; part)
    fmt::format_to(Out(out), " part of {} axis {} begin {} extent {}", name_word(part->whole), part->axis, part->begin,
                   part->of);
  fmt::format_to(Out(out), " at {}", buffer.offset);
  if (buffer.has_content) fmt::format_to(Out(out), " content {}", hex16(buffer.content.value));
  if (!buffer.packed_for.empty())
    fmt::format_to(Out(out), " packed_for {} input {}", to_string(buffer.packed_for), buffer.packed_input);
  out += "\n";
}

void print_segment(std::string& out, const Program& program, const DeviceProgram& device, const Segment& segment) {
  fmt::format_to(Out(out), "  segment {} stage {} shard {} phase {}\n", name_word(segment.name),
                 segment.stage == io_stage ? std::string(io_stage_word) : fmt::format("{}", segment.stage),
                 segment.shard, name_of(segment.phase));
  int region = -1, begun = 0;  // collectives
  const auto begin = [&](const Collective& collective) {
    fmt::format_to(Out(out), "    {} {{\n", to_string(program, device, collective));
  };
  for (const Instr& instr : segment.instrs) {
    if (instr.collective != region && region >= 0) out += "    }\n";
    if (instr.collective != region && instr.collective >= 0) {
      if (instr.collective < begun) fmt::format_to(Out(out), "    collective {} {{\n", instr.collective);
      for (; begun <= instr.collective; ++begun) {  // before its own: those whose instructions come later
        begin(segment.collectives[static_cast<size_t>(begun)]);
        if (begun < instr.collective) out += "    }\n";
      }
    }
    region = instr.collective;
    out += region >= 0 ? "      " : "    ";
    print_instr(out, program, device, instr);
    out += "\n";
  }
  if (region >= 0) out += "    }\n";
}

void print_device(std::string& out, const Program& program, const DeviceProgram& device) {
  fmt::format_to(Out(out), "\ndevice {} {} host {} isa {}{} memory {} arena {}\n", name_word(device.name),
                 name_of(device.kind), name_word(device.host), name_of(device.level),
                 device.cores == 1 ? "" : fmt::format(" cores {}", device.cores), device.memory.value(),
                 device.arena.value());
  for (const Buffer& buffer : device.buffers) print_buffer(out, device, buffer);
  for (const Segment& segment : device.segments) print_segment(out, program, device, segment);
  out += "  order\n";
  for (const Slot& slot : device.order) {
    fmt::format_to(Out(out), "    {}", slot_name(device, slot));
    for (const InstanceUse& use : slot.instances)
      fmt::format_to(Out(out), " {}:{}", name_word(device.buffer(use.buffer).name), use.instance);
    out += "\n";
  }
}

std::string body_of(const Program& program) {
  std::string out =
      fmt::format("program {} batch {} micro_batches {} eager_limit {} nic_window {}\n", quote(program.name),
                  program.batch, program.micro_batches, program.eager_limit.value(), program.nic_window);
  for (const DeviceProgram& device : program.devices) print_device(out, program, device);
  return out;
}

}  // namespace

std::string name_word(std::string_view name) {
  constexpr std::array<std::string_view, 11> taken = {
      "send", "recv", "collective", "segment", "order", "buffer", "device", no_operand_word, "+", "-", "}"};
  const bool plain = !name.empty() && std::find(taken.begin(), taken.end(), name) == taken.end() &&
                     std::all_of(name.begin(), name.end(), [](char c) {
                       return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                              std::string_view("_./:%+-@$").find(c) != std::string_view::npos;
                     });
  return plain ? std::string(name) : quote(name);
}

std::string slot_name(const DeviceProgram& device, const Slot& slot) {
  const std::string segment = name_word(device.segments[static_cast<size_t>(slot.segment)].name);
  return slot.micro_batch < 0 ? segment + ".-" : fmt::format("{}.{}", segment, slot.micro_batch);
}

std::string to_string(const Program& program, const DeviceProgram& device, const Instr& instr) {
  std::string out;
  print_instr(out, program, device, instr);
  return out;
}

std::string to_string(const Program& program, const DeviceProgram& device, const Collective& collective) {
  std::vector<std::string> group;
  for (const int member : collective.group)
    group.push_back(name_word(program.devices[static_cast<size_t>(member)].name));
  std::string out =
      fmt::format("collective {} {} of {} elements {}", name_of(collective.kind), name_of(collective.algorithm),
                  fmt::join(group, ", "), fmt::join(collective.elements, ", "));
  if (!collective.native) return out;
  out += " native ";
  print_operand(out, device, collective.native->value);
  if (collective.native->result != collective.native->value) {
    out += " to ";
    print_operand(out, device, collective.native->result);
  }
  return out;
}

std::string to_string(const Program& program) {
  const std::string body = body_of(program);
  return fmt::format("{} {} {} fingerprint {}\n{}", format_word, kind_word, format_version, hex16(hash_text(body)),
                     body);
}

uint64_t fingerprint(const Program& program) { return hash_text(body_of(program)); }

}  // namespace nlsplit::inline program

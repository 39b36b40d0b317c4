#include "program/text_parse_instr.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "graph/attr_text.h"
#include "kernels/signature.h"
#include "program/text_fields.h"
#include "program/text_words.h"

namespace nlsplit::inline program {

Result<Instr> InstrParser::parse(const DeviceProgram& device,
                                 const std::unordered_map<std::string, BufferId>& buffers) {
  device_ = &device;
  buffers_ = &buffers;
  return instruction();
}

Result<Operand> InstrParser::operand() {
  Operand operand;
  if (in_.accept(no_operand_word)) return operand;
  ASSIGN_OR_RETURN(const std::string buffer, read_name(in_, "a buffer"));
  const auto found = buffers_->find(buffer);
  if (found == buffers_->end()) {
    std::vector<std::string> known;
    for (const auto& [name, id] : *buffers_) known.push_back(name);
    std::sort(known.begin(), known.end());
    return unknown_name(in_, "buffer", buffer, nearest(buffer, known));
  }
  operand.buffer = found->second;
  if (in_.accept("[")) {
    ASSIGN_OR_RETURN(const std::string_view range, in_.word("a slice begin:end"));
    ASSIGN_OR_RETURN(const auto ends, split_range(range));
    std::tie(operand.begin, operand.end) = ends;
    RETURN_IF_ERROR(in_.expect("]"));
  }
  return operand;
}

Result<std::pair<int64_t, int64_t>> InstrParser::split_range(std::string_view range) {
  const size_t colon = range.find(':');
  TextReader left(range.substr(0, colon), file_);
  TextReader right(colon == std::string_view::npos ? "" : range.substr(colon + 1), file_);
  if (colon != std::string_view::npos && left.next_line() && right.next_line()) {
    const auto begin = left.integer("begin"), end = right.integer("end");
    if (begin.ok() && end.ok() && *begin >= 0 && *begin < *end) return std::pair(*begin, *end);
  }
  return in_.error("a slice is [begin:end], elements, begin < end");
}

Result<std::vector<Operand>> InstrParser::operands(std::string_view closing) {
  std::vector<Operand> list;
  if (in_.accept(closing)) return list;
  while (true) {
    ASSIGN_OR_RETURN(list.emplace_back(), operand());
    if (in_.accept(closing)) return list;
    RETURN_IF_ERROR(in_.expect(","));
  }
}

Result<int> InstrParser::device() {
  ASSIGN_OR_RETURN(const std::string name, read_name(in_, "a device"));
  const auto found = devices_.find(name);
  if (found != devices_.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [other, id] : devices_) known.push_back(other);
  return unknown_name(in_, "device", name, nearest(name, known));
}

Result<Collective> InstrParser::collective(const std::unordered_map<std::string, BufferId>& buffers) {
  buffers_ = &buffers;
  Collective collective;
  ASSIGN_OR_RETURN(const std::string_view kind_word, in_.word("a collective"));
  const auto kind = parse_collective(kind_word);
  if (!kind) return in_.error(kind.error().message);
  collective.kind = *kind;
  ASSIGN_OR_RETURN(const std::string_view word, in_.word("an algorithm"));
  const auto algorithm = parse_algorithm(*kind, word);
  if (!algorithm) return in_.error(algorithm.error().message);
  collective.algorithm = *algorithm;
  RETURN_IF_ERROR(in_.expect("of"));
  while (true) {
    ASSIGN_OR_RETURN(collective.group.emplace_back(), device());
    if (in_.accept("elements")) break;
    RETURN_IF_ERROR(in_.expect(","));
  }
  while (true) {
    ASSIGN_OR_RETURN(collective.elements.emplace_back(), in_.integer("elements"));
    if (!in_.accept(",")) break;
  }
  if (in_.accept("native")) {
    NativeBytes& native = collective.native.emplace();
    ASSIGN_OR_RETURN(native.value, operand());
    native.result = native.value;
    if (in_.accept("to")) {
      ASSIGN_OR_RETURN(native.result, operand());
    }
  }
  RETURN_IF_ERROR(in_.expect("{"));
  return collective;
}

Status InstrParser::transfer(Instr& instr) {
  const bool sends = instr.opcode == Opcode::send;
  ASSIGN_OR_RETURN(Operand moved, operand());
  (sends ? instr.reads : instr.writes).push_back(moved);
  RETURN_IF_ERROR(in_.expect(sends ? "to" : "from"));
  ASSIGN_OR_RETURN(instr.peer, device());
  RETURN_IF_ERROR(in_.expect("tag"));
  ASSIGN_OR_RETURN(instr.tag, read_small(in_, "a tag"));
  return ok_status();
}

Result<Instr> InstrParser::instruction() {
  Instr instr;
  if (in_.accept("send")) {
    instr.opcode = Opcode::send;
    RETURN_IF_ERROR(transfer(instr));
  } else if (in_.accept("recv")) {
    instr.opcode = Opcode::recv;
    RETURN_IF_ERROR(transfer(instr));
  } else {
    ASSIGN_OR_RETURN(instr.writes, operands("="));
    ASSIGN_OR_RETURN(const std::string_view word, in_.word("an operator"));
    bool moves = false;
    for (const Opcode opcode : {Opcode::reduce, Opcode::copy, Opcode::pack, Opcode::unpack}) {
      if (name_of(opcode) != word) continue;
      instr.opcode = opcode;
      moves = true;
    }
    if (moves) {
      RETURN_IF_ERROR(movement(instr));
    } else {
      RETURN_IF_ERROR(compute(instr, word));
    }
  }
  if (in_.accept("as")) {
    ASSIGN_OR_RETURN(instr.label, in_.quoted("a label"));
  }
  RETURN_IF_ERROR(in_.end_of_line());
  return instr;
}

Status InstrParser::movement(Instr& instr) {
  RETURN_IF_ERROR(in_.expect("("));
  ASSIGN_OR_RETURN(instr.reads, operands(")"));
  if (instr.opcode == Opcode::pack || instr.opcode == Opcode::unpack) {
    RETURN_IF_ERROR(in_.expect("axis"));
    ASSIGN_OR_RETURN(instr.axis, read_small(in_, "an axis"));
    ASSIGN_OR_RETURN(instr.begin, read_keyed(in_, "begin"));
    ASSIGN_OR_RETURN(instr.end, read_keyed(in_, "end"));
  }
  return ok_status();
}

Status InstrParser::compute(Instr& instr, std::string_view word) {
  instr.opcode = Opcode::compute;
  ComputeDesc desc;
  auto op = parse_op(word);
  if (!op) return in_.error(op.error().message);
  desc.op = *op;
  RETURN_IF_ERROR(in_.expect("("));
  ASSIGN_OR_RETURN(instr.reads, operands(")"));
  if (in_.peek() == "{") {
    ASSIGN_OR_RETURN(desc.attrs, parse_attrs(in_));
  }
  while (in_.accept("+")) {
    DescStep step;
    ASSIGN_OR_RETURN(const std::string_view step_word, in_.word("an element-wise operator"));
    auto step_op = parse_op(step_word);
    if (!step_op) return in_.error(step_op.error().message);
    step.op = *step_op;
    if (!has(step.op, traits::is_step) && !has(step.op, traits::is_step_with_operand)) {
      return in_.error(fmt::format("{} is not element-wise and cannot follow another operator", step_word));
    }
    if (has(step.op, traits::is_step_with_operand)) {
      RETURN_IF_ERROR(in_.expect("("));
      ASSIGN_OR_RETURN(instr.reads.emplace_back(), operand());
      RETURN_IF_ERROR(in_.expect(")"));
    }
    if (in_.peek() == "{") {
      ASSIGN_OR_RETURN(step.attrs, parse_attrs(in_));
    }
    desc.epilogue.push_back(std::move(step));
  }
  RETURN_IF_ERROR(in_.expect("kernel"));
  ASSIGN_OR_RETURN(desc.kernel, read_kernel(in_));
  if (in_.accept("workspace")) {
    ASSIGN_OR_RETURN(instr.workspace, operand());
  }
  for (size_t i = 0; i < instr.reads.size(); ++i) {
    const Operand& read = instr.reads[i];
    if (!read.buffer.valid()) return in_.error("a computation's operands cannot be left out");
    desc.inputs.push_back(type_of(*device_, read));
    const bool constant = device_->buffer(read.buffer).kind == BufferKind::weight;  // a view is none, as in describe
    if (constant && i < 64) desc.weights |= uint64_t{1} << i;
  }
  for (const Operand& write : instr.writes) {
    if (!write.buffer.valid()) return in_.error("a result cannot be left out");
    desc.outputs.push_back(type_of(*device_, write));
  }
  for (const auto& [word, types] : {std::pair{takes_word, &desc.inputs}, std::pair{makes_word, &desc.outputs}}) {
    if (!in_.accept(word)) continue;
    for (TensorType& type : *types) {
      ASSIGN_OR_RETURN(type, read_type(in_));
    }
  }
  instr.desc = intern(desc);
  return ok_status();
}

int InstrParser::intern(const ComputeDesc& desc) {
  const auto [at, added] = descs_.try_emplace(fmt::format("{} {}", signature(desc), desc.weights), 0);
  if (added) {
    at->second = static_cast<int>(program_.descs.size());
    program_.descs.push_back(desc);
  }
  return at->second;
}

}  // namespace nlsplit::inline program

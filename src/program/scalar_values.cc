#include "program/scalar_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "graph/reference/evaluate.h"
#include "program/scalars.h"
#include "program/verify.h"

namespace nlsplit::inline program {
namespace {

bool counts(DType type) { return type == DType::i64 || type == DType::i32 || type == DType::boolean; }

// One of integers and truth values alone: the reference evaluator computes it.
bool is_counted(const ComputeDesc& desc) {
  const auto known = [](const TensorType& type) { return counts(type.dtype); };
  return std::ranges::all_of(desc.inputs, known) && std::ranges::all_of(desc.outputs, known);
}

// A buffer's instance, as far as its bytes are known.
struct Contents {
  std::string bytes;
  std::string known;  // [byte]: 1
};

class Values {
 public:
  Values(const Program& program, const Dependencies& deps, const GivenScalars& given)
      : program_(program), deps_(deps), given_(given) {}

  Result<ScalarTable> run() {
    find_wanted();
    RETURN_IF_ERROR(begin());
    table_.row.assign(deps_.instances.size(), -1);
    ASSIGN_OR_RETURN(const std::vector<uint32_t> order, dry_run(program_, deps_));
    for (const uint32_t i : order) RETURN_IF_ERROR(step(i));
    table_.unknown.assign(unknown_.begin(), unknown_.end());
    return std::move(table_);
  }

 private:
  const DeviceProgram& device_of(const Instance& at) const { return program_.devices[static_cast<size_t>(at.device)]; }
  const ComputeDesc& desc_of(const Instr& instr) const { return program_.descs[static_cast<size_t>(instr.desc)]; }

  bool wanted(size_t d, const Operand& operand) const {
    return wanted_[d][program_.devices[d].root(operand.buffer).index()];
  }
  bool want(size_t d, const Operand& operand) {
    if (!operand.buffer.valid() || wanted(d, operand)) return false;
    wanted_[d][program_.devices[d].root(operand.buffer).index()] = true;
    return true;
  }

  // The buffers that scalars come from, back through all that writes them.
  void find_wanted() {
    for (const DeviceProgram& device : program_.devices) wanted_.emplace_back(device.buffers.size(), false);
    std::set<std::pair<const Instr*, const Instr*>> messages;  // recv, send
    std::map<const Instr*, size_t> sender;
    for (uint32_t i = 0; i < deps_.instances.size(); ++i) {
      const Instr& instr = instr_of(program_, deps_.instances[i]);
      if (instr.opcode != Opcode::recv) continue;
      const Instance& from = deps_.instances[deps_.match[i]];
      messages.emplace(&instr, &instr_of(program_, from));
      sender[&instr] = static_cast<size_t>(from.device);
    }
    for (bool more = true; more;) {
      more = false;
      for (size_t d = 0; d < program_.devices.size(); ++d) {
        for (const Segment& segment : program_.devices[d].segments) {
          for (const Instr& instr : segment.instrs) more = want_reads(d, instr) || more;
        }
      }
      for (const auto& [recv, send] : messages) {
        const auto to = static_cast<size_t>(send->peer);
        if (wanted(to, recv->writes[0])) more = want(sender[recv], send->reads[0]) || more;
      }
    }
  }

  bool want_reads(size_t d, const Instr& instr) {
    bool more = false;
    if (instr.opcode == Opcode::compute && reads_scalars(desc_of(instr))) {
      for (const size_t i : scalar_inputs(desc_of(instr))) more = want(d, instr.reads[i]) || more;
    }
    if (is_transfer(instr.opcode) || !carries(instr)) return more;
    if (std::ranges::none_of(instr.writes, [&](const Operand& write) { return wanted(d, write); })) return more;
    for (const Operand& read : instr.reads) more = want(d, read) || more;
    return more;
  }

  // Whether its results are known where its operands are.
  bool carries(const Instr& instr) const {
    switch (instr.opcode) {
      case Opcode::compute:
        return is_counted(desc_of(instr));
      case Opcode::reduce:  // of floats
        return false;
      case Opcode::copy:
      case Opcode::pack:
      case Opcode::unpack:
      case Opcode::send:
      case Opcode::recv:
        return true;
    }
    CHECK(false, "unknown opcode");
  }

  // ---- contents

  Status begin() {
    for (size_t d = 0; d < program_.devices.size(); ++d) {
      const DeviceProgram& device = program_.devices[d];
      std::vector<std::vector<Contents>>& of_device = contents_.emplace_back(device.buffers.size());
      for (size_t b = 0; b < device.buffers.size(); ++b) {
        if (!wanted_[d][b]) continue;
        const auto size = static_cast<size_t>(size_of(device.buffers[b].type).value());
        of_device[b].assign(static_cast<size_t>(device.buffers[b].instances),
                            {std::string(size, '\0'), std::string(size, 0)});
        RETURN_IF_ERROR(fill(device, device.buffers[b], of_device[b]));
      }
    }
    return ok_status();
  }

  Status fill(const DeviceProgram& device, const Buffer& buffer, std::vector<Contents>& instances) const {
    const size_t size = instances.front().bytes.size();
    std::optional<std::string> bytes;  // of all instances
    if (buffer.kind == BufferKind::input) {
      const auto found = given_.inputs.find(buffer.name);
      if (found == given_.inputs.end()) return ok_status();
      bytes = found->second;
    } else if (buffer.has_content) {
      if (!given_.contents || !buffer.packed_for.empty()) return ok_status();
      ASSIGN_OR_RETURN(const std::string one, given_.contents(buffer.content));
      bytes.emplace();
      for (size_t instance = 0; instance < instances.size(); ++instance) *bytes += one;
    } else if (buffer.kind == BufferKind::state) {
      bytes = std::string(size * instances.size(), '\0');
    }
    if (!bytes) return ok_status();
    if (bytes->size() != size * instances.size())
      return invalid_input(fmt::format("device {} buffer {} has {} B, and what it begins with {} B", device.name,
                                       buffer.name, size * instances.size(), bytes->size()));
    for (size_t instance = 0; instance < instances.size(); ++instance) {
      instances[instance].bytes = bytes->substr(instance * size, size);
      instances[instance].known.assign(size, 1);
    }
    return ok_status();
  }

  struct Range {
    Contents* contents;
    size_t begin, size;
    bool known() const { return contents->known.find('\0', begin) >= begin + size; }
    const char* data() const { return contents->bytes.data() + begin; }
    std::string bytes() const { return contents->bytes.substr(begin, size); }
  };

  Range range_of(const Instance& at, const Operand& operand) {
    const DeviceProgram& device = device_of(at);
    const Slot& slot = device.order[static_cast<size_t>(at.slot)];
    const BufferId root = device.root(operand.buffer);
    const auto instance = static_cast<size_t>(instance_of(device, slot, operand.buffer));
    return {&contents_[static_cast<size_t>(at.device)][root.index()][instance],
            static_cast<size_t>(size_of(device.buffer(operand.buffer).type.dtype, operand.begin)),
            static_cast<size_t>(bytes_of(device, operand).value())};
  }

  // `from` empty: unknown.
  void write(const Range& to, const std::optional<std::string>& from) {
    if (from) to.contents->bytes.replace(to.begin, to.size, *from);
    to.contents->known.replace(to.begin, to.size, to.size, from ? 1 : 0);
  }

  void move(const Range& to, size_t to_at, const Range& from, size_t from_at, size_t size) {
    for (std::string Contents::*part : {&Contents::bytes, &Contents::known}) {
      const std::string moved = (from.contents->*part).substr(from.begin + from_at, size);
      (to.contents->*part).replace(to.begin + to_at, size, moved);
    }
  }

  // ---- instances

  Status step(uint32_t i) {
    const Instance& at = deps_.instances[i];
    const Instr& instr = instr_of(program_, at);
    const auto d = static_cast<size_t>(at.device);
    if (instr.opcode == Opcode::recv) return ok_status();  // the send has already copied the values
    if (instr.opcode == Opcode::send) {
      const Instance& to = deps_.instances[deps_.match[i]];
      const Operand& target = instr_of(program_, to).writes[0];
      if (wanted(static_cast<size_t>(to.device), target)) {
        const Range whole = range_of(to, target);
        move(whole, 0, range_of(at, instr.reads[0]), 0, whole.size);
      }
      return ok_status();
    }
    if (instr.opcode == Opcode::compute && reads_scalars(desc_of(instr))) RETURN_IF_ERROR(note_values(i));
    if (std::ranges::none_of(instr.writes, [&](const Operand& write) { return wanted(d, write); })) return ok_status();
    switch (instr.opcode) {
      case Opcode::compute:
        compute(at, instr);
        break;
      case Opcode::reduce:
        write(range_of(at, instr.writes[0]), std::nullopt);
        break;
      case Opcode::copy: {
        const Range to = range_of(at, instr.writes[0]);
        move(to, 0, range_of(at, instr.reads[0]), 0, to.size);
        break;
      }
      case Opcode::pack:
      case Opcode::unpack:
        move_part(at, instr);
        break;
      case Opcode::send:
      case Opcode::recv:
        break;
    }
    return ok_status();
  }

  void compute(const Instance& at, const Instr& instr) {
    const ComputeDesc& desc = desc_of(instr);
    const auto d = static_cast<size_t>(at.device);
    std::vector<Tensor> tensors;
    for (size_t i = 0; is_counted(desc) && i < instr.reads.size(); ++i) {
      const Range from = range_of(at, instr.reads[i]);
      if (!from.known()) break;
      tensors.push_back(tensor_of(desc.inputs[i], from.bytes()));
    }
    if (tensors.size() < instr.reads.size()) {
      for (const Operand& write : instr.writes)
        if (wanted(d, write)) this->write(range_of(at, write), std::nullopt);
      return;
    }
    std::vector<const Tensor*> inputs;
    for (const Tensor& tensor : tensors) inputs.push_back(&tensor);
    std::vector<EpilogueStep> steps;
    for (const DescStep& step : desc.epilogue) steps.push_back({step.op, ValueId(), step.attrs, {}});
    const OneThread alone;
    const std::vector<Tensor> made = evaluate_op(desc.op, desc.attrs, steps, inputs, desc.outputs);
    for (size_t o = 0; o < made.size(); ++o)
      if (wanted(d, instr.writes[o])) write(range_of(at, instr.writes[o]), std::string(bytes_of(made[o])));
  }

  // As the executor does it.
  void move_part(const Instance& at, const Instr& instr) {
    const bool packs = instr.opcode == Opcode::pack;
    const Operand &whole = packs ? instr.reads[0] : instr.writes[0], &part = packs ? instr.writes[0] : instr.reads[0];
    const TensorType type = type_of(device_of(at), whole);
    const auto axis = static_cast<size_t>(instr.axis);
    int64_t before = 1, inner = size_of(type.dtype);
    for (size_t i = 0; i < axis; ++i) before *= type.shape[i];
    for (size_t i = axis + 1; i < type.shape.size(); ++i) inner *= type.shape[i];
    const auto run = static_cast<size_t>((instr.end - instr.begin) * inner);
    const Range in_whole = range_of(at, whole), in_part = range_of(at, part);
    for (int64_t i = 0; i < before; ++i) {
      const auto there = static_cast<size_t>((i * type.shape[axis] + instr.begin) * inner);
      const size_t here = static_cast<size_t>(i) * run;
      packs ? move(in_part, here, in_whole, there, run) : move(in_whole, there, in_part, here, run);
    }
  }

  Status note_values(uint32_t i) {
    const Instance& at = deps_.instances[i];
    const Instr& instr = instr_of(program_, at);
    const ComputeDesc& desc = desc_of(instr);
    const DeviceProgram& device = device_of(at);
    std::vector<std::vector<int64_t>> values(instr.reads.size());
    std::vector<const void*> inputs(instr.reads.size(), nullptr);
    for (const size_t input : scalar_inputs(desc)) {
      const Range from = range_of(at, instr.reads[input]);
      if (!from.known()) {
        unknown_.insert(fmt::format("device {} buffer {}", device.name,
                                    device.buffer(device.root(instr.reads[input].buffer)).name));
        continue;
      }
      inputs[input] = from.data();
      values[input] = whole_values(desc.inputs[input].dtype, std::as_bytes(std::span(from.data(), from.size)));
    }
    if (const Status sound = check_values(device, instr, desc, inputs.data()); !sound.ok()) {
      Error error = sound.error();
      error.message = fmt::format("{}: {}", describe_instance(program_, at), error.message);
      return error;
    }
    const auto [found, added] = rows_.try_emplace(std::move(values), static_cast<int>(table_.values.size()));
    if (added) table_.values.push_back(found->first);
    table_.row[i] = found->second;
    return ok_status();
  }

  const Program& program_;
  const Dependencies& deps_;
  const GivenScalars& given_;
  std::vector<std::vector<bool>> wanted_;                     // [device][buffer]
  std::vector<std::vector<std::vector<Contents>>> contents_;  // [device][buffer][instance], of wanted ones
  std::map<std::vector<std::vector<int64_t>>, int> rows_;
  std::set<std::string> unknown_;
  ScalarTable table_;
};

}  // namespace

Result<ScalarTable> scalar_values(const Program& program, const Dependencies& dependencies, const GivenScalars& given) {
  return Values(program, dependencies, given).run();
}

}  // namespace nlsplit::inline program

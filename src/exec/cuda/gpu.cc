#include "exec/cuda/gpu.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "kernels/cuda/gpu.h"
#include "kernels/module/kernel_library.h"

namespace nlsplit::inline exec {
namespace {

using cuda::Answer;
using cuda::Event;
using cuda::Stream;

// Rows of bytes, and where an operand's part of each begins: what pack and unpack move.
struct Rows {
  int64_t count = 1, whole_pitch = 0, part_pitch = 0, begin = 0;
};
Rows rows_of(const DeviceProgram& device, const Instr& instr) {
  const TensorType type = type_of(device, instr.opcode == Opcode::pack ? instr.reads[0] : instr.writes[0]);
  const auto axis = static_cast<size_t>(instr.axis);
  int64_t inner = size_of(type.dtype);
  Rows rows;
  for (size_t i = 0; i < axis; ++i) rows.count *= type.shape[i];
  for (size_t i = axis + 1; i < type.shape.size(); ++i) inner *= type.shape[i];
  rows.whole_pitch = type.shape[axis] * inner;
  rows.part_pitch = (instr.end - instr.begin) * inner;
  rows.begin = instr.begin * inner;
  return rows;
}

}  // namespace

std::vector<ByteRange> staged_ranges(const DeviceProgram& device, int64_t page) {
  std::vector<bool> staged(device.buffers.size());
  for (const Segment& segment : device.segments) {
    for (const Instr& instr : segment.instrs) {
      if (!is_transfer(instr.opcode)) continue;
      const Operand& operand = instr.opcode == Opcode::send ? instr.reads[0] : instr.writes[0];
      staged[device.root(operand.buffer).index()] = true;
    }
  }
  std::vector<ByteRange> pages;
  for (size_t b = 0; b < device.buffers.size(); ++b) {
    const Buffer& buffer = device.buffers[b];
    if (!staged[b] || buffer.extent() <= 0) continue;
    pages.push_back({buffer.offset / page * page, (buffer.offset + buffer.extent() + page - 1) / page * page});
  }
  std::ranges::sort(pages, {}, &ByteRange::begin);
  std::vector<ByteRange> ranges;
  for (const ByteRange& range : pages) {
    if (!ranges.empty() && range.begin <= ranges.back().end)
      ranges.back().end = std::max(ranges.back().end, range.end);
    else
      ranges.push_back(range);
  }
  return ranges;
}

struct Gpu::State {
  const cuda::Backend& backend;
  const Program& program;
  const DeviceProgram& what;
  std::byte* mirror;

  cuda::Device* device = nullptr;
  std::string description;
  std::byte* memory = nullptr;
  std::vector<std::byte*> pinned;
  std::vector<cuda::Kernel*> kernels;    // by desc; nullptr: not of this device, or the host's
  std::optional<KernelLibrary> library;  // what the host computes
  const KernelCode* on_host = nullptr;

  std::optional<Launches> launches;  // of the thread that computes
  EventPool copies;                  // of the one that copies

  State(const cuda::Backend& backend, const Program& program, const DeviceProgram& what, std::byte* mirror)
      : backend(backend), program(program), what(what), mirror(mirror), kernels(program.descs.size(), nullptr) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  ~State() {
    if (device == nullptr) return;
    launches.reset();
    for (Event* event : copies.all) backend.destroy_event(device, event);
    for (cuda::Kernel* kernel : kernels) {
      if (kernel != nullptr) backend.discard(device, kernel);
    }
    for (std::byte* range : pinned) static_cast<void>(backend.unpin(device, range));  // the process may be ending
    if (memory != nullptr) static_cast<void>(backend.release(device, memory));
    backend.close(device);
  }

  Status check(Answer why, std::string_view asked) const { return gpu_status(what.name, asked, why); }

  // ---- before the run

  Status prepare_all() {
    for (const Segment& segment : what.segments) {
      for (const Instr& instr : segment.instrs) {
        if (instr.opcode == Opcode::compute) RETURN_IF_ERROR(prepare(instr));
      }
    }
    return ok_status();
  }

  Status prepare(const Instr& instr) {
    const auto d = static_cast<size_t>(instr.desc);
    const ComputeDesc& desc = program.descs[d];
    if (kernels[d] != nullptr) return ok_status();
    if (desc.kernel.name == KernelName::gpu_host) return prepare_host();
    const Bytes workspace = instr.workspace.buffer.valid() ? bytes_of(what, instr.workspace) : bytes(0);
    const Answer why = backend.prepare(device, &desc, static_cast<uint64_t>(workspace.value()), &kernels[d]);
    if (why == nullptr) return ok_status();
    return check(why, fmt::format("cannot compute {}", signature(desc)));
  }

  Status prepare_host() {
    if (library) return ok_status();
    ASSIGN_OR_RETURN(const Isa isa, best_isa());
    ASSIGN_OR_RETURN(KernelLibrary loaded, KernelLibrary::load(isa));
    library.emplace(std::move(loaded));
    ASSIGN_OR_RETURN(on_host, library->find({KernelName::reference, isa}));
    return ok_status();
  }

  Status pin_staged() {
    const auto page = static_cast<int64_t>(::sysconf(_SC_PAGESIZE));
    for (const ByteRange& range : staged_ranges(what, page)) {
      const auto size = static_cast<uint64_t>(range.end - range.begin);
      RETURN_IF_ERROR(
          check(backend.pin(device, mirror + range.begin, size), fmt::format("cannot page-lock {} B", size)));
      pinned.push_back(mirror + range.begin);
    }
    return ok_status();
  }

  // ---- copies and instructions

  std::byte* at(const Slot& slot, const Operand& operand) const {
    return operand.buffer.valid() ? memory + address_of(what, slot, operand) : nullptr;
  }
  uint64_t size(const Operand& operand) const { return static_cast<uint64_t>(bytes_of(what, operand).value()); }

  Status copy_kinds(std::initializer_list<BufferKind> kinds, bool out) {
    for (const Buffer& buffer : what.buffers) {
      if (std::ranges::find(kinds, buffer.kind) == kinds.end() || buffer.kind == BufferKind::view) continue;
      const int64_t extent = buffer.extent();
      if (extent <= 0) continue;
      std::byte *here = mirror + buffer.offset, *there = memory + buffer.offset;
      const auto count = static_cast<uint64_t>(extent);
      RETURN_IF_ERROR(check(out ? backend.copy_out(device, Stream::compute, here, there, count)
                                : backend.copy_in(device, Stream::compute, there, here, count),
                            fmt::format("cannot copy buffer {}", buffer.name)));
    }
    return launches->settle();
  }

  Result<Event*> begin_copy(const Slot& slot, const Operand& operand, bool out) {
    const int64_t offset = address_of(what, slot, operand);
    const uint64_t count = size(operand);
    Event* event = nullptr;
    if (copies.free.empty()) {
      RETURN_IF_ERROR(check(backend.create_event(device, &event), "cannot make an event"));
      copies.all.push_back(event);
    } else {
      event = copies.free.back();
      copies.free.pop_back();
    }
    const Stream stream = out ? Stream::copy_out : Stream::copy_in;
    Status status = check(out ? backend.copy_out(device, stream, mirror + offset, memory + offset, count)
                              : backend.copy_in(device, stream, memory + offset, mirror + offset, count),
                          fmt::format("cannot copy buffer {}", what.buffer(operand.buffer).name));
    if (status.ok()) status = check(backend.record(device, stream, event), "cannot record an event");
    if (status.ok()) return event;
    copies.free.push_back(event);
    return status.error();
  }

  Status compute(const Slot& slot, const Instr& instr) {
    const auto d = static_cast<size_t>(instr.desc);
    const ComputeDesc& desc = program.descs[d];
    if (kernels[d] == nullptr) return compute_on_host(slot, instr, desc);
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const Operand& read : instr.reads) inputs.push_back(at(slot, read));
    for (const Operand& write : instr.writes) outputs.push_back(at(slot, write));
    const KernelCall call{&desc, inputs.data(), outputs.data(), at(slot, instr.workspace), {}};
    const Answer why = backend.launch(device, kernels[d], &call);
    return why == nullptr ? ok_status() : check(why, fmt::format("cannot compute {}", signature(desc)));
  }

  // Copies of its own: the mirror may be in the transport's hands.
  Status compute_on_host(const Slot& slot, const Instr& instr, const ComputeDesc& desc) {
    std::vector<std::string> operands;
    for (const Operand& read : instr.reads) operands.emplace_back(size(read), '\0');
    std::vector<std::string> results;
    for (const Operand& write : instr.writes) results.emplace_back(size(write), '\0');
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    Status copied;
    for (size_t i = 0; i < operands.size() && copied.ok(); ++i) {
      copied = check(
          backend.copy_out(device, Stream::compute, operands[i].data(), at(slot, instr.reads[i]), operands[i].size()),
          "cannot copy an operand");
      inputs.push_back(operands[i].data());
    }
    const Status arrived = launches->settle();  // in any case: copies under way write into `operands`
    RETURN_IF_ERROR(copied);
    RETURN_IF_ERROR(arrived);
    for (std::string& result : results) outputs.push_back(result.data());
    on_host->run({&desc, inputs.data(), outputs.data(), nullptr, {}});
    for (size_t i = 0; i < results.size() && copied.ok(); ++i) {
      copied = check(
          backend.copy_in(device, Stream::compute, at(slot, instr.writes[i]), results[i].data(), results[i].size()),
          "cannot copy a result");
    }
    const Status left = launches->settle();
    return copied.ok() ? left : copied;
  }

  Status reduce(const Slot& slot, const Instr& instr) {
    std::vector<const void*> terms;
    for (const Operand& read : instr.reads) terms.push_back(at(slot, read));
    const TensorType type = type_of(what, instr.writes[0]);
    return check(
        backend.add(device, type.dtype, at(slot, instr.writes[0]), terms.data(), terms.size(), stored_elements(type)),
        "cannot add");
  }

  Status move(std::byte* to, int64_t to_pitch, const std::byte* from, int64_t from_pitch, int64_t width, int64_t rows) {
    if (to == from || width == 0 || rows == 0) return ok_status();
    return check(
        backend.move(device, Stream::compute, to, static_cast<uint64_t>(to_pitch), from,
                     static_cast<uint64_t>(from_pitch), static_cast<uint64_t>(width), static_cast<uint64_t>(rows)),
        "cannot copy");
  }

  bool is_on_host(const Instr& instr) const {
    return instr.opcode == Opcode::compute && kernels[static_cast<size_t>(instr.desc)] == nullptr;
  }

  Status execute(const Slot& slot, std::span<const Step> steps) {
    std::vector<uint32_t> tags;
    for (const Step& step : steps) tags.push_back(step.tag);
    // Where buffers lie depends on the banks alone.
    Launches::Key key = {slot.segment, steps.front().instr - segment_of(slot).instrs.data(), std::ssize(steps)};
    for (const BankUse& use : slot.banks) key.insert(key.end(), {static_cast<int64_t>(use.buffer.index()), use.bank});
    return launches->begin(tags, key, [&](size_t i) {
      const Instr& instr = *steps[i].instr;
      const std::string name(instr.label.empty() ? name_of(instr.opcode) : std::string_view(instr.label));
      backend.range_begin(name.c_str());
      Status status = run(slot, instr);
      backend.range_end();
      return status;
    });
  }

  const Segment& segment_of(const Slot& slot) const { return what.segments[static_cast<size_t>(slot.segment)]; }

  Status run(const Slot& slot, const Instr& instr) {
    switch (instr.opcode) {
      case Opcode::compute:
        return compute(slot, instr);
      case Opcode::reduce:
        return reduce(slot, instr);
      case Opcode::copy: {
        const int64_t count = bytes_of(what, instr.reads[0]).value();
        return move(at(slot, instr.writes[0]), count, at(slot, instr.reads[0]), count, count, 1);
      }
      case Opcode::pack: {
        const Rows r = rows_of(what, instr);
        return move(at(slot, instr.writes[0]), r.part_pitch, at(slot, instr.reads[0]) + r.begin, r.whole_pitch,
                    r.part_pitch, r.count);
      }
      case Opcode::unpack: {
        const Rows r = rows_of(what, instr);
        return move(at(slot, instr.writes[0]) + r.begin, r.whole_pitch, at(slot, instr.reads[0]), r.part_pitch,
                    r.part_pitch, r.count);
      }
      case Opcode::send:
      case Opcode::recv:
        break;
    }
    CHECK(false, "transfers are the transport's");
  }
};

Gpu::Gpu(std::unique_ptr<State> state) : state_(std::move(state)) {}
Gpu::Gpu(Gpu&&) noexcept = default;
Gpu& Gpu::operator=(Gpu&&) noexcept = default;
Gpu::~Gpu() = default;

Result<Gpu> Gpu::open(const cuda::Backend& backend, int number, const Program& program, const DeviceProgram& device,
                      std::byte* mirror, GpuGraphs graphs) {
  auto state = std::make_unique<State>(backend, program, device, mirror);
  State& s = *state;
  RETURN_IF_ERROR(s.check(backend.open(number, &s.device), fmt::format("cannot open GPU {}", number)));
  const char* text = "";
  RETURN_IF_ERROR(s.check(backend.describe(s.device, &text), "cannot ask what it is"));
  s.description = text;
  s.launches.emplace(backend, s.device, device.name, graphs);
  void* memory = nullptr;
  if (device.arena.value() > 0) {
    RETURN_IF_ERROR(s.check(backend.allocate(s.device, static_cast<uint64_t>(device.arena.value()), &memory),
                            fmt::format("cannot allocate an arena of {} on {}", to_string(device.arena), text)));
  }
  s.memory = static_cast<std::byte*>(memory);
  RETURN_IF_ERROR(s.pin_staged());
  RETURN_IF_ERROR(s.prepare_all());
  return Gpu(std::move(state));
}

const std::string& Gpu::description() const { return state_->description; }

Status Gpu::upload(std::initializer_list<BufferKind> kinds) { return state_->copy_kinds(kinds, false); }
Status Gpu::download(std::initializer_list<BufferKind> kinds) { return state_->copy_kinds(kinds, true); }

Status Gpu::begin() { return state_->launches->restart(); }

// What the host computes waits for the stream, and ends a run.
Status Gpu::execute(const Slot& slot, std::span<const Step> steps) {
  const State& s = *state_;
  while (!steps.empty()) {
    size_t count = 0;
    while (count < steps.size() && !s.is_on_host(*steps[count].instr)) ++count;
    count = std::max<size_t>(count, 1);
    RETURN_IF_ERROR(state_->execute(slot, steps.first(count)));
    steps = steps.subspan(count);
  }
  return ok_status();
}

Result<std::vector<GpuTime>> Gpu::finish() { return state_->launches->finish(); }

const std::string& Gpu::no_graphs() const { return state_->launches->no_graphs(); }

std::span<std::byte> Gpu::operand(const Slot& slot, const Operand& operand) const {
  return {state_->at(slot, operand), state_->size(operand)};
}

Result<cuda::Event*> Gpu::copy_out(const Slot& slot, const Operand& operand) {
  return state_->begin_copy(slot, operand, true);
}
Result<cuda::Event*> Gpu::copy_in(const Slot& slot, const Operand& operand) {
  return state_->begin_copy(slot, operand, false);
}

Result<bool> Gpu::copied(cuda::Event* copy) {
  State& s = *state_;
  int reached = 0;
  RETURN_IF_ERROR(s.check(s.backend.query(s.device, copy, &reached), "a copy failed"));
  if (reached == 0) return false;
  s.copies.free.push_back(copy);
  return true;
}

}  // namespace nlsplit::inline exec

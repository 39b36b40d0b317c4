#include "exec/backends/cuda.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "exec/backends/arena.h"
#include "exec/backends/instructions.h"
#include "exec/backends/workers.h"
#include "exec/cuda/launches.h"
#include "exec/cuda/library.h"
#include "kernels/cuda/gpu.h"
#include "kernels/module/kernel_library.h"

namespace nlsplit::inline exec {
namespace {

using cuda::Answer;
using cuda::Event;
using cuda::Stream;
using Clock = std::chrono::steady_clock;

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

std::vector<ByteRange> cut_at(std::span<const ByteRange> ranges, ByteRange whole) {
  std::vector<ByteRange> pieces;
  const auto cut = [&](int64_t at) {
    if (at <= whole.begin || at >= whole.end) return;
    pieces.push_back({whole.begin, at});
    whole.begin = at;
  };
  for (const ByteRange& range : ranges) {
    cut(range.begin);
    cut(range.end);
  }
  pieces.push_back(whole);
  return pieces;
}

namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(const BackendContext& context, const ChosenBackend& chosen, Arena mirror)
      : module_(*chosen.backend),
        stands_in_(!chosen.notice.empty()),
        program_(context.program),
        device_(context.own()),
        mirror_(std::move(mirror)),
        direct_(context.device_messages),
        pins_(context.pins),
        kernels_(context.program.descs.size(), nullptr) {}
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  ~CudaBackend() override {
    if (gpu_ == nullptr) return;
    launches_.reset();
    for (Event* event : copies_) module_.destroy_event(gpu_, event);
    for (cuda::Kernel* kernel : kernels_) {
      if (kernel != nullptr) module_.discard(gpu_, kernel);
    }
    for (const ByteRange& range : pinned_)
      static_cast<void>(module_.unpin(gpu_, mirror_.data() + range.begin));  // the process may be ending
    if (memory_ != nullptr) static_cast<void>(module_.release(gpu_, memory_));
    module_.close(gpu_);
  }

  // Allocates the arena, locks what is staged, makes every computation ready.
  Status open(int number, GpuGraphs graphs) {
    RETURN_IF_ERROR(check(module_.open(number, &gpu_), fmt::format("cannot open GPU {}", number)));
    open_.device = gpu_;
    const char* text = "";
    RETURN_IF_ERROR(check(module_.describe(gpu_, &text), "cannot ask what it is"));
    launches_.emplace(module_, gpu_, device_.name, graphs);
    void* memory = nullptr;
    if (device_.arena.value() > 0) {
      RETURN_IF_ERROR(check(module_.allocate(gpu_, static_cast<uint64_t>(device_.arena.value()), &memory),
                            fmt::format("cannot allocate an arena of {} on {}", to_string(device_.arena), text)));
    }
    memory_ = static_cast<std::byte*>(memory);
    RETURN_IF_ERROR(pin_staged());
    for (const Segment& segment : device_.segments) {
      for (const Instr& instr : segment.instrs) {
        if (instr.opcode == Opcode::compute) RETURN_IF_ERROR(prepare(instr));
      }
    }
    return ok_status();
  }

  std::span<std::byte> host() const override { return mirror_.bytes(); }
  Status place(const Buffer& buffer, std::string_view raw) override {
    return place_content(program_, device_, {}, buffer, raw, mirror_.data());  // no kernel of a GPU packs
  }
  Status upload(const WhichBuffers& which) override { return copy_buffers(which, Direction::in); }
  Status download(const WhichBuffers& which) override { return copy_buffers(which, Direction::out); }

  void attach() override {
    if (!pins_.empty()) pin_thread(pins_.front());
  }
  Status begin() override {
    begun_.clear();
    RETURN_IF_ERROR(launches_->restart());
    zero_ = Clock::now();
    return ok_status();
  }
  Status execute(const Slot& slot, std::span<const Step> steps, TimePoint now) override;
  Result<std::span<const Ran>> finish() override;
  bool runs_ahead() const override { return true; }

  std::span<std::byte> message(const Slot& slot, const Operand& operand, int peer) const override {
    std::byte* const arena = is_direct(peer) ? memory_ : mirror_.data();
    return {arena + address_of(device_, slot, operand), size(operand)};
  }
  Result<Copy> begin_copy(const Slot& slot, const Operand& operand, int peer, Direction direction) override;
  Result<bool> has_ended(Copy copy) override;

  std::string notice() const override {
    const std::string& why = launches_->no_graphs();
    return why.empty() ? "" : fmt::format("{}; {}", why, without_graphs);
  }
  bool stands_in() const override { return stands_in_; }
  const OpenGpu* gpu() const override { return &open_; }

 private:
  bool is_direct(int peer) const {
    const auto p = static_cast<size_t>(peer);
    return p < direct_.size() && direct_[p];
  }
  Status check(Answer why, std::string_view asked) const { return gpu_status(device_.name, asked, why); }

  std::byte* at(const Slot& slot, const Operand& operand) const {
    return operand.buffer.valid() ? memory_ + address_of(device_, slot, operand) : nullptr;
  }
  uint64_t size(const Operand& operand) const { return static_cast<uint64_t>(bytes_of(device_, operand).value()); }
  const Segment& segment_of(const Slot& slot) const { return device_.segments[static_cast<size_t>(slot.segment)]; }
  bool is_on_host(const Instr& instr) const {
    return instr.opcode == Opcode::compute && kernels_[static_cast<size_t>(instr.desc)] == nullptr;
  }

  Status pin_staged();
  Status prepare(const Instr& instr);
  Status prepare_host();
  Answer copy(Stream stream, Direction direction, std::byte* host, std::byte* memory, uint64_t count) const {
    return direction == Direction::out ? module_.copy_out(gpu_, stream, host, memory, count)
                                       : module_.copy_in(gpu_, stream, memory, host, count);
  }
  Status copy_buffers(const WhichBuffers& which, Direction direction);
  Status begin_some(const Slot& slot, std::span<const Step> steps);
  Status run(const Slot& slot, const Instr& instr);
  Status compute(const Slot& slot, const Instr& instr);
  Status compute_on_host(const Slot& slot, const Instr& instr, const ComputeDesc& desc);
  Status reduce(const Slot& slot, const Instr& instr);
  Status move(std::byte* to, int64_t to_pitch, const std::byte* from, int64_t from_pitch, int64_t width, int64_t rows);

  const cuda::Backend& module_;
  const bool stands_in_;
  const Program& program_;
  const DeviceProgram& device_;
  const Arena mirror_;
  const std::vector<bool> direct_;  // [rank]: messages with it come and go in the GPU's memory itself
  const std::vector<int> pins_;

  cuda::Device* gpu_ = nullptr;
  OpenGpu open_{module_};
  std::byte* memory_ = nullptr;           // the arena
  std::vector<ByteRange> pinned_;         // of the mirror, ascending and apart
  std::vector<cuda::Kernel*> kernels_;    // by desc; nullptr: not of this device, or the host's
  std::optional<KernelLibrary> library_;  // what the host computes
  const KernelCode* on_host_ = nullptr;

  // Of the thread that computes.
  std::optional<Launches> launches_;
  TimePoint zero_;                // when the GPU's clock began, by ours
  std::vector<TimePoint> begun_;  // since the last finish(): of each step
  std::vector<Ran> ran_;

  // Of the thread that copies: an event for each Copy.
  std::vector<Event*> copies_;
  std::vector<Copy> free_copies_;
};

Status CudaBackend::prepare(const Instr& instr) {
  const auto d = static_cast<size_t>(instr.desc);
  const ComputeDesc& desc = program_.descs[d];
  if (kernels_[d] != nullptr) return ok_status();
  if (desc.kernel.name == KernelName::gpu_host) return prepare_host();
  // The buffer serves other computations of the device too. What a library chooses must not depend on those: a plan
  // that splits layers would else have other bits.
  const Bytes workspace = instr.workspace.buffer.valid()
                              ? std::min(bytes_of(device_, instr.workspace), workspace_of(desc, device_.cores))
                              : bytes(0);
  const Answer why = module_.prepare(gpu_, &desc, static_cast<uint64_t>(workspace.value()), &kernels_[d]);
  if (why == nullptr) return ok_status();
  return check(why, fmt::format("cannot compute {}", signature(desc)));
}

Status CudaBackend::prepare_host() {
  if (library_) return ok_status();
  ASSIGN_OR_RETURN(const Isa isa, best_isa());
  ASSIGN_OR_RETURN(KernelLibrary loaded, KernelLibrary::load(isa));
  library_.emplace(std::move(loaded));
  ASSIGN_OR_RETURN(on_host_, library_->find({KernelName::reference, isa}));
  return ok_status();
}

Status CudaBackend::pin_staged() {
  const auto page = static_cast<int64_t>(::sysconf(_SC_PAGESIZE));
  for (const ByteRange& range : staged_ranges(device_, page)) {
    const auto size = static_cast<uint64_t>(range.size());
    RETURN_IF_ERROR(
        check(module_.pin(gpu_, mirror_.data() + range.begin, size), fmt::format("cannot page-lock {} B", size)));
    pinned_.push_back(range);
  }
  return ok_status();
}

// ---- copies

Status CudaBackend::copy_buffers(const WhichBuffers& which, Direction direction) {
  for (const Buffer& buffer : device_.buffers) {
    if (buffer.kind == BufferKind::view || buffer.extent() <= 0 || !which(buffer)) continue;
    for (const ByteRange& piece : cut_at(pinned_, {buffer.offset, buffer.offset + buffer.extent()})) {
      std::byte *here = mirror_.data() + piece.begin, *there = memory_ + piece.begin;
      RETURN_IF_ERROR(check(copy(Stream::compute, direction, here, there, static_cast<uint64_t>(piece.size())),
                            fmt::format("cannot copy buffer {}", buffer.name)));
    }
  }
  return launches_->settle();
}

Result<Copy> CudaBackend::begin_copy(const Slot& slot, const Operand& operand, int peer, Direction direction) {
  if (is_direct(peer)) return Copy::none;
  if (free_copies_.empty()) {
    Event* event = nullptr;
    RETURN_IF_ERROR(check(module_.create_event(gpu_, &event), "cannot make an event"));
    free_copies_.push_back(static_cast<Copy>(copies_.size()));
    copies_.push_back(event);
  }
  const Copy made = free_copies_.back();
  const int64_t offset = address_of(device_, slot, operand);
  const Stream stream = direction == Direction::out ? Stream::copy_out : Stream::copy_in;
  RETURN_IF_ERROR(check(copy(stream, direction, mirror_.data() + offset, memory_ + offset, size(operand)),
                        fmt::format("cannot copy buffer {}", device_.buffer(operand.buffer).name)));
  RETURN_IF_ERROR(check(module_.record(gpu_, stream, copies_[static_cast<size_t>(made)]), "cannot record an event"));
  free_copies_.pop_back();
  return made;
}

Result<bool> CudaBackend::has_ended(Copy copy) {
  int reached = 0;
  RETURN_IF_ERROR(check(module_.query(gpu_, copies_[static_cast<size_t>(copy)], &reached), "a copy failed"));
  if (reached != 0) free_copies_.push_back(copy);
  return reached != 0;
}

// ---- instructions

// What the host computes waits for the stream, and ends a run.
Status CudaBackend::execute(const Slot& slot, std::span<const Step> steps, TimePoint now) {
  const Segment& segment = segment_of(slot);
  begun_.insert(begun_.end(), steps.size(), now);
  while (!steps.empty()) {
    size_t count = 0;
    while (count < steps.size() && !is_on_host(segment.instrs[static_cast<size_t>(steps[count].instr)])) ++count;
    count = std::max<size_t>(count, 1);
    RETURN_IF_ERROR(begin_some(slot, steps.first(count)));
    steps = steps.subspan(count);
  }
  return ok_status();
}

Status CudaBackend::begin_some(const Slot& slot, std::span<const Step> steps) {
  std::vector<uint32_t> tags;
  for (const Step& step : steps) tags.push_back(step.tag);
  // Where buffers lie depends on the instances alone.
  Launches::Key key = {slot.segment, steps.front().instr, std::ssize(steps)};
  for (const InstanceUse& use : slot.instances)
    key.insert(key.end(), {static_cast<int64_t>(use.buffer.index()), use.instance});
  return launches_->begin(tags, key, [&](size_t i) {
    const Instr& instr = segment_of(slot).instrs[static_cast<size_t>(steps[i].instr)];
    const std::string name(instr.label.empty() ? name_of(instr.opcode) : std::string_view(instr.label));
    module_.range_begin(name.c_str());
    Status status = run(slot, instr);
    module_.range_end();
    return status;
  });
}

// The GPU's clock runs a little faster or slower than ours, and where its zero lies among our times is known to some
// microseconds only. None ran before it was begun, nor after its end was seen.
Result<std::span<const Ran>> CudaBackend::finish() {
  ASSIGN_OR_RETURN(const std::vector<GpuTime> all, launches_->finish());
  const TimePoint seen = Clock::now();
  CHECK(all.size() == begun_.size(), "a time for each step");
  const auto by_ours = [&](double s, TimePoint least) {
    const auto since = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
    return std::clamp(zero_ + since, least, seen);
  };
  ran_.clear();
  for (size_t i = 0; i < all.size(); ++i) {
    const TimePoint start = by_ours(all[i].start_s, begun_[i]);
    ran_.push_back({all[i].tag, start, by_ours(all[i].finish_s, start)});
  }
  begun_.clear();
  return std::span<const Ran>(ran_);
}

Status CudaBackend::run(const Slot& slot, const Instr& instr) {
  switch (instr.opcode) {
    case Opcode::compute:
      return compute(slot, instr);
    case Opcode::reduce:
      return reduce(slot, instr);
    case Opcode::copy: {
      const int64_t count = bytes_of(device_, instr.reads[0]).value();
      return move(at(slot, instr.writes[0]), count, at(slot, instr.reads[0]), count, count, 1);
    }
    case Opcode::pack: {
      const Rows r = rows_of(device_, instr);
      return move(at(slot, instr.writes[0]), r.part_pitch, at(slot, instr.reads[0]) + r.begin, r.whole_pitch,
                  r.part_pitch, r.count);
    }
    case Opcode::unpack: {
      const Rows r = rows_of(device_, instr);
      return move(at(slot, instr.writes[0]) + r.begin, r.whole_pitch, at(slot, instr.reads[0]), r.part_pitch,
                  r.part_pitch, r.count);
    }
    case Opcode::send:
    case Opcode::recv:
      break;
  }
  CHECK(false, "transfers are the transport's");
}

Status CudaBackend::compute(const Slot& slot, const Instr& instr) {
  const auto d = static_cast<size_t>(instr.desc);
  const ComputeDesc& desc = program_.descs[d];
  if (kernels_[d] == nullptr) return compute_on_host(slot, instr, desc);
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (const Operand& read : instr.reads) inputs.push_back(at(slot, read));
  for (const Operand& write : instr.writes) outputs.push_back(at(slot, write));
  const KernelCall call{&desc, inputs.data(), outputs.data(), at(slot, instr.workspace), {}};
  const Answer why = module_.launch(gpu_, kernels_[d], &call);
  return why == nullptr ? ok_status() : check(why, fmt::format("cannot compute {}", signature(desc)));
}

// Copies of its own: the mirror may be in the transport's hands.
Status CudaBackend::compute_on_host(const Slot& slot, const Instr& instr, const ComputeDesc& desc) {
  std::vector<std::string> operands;
  for (const Operand& read : instr.reads) operands.emplace_back(size(read), '\0');
  std::vector<std::string> results;
  for (const Operand& write : instr.writes) results.emplace_back(size(write), '\0');
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  Status copied;
  for (size_t i = 0; i < operands.size() && copied.ok(); ++i) {
    copied =
        check(module_.copy_out(gpu_, Stream::compute, operands[i].data(), at(slot, instr.reads[i]), operands[i].size()),
              "cannot copy an operand");
    inputs.push_back(operands[i].data());
  }
  const Status arrived = launches_->settle();  // in any case: copies under way write into `operands`
  RETURN_IF_ERROR(copied);
  RETURN_IF_ERROR(arrived);
  for (std::string& result : results) outputs.push_back(result.data());
  on_host_->run({&desc, inputs.data(), outputs.data(), nullptr, {}});
  for (size_t i = 0; i < results.size() && copied.ok(); ++i) {
    copied =
        check(module_.copy_in(gpu_, Stream::compute, at(slot, instr.writes[i]), results[i].data(), results[i].size()),
              "cannot copy a result");
  }
  const Status left = launches_->settle();
  return copied.ok() ? left : copied;
}

Status CudaBackend::reduce(const Slot& slot, const Instr& instr) {
  std::vector<const void*> terms;
  for (const Operand& read : instr.reads) terms.push_back(at(slot, read));
  const TensorType type = type_of(device_, instr.writes[0]);
  return check(
      module_.add(gpu_, type.dtype, at(slot, instr.writes[0]), terms.data(), terms.size(), stored_elements(type)),
      "cannot add");
}

Status CudaBackend::move(std::byte* to, int64_t to_pitch, const std::byte* from, int64_t from_pitch, int64_t width,
                         int64_t rows) {
  if (to == from || width == 0 || rows == 0) return ok_status();
  return check(
      module_.move(gpu_, Stream::compute, to, static_cast<uint64_t>(to_pitch), from, static_cast<uint64_t>(from_pitch),
                   static_cast<uint64_t>(width), static_cast<uint64_t>(rows)),
      "cannot copy");
}

}  // namespace

Result<std::unique_ptr<Backend>> open_cuda(const BackendContext& context) {
  auto found = choose_backend(context.gpu);
  if (!found) {
    Error why = found.error();
    why.message = fmt::format("device {}: {}", context.own().name, why.message);
    if (why.kind == ErrorKind::unsupported)
      why.message += "; `nlbench run --gpu-missing cpu` lets the CPU compute in its place, with other times";
    return why;
  }
  const ChosenBackend chosen = std::move(*found);
  if (!chosen.notice.empty() && context.notice)
    context.notice(fmt::format("device {}: {}", context.own().name, chosen.notice));
  const int number = gpu_number(context.program, context.device, context.same_machine, chosen.devices);
  ASSIGN_OR_RETURN(Arena mirror, Arena::allocate(context.own().arena));
  auto backend = std::make_unique<CudaBackend>(context, chosen, std::move(mirror));
  RETURN_IF_ERROR(backend->open(number, context.gpu.graphs));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace nlsplit::inline exec

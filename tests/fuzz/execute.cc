#include "fuzz/execute.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "base/random.h"
#include "exec/backends/instructions.h"
#include "exec/distribute.h"
#include "exec/fill_inputs.h"
#include "exec/run_threads.h"
#include "fuzz/expect.h"
#include "graph/memory.h"
#include "graph/passes/passes.h"
#include "kernels/module/kernel_library.h"
#include "kernels/without_kernel.h"
#include "program/text.h"
#include "program/verify.h"
#include "testing/compile_program.h"

namespace nlsplit::fuzz {
namespace {

struct Range {
  int64_t begin = 0, size = 0;
};

// An arena whose bytes can be closed to everybody, but for some ranges.
class WatchedArena {
 public:
  explicit WatchedArena(int64_t size)
      : size_((static_cast<size_t>(size) + alignment - 1) / alignment * alignment),
        memory_(static_cast<std::byte*>(std::aligned_alloc(alignment, size_ + 2 * guard))) {
    expect(memory_ != nullptr, "there is memory for a small arena");
    std::memset(memory_, fill, size_ + 2 * guard);
    copy_.assign(size_ + 2 * guard, std::byte{fill});
    close();
  }
  ~WatchedArena() {
    ASAN_UNPOISON_MEMORY_REGION(memory_, size_ + 2 * guard);
    std::free(memory_);
  }
  WatchedArena(const WatchedArena&) = delete;
  WatchedArena& operator=(const WatchedArena&) = delete;

  std::byte* data() const { return memory_ + guard; }
  void open(Range range) const { ASAN_UNPOISON_MEMORY_REGION(data() + range.begin, static_cast<size_t>(range.size)); }
  void close() const { ASAN_POISON_MEMORY_REGION(memory_, size_ + 2 * guard); }

  // Closes it; nothing but these ranges has changed since the last time.
  void close_after_writes(const std::vector<Range>& ranges, const std::string& who) {
    ASAN_UNPOISON_MEMORY_REGION(memory_, size_ + 2 * guard);
    for (const Range& range : ranges) {
      const size_t at = guard + static_cast<size_t>(range.begin);
      std::memcpy(copy_.data() + at, memory_ + at, static_cast<size_t>(range.size));
    }
    if (std::memcmp(copy_.data(), memory_, copy_.size()) != 0) {
      const auto differs = std::mismatch(copy_.begin(), copy_.end(), memory_).first - copy_.begin();
      expect(false, who + " writes byte " + std::to_string(differs - static_cast<std::ptrdiff_t>(guard)) +
                        " of the arena, which is none of its results");
    }
    close();
  }

 private:
  static constexpr size_t alignment = 4096;  // no kernel asks for more than arena_alignment
  static constexpr size_t guard = 4096;
  static constexpr int fill = 0xff;  // NaN, -1, a truth value that is none

  size_t size_;
  std::byte* memory_;
  std::vector<std::byte> copy_;
};

// A device whose turn it is to place its weights and inputs: nobody else is there.
class Alone final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<int> same_machine() const override { return {0}; }
  Request isend(int, int, std::span<const std::byte>) override { return unexpected(); }
  Request irecv(int, int, std::span<std::byte>) override { return unexpected(); }
  State test(Request) override { return State::done; }
  Error error() const override { return failed("nothing is sent"); }
  void pause(int) override {}
  void wake() override {}
  Liveness& liveness() override { return liveness_; }
  double idle_s() const override { return 0; }
  void abort(const Error& why) override { expect(false, "a device that is alone goes on: " + why.message); }

 private:
  static Request unexpected() {
    expect(false, "a device that is alone sends nothing");
    return 0;
  }
  Liveness liveness_;
};

// All workers one after the other, the last first: it has all the work, and the end of the workspace.
Crew crew_of(int& workers) {
  const auto run = [](void* self, void (*body)(void*, int), void* context) {
    for (int worker = *static_cast<int*>(self) - 1; worker >= 0; --worker) body(context, worker);
  };
  return {workers, run, &workers};
}

// Loaded once and kept: a fuzzer counts what it reaches in them.
const KernelLibrary& library_of(Isa isa) {
  static auto& loaded = *new std::map<Isa, KernelLibrary>;
  const auto known = loaded.find(isa);
  if (known != loaded.end()) return known->second;
  auto library = KernelLibrary::load(isa);
  expect(library.ok(), "the kernels are beside the program: " + (library.ok() ? "" : library.error().message));
  return loaded.emplace(isa, std::move(*library)).first->second;
}

bool has_bytes(const Buffer& buffer) { return buffer.kind == BufferKind::weight || buffer.kind == BufferKind::state; }

// What run() asks of the contents before it starts.
bool contents_fit(const Program& program, const ContentLookup& contents) {
  for (const DeviceProgram& device : program.devices) {
    for (const Buffer& buffer : device.buffers) {
      if (!has_bytes(buffer) || !buffer.has_content) continue;
      const auto raw = contents(buffer.content);
      if (!accepted(raw) || static_cast<int64_t>(raw->size()) != size_of(buffer.type).value()) return false;
    }
  }
  return true;
}

bool is_small(const Program& program, const Dependencies& deps, const Limits& limits) {
  if (program.devices.size() > limits.devices || deps.instances.size() > limits.instances) return false;
  for (const DeviceProgram& device : program.devices) {
    if (device.arena.value() > limits.arena_bytes || device.cores > limits.workers) return false;
    if (device.kind == DeviceKind::cuda || (device.kind == DeviceKind::cpu && !cpu_supports(device.level.isa)))
      return false;
  }
  for (const ComputeDesc& desc : program.descs) {
    if (has_no_kernel(desc)) return false;
  }
  double work = 0;
  int64_t compared = 0;
  for (const Instance& at : deps.instances) {
    const Instr& instr = instr_of(program, at);
    compared += program.devices[static_cast<size_t>(at.device)].arena.value();
    if (instr.opcode != Opcode::compute) continue;
    const Work one = work_of(program.descs[static_cast<size_t>(instr.desc)]);
    work += one.flops.value() + static_cast<double>(one.bytes_read.value() + one.bytes_written.value());
  }
  return work <= limits.work && compared <= limits.compared_bytes;
}

// Everything a user can bring in a file: usual values, and all others.
void make_hostile(uint64_t seed, std::vector<NamedTensor>& inputs) {
  Random random(seed);
  for (NamedTensor& input : inputs) {
    for (float& value : input.values) {
      if (random.below(8) != 0) continue;
      const auto bits = static_cast<uint32_t>(random.below(uint64_t{1} << 32));
      std::memcpy(&value, &bits, sizeof(value));
    }
    for (char& byte : input.raw) {
      if (random.below(4) == 0) byte = static_cast<char>(random.below(256));
    }
  }
}

class Execution {
 public:
  Execution(const Program& program, const Dependencies& deps) : program_(program), deps_(deps) {
    for (const DeviceProgram& device : program.devices) {
      arenas_.push_back(std::make_unique<WatchedArena>(device.arena.value()));
      KernelTable& table = tables_.emplace_back(program.descs.size(), nullptr);
      for (const Segment& segment : device.segments) {
        for (const Instr& instr : segment.instrs) {
          if (instr.opcode != Opcode::compute) continue;
          const auto desc = static_cast<size_t>(instr.desc);
          const auto kernel = library_of(device.level.isa).find(program.descs[desc].kernel);
          expect(kernel.ok(), "every kernel of the catalogue has its code");
          table[desc] = *kernel;
        }
      }
    }
  }

  // As run() does it, device by device. False: an error.
  bool place(const Job& job) {
    Alone transport;
    for (size_t d = 0; d < program_.devices.size(); ++d) {
      const Program alone = only(d);
      const std::string who = "device " + program_.devices[d].name + ": the placing of ";
      WatchedArena& arena = *arenas_[d];
      const std::vector<Range> weights = open_instances(d, has_bytes);
      const auto place = [&](const Buffer& buffer, std::string_view raw) {
        return place_content(alone, alone.devices[0], tables_[d], buffer, raw, arena.data());
      };
      if (!accepted(place_weights(alone, job, place, transport, Waiting{}))) return false;
      arena.close_after_writes(weights, who + "weights");
      const std::vector<Range> inputs =
          open_instances(d, [](const Buffer& buffer) { return buffer.kind == BufferKind::input; });
      expect(place_inputs(alone, job, arena.data(), transport, Waiting{}).ok(), "inputs that fit are placed");
      arena.close_after_writes(inputs, who + "inputs");
    }
    return true;
  }

  void run(const std::vector<uint32_t>& order) {
    for (const uint32_t i : order) {
      const Opcode opcode = instr_of(program_, deps_.instances[i]).opcode;
      if (opcode == Opcode::recv) transfer(deps_.match[i], i);
      if (!is_transfer(opcode)) compute(i);
    }
  }

  void collect(const Job& job) {
    if (!accepted(check_job(program_, job))) return;  // outputs of another type than f32
    Alone transport;
    for (size_t d = 0; d < program_.devices.size(); ++d) {
      open_instances(d, [&](const Buffer& buffer) { return is_result(program_.devices[d], buffer); });
      expect(collect_outputs(only(d), true, arenas_[d]->data(), transport, Waiting{}).ok(), "outputs are collected");
      arenas_[d]->close();
    }
  }

 private:
  Program only(size_t d) const {
    Program alone = program_;
    alone.devices = {program_.devices[d]};
    return alone;
  }

  template <class Wanted>
  std::vector<Range> open_instances(size_t d, const Wanted& wanted) {
    std::vector<Range> ranges;
    for (const Buffer& buffer : program_.devices[d].buffers) {
      if (buffer.kind == BufferKind::view || !wanted(buffer)) continue;
      for (int instance = 0; instance < buffer.instances; ++instance)
        ranges.push_back({buffer.offset + instance * buffer.stride(), buffer.bytes.value()});
    }
    for (const Range& range : ranges) arenas_[d]->open(range);
    return ranges;
  }

  // A packed weight is read as its kernel packed it, and a whole workspace is all its buffer has.
  Range range_of(const Instance& at, const Operand& operand, bool all_bytes) const {
    const DeviceProgram& device = program_.devices[static_cast<size_t>(at.device)];
    const Buffer& root = device.buffer(device.root(operand.buffer));
    const Slot& slot = device.order[static_cast<size_t>(at.slot)];
    const bool whole = operand.whole() && (all_bytes || !root.packed_for.empty());
    return {address_of(device, slot, operand), (whole ? root.bytes : bytes_of(device, operand)).value()};
  }

  void transfer(uint32_t send, uint32_t recv) {
    const Instance &from = deps_.instances[send], &to = deps_.instances[recv];
    const Range sent = range_of(from, instr_of(program_, from).reads[0], false);
    const Range received = range_of(to, instr_of(program_, to).writes[0], false);
    expect(sent.size == received.size, "both ends of a message have one size");
    WatchedArena &source = *arenas_[static_cast<size_t>(from.device)],
                 &target = *arenas_[static_cast<size_t>(to.device)];
    source.open(sent);
    target.open(received);
    std::memcpy(target.data() + received.begin, source.data() + sent.begin, static_cast<size_t>(sent.size));
    source.close();
    target.close_after_writes({received}, describe_instance(program_, to));
  }

  void compute(uint32_t i) {
    const Instance& at = deps_.instances[i];
    const auto d = static_cast<size_t>(at.device);
    const DeviceProgram& device = program_.devices[d];
    const Instr& instr = instr_of(program_, at);
    WatchedArena& arena = *arenas_[d];
    std::vector<Range> written;
    for (const Operand& operand : instr.reads) {
      if (operand.buffer.valid()) arena.open(range_of(at, operand, false));
    }
    for (const Operand& operand : instr.writes) written.push_back(range_of(at, operand, false));
    if (instr.workspace.buffer.valid()) written.push_back(range_of(at, instr.workspace, true));
    for (const Range& range : written) arena.open(range);
    int workers = device.cores;
    // Where a scalar is out of range nothing is written.
    static_cast<void>(execute(program_, device, tables_[d], device.order[static_cast<size_t>(at.slot)], instr,
                              arena.data(), crew_of(workers)));
    arena.close_after_writes(written, describe_instance(program_, at));
  }

  const Program& program_;
  const Dependencies& deps_;
  std::vector<std::unique_ptr<WatchedArena>> arenas_;
  std::vector<KernelTable> tables_;
};

std::vector<Isa> levels_here() {
  std::vector<Isa> levels;
  for (const Isa isa : all_levels()) {
    if (cpu_supports(isa)) levels.push_back(isa);
  }
  return levels;
}

Device device_of(std::string name, size_t host, Isa isa, int cores) {
  Device device;
  device.name = std::move(name);
  device.host = HostId(host);
  device.memory = bytes(int64_t{1} << 50);
  device.level = isa;
  device.cores = cores;
  return device;
}

}  // namespace

bool execute_watched(const Program& program, const ContentLookup& contents, uint64_t seed, const Limits& limits) {
  const auto deps = dependencies(program);
  expect(deps.ok(), "verify has seen the dependencies");
  if (!is_small(program, *deps, limits) || !contents_fit(program, contents)) return false;
  const auto order = dry_run(program, *deps);
  expect(order.ok(), "verify has seen the dry run");
  auto inputs = wanted_inputs(program);
  if (!accepted(inputs)) return false;
  for (const NamedTensor& input : *inputs) {
    if (size_of(input.type).value() > limits.arena_bytes) return false;
  }
  fill_inputs(program, seed, *inputs);
  if (seed % 2 == 1) make_hostile(seed, *inputs);
  const Job job{contents, std::move(*inputs)};
  Execution execution(program, *deps);
  if (!execution.place(job)) return false;
  execution.run(*order);
  execution.collect(job);
  return true;
}

ContentLookup seeded_contents(const Program& program, uint64_t seed) {
  auto sizes = std::make_shared<std::map<ContentId, TensorType>>();
  for (const DeviceProgram& device : program.devices) {
    for (const Buffer& buffer : device.buffers) {
      if (buffer.has_content) sizes->try_emplace(buffer.content, buffer.type);
    }
  }
  auto made = std::make_shared<std::map<ContentId, std::string>>();
  return [sizes, made, seed](ContentId id) -> Result<std::string_view> {
    const auto known = made->find(id);
    if (known != made->end()) return std::string_view(known->second);
    const auto wanted = sizes->find(id);
    expect(wanted != sizes->end(), "only contents of the program are asked for");
    const auto size = static_cast<size_t>(size_of(wanted->second).value());
    if (size > size_t{1} << 20) return invalid_input("a large weight");
    std::string raw(size, '\0');
    Random random(id.value ^ seed);
    if (wanted->second.dtype == DType::f32) {
      for (size_t at = 0; at + sizeof(float) <= size; at += sizeof(float)) {
        const auto value = static_cast<float>(random.normal());
        std::memcpy(raw.data() + at, &value, sizeof(value));
      }
    } else {
      for (char& byte : raw) byte = static_cast<char>(random.below(4));
    }
    return std::string_view(made->emplace(id, std::move(raw)).first->second);
  };
}

void execute_graph(const Graph& optimized, const WeightStore* weights, uint64_t seed) {
  static const std::vector<Isa> levels = levels_here();
  const Isa isa = levels[seed % levels.size()];
  const int cores = seed / 3 % 2 == 0 ? 1 : 3;
  const bool cut = seed / 6 % 2 == 1 && optimized.nodes.size() > 1;
  const int micro_batches = seed / 12 % 2 == 0 ? 1 : 2;
  auto kernels = choose_kernels(optimized, {isa});
  if (!accepted(kernels)) return;
  Cluster cluster;
  cluster.hosts = {{"a", false}, {"b", false}};
  cluster.devices = {device_of("A", 0, isa, cores), device_of("B", 1, isa, 1)};
  Plan plan;
  const size_t nodes = kernels->graph.nodes.size();
  if (cut)
    plan.stages = {{0, nodes / 2, {DeviceId(0)}}, {nodes / 2, nodes, {DeviceId(1)}}};
  else
    plan.stages = {{0, nodes, {DeviceId(0)}}};
  plan.micro_batches = micro_batches;
  const auto program = compile_program(*kernels, plan, cluster, {HostId(0), HostId(0)}, nullptr);
  if (!accepted(program) || program->batch < 1) return;  // a scenario has a batch, and so its graph
  const Status sound = verify(*program);
  expect(sound.ok(), "what is lowered verifies: " + (sound.ok() ? "" : sound.error().to_string()));
  execute_watched(*program, weights != nullptr ? contents_of(*weights) : seeded_contents(*program, seed), seed);
}

void check_imported(const Model& model, uint64_t seed) {
  expect(verify(model.graph).ok(), "what is imported verifies");
  const auto again = parse_graph(to_string(model.graph), "again");
  expect(again.ok() && *again == model.graph, "the text form says it all");
  WeightStore weights = model.weights;
  const auto optimized = optimize(model.graph, weights);  // which verifies after every pass
  if (accepted(optimized)) execute_graph(*optimized, &weights, seed);
}

}  // namespace nlsplit::fuzz

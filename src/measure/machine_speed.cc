#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>

#include "base/random.h"
#include "exec/backends/workers.h"
#include "exec/cuda/copies.h"
#include "exec/cuda/library.h"
#include "kernels/module/kernel_library.h"
#include "measure/machine_facts.h"
#include "validate/statistics.h"

namespace nlsplit::inline measure {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double measures_for_s = 0.4;  // of each of the two
constexpr int least_times = 5;

struct Freed {
  void operator()(void* memory) const { std::free(memory); }
};
using Room = std::unique_ptr<std::byte, Freed>;

Result<Room> room_of(int64_t size) {
  constexpr size_t line = 64;
  const size_t whole = (static_cast<size_t>(size) + line - 1) / line * line + line;
  Room room(static_cast<std::byte*>(std::aligned_alloc(line, whole)));
  if (!room) return failed(fmt::format("no memory for {} B", whole));
  return room;
}

// [rows, 1024] x [1024, 1024], the second known at load, as a layer's weights are.
Result<ComputeDesc> product_desc(int64_t rows, int64_t columns, Level level) {
  ComputeDesc desc;
  desc.op = Op::MatMul;
  desc.weights = 2;
  desc.inputs = {{DType::f32, {rows, columns}}, {DType::f32, {columns, columns}}};
  desc.outputs = {{DType::f32, {rows, columns}}};
  ASSIGN_OR_RETURN(desc.kernel, choose_kernel(desc, level));
  return desc;
}

Result<ComputeDesc> elementwise_desc(int64_t elements, Level level) {
  ComputeDesc desc;
  desc.op = Op::Neg;
  desc.inputs = desc.outputs = {{DType::f32, {elements}}};
  ASSIGN_OR_RETURN(desc.kernel, choose_kernel(desc, level));
  return desc;
}

// The median of what it takes on these workers.
Result<double> seconds_of(const KernelLibrary& library, const ComputeDesc& desc, Workers& workers, int cores) {
  ASSIGN_OR_RETURN(const KernelCode* const code, library.find(desc.kernel));
  std::vector<Room> rooms;
  std::vector<const void*> inputs;
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    const int64_t count = element_count(desc.inputs[i].shape);
    ASSIGN_OR_RETURN(Room raw, room_of(size_of(desc.inputs[i]).value()));
    fill_normal(i + 1, reinterpret_cast<float*>(raw.get()), count);
    if (const Bytes packed = packed_bytes_of(desc, i); packed.value() > 0) {
      ASSIGN_OR_RETURN(Room room, room_of(packed.value()));
      code->pack(desc, i, raw.get(), room.get());
      raw = std::move(room);
    }
    inputs.push_back(raw.get());
    rooms.push_back(std::move(raw));
  }
  ASSIGN_OR_RETURN(const Room output, room_of(size_of(desc.outputs[0]).value()));
  ASSIGN_OR_RETURN(const Room workspace, room_of(workspace_of(desc, cores).value()));
  void* const outputs[] = {output.get()};
  std::vector<double> times;
  const Clock::time_point begin = Clock::now();
  Clock::time_point before = begin;
  for (int turn = 0; turn <= least_times || before - begin < std::chrono::duration<double>(measures_for_s); ++turn) {
    code->run({&desc, inputs.data(), outputs, workspace.get(), workers.crew()});
    const Clock::time_point now = Clock::now();
    if (turn > 0) times.push_back(std::chrono::duration<double>(now - before).count());  // the first one warms up
    before = now;
  }
  return quantile(times, 0.5);
}

}  // namespace

Status measure_speed(int cores, Machine& machine) {
  const Level level(machine.levels.back());
  ASSIGN_OR_RETURN(const KernelLibrary library, KernelLibrary::load(level.isa));
  Workers workers(cores, {});
  // A few milliseconds for each core.
  ASSIGN_OR_RETURN(const ComputeDesc product,
                   product_desc(std::min<int64_t>(int64_t{256} * cores, 16384), 1024, level));
  ASSIGN_OR_RETURN(const double product_s, seconds_of(library, product, workers, cores));
  int64_t cached = 0;
  for (const Cache& cache : machine.caches) cached = std::max(cached, cache.size.value() * cache.count);
  // What goes in alone is twice what all caches hold; little of a small machine's memory.
  const int64_t room = std::max(machine.free_memory.value(), machine.memory.value() / 4);
  const int64_t size = std::clamp<int64_t>(2 * cached, 64 << 20, 1 << 30);
  const int64_t elements = std::max<int64_t>(1 << 20, std::min(size, room / 8) / 4);
  ASSIGN_OR_RETURN(const ComputeDesc all, elementwise_desc(elements, level));
  ASSIGN_OR_RETURN(const double all_s, seconds_of(library, all, workers, cores));
  const Work work = work_of(all);
  machine.compute = flops_per_second(work_of(product).flops.value() / product_s);
  machine.memory_rate = bytes_per_second(static_cast<double>((work.bytes_read + work.bytes_written).value()) / all_s);
  machine.measured_cores = cores;
  return ok_status();
}

namespace {

// One GPU, closed at the end.
class OpenGpu {
 public:
  explicit OpenGpu(const cuda::Backend& backend) : backend_(backend) {}
  OpenGpu(const OpenGpu&) = delete;
  OpenGpu& operator=(const OpenGpu&) = delete;
  ~OpenGpu() {
    if (device_ == nullptr) return;
    if (kernel_ != nullptr) backend_.discard(device_, kernel_);
    for (cuda::Event* event : events_) backend_.destroy_event(device_, event);
    for (void* room : rooms_) static_cast<void>(backend_.release(device_, room));
    backend_.close(device_);
  }

  Result<std::string> open(int number) {
    RETURN_IF_ERROR(check(backend_.open(number, &device_)));
    const char* text = "";
    RETURN_IF_ERROR(check(backend_.describe(device_, &text)));
    for (int e = 0; e < 2; ++e) RETURN_IF_ERROR(check(backend_.create_event(device_, &events_.emplace_back())));
    return std::string(text);
  }

  // Of several, one behind the other.
  Result<double> seconds_of(const ComputeDesc& desc) {
    constexpr int times = 10;
    std::vector<const void*> inputs;
    for (size_t i = 0; i < desc.inputs.size(); ++i) {
      const auto size = static_cast<size_t>(size_of(desc.inputs[i]).value());
      std::vector<float> values(size / sizeof(float));
      fill_normal(i + 1, values.data(), static_cast<int64_t>(values.size()));
      ASSIGN_OR_RETURN(void* const room, allocate(size));
      RETURN_IF_ERROR(check(backend_.copy_in(device_, cuda::Stream::compute, room, values.data(), size)));
      RETURN_IF_ERROR(wait_for_all());  // `values` ends here
      inputs.push_back(room);
    }
    ASSIGN_OR_RETURN(void* const output, allocate(static_cast<size_t>(size_of(desc.outputs[0]).value())));
    const auto work = static_cast<uint64_t>(workspace_of(desc, 1).value());
    ASSIGN_OR_RETURN(void* const workspace, allocate(std::max<uint64_t>(work, 1)));
    if (kernel_ != nullptr) backend_.discard(device_, std::exchange(kernel_, nullptr));
    RETURN_IF_ERROR(check(backend_.prepare(device_, &desc, work, &kernel_)));
    void* const outputs[] = {output};
    const KernelCall call = {&desc, inputs.data(), outputs, workspace};
    RETURN_IF_ERROR(check(backend_.launch(device_, kernel_, &call)));
    RETURN_IF_ERROR(wait_for_all());
    RETURN_IF_ERROR(check(backend_.record(device_, cuda::Stream::compute, events_[0])));
    for (int i = 0; i < times; ++i) RETURN_IF_ERROR(check(backend_.launch(device_, kernel_, &call)));
    RETURN_IF_ERROR(wait_for_all());
    double taken_s = 0;
    RETURN_IF_ERROR(check(backend_.elapsed(device_, events_[0], events_[1], &taken_s)));
    if (taken_s <= 0) return failed("its clock stands still");
    return taken_s / times;
  }

 private:
  static Status check(cuda::Answer why) { return why == nullptr ? ok_status() : Status(failed(why)); }
  Status wait_for_all() {
    RETURN_IF_ERROR(check(backend_.record(device_, cuda::Stream::compute, events_[1])));
    return check(backend_.wait(device_, events_[1]));
  }
  Result<void*> allocate(uint64_t size) {
    void* room = nullptr;
    RETURN_IF_ERROR(check(backend_.allocate(device_, size, &room)));
    rooms_.push_back(room);
    return room;
  }

  const cuda::Backend& backend_;
  cuda::Device* device_ = nullptr;
  cuda::Kernel* kernel_ = nullptr;
  std::vector<cuda::Event*> events_;
  std::vector<void*> rooms_;
};

// Of "NVIDIA H200, sm_90, 139 GiB" the size.
Bytes memory_of(const std::string& about) {
  std::string size = about.substr(about.rfind(',') + 1);
  std::erase(size, ' ');
  const auto memory = parse_size(size);
  return memory ? *memory : bytes(0);
}

Status measure_gpu(const cuda::Backend& backend, int number, Gpu& gpu) {
  constexpr int64_t rows = 4096, elements = int64_t{32} << 20;
  {
    OpenGpu open(backend);
    ASSIGN_OR_RETURN(gpu.about, open.open(number));
    gpu.memory = memory_of(gpu.about);
    ASSIGN_OR_RETURN(const ComputeDesc product, product_desc(rows, rows, Level(Isa::cuda)));
    ASSIGN_OR_RETURN(const double product_s, open.seconds_of(product));
    ASSIGN_OR_RETURN(const ComputeDesc all, elementwise_desc(elements, Level(Isa::cuda)));
    ASSIGN_OR_RETURN(const double all_s, open.seconds_of(all));
    const Work work = work_of(all);
    gpu.compute = flops_per_second(work_of(product).flops.value() / product_s);
    gpu.memory_rate = bytes_per_second(static_cast<double>((work.bytes_read + work.bytes_written).value()) / all_s);
  }
  ASSIGN_OR_RETURN(const HostCopies copies, measure_copies(backend, number, {}));
  const Bus bus = bus_of(copies.pinned);
  gpu.bus_latency = bus.link.latency;
  gpu.bus_bandwidth = bus.link.bandwidth;
  return ok_status();
}

}  // namespace

std::vector<Gpu> gpu_facts(const std::string& backend) {
  const auto chosen = choose_backend({backend, GpuMissing::error});
  std::vector<Gpu> gpus;
  for (int number = 0; chosen && number < chosen->devices; ++number) {
    Gpu gpu;
    gpu.about = fmt::format("GPU {}", number);
    if (const Status measured = measure_gpu(*chosen->backend, number, gpu); !measured.ok())
      gpu.trouble = measured.error().message;
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

}  // namespace nlsplit::inline measure

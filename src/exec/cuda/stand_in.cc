#include "exec/cuda/stand_in.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exec/sum.h"
#include "kernels/catalogue.h"
#include "kernels/module/kernel_library.h"

namespace nlsplit::cuda {

// Calls, kept instead of being done.
struct Graph {
  std::vector<std::function<void()>> calls;
};

struct Device {
  KernelLibrary library;
  std::string text;
  std::unique_ptr<Graph> capturing = nullptr;  // of the thread that computes
};

struct Event {
  std::chrono::steady_clock::time_point at;
};

struct Kernel {
  ComputeDesc desc;  // for the CPU
  const KernelCode* entry = nullptr;
  std::vector<std::byte> workspace;
};

namespace {

constexpr size_t alignment = 256;

Answer refuse(std::string why) {
  thread_local std::string said;
  said = std::move(why);
  return said.c_str();  // NOLINT(clang-analyzer-cplusplus.InnerPointer): it lives as long as its thread
}

// Now; on the compute stream during a capture whenever its graph is launched.
template <class Call>
Answer perform(Device* device, Stream stream, Call call) {
  if (stream == Stream::compute && device->capturing != nullptr)
    device->capturing->calls.emplace_back(std::move(call));
  else
    call();
  return nullptr;
}

Answer count(int* devices) {
  *devices = 1;
  return nullptr;
}

Answer open(int, Device** device) {
  const Result<Isa> best = best_isa();
  if (!best) return refuse(best.error().message);
  auto library = KernelLibrary::load(*best);
  if (!library) return refuse(library.error().message);
  const std::string text = "a CPU of level " + std::string(full_name_of(*best)) + " in place of a GPU";
  *device = std::make_unique<Device>(Device{std::move(*library), text, nullptr}).release();
  return nullptr;
}

void close(Device* device) { delete device; }

Answer describe(Device* device, const char** text) {
  *text = device->text.c_str();
  return nullptr;
}

Answer bus_id(Device*, const char**) { return refuse("a CPU in place of a GPU has no place on a bus"); }
Answer handle(Device*, Stream, void**) { return refuse("a CPU in place of a GPU has no streams of CUDA's"); }

Answer allocate(Device*, uint64_t bytes, void** memory) {
  *memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  return *memory != nullptr || bytes == 0 ? nullptr : refuse("out of memory");
}

Answer release(Device*, void* memory) {
  std::free(memory);
  return nullptr;
}

Answer pin(Device*, void*, uint64_t) { return nullptr; }
Answer unpin(Device*, void*) { return nullptr; }

Answer copy(Device* device, Stream stream, void* to, const void* from, uint64_t bytes) {
  if (stream == Stream::compute && device->capturing != nullptr)
    return refuse("a copy to or from the host is not part of a graph");
  if (bytes > 0) std::memcpy(to, from, bytes);
  return nullptr;
}

Answer move(Device* device, Stream stream, void* to, uint64_t to_pitch, const void* from, uint64_t from_pitch,
            uint64_t width, uint64_t rows) {
  return perform(device, stream, [=] {
    for (uint64_t row = 0; row < rows; ++row) {
      std::memmove(static_cast<std::byte*>(to) + row * to_pitch, static_cast<const std::byte*>(from) + row * from_pitch,
                   width);
    }
  });
}

Answer add(Device* device, DType type, void* sum, const void* const* terms, uint64_t count, int64_t elements) {
  return perform(device, Stream::compute, [type, sum, all = std::vector(terms, terms + count), elements] {
    add_terms(type, sum, all.data(), all.size(), elements);
  });
}

// The CPU's own kernel for it, one that packs nothing: no operand counts as constant.
Answer prepare(Device* device, const ComputeDesc* desc, uint64_t, Kernel** kernel) {
  auto made = std::make_unique<Kernel>(Kernel{*desc, nullptr, {}});
  made->desc.kernel = {};
  made->desc.weights = 0;
  const Isa isa = device->library.isa();
  auto id = choose_kernel(made->desc, isa);
  if (!id) return refuse(id.error().message);
  made->desc.kernel = *id;
  const auto entry = device->library.find(made->desc.kernel);
  if (!entry) return refuse(entry.error().message);
  made->entry = *entry;
  const Bytes scratch = workspace_of(made->desc, 1);
  made->workspace.resize(static_cast<size_t>(scratch.value()) + alignment);
  *kernel = made.release();
  return nullptr;
}

void discard(Device*, Kernel* kernel) { delete kernel; }

Answer launch(Device* device, Kernel* kernel, const KernelCall* call) {
  return perform(device, Stream::compute,
                 [kernel, inputs = std::vector(call->inputs, call->inputs + call->desc->inputs.size()),
                  outputs = std::vector(call->outputs, call->outputs + call->desc->outputs.size())] {
                   void* workspace = kernel->workspace.data();
                   size_t room = kernel->workspace.size();
                   std::align(alignment, 1, workspace, room);
                   kernel->entry->run({&kernel->desc, inputs.data(), outputs.data(), workspace, {}});
                 });
}

Answer create_event(Device*, Event** event) {
  *event = std::make_unique<Event>().release();
  return nullptr;
}

void destroy_event(Device*, Event* event) { delete event; }

Answer record(Device* device, Stream stream, Event* event) {
  return perform(device, stream, [event] { event->at = std::chrono::steady_clock::now(); });
}

Answer query(Device*, Event*, int* reached) {
  *reached = 1;
  return nullptr;
}

Answer wait(Device*, Event*) { return nullptr; }

Answer elapsed(Device*, Event* first, Event* second, double* seconds) {
  *seconds = std::chrono::duration<double>(second->at - first->at).count();
  return nullptr;
}

Answer begin_capture(Device* device) {
  device->capturing = std::make_unique<Graph>();
  return nullptr;
}

Answer end_capture(Device* device, Graph** graph) {
  *graph = device->capturing.release();
  return nullptr;
}

void destroy_graph(Device*, Graph* graph) { delete graph; }

Answer launch_graph(Device*, Graph* graph) {
  for (const auto& call : graph->calls) call();
  return nullptr;
}

void range_begin(const char*) {}
void range_end() {}

}  // namespace

const Backend& stand_in_backend() {
  static constexpr Backend backend = {
      interface_version, count,       open,          close,         describe,    bus_id,   handle, allocate,
      release,           pin,         unpin,         copy,          copy,        move,     add,    prepare,
      discard,           launch,      create_event,  destroy_event, record,      query,    wait,   elapsed,
      begin_capture,     end_capture, destroy_graph, launch_graph,  range_begin, range_end};
  return backend;
}

}  // namespace nlsplit::cuda

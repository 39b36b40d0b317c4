#include "exec/fake_gpu/fake_gpu.h"

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exec/cuda/stand_in.h"
#include "kernels/catalogue.h"

namespace nlsplit::cuda {
namespace {

const Backend& real() { return stand_in_backend(); }

// Work that was begun and not yet done, by stream. What an event asks for is done then, and no earlier.
struct Late {
  std::deque<std::function<void()>> streams[stream_count];
  std::map<Event*, std::pair<int, bool>> events;  // stream, reached
  bool capturing = false;
  std::vector<Event*> captured;                  // events of the graph that is being captured
  std::map<Graph*, std::vector<Event*>> within;  // of each graph
};

struct Fake {
  std::mutex mutex;
  std::map<Device*, Late> devices;
  std::map<std::string, int> calls;
  std::string failing;
  int nth = 0;
  int hanging = 0;  // this wait from now on does not return until something else is asked for; 0: none
  bool hangs = false;
  bool patient = false;  // every other question about an event is answered without doing anything
};

Fake& fake() {
  static Fake all;
  return all;
}

// Counts a call; whether it is the one that fails. Under the mutex.
Answer called(const char* function) {
  Fake& f = fake();
  const int times = ++f.calls[function];
  return f.failing == function && times == f.nth ? "the fake was told to fail" : nullptr;
}

#define RETURN_IF_TOLD_TO_FAIL(function)    \
  const std::lock_guard lock(fake().mutex); \
  if (const Answer why = called(function); why != nullptr) return why

// During a capture the real one keeps what is begun on the compute stream; it must be told at once.
void later(Device* device, Stream stream, std::function<void()> work) {
  if (stream == Stream::compute && fake().devices[device].capturing) return work();
  fake().devices[device].streams[static_cast<int>(stream)].push_back(std::move(work));
}

// Under the mutex: does what is on the event's stream until it is reached.
void reach(Device* device, Event* event) {
  Late& late = fake().devices[device];
  const auto found = late.events.find(event);
  if (found == late.events.end()) return;
  auto& work = late.streams[found->second.first];
  while (!found->second.second && !work.empty()) {
    work.front()();
    work.pop_front();
  }
}

Answer count(int* devices) {
  RETURN_IF_TOLD_TO_FAIL("count");
  *devices = 2;
  return nullptr;
}

Answer open(int number, Device** device) {
  RETURN_IF_TOLD_TO_FAIL("open");
  if (number >= 2) return "there are two";
  return real().open(number, device);
}

void close(Device* device) {
  const std::lock_guard lock(fake().mutex);
  fake().devices.erase(device);  // what nobody has waited for is not done
  real().close(device);
}

Answer allocate(Device* device, uint64_t bytes, void** memory) {
  RETURN_IF_TOLD_TO_FAIL("allocate");
  return real().allocate(device, bytes, memory);
}

Answer pin(Device* device, void* host, uint64_t bytes) {
  RETURN_IF_TOLD_TO_FAIL("pin");
  return real().pin(device, host, bytes);
}

Answer copy_in(Device* device, Stream stream, void* to, const void* from, uint64_t bytes) {
  RETURN_IF_TOLD_TO_FAIL("copy_in");
  later(device, stream, [=] { real().copy_in(device, stream, to, from, bytes); });
  return nullptr;
}

Answer copy_out(Device* device, Stream stream, void* to, const void* from, uint64_t bytes) {
  RETURN_IF_TOLD_TO_FAIL("copy_out");
  later(device, stream, [=] { real().copy_out(device, stream, to, from, bytes); });
  return nullptr;
}

Answer move(Device* device, Stream stream, void* to, uint64_t to_pitch, const void* from, uint64_t from_pitch,
            uint64_t width, uint64_t rows) {
  RETURN_IF_TOLD_TO_FAIL("move");
  later(device, stream, [=] { real().move(device, stream, to, to_pitch, from, from_pitch, width, rows); });
  return nullptr;
}

Answer add(Device* device, DType type, void* sum, const void* const* terms, uint64_t count, int64_t elements) {
  RETURN_IF_TOLD_TO_FAIL("add");
  std::vector<const void*> all(terms, terms + count);
  later(device, Stream::compute, [=] { real().add(device, type, sum, all.data(), all.size(), elements); });
  return nullptr;
}

Answer prepare(Device* device, const ComputeDesc* desc, uint64_t workspace, Kernel** kernel) {
  RETURN_IF_TOLD_TO_FAIL("prepare");
  // As much as it asks for, however large the buffer is that it shares: else the choice of an algorithm, and so the
  // bits, would depend on what else a device computes.
  if (workspace != static_cast<uint64_t>(workspace_of(*desc, 1).value()))
    return "a workspace of another size than the kernel wants";
  return real().prepare(device, desc, workspace, kernel);
}

Answer launch(Device* device, Kernel* kernel, const KernelCall* call) {
  RETURN_IF_TOLD_TO_FAIL("launch");
  std::vector<const void*> inputs(call->inputs, call->inputs + call->desc->inputs.size());
  std::vector<void*> outputs(call->outputs, call->outputs + call->desc->outputs.size());
  later(device, Stream::compute, [=, desc = call->desc, workspace = call->workspace] {
    const KernelCall own{desc, inputs.data(), outputs.data(), workspace, {}};
    real().launch(device, kernel, &own);
  });
  return nullptr;
}

Answer create_event(Device* device, Event** event) {
  RETURN_IF_TOLD_TO_FAIL("create_event");
  return real().create_event(device, event);
}

Answer record(Device* device, Stream stream, Event* event) {
  RETURN_IF_TOLD_TO_FAIL("record");
  Late& late = fake().devices[device];
  if (stream == Stream::compute && late.capturing) {
    late.captured.push_back(event);
    return real().record(device, stream, event);
  }
  late.events[event] = {static_cast<int>(stream), false};
  later(device, stream, [=] {
    real().record(device, stream, event);
    fake().devices[device].events[event].second = true;
  });
  return nullptr;
}

Answer query(Device* device, Event* event, int* reached) {
  RETURN_IF_TOLD_TO_FAIL("query");
  fake().patient = !fake().patient;
  if (!fake().patient) reach(device, event);
  *reached = fake().devices[device].events[event].second ? 1 : 0;
  return nullptr;
}

Answer wait(Device* device, Event* event) {
  for (bool hangs = true, first = true; hangs; first = false) {
    if (!first) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::lock_guard lock(fake().mutex);
    Fake& f = fake();
    if (first && f.hanging > 0 && f.calls["wait"] + 1 == f.hanging) f.hangs = true;
    hangs = f.hangs;
  }
  RETURN_IF_TOLD_TO_FAIL("wait");
  reach(device, event);
  return nullptr;
}

// Of moments that nobody has waited for there is no time.
Answer elapsed(Device* device, Event* first, Event* second, double* seconds) {
  RETURN_IF_TOLD_TO_FAIL("elapsed");
  for (Event* event : {first, second}) {
    if (!fake().devices[device].events[event].second) return "an event is not reached";
  }
  return real().elapsed(device, first, second, seconds);
}

Answer begin_capture(Device* device) {
  RETURN_IF_TOLD_TO_FAIL("begin_capture");
  fake().devices[device].capturing = true;
  return real().begin_capture(device);
}

// A capture that fails is over all the same.
Answer end_capture(Device* device, Graph** graph) {
  const std::lock_guard lock(fake().mutex);
  Late& late = fake().devices[device];
  late.capturing = false;
  const std::vector<Event*> events = std::exchange(late.captured, {});
  Graph* made = nullptr;
  if (const Answer why = real().end_capture(device, &made); why != nullptr) return why;
  if (const Answer why = called("end_capture"); why != nullptr) {
    real().destroy_graph(device, made);
    return why;
  }
  late.within[made] = events;
  *graph = made;
  return nullptr;
}

void destroy_graph(Device* device, Graph* graph) {
  const std::lock_guard lock(fake().mutex);
  fake().devices[device].within.erase(graph);
  real().destroy_graph(device, graph);
}

Answer launch_graph(Device* device, Graph* graph) {
  RETURN_IF_TOLD_TO_FAIL("launch_graph");
  for (Event* event : fake().devices[device].within[graph]) {
    fake().devices[device].events[event] = {static_cast<int>(Stream::compute), false};
  }
  later(device, Stream::compute, [=] {
    real().launch_graph(device, graph);
    for (Event* event : fake().devices[device].within[graph]) fake().devices[device].events[event].second = true;
  });
  return nullptr;
}

Backend make_backend() {
  Backend made = real();
  made.count = count;
  made.open = open;
  made.close = close;
  made.allocate = allocate;
  made.pin = pin;
  made.copy_in = copy_in;
  made.copy_out = copy_out;
  made.move = move;
  made.add = add;
  made.prepare = prepare;
  made.launch = launch;
  made.create_event = create_event;
  made.record = record;
  made.query = query;
  made.wait = wait;
  made.elapsed = elapsed;
  made.begin_capture = begin_capture;
  made.end_capture = end_capture;
  made.destroy_graph = destroy_graph;
  made.launch_graph = launch_graph;
  return made;
}

}  // namespace
}  // namespace nlsplit::cuda

extern "C" {
__attribute__((visibility("default"))) const nlsplit::cuda::Backend* nlsplit_cuda_backend() {
  static const nlsplit::cuda::Backend backend = nlsplit::cuda::make_backend();
  return &backend;
}

__attribute__((visibility("default"))) void fake_gpu_fail(const char* function, int nth) {
  nlsplit::cuda::Fake& f = nlsplit::cuda::fake();
  const std::lock_guard lock(f.mutex);
  f.calls.clear();
  f.hangs = false;
  f.hanging = std::string(function) == "hang" ? nth : 0;
  f.failing = function;
  f.nth = nth;
}

__attribute__((visibility("default"))) int fake_gpu_calls(const char* function) {
  nlsplit::cuda::Fake& f = nlsplit::cuda::fake();
  const std::lock_guard lock(f.mutex);
  return f.calls[function];
}
}

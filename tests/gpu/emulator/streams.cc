// Streams, events and graphs of CUDA.
#include <fmt/format.h>

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/emulator/blocks.h"
#include "gpu/emulator/memory.h"
#include "gpu/emulator/runtime.h"

using nlsplit::Random;
using namespace nlsplit::emulator;
using Clock = std::chrono::steady_clock;

// When an event was recorded, and whether that has come.
struct Moment {
  cudaStream_t stream = nullptr;
  bool reached = false;
  Clock::time_point at = {};
};
struct CUevent_st {
  std::shared_ptr<Moment> moment = {};  // nullptr: never recorded
};

// What was captured: work, or an event to be recorded whenever the graph runs.
struct Node {
  std::function<void()> work = {};
  cudaEvent_t event = nullptr;
};
struct CUgraph_st {
  int gpu = 0;
  std::vector<Node> nodes = {};
};
struct CUgraphExec_st {
  CUgraph_st graph = {};
};

struct CUstream_st {
  int gpu = 0;
  std::deque<std::function<bool()>> queue = {};  // what says no waits for something outside
  std::unique_ptr<CUgraph_st> captured = {};     // what is begun goes here instead
};

namespace {

struct Streams {
  std::vector<cudaStream_t> all;
  Random random = Random(1);
};
Streams& streams() {
  static Streams all;
  return all;
}

thread_local int captures = 0;  // under way

#define RETURN_IF_FAULTY(wrong, status, why) \
  do {                                       \
    if (wrong) return refuse(status, why);   \
  } while (false)

void step(CUstream_st& stream) {
  auto work = std::move(stream.queue.front());
  stream.queue.pop_front();
  const Opened opened;
  if (fault().empty() && !work()) stream.queue.push_front(std::move(work));
}

std::function<bool()> done_at_once(std::function<void()> work) {
  return [work = std::move(work)] {
    work();
    return true;
  };
}

// Chance may do some of what has been begun.
void do_some() {
  Streams& s = streams();
  if (s.all.empty() || s.random.below(3) != 0) return;
  for (uint64_t steps = s.random.below(8); steps > 0; --steps) {
    CUstream_st& stream = *s.all[s.random.below(s.all.size())];
    if (!stream.queue.empty()) step(stream);
  }
}

// Whoever waits here keeps all other calls of the process out, as a wait for a whole GPU may. What only such a call
// could end is a dead lock.
void finish(CUstream_st& stream) {
  constexpr std::chrono::seconds patience(5);
  const Clock::time_point begin = Clock::now();
  while (!stream.queue.empty()) {
    const size_t before = stream.queue.size();
    step(stream);
    if (stream.queue.size() < before) continue;
    for (cudaStream_t other : streams().all) {
      if (other != &stream && !other->queue.empty()) step(*other);
    }
    if (Clock::now() - begin > patience) report("a wait for all of a GPU while a message there waits for another GPU");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

cudaError_t check(cudaStream_t stream) {
  RETURN_IF_FAULTY(!is_made(stream), cudaErrorInvalidResourceHandle, "work on a stream that does not exist");
  RETURN_IF_FAULTY(stream->gpu != current_gpu(), cudaErrorInvalidResourceHandle, "work on a stream of another GPU");
  return cudaSuccess;
}

void record(cudaEvent_t event, CUstream_st& stream) {
  auto moment = std::make_shared<Moment>(Moment{&stream});
  event->moment = moment;
  stream.queue.push_back([moment] {
    moment->reached = true;
    moment->at = Clock::now();
    return true;
  });
}

}  // namespace

namespace nlsplit::emulator {

Random& draws() { return streams().random; }
int gpu_of(cudaStream_t stream) { return stream->gpu; }
bool is_capturing() { return captures > 0; }

void finish(int gpu) {
  for (cudaStream_t stream : streams().all) {
    if (stream->gpu == gpu) ::finish(*stream);
  }
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  if (const cudaError_t status = check(stream); status != cudaSuccess) return status;
  if (stream->captured != nullptr) {
    stream->captured->nodes.push_back({std::move(work)});
    return outcome();
  }
  stream->queue.push_back(done_at_once(std::move(work)));
  do_some();
  return outcome();
}

cudaError_t enqueue_until(cudaStream_t stream, std::function<bool()> attempt) {
  if (const cudaError_t status = check(stream); status != cudaSuccess) return status;
  RETURN_IF_FAULTY(stream->captured != nullptr, cudaErrorStreamCaptureUnsupported, "a message within a capture");
  stream->queue.push_back(std::move(attempt));
  do_some();
  return outcome();
}

cudaError_t begin(const Blocks& blocks, int threads, cudaStream_t stream, void (*thread)(const void* arguments),
                  const void* arguments, size_t bytes) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(blocks.count == 0 || threads < 1 || threads > 1024, cudaErrorInvalidConfiguration,
                   fmt::format("{} blocks of {} threads", blocks.count, threads));
  const auto* begin = static_cast<const std::byte*>(arguments);
  const Call call{thread, {begin, begin + bytes}};
  return enqueue(stream,
                 [blocks, threads, gpu = current_gpu(), call] { run_kernel(gpu, blocks, threads, draws(), call); });
}

}  // namespace nlsplit::emulator

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(flags != cudaStreamNonBlocking, cudaErrorInvalidValue,
                   "a stream of a kind that the emulator does not know");
  *stream = new CUstream_st{current_gpu()};
  made(*stream);
  streams().all.push_back(*stream);
  return outcome();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!destroyed(stream), cudaErrorInvalidResourceHandle, "cudaStreamDestroy of no stream");
  finish(*stream);
  std::erase(streams().all, stream);
  delete stream;
  return outcome();
}

// ---- events

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  const std::lock_guard lock(mutex());
  *event = new CUevent_st;
  made(*event);
  return outcome();
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!destroyed(event), cudaErrorInvalidResourceHandle, "cudaEventDestroy of no event");
  delete event;
  return outcome();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!is_made(event), cudaErrorInvalidResourceHandle, "cudaEventRecord of no event");
  if (const cudaError_t status = check(stream); status != cudaSuccess) return status;
  const bool outside = flags == cudaEventRecordExternal;
  RETURN_IF_FAULTY(!outside && flags != cudaEventRecordDefault, cudaErrorInvalidValue,
                   "cudaEventRecord with other flags");
  RETURN_IF_FAULTY(outside != (stream->captured != nullptr), cudaErrorInvalidValue,
                   "an event for outside is recorded where nothing is captured, or one for inside where something is");
  if (outside) {
    stream->captured->nodes.push_back({{}, event});
    return outcome();
  }
  record(event, *stream);
  do_some();
  return outcome();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!is_made(event), cudaErrorInvalidResourceHandle, "cudaEventQuery of no event");
  RETURN_IF_FAULTY(is_capturing(), cudaErrorStreamCaptureUnsupported, "cudaEventQuery while a stream is captured");
  if (const Moment* moment = event->moment.get(); moment != nullptr && !moment->reached) {
    if (draws().below(2) != 0 && !moment->stream->queue.empty()) step(*moment->stream);
    do_some();
    if (!moment->reached && fault().empty()) return cudaErrorNotReady;
  }
  return outcome();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!is_made(event), cudaErrorInvalidResourceHandle, "cudaEventSynchronize of no event");
  RETURN_IF_FAULTY(is_capturing(), cudaErrorStreamCaptureUnsupported,
                   "cudaEventSynchronize while a stream is captured");
  if (const Moment* moment = event->moment.get(); moment != nullptr) {
    while (!moment->reached && fault().empty()) {
      do_some();
      if (!moment->reached && !moment->stream->queue.empty()) step(*moment->stream);
    }
  }
  return outcome();
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
  const std::lock_guard lock(mutex());
  for (cudaEvent_t event : {first, second}) {
    RETURN_IF_FAULTY(!is_made(event) || event->moment == nullptr, cudaErrorInvalidResourceHandle,
                     "cudaEventElapsedTime of an event that was not recorded");
    RETURN_IF_FAULTY(!event->moment->reached, cudaErrorNotReady,
                     "cudaEventElapsedTime of an event that is not reached");
  }
  *milliseconds = std::chrono::duration<float, std::milli>(second->moment->at - first->moment->at).count();
  return outcome();
}

// ---- graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(mutex());
  if (const cudaError_t status = check(stream); status != cudaSuccess) return status;
  RETURN_IF_FAULTY(mode != cudaStreamCaptureModeThreadLocal, cudaErrorInvalidValue,
                   "the emulator captures by thread only");
  RETURN_IF_FAULTY(stream->captured != nullptr, cudaErrorIllegalState, "a stream is captured twice");
  stream->captured = std::make_unique<CUgraph_st>(CUgraph_st{stream->gpu});
  ++captures;
  return outcome();
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(mutex());
  *graph = nullptr;
  if (const cudaError_t status = check(stream); status != cudaSuccess) return status;
  RETURN_IF_FAULTY(stream->captured == nullptr, cudaErrorIllegalState, "what is captured of a stream that is not");
  --captures;
  *graph = stream->captured.release();
  made(*graph);
  return outcome();
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!destroyed(graph), cudaErrorInvalidResourceHandle, "cudaGraphDestroy of no graph");
  delete graph;
  return outcome();
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made_one, cudaGraph_t graph, unsigned long long flags) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!is_made(graph), cudaErrorInvalidResourceHandle, "cudaGraphInstantiate of no graph");
  RETURN_IF_FAULTY(flags != 0, cudaErrorInvalidValue, "cudaGraphInstantiate with flags");
  *made_one = new CUgraphExec_st{*graph};
  made(*made_one);
  return outcome();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!destroyed(graph), cudaErrorInvalidResourceHandle, "cudaGraphExecDestroy of no graph");
  delete graph;
  return outcome();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t which, cudaStream_t stream) {
  const std::lock_guard lock(mutex());
  if (const cudaError_t status = check(stream); status != cudaSuccess) return status;
  RETURN_IF_FAULTY(!is_made(which), cudaErrorInvalidResourceHandle, "cudaGraphLaunch of no graph");
  RETURN_IF_FAULTY(which->graph.gpu != stream->gpu || stream->captured != nullptr, cudaErrorInvalidValue,
                   "cudaGraphLaunch on a stream of another GPU, or within a capture");
  for (const Node& node : which->graph.nodes) {
    RETURN_IF_FAULTY(node.event != nullptr && !is_made(node.event), cudaErrorInvalidResourceHandle,
                     "a graph records an event that does not exist");
    if (node.event != nullptr) {
      record(node.event, *stream);
    } else {
      stream->queue.push_back(done_at_once(node.work));
    }
  }
  do_some();
  return outcome();
}

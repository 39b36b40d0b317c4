// Launches: what a GPU's compute stream was given, and when each of it ran. Runs of computations that come again with
// the same addresses are captured the first time, and launched as one CUDA graph from then on.
//
//   Launches launches(backend, device, "G", GpuGraphs::timed);
//   RETURN_IF_ERROR(launches.begin(tags, key, [&](size_t i) { … begins the i-th of them … }));
//   ASSIGN_OR_RETURN(const std::vector<GpuTime> times, launches.finish());
//
// One thread.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "exec/cuda/backend.h"
#include "exec/cuda/library.h"

namespace nlsplit::inline exec {

// "device G (GPU): cannot record an event: CUDA: …"
Status gpu_status(std::string_view device, std::string_view asked, cuda::Answer why);

// How a notice ends that says why graphs are not used.
inline constexpr std::string_view without_graphs = "computations are begun one by one";

struct GpuTime {
  uint32_t tag = 0;
  double start_s = 0, finish_s = 0;  // by the GPU's clock, since restart()
};

// Events, used again and again.
struct EventPool {
  std::vector<cuda::Event*> all, free;
};

class Launches {
 public:
  // Begins the i-th of some computations on the compute stream; says what went wrong with it.
  using Work = std::function<Status(size_t i)>;
  // What a run of computations is and works on: equal keys mean equal work.
  using Key = std::vector<int64_t>;

  Launches(const cuda::Backend& backend, cuda::Device* device, std::string name, GpuGraphs graphs);
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;
  ~Launches();

  Status restart();  // the clock begins, and what was begun before is forgotten
  // Begins a run after all that was begun before it. Nothing in it waits for the host.
  Status begin(std::span<const uint32_t> tags, const Key& key, const Work& work);
  Result<std::vector<GpuTime>> finish();  // waits for all; the times in the order of begin()
  Status settle();                        // waits for all on the stream

  // Why runs are begun one by one although graphs were asked for; empty: they are not.
  const std::string& no_graphs() const { return no_graphs_; }

 private:
  struct Captured;  // a run as a graph
  struct Begun {
    std::vector<uint32_t> tags;
    std::vector<cuda::Event*> events = {};  // the last: all is done. Unless the moments are a graph's also the first
    bool has_moments = false;               // those of `captured`
    Captured* captured = nullptr;           // may be launched again when this has been read
  };

  Status check(cuda::Answer why, std::string_view asked) const;
  Result<cuda::Event*> take();
  Status record(cuda::Event* event);
  Status begin_one(uint32_t tag, const Work& work, size_t i);
  Status launch(Captured& run, std::span<const uint32_t> tags);
  Status capture(Captured& run, size_t count, const Work& work);
  Result<Captured*> idle(std::vector<std::unique_ptr<Captured>>& same);
  Status read_first();
  void forget_first();
  void discard(Captured& run);

  const cuda::Backend& backend_;
  cuda::Device* device_;
  std::string name_;
  GpuGraphs graphs_;
  std::string no_graphs_;
  EventPool events_;
  cuda::Event* zero_ = nullptr;
  std::map<Key, std::vector<std::unique_ptr<Captured>>> captured_;
  std::deque<Begun> begun_;  // and their times not yet read
  std::vector<GpuTime> times_;
};

}  // namespace nlsplit::inline exec

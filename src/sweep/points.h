// Points of a sweep, simulated: one of a scenario through lowering and the simulator, one of a pipeline by playing its
// table of slots.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sweep/grid.h"

namespace nlsplit::inline sweeps {

// A slot as it is drawn.
struct SlotBar {
  int device = 0, stage = 0, micro_batch = 0;
  Phase phase = Phase::forward;
  double start = 0, finish = 0;
};

struct Drawing {
  std::vector<std::string> devices;
  std::vector<SlotBar> bars;
  // Bytes of one micro-batch by stage, from F until I and from then until W; empty: not weighed, or inference.
  std::vector<int64_t> kept_until_input, kept_until_weight;
  std::vector<int64_t> arena;  // [device]: all its Program takes; empty: unknown
};

struct PointResult {
  std::string impossible;  // why there is no such point; empty: there is, and what follows is filled in
  double makespan_s = 0;
  std::optional<double> throughput;  // samples/s; a pipeline has no samples
  double latency_mean_s = 0;         // of a micro-batch, from its first slot to its last
  double bubble = 0;                 // idle share of the devices' time
  double inner_bubble_s = 0;         // the longest time a device idles between its first slot and its last
  std::string busiest_device, busiest_link;
  double busiest_device_share = 0, busiest_link_share = 0;
  std::optional<int64_t> peak_memory_bytes;  // of the device that needs most
  std::optional<int> kept_micro_batches;     // of one device from F until W, the most
  Drawing drawing = {};                      // if asked for
};

class PointRunner {
 public:
  virtual ~PointRunner() = default;
  // In the order of `settings`; on all cores. Has no threads when it returns. Error: what is wrong is no matter of one
  // point, such as a missing cost.
  virtual Result<std::vector<PointResult>> run(std::span<const Setting> settings, bool draw) = 0;
};

// Loads the model of a scenario and prepares what its points share. `experiment` must outlive it.
Result<std::unique_ptr<PointRunner>> make_scenario_runner(const Experiment& experiment);
std::unique_ptr<PointRunner> make_pipeline_runner(const Experiment& experiment);
Result<std::unique_ptr<PointRunner>> make_runner(const Experiment& experiment);

// When a device computes; slots are added in the order they run.
struct DeviceSpan {
  double last = 0, busy = 0, idle = 0;  // the end of its last slot; seconds within and between slots
  bool any = false;
  void add(double start, double finish);
};
// bubble and inner_bubble_s, once the makespan is there.
void add_idle(std::span<const DeviceSpan> devices, PointResult& result);

}  // namespace nlsplit::inline sweeps

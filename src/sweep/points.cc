#include "sweep/points.h"

#include <algorithm>

namespace nlsplit::inline sweeps {

void DeviceSpan::add(double start, double finish) {
  if (any) idle += std::max(0.0, start - last);
  last = finish;
  busy += finish - start;
  any = true;
}

void add_idle(std::span<const DeviceSpan> devices, PointResult& result) {
  double busy = 0;
  for (const DeviceSpan& device : devices) {
    busy += device.busy;
    result.inner_bubble_s = std::max(result.inner_bubble_s, device.idle);
  }
  if (result.makespan_s > 0 && !devices.empty())
    result.bubble = 1 - busy / (result.makespan_s * static_cast<double>(devices.size()));
}

Result<std::unique_ptr<PointRunner>> make_runner(const Experiment& experiment) {
  if (experiment.pipeline) return make_pipeline_runner(experiment);
  return make_scenario_runner(experiment);
}

}  // namespace nlsplit::inline sweeps

#include "sweep/points.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace nlsplit {

void on_all_cores(size_t count, const std::function<void(size_t)>& work) {
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::atomic<size_t> next = 0;
  const auto take = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> others;
  for (size_t t = 1; t < std::min(cores, count); ++t) others.emplace_back(take);
  take();
  for (std::thread& other : others) other.join();
}

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

}  // namespace nlsplit

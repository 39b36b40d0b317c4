#include "sim/tier.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cores.h"

namespace nlsplit::inline sim {

Status Tier::simulate_each(size_t count, const std::function<Simulation(size_t)>& simulation,
                           const std::function<bool(size_t, Timing)>& take) const {
  const size_t most = 8 * core_count();  // at once: their timings are kept until it is their turn
  for (size_t begin = 0; begin < count; begin += most) {
    std::vector<Simulation> simulations;
    for (size_t i = begin; i < std::min(count, begin + most); ++i) simulations.push_back(simulation(i));
    std::vector<Timing> timings(simulations.size());
    std::vector<Status> statuses(simulations.size(), ok_status());
    on_all_cores(simulations.size(), [&](size_t i) { statuses[i] = simulate(simulations[i], timings[i]); });
    for (size_t i = 0; i < simulations.size(); ++i) {
      if (!statuses[i].ok()) {
        Error error = statuses[i].error();
        error.message = fmt::format("simulation {} of {}: {}", begin + i + 1, count, error.message);
        return error;
      }
      if (!take(begin + i, std::move(timings[i]))) return ok_status();
    }
  }
  return ok_status();
}

Result<std::vector<Timing>> simulate_all(const Tier& tier, const Cluster& cluster,
                                         const std::vector<const TimedGraph*>& graphs) {
  std::vector<Timing> timings(graphs.size());
  RETURN_IF_ERROR(tier.simulate_each(
      graphs.size(),
      [&](size_t i) {
        return Simulation{graphs[i], &cluster};
      },
      [&](size_t i, Timing timing) {
        timings[i] = std::move(timing);
        return true;
      }));
  return timings;
}

}  // namespace nlsplit::inline sim

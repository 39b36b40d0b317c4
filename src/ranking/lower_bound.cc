#include "ranking/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "partition/score.h"

namespace nlsplit::inline ranking {
namespace {

constexpr int rounds = 200;         // in which the weights get better
constexpr double first_step = 0.5;  // of a weight, for a device that is loaded twice the average
// A simulated makespan may be this part below the exact one: sums are rounded, SimGrid's by up to 6e-9 in 10,000 cases.
constexpr double rounding = 1e-7;

struct Work {
  std::vector<std::vector<double>> seconds;  // [device][node] of one micro-batch
  std::vector<std::vector<double>> once;     // [device][node] of a batch: updates of weights
  const Graph* graph = nullptr;              // whose nodes they are
};

Result<Work> work_of(const PreparedModel& prepared, const Cluster& cluster, const CostTable& costs) {
  const KernelGraph& network = prepared.kernels;
  const Training* training = network.training.get();
  const KernelGraph& all = training != nullptr ? training->step : network;
  Work work;
  work.graph = &all.graph;
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    if (const DeviceId same = first_with_costs_of(DeviceId(d), cluster, costs); same != DeviceId(d)) {
      work.seconds.push_back(work.seconds[same.index()]);
      work.once.push_back(work.once[same.index()]);
      continue;
    }
    const std::vector<ComputeDesc>& descs = all.chosen.at(cluster.devices[d].level).descs;
    std::vector<double>& seconds = work.seconds.emplace_back(all.graph.nodes.size(), 0.0);
    std::vector<double>& once = work.once.emplace_back(all.graph.nodes.size(), 0.0);
    for (size_t n = 0; n < seconds.size(); ++n) {
      if (!all.computed[n] || (training != nullptr && !training->nodes.computed[n])) continue;
      ASSIGN_OR_RETURN(const Cost cost, costs.cost(DeviceId(d), descs[n], all.graph.nodes[n].name));
      const bool update = training != nullptr && training->nodes.phases[n] == NodePhase::step;
      (update ? once : seconds)[n] = cost.time.value();
    }
  }
  return work;
}

// Devices with the same times have the same weight.
struct Kind {
  const std::vector<double>* seconds = nullptr;
  double count = 0;
};

std::vector<Kind> kinds_of(const std::vector<std::vector<double>>& seconds_of) {
  std::vector<Kind> kinds;
  for (const std::vector<double>& seconds : seconds_of) {
    const auto known = std::ranges::find_if(kinds, [&](const Kind& kind) { return *kind.seconds == seconds; });
    if (known == kinds.end())
      kinds.push_back({&seconds, 1});
    else
      ++known->count;
  }
  return kinds;
}

// Of the `most` devices with the largest weights.
double largest_sum(const std::vector<Kind>& kinds, const std::vector<double>& weights, double most) {
  std::vector<size_t> order(kinds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, std::greater(), [&](size_t k) { return weights[k]; });
  double sum = 0;
  for (const size_t k : order) {
    const double taken = std::min(most, kinds[k].count);
    sum += taken * weights[k];
    most -= taken;
  }
  return sum;
}

}  // namespace

double load_bound(const std::vector<std::vector<double>>& seconds_of, size_t most_devices) {
  const std::vector<Kind> kinds = kinds_of(seconds_of);
  const double most = static_cast<double>(most_devices == 0 ? seconds_of.size() : most_devices);
  const size_t nodes = seconds_of.front().size();
  std::vector<double> weights;
  for (const Kind& kind : kinds) {
    const double whole = std::accumulate(kind.seconds->begin(), kind.seconds->end(), 0.0);
    if (whole <= 0) return 0;
    weights.push_back(1 / whole);  // the best where one device is so many times as fast as another in everything
  }
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const double sum = largest_sum(kinds, weights, most);
    for (double& weight : weights) weight /= sum;
    std::vector<double> load(kinds.size(), 0);
    double bound = 0;
    for (size_t n = 0; n < nodes; ++n) {
      size_t least = 0;
      for (size_t k = 1; k < kinds.size(); ++k) {
        if (weights[k] * (*kinds[k].seconds)[n] < weights[least] * (*kinds[least].seconds)[n]) least = k;
      }
      const double seconds = (*kinds[least].seconds)[n];
      bound += weights[least] * seconds;
      load[least] += seconds;
    }
    best = std::max(best, bound);
    if (kinds.size() == 1 || bound <= 0) break;
    // Who is given more than a fair share is too cheap.
    const double step = first_step / std::sqrt(1.0 + round);
    for (size_t k = 0; k < kinds.size(); ++k)
      weights[k] *= std::exp(step * std::clamp(load[k] / kinds[k].count / bound - 1, -1.0, 1.0));
  }
  return best;
}

Result<LowerBound> lower_bound(const PreparedModel& prepared, const Cluster& cluster, const CostTable& costs,
                               size_t most_devices, bool inside) {
  ASSIGN_OR_RETURN(const Work work, work_of(prepared, cluster, costs));
  const size_t nodes = work.graph->nodes.size();
  // [value]: when it can be there at the earliest.
  std::vector<double> ready(work.graph->values.size(), 0);
  LowerBound bound;
  double path = 0;
  std::vector<double> of_node(work.seconds.size());
  for (size_t n = 0; n < nodes; ++n) {
    for (size_t d = 0; d < of_node.size(); ++d) of_node[d] = work.seconds[d][n];
    const double least = *std::ranges::min_element(of_node);
    double end = least <= 0 ? 0 : inside ? shared_seconds(of_node) : least;
    double begin = 0;
    for (const ValueId read : reads_of(work.graph->nodes[n])) begin = std::max(begin, ready[read.index()]);
    end += begin;
    for (const ValueId made : work.graph->nodes[n].outputs) ready[made.index()] = end;
    path = std::max(path, end);
  }
  std::vector<std::vector<double>> batch = work.seconds;
  for (size_t d = 0; d < batch.size(); ++d) {
    for (size_t n = 0; n < nodes; ++n) batch[d][n] = prepared.micro_batches * batch[d][n] + work.once[d][n];
  }
  bound.latency_s = path * (1 - rounding);
  bound.makespan_s = std::max(path, load_bound(batch, most_devices)) * (1 - rounding);
  return bound;
}

}  // namespace nlsplit::inline ranking

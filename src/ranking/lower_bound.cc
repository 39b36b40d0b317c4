#include "ranking/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "cost/messages.h"
#include "partition/score.h"
#include "ranking/border_bound.h"
#include "ranking/weighted_devices.h"

namespace nlsplit::inline ranking {
namespace {

constexpr int load_rounds = 200;  // in which the weights get better
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
      if (all.graph.nodes[n].op == Op::Accumulate) continue;  // a device's first micro-batch writes instead
      ASSIGN_OR_RETURN(const Cost cost, costs.cost(DeviceId(d), descs[n], all.graph.nodes[n].name));
      const bool update = training != nullptr && training->nodes.phases[n] == NodePhase::step;
      (update ? once : seconds)[n] = cost.time.value();
    }
  }
  return work;
}

// Because of the links at the host where inputs are, or where outputs are wanted.
double links_bound(const PreparedModel& prepared, const Cluster& cluster, const Work& work,
                   std::vector<std::vector<double>> batch, const Endpoints& ends, size_t most_devices, double enough_s,
                   size_t cores) {
  BorderProblem problem;
  problem.graph = work.graph;
  problem.seconds = std::move(batch);
  problem.most_devices = most_devices;
  const Training* training = prepared.kernels.training.get();
  problem.outputs_are_sent = training == nullptr;  // weights stay where they are
  const size_t network = training == nullptr ? work.graph->nodes.size() : training->nodes.network;
  std::set<ValueId> read_by_network;  // labels may be where the loss is
  for (size_t n = 0; n < work.graph->nodes.size(); ++n) {
    const bool sends =
        training == nullptr || (training->nodes.computed[n] && training->nodes.phases[n] != NodePhase::step);
    problem.sends.push_back(sends);
    if (n >= network) continue;
    for (const ValueId read : reads_of(work.graph->nodes[n])) read_by_network.insert(read);
  }
  for (size_t v = 0; v < work.graph->values.size(); ++v) {
    const Value& value = work.graph->values[v];
    const bool travels =
        value.kind == ValueKind::node || (value.kind == ValueKind::input && read_by_network.contains(ValueId(v)));
    // Parts of an output may travel in fewer bytes than the output.
    problem.value_bytes.push_back(
        travels ? least_message_bytes(*work.graph, ValueId(v), cluster.messages) * prepared.micro_batches : 0);
  }
  double best = 0;
  for (const HostId host : std::set<HostId>{ends.source, ends.sink}) {
    best = std::max(best, border_bound(problem, border_of(cluster, host, ends.source, ends.sink), enough_s, cores));
  }
  return best;
}

}  // namespace

double load_bound(const std::vector<std::vector<double>>& seconds_of, size_t most_devices) {
  const std::vector<WeightedKind> kinds = weighted_kinds(seconds_of);
  const double most = static_cast<double>(most_devices == 0 ? seconds_of.size() : most_devices);
  const size_t nodes = seconds_of.front().size();
  std::vector<double> weights = fair_weights(kinds);
  if (weights.empty()) return 0;
  double best = 0;
  for (int round = 0; round < load_rounds; ++round) {
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
    for (size_t k = 0; k < kinds.size(); ++k) weights[k] *= better_weight(round, load[k] / kinds[k].count, bound);
  }
  return best;
}

Result<LowerBound> lower_bound(const PreparedModel& prepared, const Cluster& cluster, const CostTable& costs,
                               const Endpoints& ends, size_t most_devices, bool inside, double enough_s, size_t cores) {
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
  double makespan = std::max(path, load_bound(batch, most_devices));
  if (!inside && makespan < enough_s)
    makespan =
        std::max(makespan, links_bound(prepared, cluster, work, std::move(batch), ends, most_devices, enough_s, cores));
  bound.makespan_s = makespan * (1 - rounding);
  return bound;
}

}  // namespace nlsplit::inline ranking

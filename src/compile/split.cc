#include "compile/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "compile/split_training.h"
#include "graph/passes/precision.h"

namespace nlsplit::inline compiler {
namespace {

constexpr double most_latency_bytes = 1e12;  // more pays for whole sums whatever their size

// What the links between the shards of a stage carry while a message starts: the most of all neighbours.
Result<SplitOptions> split_options(const Plan& plan, const Cluster& cluster) {
  double most = 0;
  for (const Stage& stage : plan.stages) {
    if (!stage.split) continue;
    const size_t shards = stage.split->shares.size();
    for (size_t i = 0; i + 1 < stage.devices.size(); ++i) {
      if ((i + 1) % shards == 0) continue;  // the next one is of another group
      const DeviceId a = stage.devices[i], b = stage.devices[i + 1];
      ASSIGN_OR_RETURN(const Route route, find_route(cluster, cluster.device(a).host, cluster.device(b).host));
      most = std::max(most, route.rendezvous.latency.value() * route.rendezvous.bandwidth.value());
    }
  }
  return SplitOptions{bytes(static_cast<int64_t>(std::min(most, most_latency_bytes)))};
}

// Whether a kernel computes that part of a node with the roundings it has within the whole.
bool is_exact_part(const KernelGraph& whole, size_t node, const Region& part, Level level) {
  if (part.axis < 0) return true;
  const auto axis = static_cast<size_t>(part.axis);
  const Graph& graph = whole.graph;
  const int64_t extent = graph.value(graph.nodes[node].outputs[0]).type.shape[axis];
  if (part.begin == 0 && part.end == extent) return true;
  return is_exact(whole.chosen.at(level).descs[node], axis, part.begin, part.end);
}

}  // namespace

std::vector<int64_t> exact_multiples(const KernelGraph& kernels) {
  std::vector<int64_t> multiples(kernels.graph.nodes.size(), 1);
  for (const auto& [level, chosen] : kernels.chosen) {
    for (size_t n = 0; n < multiples.size(); ++n) {
      const KernelName kernel = chosen.descs[n].kernel.name;
      if (is_in_catalogue(kernel)) multiples[n] = std::lcm(multiples[n], info_of(kernel).exact_multiple);
    }
  }
  return multiples;
}

Promise promise_of(const KernelGraph& whole, const KernelGraph& parts, std::span<const int> origin,
                   std::span<const Region> regions) {
  const std::vector<Node>& nodes = parts.graph.nodes;
  const double tolerance = rounding_tolerance(coarsest_type(whole.graph));
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (origin[n] < 0 && nodes[n].op == Op::Sum)
      return {tolerance, "partial sums are added in the order of the shards"};
  }
  for (const auto& [level, chosen] : parts.chosen) {
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (origin[n] < 0 || is_view(nodes[n].op)) continue;
      const KernelId kernel = whole.chosen.at(level).descs[static_cast<size_t>(origin[n])].kernel;
      if (chosen.descs[n].kernel == kernel) continue;
      return {tolerance, fmt::format("{} is computed by {}, and its whole layer by {}", nodes[n].name,
                                     to_string(chosen.descs[n].kernel), to_string(kernel))};
    }
  }
  for (const auto& [level, chosen] : parts.chosen) {
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (origin[n] < 0 || is_view(nodes[n].op)) continue;
      if (is_exact_part(whole, static_cast<size_t>(origin[n]), regions[n], level)) continue;
      return {tolerance,
              fmt::format("{} is cut where its kernel rounds otherwise than within the whole layer", nodes[n].name)};
    }
  }
  return {};
}

Result<SplitPlan> expand_plan(const KernelGraph& whole, const Plan& plan, const Cluster& cluster,
                              const KernelPreference& prefer) {
  RETURN_IF_ERROR(check_plan(plan, whole.graph, cluster, samples_of(whole.graph) * plan.micro_batches));
  ASSIGN_OR_RETURN(SplitOptions options, split_options(plan, cluster));
  options.multiples = exact_multiples(whole);
  std::optional<TrainingOptions> training;
  if (whole.training) training = whole.training->options;
  ASSIGN_OR_RETURN(Expanded expanded,
                   expand_splits(training ? up_to_loss(whole.graph, training->loss) : whole.graph, plan, options));
  CHECK(expanded.origin.size() == expanded.graph.nodes.size(), "an expanded graph with nodes of unknown origin");
  expanded.graph.name = whole.graph.name;  // profiles are kept by it
  std::vector<Level> levels;
  for (const auto& [level, chosen] : whole.chosen) levels.push_back(level);
  SplitPlan split;
  if (training) set_for_shards(*training, expanded);
  std::vector<ValueId> states = states_of_shards(whole, expanded);
  ASSIGN_OR_RETURN(split.kernels,
                   choose_kernels(std::move(expanded.graph), levels, prefer, training,
                                  wanted_kernels(whole, expanded.origin), std::move(states), expanded.input_parts));
  ASSIGN_OR_RETURN(split.kernels.state_parts, parts_of_states(split.kernels, expanded.weights));
  split.plan = std::move(expanded.plan);
  split.slices = std::move(expanded.slices);
  split.notes = std::move(expanded.notes);
  split.promise = training ? promise_of_split_training(coarsest_type(whole.graph))
                           : promise_of(whole, split.kernels, expanded.origin, expanded.regions);
  return split;
}

}  // namespace nlsplit::inline compiler

#include "ranking/split_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <string>
#include <string_view>

namespace nlsplit {
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

// [node]: what SplitOptions::multiples is, of the kernels that were chosen at any level.
std::vector<int64_t> exact_multiples(const KernelGraph& kernels) {
  std::vector<int64_t> multiples(kernels.graph.nodes.size(), 1);
  for (const auto& [isa, chosen] : kernels.kernels) {
    for (size_t n = 0; n < multiples.size(); ++n) {
      if (chosen[n].kernel != nullptr) multiples[n] = std::lcm(multiples[n], chosen[n].kernel->exact_multiple);
    }
  }
  return multiples;
}

// "conv1#2": 2. Nodes are called so by expand_splits.
int shard_of(std::string_view name) {
  const size_t mark = name.rfind('#');
  int shard = 0;
  if (mark != std::string_view::npos) std::from_chars(name.data() + mark + 1, name.data() + name.size(), shard);
  return shard;
}

// The parts of one node that are pieces of its result, and the axis along which they are.
struct Pieces {
  size_t axis = 0;
  std::map<int, size_t> nodes;  // by shard
};

std::map<size_t, Pieces> pieces_of(const Graph& whole, const Graph& parts, const std::vector<int>& origin) {
  std::map<size_t, Pieces> pieces;
  for (size_t n = 0; n < parts.nodes.size(); ++n) {
    if (origin[n] < 0 || is_view(parts.nodes[n].op)) continue;
    const auto from = static_cast<size_t>(origin[n]);
    if (whole.nodes[from].op != parts.nodes[n].op) continue;
    const Shape& all = whole.value(whole.nodes[from].outputs[0]).type.shape;
    const Shape& part = parts.value(parts.nodes[n].outputs[0]).type.shape;
    const size_t rank = std::min(all.size(), part.size());
    for (size_t axis = 0; axis < rank; ++axis) {
      if (all[axis] == part[axis]) continue;
      pieces[from].axis = axis;
      pieces[from].nodes[shard_of(parts.nodes[n].name)] = n;
    }
  }
  return pieces;
}

// The first of the pieces that its kernel computes with other roundings than within the whole, or none.
const Node* inexact_piece(const KernelGraph& whole, size_t node, const KernelGraph& parts, const Pieces& pieces,
                          Isa isa) {
  const auto extent = [&](const Graph& graph, const Node& of) {
    return graph.value(of.outputs[0]).type.shape[pieces.axis];
  };
  int64_t covered = 0;
  for (const auto& [shard, n] : pieces.nodes) covered += extent(parts.graph, parts.graph.nodes[n]);
  // Shards that compute rows around their own begin anywhere.
  const bool in_order = covered == extent(whole.graph, whole.graph.nodes[node]);
  const KernelInfo& kernel = *whole.kernels.at(isa)[node].kernel;
  const ComputeDesc& desc = whole.chosen.at(isa).descs[node];
  int64_t begin = 0;
  for (const auto& [shard, n] : pieces.nodes) {
    const int64_t end = begin + extent(parts.graph, parts.graph.nodes[n]);
    if (!is_exact(kernel, desc, pieces.axis, in_order ? begin : 1, in_order ? end : 1)) return &parts.graph.nodes[n];
    begin = end;
  }
  return nullptr;
}

}  // namespace

Promise promise_of(const KernelGraph& whole, const KernelGraph& parts, const std::vector<int>& origin) {
  const std::vector<Node>& nodes = parts.graph.nodes;
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (origin[n] < 0 && nodes[n].op == Op::Sum)
      return {other_rounding_tolerance, "partial sums are added in the order of the shards"};
  }
  for (const auto& [isa, chosen] : parts.chosen) {
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (origin[n] < 0 || is_view(nodes[n].op)) continue;
      const std::string& kernel = whole.chosen.at(isa).descs[static_cast<size_t>(origin[n])].kernel;
      if (chosen.descs[n].kernel == kernel) continue;
      return {other_rounding_tolerance, fmt::format("{} is computed by {}, and its whole layer by {}", nodes[n].name,
                                                    chosen.descs[n].kernel, kernel)};
    }
  }
  const std::map<size_t, Pieces> all = pieces_of(whole.graph, parts.graph, origin);
  for (const auto& [isa, chosen] : parts.chosen) {
    for (const auto& [node, pieces] : all) {
      const Node* inexact = inexact_piece(whole, node, parts, pieces, isa);
      if (inexact == nullptr) continue;
      return {other_rounding_tolerance,
              fmt::format("{} is cut where its kernel rounds otherwise than within the whole layer", inexact->name)};
    }
  }
  return {};
}

Result<SplitPlan> expand_plan(const Scenario& scenario, const PreparedModel& prepared, const Plan& plan,
                              const KernelPreference& prefer) {
  if (scenario.training) return unsupported("splits inside layers are for inference: nothing splits gradients yet");
  ASSIGN_OR_RETURN(SplitOptions options, split_options(plan, scenario.cluster));
  options.multiples = exact_multiples(prepared.kernels);
  ASSIGN_OR_RETURN(Expanded expanded, expand_splits(prepared.kernels.graph, plan, options));
  CHECK(expanded.origin.size() == expanded.graph.nodes.size(), "an expanded graph with nodes of unknown origin");
  expanded.graph.name = prepared.kernels.graph.name;  // profiles are kept by it
  std::vector<Isa> levels;
  for (const auto& [isa, chosen] : prepared.kernels.chosen) levels.push_back(isa);
  SplitPlan split;
  ASSIGN_OR_RETURN(split.kernels,
                   choose_kernels(std::move(expanded.graph), levels, prefer ? prefer : fastest_measured(scenario.costs),
                                  std::nullopt, wanted_kernels(prepared.kernels, expanded.origin)));
  split.plan = std::move(expanded.plan);
  split.slices = std::move(expanded.slices);
  split.notes = std::move(expanded.notes);
  split.promise = promise_of(prepared.kernels, split.kernels, expanded.origin);
  return split;
}

Result<ScheduleInput> schedule_input_of(const Scenario& scenario, const PreparedModel& prepared, const Plan& plan,
                                        const CostTable& costs) {
  if (!has_splits(plan)) return schedule_input(prepared.kernels, plan, scenario.cluster, &costs);
  ASSIGN_OR_RETURN(const SplitPlan split, expand_plan(scenario, prepared, plan));
  return schedule_input(split.kernels, split.plan, scenario.cluster, &costs);
}

}  // namespace nlsplit

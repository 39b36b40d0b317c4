#include "partition/baseline_generation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "graph/operators/operator.h"
#include "partition/cuts.h"
#include "partition/repeats.h"

namespace nlsplit::inline partition {
namespace {

// The network in blocks: what is in front of the first one belongs to it, what is behind the last one to that.
struct Blocks {
  std::vector<size_t> ends;    // nodes
  std::vector<double> memory;  // bytes of the weights and caches that a block is the first to read
};

std::vector<double> memory_of(const Graph& graph, const std::vector<size_t>& ends) {
  std::vector<double> memory(ends.size(), 0);
  std::vector<bool> seen(graph.values.size(), false);
  size_t block = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    while (n >= ends[block]) ++block;
    for (const ValueId read : reads_of(graph.nodes[n])) {
      if (graph.value(read).kind != ValueKind::weight || seen[read.index()]) continue;
      seen[read.index()] = true;
      memory[block] += static_cast<double>(size_of(graph.value(read).type).value());
    }
  }
  return memory;
}

// None: the network has no repeated blocks.
Blocks blocks_of(const Graph& graph, const SearchCosts& costs) {
  const std::vector<size_t> cuts = find_cuts(graph);
  Repeat longest;
  for (const Repeat& repeat : find_repeats(graph)) {
    if (repeat.period * repeat.count > longest.period * longest.count) longest = repeat;
  }
  Blocks blocks;
  if (longest.count < 2) return blocks;
  // Where the fewest bytes cross between the first two blocks; between the others at the same place.
  const size_t from = longest.begin + longest.period;
  const auto begin = std::ranges::lower_bound(cuts, from), end = std::ranges::lower_bound(cuts, from + longest.period);
  if (begin == end) return blocks;
  const size_t border =
      *std::min_element(begin, end, [&](size_t a, size_t b) { return costs.cut_bytes[a] < costs.cut_bytes[b]; });
  for (size_t k = 0; k + 1 < longest.count; ++k) blocks.ends.push_back(border + k * longest.period);
  // The last layer may be another one than those before it: of a language model only one token leaves its attention.
  const size_t behind = border + (longest.count - 1) * longest.period;
  if (graph.nodes.size() >= longest.begin + (longest.count + 1) * longest.period &&
      std::ranges::binary_search(cuts, behind))
    blocks.ends.push_back(behind);
  blocks.ends.push_back(graph.nodes.size());
  blocks.memory = memory_of(graph, blocks.ends);
  return blocks;
}

// [device]: blocks it gets, in the devices' order.
std::vector<Stage> stages_of(const Blocks& blocks, const std::vector<size_t>& counts) {
  std::vector<Stage> stages;
  size_t done = 0;
  for (size_t d = 0; d < counts.size(); ++d) {
    const size_t end = std::min(done + counts[d], blocks.ends.size());
    if (end == done) continue;
    stages.push_back({done == 0 ? 0 : blocks.ends[done - 1], blocks.ends[end - 1], {DeviceId(d)}});
    done = end;
  }
  return done == blocks.ends.size() ? stages : std::vector<Stage>();
}

std::vector<double> memories(const Cluster& cluster) {
  std::vector<double> memory;
  for (const Device& device : cluster.devices) memory.push_back(static_cast<double>(device.memory.value()));
  return memory;
}

// [device]: 1 / seconds of the whole network.
std::vector<double> speeds(const SearchCosts& costs) {
  std::vector<double> speed;
  for (const std::vector<double>& seconds : costs.node_seconds)
    speed.push_back(1 / std::max(std::accumulate(seconds.begin(), seconds.end(), 0.0), 1e-30));
  return speed;
}

std::vector<double> fractions(std::vector<double> shares) {
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= all;
  return shares;
}

std::vector<Stage> even_blocks(const Graph& graph, const Cluster& cluster, const SearchCosts& costs) {
  const Blocks blocks = blocks_of(graph, costs);
  const size_t n = blocks.ends.size(), devices = cluster.devices.size();
  std::vector<size_t> counts;
  for (size_t d = 0; d < devices; ++d) counts.push_back(n * (d + 1) / devices - n * d / devices);
  return stages_of(blocks, counts);
}

std::vector<Stage> llama_cpp(const Graph& graph, const Cluster& cluster, const SearchCosts& costs) {
  const Blocks blocks = blocks_of(graph, costs);
  std::vector<double> until = fractions(memories(cluster));
  std::partial_sum(until.begin(), until.end(), until.begin());
  std::vector<size_t> counts(until.size(), 0);
  const auto all = static_cast<double>(blocks.ends.size() + 1);
  for (size_t i = 0; i < blocks.ends.size(); ++i) {
    const auto at = std::ranges::upper_bound(until, static_cast<double>(i) / all) - until.begin();
    ++counts[std::min(static_cast<size_t>(at), counts.size() - 1)];
  }
  return stages_of(blocks, counts);
}

std::vector<Stage> exo(const Graph& graph, const Cluster& cluster, const SearchCosts& costs) {
  const Blocks blocks = blocks_of(graph, costs);
  const std::vector<double> shares = fractions(memories(cluster));
  const size_t n = blocks.ends.size();
  if (n < shares.size()) return {};
  std::vector<size_t> counts;
  std::vector<double> left;
  for (const double share : shares) {
    const double exact = share * static_cast<double>(n);
    counts.push_back(static_cast<size_t>(exact));
    left.push_back(exact - std::floor(exact));
  }
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t d) { return left[d]; });
  const size_t given = std::accumulate(counts.begin(), counts.end(), size_t{0});
  for (size_t i = 0; i + given < n; ++i) ++counts[order[i]];
  for (size_t& count : counts) {
    if (count > 0) continue;
    --*std::ranges::max_element(counts);
    count = 1;
  }
  return stages_of(blocks, counts);
}

std::vector<Stage> cake(const Graph& graph, const Cluster&, const SearchCosts& costs) {
  const Blocks blocks = blocks_of(graph, costs);
  const std::vector<double> shares = fractions(speeds(costs));
  std::vector<size_t> counts;
  size_t given = 0;
  for (const double share : shares) {
    const auto wanted = static_cast<size_t>(std::lround(share * static_cast<double>(blocks.ends.size())));
    counts.push_back(std::min(wanted, blocks.ends.size() - given));
    given += counts.back();
  }
  counts.back() += blocks.ends.size() - given;
  return stages_of(blocks, counts);
}

// Of the caches that attention reads; 0: there is none.
int64_t heads_of_keys(const Graph& graph) {
  for (const Value& value : graph.values) {
    if (value.state && value.type.shape.size() == 4) return value.type.shape[1];
  }
  return 0;
}

std::vector<Stage> distributed_llama(const Graph& graph, const Cluster& cluster, const SearchCosts&) {
  const auto most = std::min(static_cast<int64_t>(cluster.devices.size()), heads_of_keys(graph));
  int64_t count = 1;
  while (count * 2 <= most) count *= 2;
  if (count < 2) return {};
  Stage all{0, graph.nodes.size(), {}};
  for (int64_t d = 0; d < count; ++d) all.devices.emplace_back(static_cast<size_t>(d));
  all.split = Split{SplitAxis::tensor, false, std::vector<int64_t>(static_cast<size_t>(count), 1)};
  return {all};
}

// A device's memory in blocks of mean size.
std::vector<size_t> blocks_that_fit(const Blocks& blocks, const Cluster& cluster) {
  const double each =
      std::accumulate(blocks.memory.begin(), blocks.memory.end(), 0.0) / static_cast<double>(blocks.memory.size());
  std::vector<size_t> fitting;
  for (const double memory : memories(cluster))
    fitting.push_back(std::min(blocks.ends.size(), static_cast<size_t>(memory / std::max(each, 1.0))));
  return fitting;
}

std::vector<Stage> halda(const Graph& graph, const Cluster& cluster, const SearchCosts& costs) {
  const Blocks blocks = blocks_of(graph, costs);
  if (blocks.ends.empty()) return {};
  const std::vector<double> speed = speeds(costs);
  const std::vector<size_t> fitting = blocks_that_fit(blocks, cluster);
  std::vector<size_t> order(speed.size()), counts(speed.size(), 0);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t d) { return speed[d]; });
  size_t left = blocks.ends.size();
  for (const size_t d : order) {
    counts[d] = std::min(left, fitting[d]);
    left -= counts[d];
  }
  return stages_of(blocks, counts);
}

std::vector<Stage> parallax(const Graph& graph, const Cluster& cluster, const SearchCosts& costs) {
  const Blocks blocks = blocks_of(graph, costs);
  if (blocks.ends.empty()) return {};
  const std::vector<double> speed = speeds(costs);
  const std::vector<size_t> fitting = blocks_that_fit(blocks, cluster);
  const size_t n = blocks.ends.size();
  if (std::accumulate(fitting.begin(), fitting.end(), size_t{0}) < n) return {};
  // The level to which all are filled: the block goes to whom it raises to the lowest one.
  std::vector<size_t> counts(speed.size(), 0);
  for (size_t i = 0; i < n; ++i) {
    size_t lowest = speed.size();
    for (size_t d = 0; d < speed.size(); ++d) {
      if (counts[d] == fitting[d]) continue;
      const auto level = [&](size_t of) { return static_cast<double>(counts[of] + 1) / speed[of]; };
      if (lowest == speed.size() || level(d) < level(lowest)) lowest = d;
    }
    ++counts[lowest];
  }
  return stages_of(blocks, counts);
}

// Devices of one host; where each host has one, of one switch.
std::vector<std::vector<DeviceId>> groups_of(const Cluster& cluster) {
  const auto outer = [&](HostId host) {
    while (cluster.hosts[host.index()].inside.valid()) host = cluster.hosts[host.index()].inside;
    return host;
  };
  const auto switch_of = [&](HostId host) {
    for (const Link& link : cluster.links) {
      if (!link.a.valid() || !link.b.valid()) continue;
      if (link.a == host && cluster.hosts[link.b.index()].is_switch) return link.b;
      if (link.b == host && cluster.hosts[link.a.index()].is_switch) return link.a;
    }
    return host;
  };
  for (const bool by_switch : {false, true}) {
    std::map<HostId, size_t> known;
    std::vector<std::vector<DeviceId>> groups;
    for (size_t d = 0; d < cluster.devices.size(); ++d) {
      const HostId host = outer(cluster.devices[d].host);
      const auto [at, added] = known.try_emplace(by_switch ? switch_of(host) : host, groups.size());
      if (added) groups.emplace_back();
      groups[at->second].emplace_back(d);
    }
    if (groups.size() < cluster.devices.size()) return groups;
  }
  return {};
}

std::vector<Stage> megatron(const Graph& graph, const Cluster& cluster, const SearchCosts& costs) {
  const Blocks blocks = blocks_of(graph, costs);
  const std::vector<std::vector<DeviceId>> groups = groups_of(cluster);
  const size_t n = blocks.ends.size();
  if (groups.empty() || n < groups.size()) return {};
  std::vector<Stage> stages;
  for (size_t g = 0; g < groups.size(); ++g) {
    const size_t begin = n * g / groups.size(), end = n * (g + 1) / groups.size();
    Stage& stage = stages.emplace_back(Stage{begin == 0 ? 0 : blocks.ends[begin - 1], blocks.ends[end - 1], groups[g]});
    if (groups[g].size() > 1) stage.split = Split{SplitAxis::tensor, false, std::vector<int64_t>(groups[g].size(), 1)};
  }
  return stages;
}

constexpr std::string_view no_blocks = "the network has no repeated blocks, or fewer than devices";

constexpr std::array<Baseline, 8> all_generation_baselines = {{
    {"even-layers", "equally many blocks on each device", even_blocks, no_blocks},
    {"llama.cpp", "blocks by free memory", llama_cpp, no_blocks},
    {"exo", "blocks by memory, one each at least", exo, no_blocks},
    {"cake", "blocks by speed", cake, no_blocks},
    {"distributed-llama", "every matrix evenly over 2^n devices", distributed_llama,
     "there are no two devices, or no two heads of keys"},
    {"halda", "the fastest device full, then the next (prima.cpp without network)", halda,
     "the devices' memory is too small"},
    {"parallax", "blocks by speed, within memory (water-filling)", parallax, "the devices' memory is too small"},
    {"megatron", "tensor within a host or switch, even blocks across", megatron,
     "each host has one device, and each switch one host"},
}};

constexpr Baseline megatron_in_training = {
    "megatron", "tensor within a host or switch, even blocks across", megatron,
    "no host or switch has two devices, or the network has fewer repeated blocks than there are such groups"};

}  // namespace

std::span<const Baseline> generation_baselines() { return all_generation_baselines; }

std::span<const Baseline> training_baselines() {
  static const std::vector<Baseline> all = [] {
    std::vector<Baseline> rules(baselines().begin(), baselines().end());
    rules.push_back(megatron_in_training);
    return rules;
  }();
  return all;
}

}  // namespace nlsplit::inline partition

#include "partition/baselines.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "partition/baseline_metis.h"
#include "partition/cuts.h"
#include "partition/network.h"

namespace nlsplit::inline partition {
namespace {

constexpr size_t most_pipedream_cuts = 128;  // its table has cuts² x devices² entries to try
constexpr size_t most_pipedream_devices = 64;

// One device for each stage that is not empty: ends[i] is where device i's layers end, as a count of layers.
std::vector<Stage> one_each(const std::vector<size_t>& cuts, const std::vector<size_t>& ends) {
  std::vector<Stage> stages;
  size_t done = 0;
  for (size_t d = 0; d < ends.size(); ++d) {
    if (ends[d] <= done) continue;
    stages.push_back({done == 0 ? 0 : cuts[done - 1], cuts[ends[d] - 1], {DeviceId(d)}});
    done = ends[d];
  }
  return stages;
}

// Layers in proportion to the shares, which are above 0.
std::vector<Stage> in_proportion(const Graph& graph, const std::vector<double>& shares) {
  const std::vector<size_t> cuts = find_cuts(graph);
  double all = 0, sum = 0;
  for (const double share : shares) all += share;
  std::vector<size_t> ends;
  for (const double share : shares) {
    sum += share;
    ends.push_back(static_cast<size_t>(std::lround(sum / all * static_cast<double>(cuts.size()))));
  }
  ends.back() = cuts.size();
  return one_each(cuts, ends);
}

std::vector<Stage> even_layers(const Graph& graph, const Cluster& cluster, const SearchCosts&) {
  return in_proportion(graph, std::vector<double>(cluster.devices.size(), 1.0));
}

std::vector<Stage> memory_proportional(const Graph& graph, const Cluster& cluster, const SearchCosts&) {
  std::vector<double> shares;
  for (const Device& device : cluster.devices) shares.push_back(static_cast<double>(device.memory.value()));
  return in_proportion(graph, shares);
}

// [i]: seconds of the first i layers on the first device.
std::vector<double> times_so_far(const std::vector<size_t>& cuts, const SearchCosts& costs) {
  std::vector<double> sums = {0};
  size_t node = 0;
  for (const size_t cut : cuts) {
    double sum = sums.back();
    for (; node < cut; ++node) sum += costs.node_seconds[0][node];
    sums.push_back(sum);
  }
  return sums;
}

std::vector<Stage> balance_compute(const Graph& graph, const Cluster& cluster, const SearchCosts& costs) {
  const std::vector<size_t> cuts = find_cuts(graph);
  const std::vector<double> time = times_so_far(cuts, costs);
  const size_t layers = cuts.size(), devices = std::min(cluster.devices.size(), layers);
  // least[j]: the slowest stage of the first j layers on the devices so far. It grows with j, and the time of the rest
  // falls with the place of the cut, so that the best cut is where they meet.
  std::vector<double> least(time.begin(), time.end());
  std::vector<std::vector<size_t>> cut_at(devices, std::vector<size_t>(layers + 1, 0));
  for (size_t d = 1; d < devices; ++d) {
    std::vector<double> next(layers + 1, 0);
    for (size_t j = 1; j <= layers; ++j) {
      size_t low = 0, high = j;  // the first cut whose front part is no quicker than the rest
      while (low < high) {
        const size_t middle = (low + high) / 2;
        if (least[middle] >= time[j] - time[middle])
          high = middle;
        else
          low = middle + 1;
      }
      const auto slowest = [&](size_t cut) { return std::max(least[cut], time[j] - time[cut]); };
      const size_t best = low > 0 && slowest(low - 1) < slowest(low) ? low - 1 : low;
      next[j] = slowest(best);
      cut_at[d][j] = best;
    }
    least = std::move(next);
  }
  std::vector<size_t> ends(devices, layers);
  for (size_t d = devices; d-- > 1;) ends[d - 1] = cut_at[d][ends[d]];
  return one_each(cuts, ends);
}

// Of the slowest path between neighbours in the cluster's order. Infinite: two of them cannot talk.
double seconds_per_byte(const Cluster& cluster, size_t devices) {
  double slowest = 0;
  for (size_t d = 1; d < devices; ++d) {
    const HostId from = cluster.devices[d - 1].host, to = cluster.devices[d].host;
    const auto path = find_path(cluster, from, to);
    if (!path.ok()) return never;
    slowest = std::max(slowest, 1 / path->narrowest.value());
  }
  return slowest;
}

std::vector<Stage> pipedream(const Graph& graph, const Cluster& cluster, const SearchCosts& costs) {
  const size_t devices = std::min(cluster.devices.size(), most_pipedream_devices);
  const double per_byte = seconds_per_byte(cluster, devices);
  if (!std::isfinite(per_byte)) return {};
  const std::vector<size_t> cuts = thin_cuts(find_cuts(graph), costs.cut_bytes, most_pipedream_cuts);
  const std::vector<double> time = times_so_far(cuts, costs);
  const size_t layers = cuts.size(), most_replicas = static_cast<size_t>(costs.micro_batches);
  struct Best {
    double slowest = never;  // stage or transfer
    size_t cut = 0, replicas = 0;
  };
  // A(j, m) of the paper: the first j layers on exactly m devices; the last stage has `replicas` of them.
  std::vector<std::vector<Best>> table(layers + 1, std::vector<Best>(devices + 1));
  table[0][0].slowest = 0;
  for (size_t j = 1; j <= layers; ++j) {
    for (size_t i = 0; i < j; ++i) {
      const double transfer = i == 0 ? 0 : costs.cut_bytes[cuts[i - 1]] * per_byte;
      for (size_t replicas = 1; replicas <= std::min(devices, most_replicas); ++replicas) {
        const double here = std::max(transfer, (time[j] - time[i]) / static_cast<double>(replicas));
        for (size_t m = replicas; m <= devices; ++m) {
          const double slowest = std::max(table[i][m - replicas].slowest, here);
          if (slowest < table[j][m].slowest) table[j][m] = {slowest, i, replicas};
        }
      }
    }
  }
  size_t used = 0;  // the fewest devices that reach the least
  for (size_t m = 1; m <= devices; ++m) {
    if (used == 0 || table[layers][m].slowest < table[layers][used].slowest) used = m;
  }
  std::vector<Stage> stages;
  for (size_t j = layers; j > 0;) {
    const Best& best = table[j][used];
    Stage stage{best.cut == 0 ? 0 : cuts[best.cut - 1], cuts[j - 1], {}};
    for (size_t r = used - best.replicas; r < used; ++r) stage.devices.push_back(DeviceId(r));
    stages.insert(stages.begin(), std::move(stage));
    used -= best.replicas;
    j = best.cut;
  }
  return stages;
}

constexpr std::array<Baseline, 5> all_baselines = {{
    {"even-layers", "equally many layers on each device", even_layers},
    {"memory-proportional", "layers in proportion to memory (exo, llama.cpp)", memory_proportional},
    {"balance-compute", "equal computing as on the first device (torchgpipe)", balance_compute},
    {"pipedream", "equal devices, one link speed, replicas (PipeDream)", pipedream,
     "two of the devices cannot talk to each other"},
    {"metis", "graph partitioning by seconds and bytes (METIS)", metis_stages,
     "this nlsim was built without METIS (Debian: libmetis-dev)"},
}};

}  // namespace

std::span<const Baseline> baselines() { return all_baselines; }

}  // namespace nlsplit::inline partition

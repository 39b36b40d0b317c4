#include "partition/baseline_metis.h"

#include <algorithm>
#include <limits>
#include <numeric>

#ifdef NLSPLIT_METIS
#include <fcntl.h>
#include <metis.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>

#include "partition/cuts.h"
#include "partition/score.h"
#endif

namespace nlsplit::inline partition {

std::vector<size_t> parts_in_order(const std::vector<size_t>& part_of, size_t parts) {
  std::vector<double> sum(parts, 0), count(parts, 0);
  for (size_t i = 0; i < part_of.size(); ++i) {
    sum[part_of[i]] += static_cast<double>(i);
    count[part_of[i]] += 1;
  }
  std::vector<size_t> order(parts);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto place = [&](size_t part) {
    return count[part] > 0 ? sum[part] / count[part] : std::numeric_limits<double>::infinity();
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place(a) < place(b); });
  return order;
}

std::vector<size_t> contiguous_parts(const std::vector<size_t>& part_of, const std::vector<size_t>& order,
                                     const std::vector<double>& weight) {
  const size_t layers = part_of.size(), parts = order.size();
  // least[i][p]: weight of the layers up to and including i that move, if i is in the p-th part.
  std::vector<std::vector<double>> least(layers, std::vector<double>(parts, 0));
  std::vector<std::vector<size_t>> before(layers, std::vector<size_t>(parts, 0));  // the part of the layer before
  for (size_t i = 0; i < layers; ++i) {
    size_t best = 0;
    for (size_t p = 0; p < parts; ++p) {
      if (i > 0 && least[i - 1][p] < least[i - 1][best]) best = p;
      least[i][p] = (i > 0 ? least[i - 1][best] : 0) + (part_of[i] == order[p] ? 0 : weight[i]);
      before[i][p] = best;
    }
  }
  std::vector<size_t> parts_of(layers);
  if (layers == 0) return parts_of;
  auto p = static_cast<size_t>(std::min_element(least.back().begin(), least.back().end()) - least.back().begin());
  for (size_t i = layers; i-- > 0;) {
    parts_of[i] = order[p];
    p = before[i][p];
  }
  return parts_of;
}

#ifdef NLSPLIT_METIS
namespace {

// METIS says on standard output what it thinks of odd graphs (a layer heavier than a part), and there our answer goes.
class NoOutput {
 public:
  NoOutput() {
    std::fflush(stdout);
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0) return;
    before_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    if (before_ >= 0) ::dup2(nowhere, STDOUT_FILENO);
    ::close(nowhere);
  }
  NoOutput(const NoOutput&) = delete;
  NoOutput& operator=(const NoOutput&) = delete;
  ~NoOutput() {
    if (before_ < 0) return;
    std::fflush(stdout);
    ::dup2(before_, STDOUT_FILENO);
    ::close(before_);
  }

 private:
  int before_ = -1;
};

constexpr double all_weight = 1e8;  // METIS counts in whole numbers of 32 bits

// Undirected, in compressed rows, as METIS takes it.
struct LayerGraph {
  std::vector<idx_t> begin = {0}, to, bytes, seconds;
};

std::vector<double> seconds_of(const std::vector<size_t>& cuts, const std::vector<double>& node_seconds) {
  std::vector<double> all;
  size_t node = 0;
  for (const size_t cut : cuts) {
    double sum = 0;
    for (; node < cut; ++node) sum += node_seconds[node];
    all.push_back(sum);
  }
  return all;
}

idx_t scaled(double value, double sum) {
  return 1 + (sum > 0 ? static_cast<idx_t>(std::lround(value / sum * all_weight)) : 0);
}

LayerGraph layer_graph(const Graph& graph, const std::vector<size_t>& cuts, const std::vector<double>& seconds) {
  const auto layer = [&](size_t node) {
    return static_cast<size_t>(std::upper_bound(cuts.begin(), cuts.end(), node) - cuts.begin());
  };
  std::vector<std::map<size_t, double>> bytes(cuts.size());
  double all_bytes = 0;
  for (const Crossing& crossing : find_crossings(graph, DType::f32)) {
    if (crossing.made < 0) continue;
    const size_t from = layer(static_cast<size_t>(crossing.made));
    for (const size_t node : crossing.read) {
      const size_t to = layer(node);
      if (to == from) continue;
      bytes[from][to] += crossing.bytes;
      bytes[to][from] += crossing.bytes;
      all_bytes += 2 * crossing.bytes;
    }
  }
  const double all_seconds = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  LayerGraph result;
  for (size_t i = 0; i < cuts.size(); ++i) {
    for (const auto& [to, weight] : bytes[i]) {
      result.to.push_back(static_cast<idx_t>(to));
      result.bytes.push_back(scaled(weight, all_bytes));
    }
    result.begin.push_back(static_cast<idx_t>(result.to.size()));
    result.seconds.push_back(scaled(seconds[i], all_seconds));
  }
  return result;
}

}  // namespace

bool has_metis() { return true; }

std::vector<Stage> metis_stages(const Graph& graph, const Cluster& cluster, const SearchCosts& costs) {
  const std::vector<size_t> cuts = find_cuts(graph);
  const std::vector<double> seconds = seconds_of(cuts, costs.node_seconds[0]);
  const size_t parts = std::min(cluster.devices.size(), cuts.size());
  std::vector<size_t> part_of(cuts.size(), 0);
  if (parts > 1) {
    LayerGraph layers = layer_graph(graph, cuts, seconds);
    std::vector<real_t> targets;
    for (size_t d = 0; d < parts; ++d) {
      const std::vector<double>& of = costs.node_seconds[d];
      targets.push_back(static_cast<real_t>(1 / std::max(std::accumulate(of.begin(), of.end(), 0.0), 1e-12)));
    }
    const real_t sum = std::accumulate(targets.begin(), targets.end(), real_t{0});
    for (real_t& target : targets) target /= sum;
    // METIS draws from rand(), which all threads share, and the descriptors below are the process's.
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    idx_t options[METIS_NOPTIONS];
    METIS_SetDefaultOptions(options);
    options[METIS_OPTION_SEED] = 1;
    options[METIS_OPTION_NUMBERING] = 0;
    auto vertices = static_cast<idx_t>(cuts.size()), constraints = idx_t{1}, count = static_cast<idx_t>(parts);
    idx_t cut_bytes = 0;
    std::vector<idx_t> part(cuts.size(), 0);
    // Its manual: recursive bisection for up to 8 parts.
    const auto partition = parts <= 8 ? METIS_PartGraphRecursive : METIS_PartGraphKway;
    const NoOutput quiet;
    const int code =
        partition(&vertices, &constraints, layers.begin.data(), layers.to.data(), layers.seconds.data(), nullptr,
                  layers.bytes.data(), &count, targets.data(), nullptr, options, &cut_bytes, part.data());
    CHECK(code == METIS_OK, "METIS refuses a graph of layers");
    std::transform(part.begin(), part.end(), part_of.begin(), [](idx_t p) { return static_cast<size_t>(p); });
  }
  const std::vector<size_t> runs = contiguous_parts(part_of, parts_in_order(part_of, parts), seconds);
  std::vector<Stage> stages;
  for (size_t i = 0; i < runs.size(); ++i) {
    const DeviceId device(runs[i]);
    if (stages.empty() || stages.back().devices[0] != device)
      stages.push_back({stages.empty() ? 0 : stages.back().end, cuts[i], {device}});
    stages.back().end = cuts[i];
  }
  return stages;
}
#else
bool has_metis() { return false; }

std::vector<Stage> metis_stages(const Graph&, const Cluster&, const SearchCosts&) { return {}; }
#endif

}  // namespace nlsplit::inline partition

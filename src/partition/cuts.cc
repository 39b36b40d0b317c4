#include "partition/cuts.h"

#include <algorithm>
#include <numeric>

#include "graph/operators/operator.h"

namespace nlsplit::inline partition {

std::vector<size_t> find_cuts(const Graph& graph) {
  std::vector<bool> parts_state(graph.nodes.size(), false);
  std::vector<bool> is_state(graph.values.size(), false);
  for (const StateUpdate& update : state_updates(graph)) is_state[update.value.index()] = true;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId read : reads_of(graph.nodes[n])) {
      if (!is_state[read.index()]) continue;
      for (size_t between = graph.value(read).producer.index() + 1; between <= n; ++between)
        parts_state[between] = true;
    }
  }
  std::vector<size_t> cuts;
  for (size_t n = 1; n < graph.nodes.size(); ++n) {
    if (!is_view(graph.nodes[n].op) && !parts_state[n]) cuts.push_back(n);
  }
  cuts.push_back(graph.nodes.size());
  return cuts;
}

std::vector<size_t> thin_cuts(std::vector<size_t> cuts, const std::vector<double>& cut_bytes, size_t most) {
  if (cuts.size() <= most) return cuts;
  std::vector<size_t> kept;
  const size_t inner = cuts.size() - 1;
  for (size_t k = 0; k + 1 < most; ++k) {
    const auto begin = cuts.begin() + static_cast<std::ptrdiff_t>(k * inner / (most - 1));
    const auto end = cuts.begin() + static_cast<std::ptrdiff_t>((k + 1) * inner / (most - 1));
    kept.push_back(*std::min_element(begin, end, [&](size_t a, size_t b) { return cut_bytes[a] < cut_bytes[b]; }));
  }
  kept.push_back(cuts.back());
  return kept;
}

std::vector<size_t> distinct_cuts(const std::vector<size_t>& cuts, const std::vector<std::vector<double>>& node_seconds,
                                  const std::vector<double>& cut_bytes, double negligible) {
  std::vector<double> between(node_seconds.size(), 0), whole;  // [device]: seconds since the first cut of a cluster
  for (const std::vector<double>& seconds : node_seconds)
    whole.push_back(std::accumulate(seconds.begin(), seconds.end(), 0.0));
  std::vector<size_t> kept;
  for (size_t c = 0; c < cuts.size(); ++c) {
    bool close = c > 0 && c + 1 < cuts.size();  // the end is no cut that could be left out, nor stand for one
    for (size_t d = 0; c > 0 && d < node_seconds.size(); ++d) {
      for (size_t n = cuts[c - 1]; n < cuts[c]; ++n) between[d] += node_seconds[d][n];
      close &= between[d] < negligible * whole[d];
    }
    if (close) {
      if (cut_bytes[cuts[c]] < cut_bytes[kept.back()]) kept.back() = cuts[c];
      continue;
    }
    kept.push_back(cuts[c]);
    std::ranges::fill(between, 0.0);
  }
  return kept;
}

}  // namespace nlsplit::inline partition

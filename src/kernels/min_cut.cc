#include "kernels/min_cut.h"

#include <algorithm>

namespace nlsplit::inline kernels {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

}  // namespace

int MinCut::add_vertex() {
  edges_of_.emplace_back();
  return static_cast<int>(edges_of_.size()) - 1;
}

void MinCut::add(int from, int to, int64_t capacity) {
  edges_of_[at(from)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, capacity});
  edges_of_[at(to)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

bool MinCut::find_levels() {
  level_.assign(edges_of_.size(), -1);
  level_[at(source)] = 0;
  std::vector<int> reached = {source};
  for (size_t i = 0; i < reached.size(); ++i) {
    for (const int e : edges_of_[at(reached[i])]) {
      const Edge& edge = edges_[at(e)];
      if (edge.left == 0 || level_[at(edge.to)] >= 0) continue;
      level_[at(edge.to)] = level_[at(reached[i])] + 1;
      reached.push_back(edge.to);
    }
  }
  return level_[at(sink)] >= 0;
}

// Depth first along rising levels, with a stack of its own: a network may be as deep as a model has layers.
int64_t MinCut::push(int from, int64_t most) {
  std::vector<int> path;  // edges
  int vertex = from;
  while (vertex != sink) {
    bool advanced = false;
    for (size_t& i = next_[at(vertex)]; i < edges_of_[at(vertex)].size(); ++i) {
      const int e = edges_of_[at(vertex)][i];
      const Edge& edge = edges_[at(e)];
      if (edge.left == 0 || level_[at(edge.to)] != level_[at(vertex)] + 1) continue;
      path.push_back(e);
      vertex = edge.to;
      advanced = true;
      break;
    }
    if (advanced) continue;
    if (path.empty()) return 0;
    vertex = edges_[at(path.back() ^ 1)].to;  // back, and never that way again
    ++next_[at(vertex)];
    path.pop_back();
  }
  for (const int e : path) most = std::min(most, edges_[at(e)].left);
  for (const int e : path) {
    edges_[at(e)].left -= most;
    edges_[at(e ^ 1)].left += most;
  }
  return most;
}

std::vector<bool> MinCut::solve() {
  while (find_levels()) {
    next_.assign(edges_of_.size(), 0);
    while (push(source, never) > 0) {
    }
  }
  std::vector<bool> on_sources_side;
  for (const int level : level_) on_sources_side.push_back(level >= 0);
  return on_sources_side;
}

}  // namespace nlsplit::inline kernels

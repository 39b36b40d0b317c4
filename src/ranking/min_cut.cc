#include "ranking/min_cut.h"

#include <algorithm>
#include <utility>

namespace nlsplit::inline ranking {

size_t MinCut::add_vertex() {
  vertices_.emplace_back();
  return vertices_.size() - 1;
}

size_t MinCut::add_edge(size_t from, size_t to) {
  const auto there = static_cast<int32_t>(arcs_.size());
  arcs_.push_back({0, 0, static_cast<int32_t>(to), std::exchange(vertices_[from].first, there)});
  arcs_.push_back({0, 0, static_cast<int32_t>(from), std::exchange(vertices_[to].first, there + 1)});
  return static_cast<size_t>(there) / 2;
}

double MinCut::solve() {
  begin();
  find_distances();
  for (size_t i = reached_.size(); i-- > 0;) queue(reached_[i]);  // the farthest first
  size_t changed = 0;                                             // distances
  while (!queue_.empty()) {
    const int32_t v = queue_.front();
    queue_.pop_front();
    Vertex& asking = vertex(v);
    asking.is_queued = false;
    if (asking.distance == unreached) continue;
    while (!ask(asking) && asking.distance != unreached) {
      go_farther(asking);
      ++changed;
    }
    if (changed < vertices_.size()) continue;
    find_distances();  // some can no longer be reached: the others need not find out step by step
    changed = 0;
  }
  find_distances();
  return flow_;
}

// What a vertex may take from the source and give to the sink at once needs no way.
void MinCut::begin() {
  flow_ = 0;
  for (Arc& arc : arcs_) arc.left = arc.capacity;
  for (Vertex& vertex : vertices_) {
    const double through = std::min(vertex.from_source, vertex.to_sink);
    flow_ += through;
    vertex.supply = vertex.from_source - through;
    vertex.wanted = vertex.to_sink - through;
    vertex.is_queued = false;
  }
}

void MinCut::find_distances() {
  reached_.clear();
  for (size_t v = 0; v < vertices_.size(); ++v) {
    vertices_[v].distance = vertices_[v].supply > 0 ? 0 : unreached;
    if (vertices_[v].supply > 0) reached_.push_back(static_cast<int32_t>(v));
  }
  for (size_t i = 0; i < reached_.size(); ++i) {
    const Vertex& from = vertex(reached_[i]);
    for (int32_t a = from.first; a != no_arc; a = arc(a).next) {
      Vertex& to = vertex(arc(a).to);
      if (arc(a).left <= 0 || to.distance != unreached) continue;
      to.distance = from.distance + 1;
      reached_.push_back(arc(a).to);
    }
  }
}

void MinCut::queue(int32_t v) {
  if (vertex(v).wanted <= 0 || std::exchange(vertex(v).is_queued, true)) return;
  queue_.push_back(v);
}

// The source, then the neighbours that are nearer to it. False: it wants more.
bool MinCut::ask(Vertex& asking) {
  if (asking.supply > 0) {
    const double amount = std::min(asking.wanted, asking.supply);
    asking.supply -= amount;
    asking.wanted -= amount;
    flow_ += amount;
  }
  for (int32_t a = asking.first; a != no_arc && asking.wanted > 0; a = arc(a).next) {
    Vertex& other = vertex(arc(a).to);
    Arc& from_it = arc(a ^ 1);
    if (from_it.left <= 0 || other.distance == unreached || other.distance >= asking.distance) continue;
    const double amount = std::min(asking.wanted, from_it.left);
    from_it.left -= amount;
    arc(a).left += amount;
    asking.wanted -= amount;
    other.wanted += amount;
    queue(arc(a).to);
  }
  return asking.wanted <= 0;
}

// Just far enough that a neighbour is nearer.
void MinCut::go_farther(Vertex& asking) {
  int32_t nearest = unreached;
  for (int32_t a = asking.first; a != no_arc; a = arc(a).next) {
    const int32_t distance = vertex(arc(a).to).distance;
    if (arc(a ^ 1).left > 0 && distance != unreached && (nearest == unreached || distance < nearest))
      nearest = distance;
  }
  const bool is_beyond = nearest == unreached || static_cast<size_t>(nearest) + 1 >= vertices_.size();
  asking.distance = is_beyond ? unreached : nearest + 1;
}

}  // namespace nlsplit::inline ranking

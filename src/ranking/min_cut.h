// A minimum cut: vertices are put on two sides; a vertex has a cost for each side, an edge has a cost if only its
// beginning, and another if only its end, is on the source's side. It is solved repeatedly for other costs.
//
//   MinCut cut(2);
//   const size_t edge = cut.add_edge(0, 1);
//   cut.set_vertex(0, 3, 1);
//   cut.set_vertex(1, 0, 2);
//   cut.set_edge(edge, 0.5, 0);
//   const double least = cut.solve();
//   const bool first = cut.on_source_side(0);
//
// A maximum flow by push-relabel (Goldberg, Tarjan, "A new approach to the maximum-flow problem", 1988), backwards:
// vertices pull the flow that they may give to the sink from their neighbours, towards the source. In a network of
// layers, whose paths are as long as it is deep, that takes far fewer steps than augmenting one path after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace nlsplit::inline ranking {

class MinCut {
 public:
  explicit MinCut(size_t vertices) : vertices_(vertices) {}

  size_t add_vertex();
  size_t add_edge(size_t from, size_t to);
  // What it costs on the sink's side, and on the source's.
  void set_vertex(size_t vertex, double beyond, double here) {
    vertices_[vertex].from_source = beyond;
    vertices_[vertex].to_sink = here;
  }
  // What it costs if only its beginning is on the source's side, and if only its end is.
  void set_edge(size_t edge, double there, double back) {
    arcs_[2 * edge].capacity = there;
    arcs_[2 * edge + 1].capacity = back;
  }

  // The least sum of costs.
  double solve();
  // Of the cheapest ways the one with the fewest vertices there.
  bool on_source_side(size_t vertex) const { return vertices_[vertex].distance != unreached; }

 private:
  static constexpr int32_t no_arc = -1, unreached = -1;

  struct Vertex {
    double from_source = 0, to_sink = 0;
    double supply = 0;  // that is left of the source's
    double wanted = 0;  // by the sink, or by vertices behind it
    int32_t first = no_arc;
    int32_t distance = unreached;  // at most that to a vertex with supply
    bool is_queued = false;
  };
  struct Arc {  // its other direction is the arc beside it
    double capacity = 0, left = 0;
    int32_t to = 0, next = no_arc;
  };

  Vertex& vertex(int32_t v) { return vertices_[static_cast<size_t>(v)]; }
  Arc& arc(int32_t a) { return arcs_[static_cast<size_t>(a)]; }

  void begin();
  void find_distances();
  void queue(int32_t v);
  bool ask(Vertex& asking);
  void go_farther(Vertex& asking);

  std::vector<Vertex> vertices_;
  std::vector<Arc> arcs_;
  std::vector<int32_t> reached_;  // by find_distances(), the nearest first
  std::deque<int32_t> queue_;     // of those that want something
  double flow_ = 0;
};

}  // namespace nlsplit::inline ranking

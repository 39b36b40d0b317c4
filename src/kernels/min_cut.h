// The cheapest cut of a network between source and sink: maximum flow by shortest augmenting paths (J. Edmonds and
// R. Karp, JACM 19(2), 1972), level by level (E. Dinic, 1970). For networks of thousands of vertices.
//
//   MinCut cut(3);
//   cut.add(MinCut::source, 2, 5);   // costs 5 if 2 falls to the sink's side
//   cut.add(2, MinCut::sink, 3);
//   cut.solve()[2];                  // true: 2 stays on the source's side
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nlsplit::inline kernels {

class MinCut {
 public:
  static constexpr int source = 0, sink = 1;
  static constexpr int64_t never = int64_t{1} << 60;  // a capacity no cut pays

  explicit MinCut(int vertices) : edges_of_(static_cast<size_t>(vertices)) {}
  int add_vertex();
  void add(int from, int to, int64_t capacity);
  // [vertex]: on the source's side. Of all cheapest cuts the one with the fewest vertices there.
  std::vector<bool> solve();

 private:
  struct Edge {
    int to;
    int64_t left;
  };
  bool find_levels();
  int64_t push(int vertex, int64_t most);

  std::vector<Edge> edges_;  // edge 2i and its reverse 2i + 1
  std::vector<std::vector<int>> edges_of_;
  std::vector<int> level_;
  std::vector<size_t> next_;
};

}  // namespace nlsplit::inline kernels

#include "ranking/min_cut.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/random.h"

namespace nlsplit {
namespace {

struct Problem {
  struct Edge {
    size_t from, to;
    double there, back;
  };
  std::vector<double> beyond, here;  // [vertex]
  std::vector<Edge> edges;
};

// here: bit v: vertex v is on the source's side.
double cost_of(const Problem& problem, size_t here) {
  double cost = 0;
  const auto is_here = [&](size_t v) { return (here >> v & 1) != 0; };
  for (size_t v = 0; v < problem.here.size(); ++v) cost += is_here(v) ? problem.here[v] : problem.beyond[v];
  for (const Problem::Edge& edge : problem.edges) {
    if (is_here(edge.from) && !is_here(edge.to)) cost += edge.there;
    if (!is_here(edge.from) && is_here(edge.to)) cost += edge.back;
  }
  return cost;
}

// Of the cheapest the one with the fewest vertices on the source's side: it is part of all others.
size_t cheapest(const Problem& problem) {
  const size_t all = (size_t{1} << problem.here.size()) - 1;
  size_t best = all;
  double least = std::numeric_limits<double>::infinity();
  for (size_t here = 0; here <= all; ++here) {
    const double cost = cost_of(problem, here);
    if (cost > least) continue;
    best = cost < least ? here : best & here;
    least = cost;
  }
  return best;
}

// Whole numbers: sums are exact.
void draw_costs(Problem& problem, Random& random) {
  const auto draw = [&](uint64_t most) { return static_cast<double>(random.below(most)); };
  for (double& cost : problem.beyond) cost = draw(20);
  for (double& cost : problem.here) cost = draw(20);
  for (Problem::Edge& edge : problem.edges) {
    edge.there = draw(8);
    edge.back = draw(3) * draw(4);
  }
}

TEST(MinCut, IsTheCheapestOfAllWays) {
  Random random(7);
  for (int k = 0; k < 2000; ++k) {
    const size_t vertices = 1 + random.below(9);
    Problem problem;
    problem.beyond.resize(vertices);
    problem.here.resize(vertices);
    MinCut cut(vertices);
    for (size_t e = 0; e < random.below(3 * vertices); ++e) {
      const size_t from = random.below(vertices), to = random.below(vertices);
      if (from == to) continue;
      problem.edges.push_back({from, to, 0, 0});
      cut.add_edge(from, to);
    }
    for (int round = 0; round < 3; ++round) {  // the same again with other costs
      draw_costs(problem, random);
      for (size_t v = 0; v < vertices; ++v) cut.set_vertex(v, problem.beyond[v], problem.here[v]);
      for (size_t e = 0; e < problem.edges.size(); ++e) cut.set_edge(e, problem.edges[e].there, problem.edges[e].back);
      const size_t best = cheapest(problem);
      ASSERT_EQ(cut.solve(), cost_of(problem, best)) << k;
      for (size_t v = 0; v < vertices; ++v) ASSERT_EQ(cut.on_source_side(v), (best >> v & 1) != 0) << k << ' ' << v;
    }
  }
}

// Where vertices have costs at the ends alone, paths are as long as they can be.
TEST(MinCut, FindsTheWeakestOfAChain) {
  constexpr size_t vertices = 1000;
  MinCut cut(vertices);
  cut.set_vertex(0, 1e30, 0);
  cut.set_vertex(vertices - 1, 0, 1e30);
  for (size_t v = 0; v + 1 < vertices; ++v) cut.set_edge(cut.add_edge(v, v + 1), v == 300 ? 0.25 : 1.0, 0);
  EXPECT_EQ(cut.solve(), 0.25);
  EXPECT_TRUE(cut.on_source_side(300));
  EXPECT_FALSE(cut.on_source_side(301));
}

}  // namespace
}  // namespace nlsplit

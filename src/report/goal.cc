#include "report/goal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace nlsplit::inline reports {
namespace {

constexpr double nanoseconds = 1e9;  // a second

struct Operation {
  int rank = 0;
  std::string label;
};

// What must happen first: a block, or one end of a transfer.
Operation awaited(const TimedGraph& graph, const TimedEdge& edge) {
  const Activity& activity = graph.activities[edge.from];
  if (!activity.is_transfer) return {activity.device, fmt::format("b{}", edge.from)};
  const bool at_receiver = edge.when == Event::posted || edge.when == Event::delivered;
  return at_receiver ? Operation{activity.peer, fmt::format("r{}", edge.from)}
                     : Operation{activity.device, fmt::format("s{}", edge.from)};
}

bool is_start(const TimedGraph& graph, const TimedEdge& edge) {
  return graph.activities[edge.from].is_transfer && (edge.when == Event::posted || edge.when == Event::ready);
}

}  // namespace

std::string goal_text(const Program& program, const Dependencies& dependencies, const TimedGraph& graph) {
  std::vector<std::string> ranks(program.devices.size());
  std::vector<double> owed(program.devices.size(), 0);          // of a nanosecond, that calcs have left out so far
  std::vector<std::vector<int>> peers(program.devices.size());  // in the order in which a rank meets them
  const auto card = [&](int rank, int peer) {
    std::vector<int>& known = peers[static_cast<size_t>(rank)];
    const auto at = std::ranges::find(known, peer);
    if (at != known.end()) return static_cast<int>(at - known.begin());
    known.push_back(peer);
    return static_cast<int>(known.size()) - 1;
  };
  const auto add = [&](int rank, const std::string& line) { ranks[static_cast<size_t>(rank)] += line + "\n"; };
  for (size_t i = 0; i < graph.activities.size(); ++i) {
    const Activity& activity = graph.activities[i];
    const auto d = static_cast<size_t>(activity.device);
    if (activity.is_transfer) {
      const Instance& send = dependencies.instances[activity.first_instance];
      const Instr& instr = instr_of(program, send);
      const int64_t size = bytes_of(program.devices[d], instr.reads[0]).value();
      add(activity.device, fmt::format("s{}: send {}b to {} tag {} nic {}", i, size, activity.peer, instr.tag,
                                       card(activity.device, activity.peer)));
      add(activity.peer, fmt::format("r{}: recv {}b from {} tag {} nic {}", i, size, activity.device, instr.tag,
                                     card(activity.peer, activity.device)));
    } else {
      const double exact = activity.duration * nanoseconds + owed[d];
      const double whole = std::max(0.0, std::round(exact));
      owed[d] = exact - whole;
      add(activity.device, fmt::format("b{}: calc {}", i, static_cast<int64_t>(whole)));
    }
    for (uint32_t e = graph.edge_begin[i]; e < graph.edge_begin[i + 1]; ++e) {
      const TimedEdge& edge = graph.edges[e];
      const Operation first = awaited(graph, edge);
      const bool receives = activity.is_transfer && edge.what == Gate::post;
      const int rank = receives ? activity.peer : activity.device;
      CHECK(first.rank == rank, "an edge between two devices that is not a message");
      add(rank, fmt::format("{}{} {} {}",
                            !activity.is_transfer ? "b"
                            : receives            ? "r"
                                                  : "s",
                            i, is_start(graph, edge) ? "irequires" : "requires", first.label));
    }
  }
  std::string text = fmt::format("num_ranks {}\n", ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r) text += fmt::format("\nrank {} {{\n{}}}\n", r, ranks[r]);
  return text;
}

}  // namespace nlsplit::inline reports

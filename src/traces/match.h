// Which node of a network each operator of a trace is, and so what each node took.
//
//   ASSIGN_OR_RETURN(const Matched matched, match({trace}, graph, {}));
//   matched.sizes[0].nodes[3]   // seconds of node 3 in each execution at the first batch size
//
// An event belongs to a node, in this order:
//   name     the node or one of its results has one of the names that the event has
//   order    as many events without a node may be the same nodes, by kind and shapes, as there are of these without an
//            event: the first is the first, and so on
//   beside   the network may lack it, as a change of layout: its time counts with the operator after it, or before it
// What is left is listed. Times of operators within each other count once, by the outer one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "traces/trace.h"

namespace nlsplit::inline traces {

struct MatchOptions {
  int64_t batch = 0;  // of the trace's executions; 0: by the shapes in the trace
  int warm_up = 1;    // executions of each batch size that are left out, the first ones
};

// All executions at one batch size, but for the first ones.
struct SizeTimes {
  int64_t batch = 1;
  int left_out = 0;
  std::vector<double> run_s;               // [execution]
  std::vector<double> between_s;           // [execution]: no operator was under way
  std::vector<std::vector<double>> nodes;  // [node][execution]; a node without an event: empty
};

struct UnmatchedEvent {
  std::string name, op;
  double share = 0;  // of all events' time
};

struct Matched {
  std::vector<SizeTimes> sizes;                                   // by batch
  double by_name = 0, by_order = 0, beside = 0, not_matched = 0;  // shares of all events' time
  std::vector<UnmatchedEvent> events;                             // without a node, the longest first
};

// Of a graph as the model has it, before any pass, and of one or more traces of it. Errors: the batch cannot be told,
// or a trace is of other input sizes; no execution is left after the warm-up.
Result<Matched> match(const std::vector<OperatorTrace>& traces, const Graph& graph, const MatchOptions& options);

// The node of each event; -1: none.
enum class MatchedBy : uint8_t { nothing, name, order, beside };
struct EventNode {
  int node = -1;
  MatchedBy by = MatchedBy::nothing;
};
class NodeFinder {
 public:
  explicit NodeFinder(const Graph& graph);
  std::vector<EventNode> find(const ProfiledRun& run) const;

 private:
  int by_name(const OperatorTime& event) const;
  std::vector<int> candidates_of(const OperatorTime& event,
                                 const std::map<std::string_view, std::vector<int>>& free) const;
  void by_order(const ProfiledRun& run, std::vector<EventNode>& found) const;

  const Graph& graph_;
  std::vector<std::pair<std::string_view, int>> names_;  // of nodes, then of values that they make; sorted
};

}  // namespace nlsplit::inline traces

// When a sender is done with a message (sim/timed_graph.h, released), and when it requests the next one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

// When the sender's MPI and socket held the rest of a message, by when its last byte has moved.
inline double sender_done(const TimedGraph& graph, const Timing& timing, uint32_t transfer) {
  const Activity& activity = graph.activities[transfer];
  if (activity.queued <= 0) return timing.sent[transfer];
  const double handed_over = activity.eager ? timing.moves[transfer] : timing.released[transfer];
  return std::max(handed_over, timing.sent[transfer] - activity.queued);
}

// When a message that can move now was requested: once its sender was done with the one before it in its FIFO.
inline double requested_at(const TimedGraph& graph, const Timing& timing, uint32_t i, double now) {
  const Activity& transfer = graph.activities[i];
  if (transfer.queued <= 0 || transfer.streams) return now;
  double last = 0;
  for (uint32_t e = graph.edge_begin[i]; e < graph.edge_begin[i + 1]; ++e) {
    const TimedEdge& edge = graph.edges[e];
    if (edge.what != Gate::start) continue;
    const Activity& from = graph.activities[edge.from];
    const bool is_before =
        edge.when == Event::sent && from.is_transfer && from.device == transfer.device && from.peer == transfer.peer;
    last = std::max(last, is_before ? sender_done(graph, timing, edge.from) : time_of(timing, edge.from, edge.when));
  }
  return std::min(last, now);
}

}  // namespace nlsplit::inline sim

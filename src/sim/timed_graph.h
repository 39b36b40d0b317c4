// TimedGraph: a Program as activities with durations, what both tiers of the simulator run.
//
// An activity is a *block* (a run of compute instances with no edge to another stream inside) or a *transfer* (a send and its recv).
//   block      starts when its device is free and its edges are met; lasts the sum of its kernels' costs
//   transfer   ready: its data is written and it is at the head of its FIFO and of the card's window
//              starts at ready (eager), else at max(ready, posted) + handshake;  sent = start + bytes/bandwidth
//              arrives = sent + latency;  delivered = arrives, and not before posted
//              the next of its FIFO is ready at sent; the sender's buffer is free at ready (eager) or sent
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_table.h"
#include "program/dependencies.h"
#include "program/program.h"
#include "program/trace.h"

namespace nlsplit {

enum class Event : uint8_t { ready, sent, delivered };   // of a transfer; a block has one: its end (delivered)
enum class Gate : uint8_t { start, post };               // what an edge holds up: the start, or the posting of a transfer's recv

struct TimedEdge {
  uint32_t from = 0;
  Event when = Event::delivered;
  Gate what = Gate::start;
};

struct Activity {
  bool is_transfer = false;
  bool eager = false;
  int device = 0;                  // block: where; transfer: the sender
  int peer = -1;                   // transfer: the receiver
  uint32_t first_instance = 0;     // block: instances [first, first + count) of the compute stream are not contiguous in
  uint32_t count = 0;              //   Dependencies; they are listed in TimedGraph::members from `first_instance` on. transfer: the send
  double duration = 0;             // block: seconds of computing
  double bytes = 0;                // transfer
  int route = -1;                  // transfer: index into TimedGraph::routes; -1: no distance (same device)
};

struct TimedGraph {
  std::vector<Activity> activities;      // in a topological order
  std::vector<uint32_t> edge_begin;      // as in Dependencies
  std::vector<TimedEdge> edges;
  std::vector<uint32_t> members;         // instances of blocks
  std::vector<double> member_offset;     // seconds from the block's start to each member's start
  std::vector<Route> routes;             // between the Program's devices, as used
  double handshake = 0;                  // seconds
  int nic_window = 0;
  std::vector<int> host_of_device;       // dense numbers: devices of one host share its network card
};

// Errors: a missing cost, an unknown device, no route.
Result<TimedGraph> build_timed_graph(const Program& program, const Dependencies& dependencies, const Cluster& cluster,
                                     const CostTable& costs);

// When each activity happened: what a tier answers. Index as in TimedGraph::activities.
struct Timing {
  std::vector<double> start;       // block: start; transfer: ready
  std::vector<double> sent;        // transfer: last byte out; block: end
  std::vector<double> finish;      // block: end; transfer: delivered
  double makespan = 0;
};

Trace to_trace(const Program& program, const Dependencies& dependencies, const TimedGraph& graph, const Timing& timing);

}  // namespace nlsplit

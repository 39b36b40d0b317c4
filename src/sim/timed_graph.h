// TimedGraph: a Program as activities with durations, what both tiers of the simulator run.
//
//   ASSIGN_OR_RETURN(TimedGraph graph, build_timed_graph(program, dependencies, cluster, costs));
//   Timing timing;
//   simulate_fast(graph, timing);                                   // sim/fast.h; or simulate_all
//   (sim/simgrid/simgrid_tier.h) Trace trace = to_trace(program, dependencies, graph, timing);
//
// An activity is a *block* (a run of compute-stream instances of one slot with no edge to another stream inside) or a
// *transfer* (a send and its recv).
//
// A block starts when its device is free and its edges are met. It lasts the sum of its kernels' costs. While k other
// devices of its machine compute it needs 1 + k company / duration times as long.
//
// A transfer is
// - ready when its data is written and the transfer before it in its FIFO is sent;
// - posted when its receiver has room for it; recvs of one FIFO are posted in order;
// - eager up to the eager limit: its bytes are copied at once, and it moves when ready;
// - else moving from ready on, or, if it waits for its receiver, from max(ready, posted) + handshake on;
// - sent after bytes / bandwidth more, longer where others share the links;
// - delivered one latency later, but not before it is posted;
// - asked for (Timing::start) when its sender is done with the one before, which may be earlier than ready: its
//   request travels behind the rest of that one;
// - released, so that its sender's buffer is free: at ready if it is eager, else when MPI and the socket hold the
//   rest. They hold what the way carries in `queued` seconds, and take `handover` seconds for the bytes that the
//   request does not carry. On a shared link the time is computed as if the message had the link to itself.
//
// A message that *streams* does not wait for its receiver, and its sender's socket holds bytes of several messages:
// - it is ready when its data is written and its sender is done with the transfer before it, which may still move;
// - it moves after all that its sender gave to its receiver before it;
// - it is released, eager or not, once its connection has at most `queued` seconds of bytes left to move.
//
// How the parts of a message's time grow:
// - The request of a message that waits carries its first bytes, as many as the eager limit (Open MPI's ob1), and so
//   is at its receiver `request` seconds after ready. The answer waits behind what the receiver sends the other way,
//   alone on that way, for clear_to_send_delay at most. A message the other way that is answered after this one was
//   asked for does not count: its own answer comes behind this request, and is that much later.
// - When its last byte moves, the block that its sender runs at that moment ends sender_overhead later, and the one of
//   its receiver receiver_overhead: a CPU that moves bytes does not compute. What a device that waits spends on
//   messages is part of what they take.
// - While both ends compute, a message above the eager limit needs 1 + slowed times as long, while one does 1 + slowed
//   / 2. Its handshake takes `busy` seconds more if both compute when that is to end.
// - With nic_window = w > 0 a host moves at most w of its outgoing messages at a time. A message asks for the card
//   when it could start, so one that waits for its receiver holds up nobody and nothing new can deadlock. The card
//   takes them in the order in which they asked, then by activity number. Messages within a host do not use it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "cost/cost_table.h"
#include "program/dependencies.h"
#include "program/online.h"
#include "program/program.h"
#include "program/scalar_values.h"
#include "program/trace.h"
#include "sim/link_course.h"
#include "sim/slowness.h"

namespace nlsplit::inline sim {

// Of a transfer; a block has one: its end (delivered). Released: only where something is queued.
enum class Event : uint8_t { posted, ready, sent, delivered, released };
constexpr size_t event_count = 5;

enum class Gate : uint8_t { start, post };  // what an edge holds up: the start, or the posting of a recv

struct TimedEdge {
  uint32_t from = 0;
  Event when = Event::delivered;
  Gate what = Gate::start;
  friend bool operator==(const TimedEdge&, const TimedEdge&) = default;
};

struct Activity {
  bool is_transfer = false;
  bool eager = false;           // transfer: bytes are at most the Program's eager_limit
  bool waits = false;           // transfer: for its receiver, before it moves; one that is eager does not
  bool streams = false;         // transfer: it follows the messages before it as its sender's socket has room
  int device = 0;               // block: where; transfer: the sender
  int peer = -1;                // transfer: the receiver
  uint32_t first_instance = 0;  // block: instances of a block are not contiguous in Dependencies: they are listed in
  uint32_t count = 0;    //   TimedGraph::members from first_instance on. transfer: the send; its recv is its match
  double duration = 0;   // block: seconds of computing. transfer: seconds alone on its route, without latency
  double company = 0;    // block: seconds more for each other device of its machine that computes all the time
  double latency = 0;    // transfer: seconds of its route
  double handshake = 0;  // transfer: seconds before it moves, if it is not eager
  double request = 0;    // transfer: seconds of its duration in which bytes up to the eager limit move
  double clear_to_send_delay = 0;  // transfer: seconds more at most, for what comes the other way; 0: nothing does
  double queued = 0;               // transfer: seconds of its way that its sender's MPI and socket hold at most
  double handover = 0;             // transfer: seconds that they take for the bytes that its request does not carry
  double bytes = 0;                // transfer: what its links carry, so that the narrowest alone takes `duration`
  // transfer: seconds it takes from a computation under way on the device, or on the peer, when its last byte moves
  double sender_overhead = 0, receiver_overhead = 0;
  double slowed = 0;  // transfer: seconds more for each second in which both ends compute
  double busy = 0;    // transfer: seconds its handshake takes longer if both its ends compute when that is to end
  int route = -1;     // transfer: index into TimedGraph::routes; -1: no distance (same device)

  // Transfer that does not stream: seconds from its first byte's move until its sender's MPI and socket hold the rest.
  // The sender of a larger message hands over what its request does not carry, once it is answered.
  double until_released() const { return std::max(std::min(request + handover, duration), duration - queued); }
};

// A slot whose turn on its device is not decided beforehand.
struct OnlineSlot {
  int device = 0;
  int index = 0;                 // in the order of its device
  uint32_t first = 0, last = 0;  // its blocks; all that comes from outside the slot is waited for by the first one
  bool chosen = true;            // by the policy; else it has its turn before all that are, once it is ready
  ScheduledSlot slot;
  double remaining = 0;  // ReadySlot::remaining, without noise
};

struct OnlineGraph {
  const OnlinePolicy* policy = nullptr;
  std::vector<std::vector<ScheduledSlot>> table;  // replay only: [device]
  std::vector<OnlineSlot> slots;                  // device by device, in order
  std::vector<int> slot_of;                       // [activity]: of a block its slot; -1: a transfer
};

struct TimedGraph {
  std::vector<Activity> activities;  // in a topological order
  std::vector<uint32_t> edge_begin;  // edges[edge_begin[i] … edge_begin[i+1]) end at activity i
  std::vector<TimedEdge> edges;
  std::vector<uint32_t> members;      // instances of blocks
  std::vector<double> member_offset;  // seconds from the block's start to each member's start
  std::vector<Route> routes;          // between hosts of the Program's devices, as used
  int nic_window = 0;
  bool clear_to_send_waits = false;  // some activity has a clear_to_send_delay
  bool has_queues = false;           // some activity is queued
  bool has_overheads = false;       // some activity has an overhead at one of its ends, or is slowed by their computing
  std::vector<int> host_of_device;  // dense numbers: devices of one host share its network card
  // Dense numbers of machines that several devices share and whose blocks have a `company`; -1: the device has its own.
  std::vector<int> machine_of_device;
  // What noise adds (sim/disturb.h); both empty without it.
  std::vector<Slowness> slowness;   // by device
  std::vector<LinkCourse> courses;  // of links whose bandwidth changes; the fast tier does not look at them
  // None: every device runs its slots in the order of the Program. Else its blocks do not wait for the slot before.
  std::optional<OnlineGraph> online;
};

// Costs come from `costs`, looked up once for each device and computation; copy, pack, unpack and reduce have the desc
// that program/data_movement.h gives them, and are free on endpoints (the user's own data, where it lies). Expects a
// Program that verify accepts. Errors: a missing cost, a device or host the cluster does not have, no route,
// instructions that wait for each other. `scalars`: what instructions that read scalars cost then; unknown ones are the
// largest.
Result<TimedGraph> build_timed_graph(const Program& program, const Dependencies& dependencies, const Cluster& cluster,
                                     const CostTable& costs, const ScalarTable& scalars = {});
// The same for a run in which `online` decides. The dependencies leave the order free; a transfer that could move also
// waits while another one of its two devices, in its direction, does: those of one tag come in their order, others as
// they can. Errors also: no such policy, a table of another program.
Result<TimedGraph> build_online_graph(const Program& program, const Dependencies& dependencies, const Online& online,
                                      const Cluster& cluster, const CostTable& costs);

// When each activity happened: what a tier answers. Index as in TimedGraph::activities.
struct Timing {
  std::vector<double> posted;    // block: its end; transfer: recv posted
  std::vector<double> start;     // block: start; transfer: asked, that is ready where nothing is queued
  std::vector<double> moves;     // block: start; transfer: its first byte moves
  std::vector<double> sent;      // transfer: last byte out; block: end
  std::vector<double> finish;    // block: end; transfer: delivered
  std::vector<double> released;  // transfer: as Event::released; only where has_queues
  std::vector<double> turn;      // online only: of a slot's first block, how many slots its device ran before; else -1
  double makespan = 0;
};

inline double time_of(const Timing& timing, uint32_t activity, Event event) {
  switch (event) {
    case Event::posted:
      return timing.posted[activity];
    case Event::ready:
      return timing.start[activity];
    case Event::sent:
      return timing.sent[activity];
    case Event::delivered:
      return timing.finish[activity];
    case Event::released:
      return timing.released[activity];
  }
  CHECK(false, "an event without a time");
}

// peak_bytes is each device's whole arena: its buffers have fixed places in it.
Trace to_trace(const Program& program, const Dependencies& dependencies, const TimedGraph& graph, const Timing& timing);

}  // namespace nlsplit::inline sim

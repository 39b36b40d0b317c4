// A Program with its durations as GOAL text (Hoefler, Siebert, Lumsdaine, "Group operation assembly language", ICPP
// 2009), which LogGOPSim (Hoefler, Schneider, Lumsdaine, HPDC 2010) simulates: a second opinion by somebody else's
// program.
//
//   num_ranks 2
//   rank 0 {
//   b0: calc 1500
//   s1: send 4096b to 1 tag 0 nic 0
//   s1 requires b0
//   }
//
// A rank for each device. A block of computations is a calc, in nanoseconds; what is rounded off goes to the next one.
// `requires` waits for the end of an operation, `irequires` for its start: a recv is posted when the one before it on
// its FIFO is; the buffer of an eager message is free when it is sent off. Each peer has a card of its own (nic), so
// messages to different ones do not wait for each other.
// GOAL says what happens and not how fast a network is. LogGOPSim with L the latency of a way and o = g = O = 0 has our
// model where all ways are alike, nothing contends, all messages are eager and take no time but their latency: a byte's
// G is charged to the processor that receives it, and a message and a computation that could start together take turns.
#pragma once

#include <string>

#include "program/dependencies.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline reports {

// All three of one Program.
std::string goal_text(const Program& program, const Dependencies& dependencies, const TimedGraph& graph);

}  // namespace nlsplit::inline reports

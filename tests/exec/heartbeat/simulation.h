// A simulated run of 2 to 64 ranks: each is a PeerWatch (exec/heartbeat/peer_watch.h), on a simulated clock and network
// with random delays, strangers who connect, and what the seed chooses of: a rank that dies (at any time, or after any
// number of its own steps), is stopped for a while or for ever, links that are cut one way or both ways, for a while or
// for ever. Everything follows from the seed.
//
//   const SimulatedRun run = simulate(seed);
//   EXPECT_EQ(run.failure, "") << run.log;
#pragma once

#include <cstdint>
#include <string>

namespace nlsplit {

struct SimulatedRun {
  std::string scenario;  // "5 ranks, small delays, rank 2 dies at 3.1 s"
  std::string failure;   // empty: all that must hold held
  std::string log;       // what happened, a line each
  int ranks = 0, ended = 0, speakers = 0;
  bool harmless = false;     // no fault, or one too short to count
  double ended_after_s = 0;  // since the death, until the last rank that is left has ended
};

// What must hold, in terms of the heartbeat's limit:
// - nobody ends where nothing lasts as long as half the limit: such a run leaves in peace;
// - every rank that lives ends: a limit after the fault, or, if that came during the start, a limit after the start's
//   patience. Time in which it was stopped itself does not count;
// - one rank speaks for all that can reach each other, after a single fault and with delays below 2 % of the limit;
// - no more visitors than most_visitors are ever kept.
SimulatedRun simulate(uint64_t seed);

// So many ranks, of which one dies: after any number of its own steps, or once all have met; small delays, nothing
// else.
SimulatedRun simulate_death(uint64_t seed, int ranks, bool in_start);

}  // namespace nlsplit

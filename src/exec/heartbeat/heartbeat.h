// Heartbeat: detects a rank that died, hangs, is stopped or is cut off, which MPI does not report. Every rank has a TCP
// connection, apart from MPI, to each of its neighbours (neighbours.h); with few ranks these are all others. Ten times
// per limit it sends them a heartbeat: how long it and the ranks around it have been idle, and the instruction it waits
// in.
//
// A rank is lost if its connection breaks, or after silence for 0.7 of the limit; the rest of the limit is for ending.
// The lowest remaining rank reports the loss, so the message appears once: a rank that detects a loss sends its
// neighbours the lowest rank that it hears. They forward it, or a lower one that they hear; the lowest of all reports.
// Ranks that cannot reach each other any more, not even through others, each report for themselves, the lower one
// first. A process that was stopped and continues learns that the others declared it lost, and ends too.
//
// This is a state machine: events with their times go in, lines to send and the Ending come out. The clock and the
// sockets are those of HeartbeatThread (heartbeat_thread.h), or of a simulation.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline exec {

using Moment = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

inline Duration of_seconds(double s) { return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s)); }

struct Ending {
  Error error;          // why; of kind `lost` if a rank is
  bool speaks = false;  // this rank reports it
};

// What this rank does.
struct OwnActivity {
  std::function<double()> idle_s;
  // "computes", "works on …", "waits in …"; the instruction that waits for `peer`, or for any rank if it is -1.
  std::function<std::string(int peer)> doing;
};

struct PeerLine {
  int peer = 0;
  std::string line;
};

class Heartbeat {
 public:
  // `names` of all ranks: "rank 1 on host b". `limit_s`: seconds from the loss of a rank to the end of all others.
  Heartbeat(int rank, std::vector<std::string> names, double limit_s, OwnActivity own);

  // Events. Their times never go back. All lines that have arrived are given before the tick of the same moment.
  void joined(int peer, Moment now);  // from now on it is watched
  void received(int peer, std::string_view line, Moment now);
  void broke(int peer, Moment now);                  // its connection
  void tick(Moment now);                             // not later than next(), unless this process did not run
  void started(Moment now);                          // this rank has met its neighbours
  void give_up(const std::string& why, Moment now);  // the start found that a rank is lost
  // Ends the run for the others, too. false: it has ended already.
  bool end(const Error& why);
  void leave();  // the run is over for this rank, and all is well

  // Actions.
  std::vector<PeerLine> take_lines();
  const std::optional<Ending>& ending() const { return ending_; }  // once set, it stays
  Moment next() const;

  // What is known.
  double idle_s() const;           // the least of all ranks, by what was heard last
  std::string others() const;      // what the neighbours do, a line each
  bool lower_rank_starts() const;  // a connected lower rank is not yet connected with its own neighbours
  bool all_left() const;

 private:
  struct Peer {
    Moment heard, broke_at;
    std::vector<double> idle_s;  // [hops]: the least of all ranks that are no farther from it
    std::string doing;
    bool joined = false, started = false, left = false, broke = false;
    bool watched() const { return joined && !left; }
  };

  void advance(Moment now);
  void take(int peer, std::string_view line, Moment now);
  void beat(Moment now);
  void judge(Moment now);
  std::vector<double> idle_within_hops() const;
  void learn(const std::string& why, int lowest, Moment now);
  void decide(Moment now);
  Moment speaks_at() const;
  void conclude(Ending ending);
  bool is_suspect(int rank, Moment now) const;
  bool is_silent(const Peer& peer, Moment now) const;
  int lowest_heard(Moment now) const;
  int lower_heard(Moment now) const;
  std::string accuse(const std::vector<int>& suspects, Moment now) const;
  void tell_all(const std::string& line);

  const int rank_;
  const std::vector<std::string> names_;
  const Duration interval_, silence_, courtesy_, turn_, settling_, asleep_;
  const OwnActivity own_;
  const size_t hops_;        // to the farthest rank
  std::vector<Peer> peers_;  // by rank; only its neighbours' are used
  std::vector<PeerLine> lines_;
  Moment last_{}, next_beat_{};
  bool ended_ = false, left_ = false, started_ = false;
  std::optional<Ending> ending_;
  // A loss that is known but not yet reported: why, since when, and the lowest rank that any rank still hears.
  std::string loss_;
  Moment loss_at_{};
  int lowest_ = 0;
};

}  // namespace nlsplit::inline exec

// PeerWatch: one rank's start and heartbeat together, by connection. The state machine that HeartbeatThread and the
// simulation run:
//
//   PeerWatch watch(rank, greetings, options, activity, now);
//   … events in, then …  for (const Action& action : watch.take_actions()) …
//   if (watch.ending()) …                                      // the run is over for this rank
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exec/heartbeat/heartbeat.h"
#include "exec/heartbeat/start.h"

namespace nlsplit::inline exec {

struct PeerWatchOptions {
  double limit_s = 10;  // of the heartbeat
  StartOptions start = {};
  double notice_s = 5;  // after so long a start the lowest rank that waits says what it waits for
};

class PeerWatch {
 public:
  PeerWatch(int rank, std::vector<Greeting> greetings, PeerWatchOptions options, OwnActivity own, Moment now);

  // Events, as of Start and Heartbeat. Lines of visitors are at most longest_greeting_line long.
  int accepted(Moment now);
  void connected(int connection, Moment now);
  void received(int connection, std::string_view line, Moment now);
  void closed(int connection, Moment now);
  void tick(Moment now);
  bool end(const Error& why);  // as Heartbeat's
  void leave();

  std::vector<Action> take_actions();
  std::optional<std::string> take_notice();
  const std::optional<Ending>& ending() const { return heartbeat_.ending(); }
  Moment next() const;
  bool all_met() const { return start_.done(); }  // its neighbours: the port is needed no more
  bool all_left() const { return heartbeat_.all_left(); }
  bool is_peer(int connection) const { return rank_of_.contains(connection); }
  double idle_s() const { return heartbeat_.idle_s(); }
  std::string others() const { return heartbeat_.others(); }

 private:
  void take_new_ranks(Moment now);

  const PeerWatchOptions options_;
  const std::string name_;
  const Moment begin_;
  Start start_;
  Heartbeat heartbeat_;
  std::map<int, int> rank_of_;      // by connection, of the ranks that were met
  std::vector<int> connection_of_;  // by rank; -1: not met
  std::optional<std::string> notice_;
  bool noticed_ = false, started_ = false, gave_up_ = false;
};

}  // namespace nlsplit::inline exec

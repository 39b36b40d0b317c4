// Start: connects the ranks of a run. Every rank listens on a TCP port, whose address its neighbours have (greeting.h,
// neighbours.h). The higher of two neighbours connects to the lower one, to all lower ones at once, and they
// authenticate each other:
//
//   higher: hello TOKEN-OF-THE-LOWER RANK
//   lower:  hello TOKEN-OF-THE-HIGHER
//   higher: met
//
// Until then a connection is a visitor: few are kept, each for a short time, and an unexpected line closes it. A
// connection that fails is tried again, at the next address, until the patience is over.
//
// A state machine like Heartbeat: events go in, Actions and met ranks come out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exec/heartbeat/greeting.h"
#include "exec/heartbeat/heartbeat.h"

namespace nlsplit::inline exec {

// The actions for the owner of the sockets, in this order. After `close` a connection has no more events.
struct Action {
  enum class Kind : uint8_t { connect, send, close };
  Kind kind = Kind::send;
  int connection = -1;
  std::string text = {};  // connect: the address; send: the line
  uint16_t port = 0;      // connect
};

struct StartOptions {
  double patience_s = 60;  // from its begin; then a neighbour that was not met is lost
  double attempt_s = 2;    // for one call to one address; more in each round of calls
  double visit_s = 8;      // for a visitor to say hello
  // A rank listens until it is connected with all neighbours. If all its addresses refuse for this long, it has ended.
  double refusal_s = 5;
};

inline constexpr size_t longest_greeting_line = 128;  // of a visitor
inline constexpr size_t most_visitors = 64;  // that have not said hello; another one takes the place of the oldest

class Start {
 public:
  struct Met {
    int rank, connection;
  };

  // `greetings`: by rank; its neighbours' and its own count.
  Start(int rank, std::vector<Greeting> greetings, StartOptions options, Moment now);

  // Events. Lines are without their end and at most longest_greeting_line long.
  int accepted(Moment now);  // the number of the new connection
  void connected(int connection, Moment now);
  void received(int connection, std::string_view line, Moment now);
  void closed(int connection, Moment now);  // refused, broken, or a line too long
  void tick(Moment now);

  // Actions.
  std::vector<Action> take_actions();
  std::vector<Met> take_met();  // the caller then owns these connections
  Moment next() const;

  bool done() const { return missing_ == 0; }
  std::string missing() const;                           // "rank 2 on host c, rank 3 on host d"
  std::optional<std::string> gave_up(Moment now) const;  // why, once the patience is over or a rank has ended

 private:
  enum class State : uint8_t { resting, connecting, greeted };
  struct Call {  // to a lower rank
    std::vector<std::string> addresses;
    size_t address = 0;
    int connection = -1, round = 0;
    State state = State::resting;
    Moment until{};                       // of the rest or the attempt
    bool refused = true;                  // each address of this round so far
    std::optional<Moment> refused_since;  // each address of each round since then
  };
  struct Visitor {
    int connection = -1, rank = -1;  // -1: has not said hello
    Moment until{};
  };

  void call(int rank, Moment now);
  void call_failed(int rank, bool refused, Moment now);
  void meet(int rank, int connection);
  bool admit(Visitor& visitor, std::string_view line);
  Visitor* find_visitor(int connection);
  int find_call(int connection) const;
  void dismiss(size_t visitor);
  void send(int connection, std::string line);
  void close(int connection);
  const Greeting& own() const { return greetings_[static_cast<size_t>(rank_)]; }

  const int rank_;
  const std::vector<Greeting> greetings_;
  const StartOptions options_;
  const Moment begin_;
  int missing_ = 0, next_connection_ = 0;
  std::vector<bool> met_;          // by rank; also those that are not to be met
  std::vector<Call> calls_;        // by rank, of the lower ones
  std::vector<Visitor> visitors_;  // oldest first
  std::vector<Action> actions_;
  std::vector<Met> newly_met_;
};

}  // namespace nlsplit::inline exec

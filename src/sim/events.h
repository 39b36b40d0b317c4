// The rules of timed_graph.h as events, for any clock: what SimGrid's tier runs on SimGrid's clock, and the fast tier on a heap when the
// network card's window makes transfers wait for each other.
#pragma once

#include <vector>

#include "sim/timed_graph.h"

namespace nlsplit {

enum class Occurrence : uint8_t { block_ends, handshake_done, message_sent, message_arrives };

// A clock tells Events::happens(what, activity) when the time has come.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now() const = 0;
  virtual void at(double time, Occurrence what, uint32_t activity) = 0;
  virtual void send(uint32_t activity) = 0;   // its bytes over its route, then message_sent
};

class Events {
 public:
  Events(const TimedGraph& graph, Clock& clock, Timing& timing);
  void begin();                                           // everything without predecessors
  void happens(Occurrence what, uint32_t activity);
  size_t finished() const { return finished_; }           // all activities, if the graph is sound

 private:
  struct State {
    uint32_t start_missing = 0, post_missing = 0;
    bool ready = false, posted = false, arrived = false;
  };
  void start(uint32_t a);
  void post(uint32_t a);
  void maybe_request(uint32_t a);
  void request_card(uint32_t a);
  void launch(uint32_t a);
  void deliver(uint32_t a);
  void fire(uint32_t a, Event event);

  const TimedGraph& graph_;
  Clock& clock_;
  Timing& timing_;
  std::vector<State> states_;
  std::vector<uint32_t> out_begin_, out_to_;              // edges by what they come from
  std::vector<TimedEdge> out_edge_;
  struct Card {
    int busy = 0;
    std::vector<uint32_t> waiting;                        // a queue; `next` is its head
    size_t next = 0;
  };
  std::vector<Card> cards_;                               // by host
  size_t finished_ = 0;
};

}  // namespace nlsplit

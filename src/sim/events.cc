#include "sim/events.h"

#include <algorithm>

namespace nlsplit {

Events::Events(const TimedGraph& graph, Clock& clock, Timing& timing)
    : graph_(graph), clock_(clock), timing_(timing), states_(graph.activities.size()) {
  const size_t count = graph.activities.size();
  timing.start.assign(count, 0);
  timing.sent.assign(count, 0);
  timing.finish.assign(count, 0);
  timing.makespan = 0;
  int hosts = 0;
  for (const int host : graph.host_of_device) hosts = std::max(hosts, host + 1);
  cards_.resize(static_cast<size_t>(hosts));

  out_begin_.assign(count + 1, 0);
  for (const TimedEdge& edge : graph.edges) ++out_begin_[edge.from + 1];
  for (size_t a = 0; a < count; ++a) out_begin_[a + 1] += out_begin_[a];
  out_to_.resize(graph.edges.size());
  out_edge_.resize(graph.edges.size());
  std::vector<uint32_t> fill(out_begin_.begin(), out_begin_.end() - 1);
  for (uint32_t a = 0; a < count; ++a) {
    for (uint32_t e = graph.edge_begin[a]; e < graph.edge_begin[a + 1]; ++e) {
      const TimedEdge& edge = graph.edges[e];
      const uint32_t at = fill[edge.from]++;
      out_to_[at] = a;
      out_edge_[at] = edge;
      ++(edge.what == Gate::start ? states_[a].start_missing : states_[a].post_missing);
    }
  }
}

void Events::begin() {
  for (uint32_t a = 0; a < states_.size(); ++a) {
    if (graph_.activities[a].is_transfer && states_[a].post_missing == 0) states_[a].posted = true;
  }
  // Firing events lowers counters of others: who begins is decided first.
  std::vector<uint32_t> first;
  for (uint32_t a = 0; a < states_.size(); ++a) {
    if (states_[a].start_missing == 0) first.push_back(a);
  }
  for (const uint32_t a : first) start(a);
}

void Events::start(uint32_t a) {
  const Activity& activity = graph_.activities[a];
  timing_.start[a] = clock_.now();
  if (!activity.is_transfer) {
    clock_.at(clock_.now() + activity.duration, Occurrence::block_ends, a);
    return;
  }
  states_[a].ready = true;
  fire(a, Event::ready);
  maybe_request(a);
}

void Events::post(uint32_t a) {
  states_[a].posted = true;
  if (graph_.activities[a].eager) {
    if (states_[a].arrived) deliver(a);
  } else if (states_[a].ready) {
    maybe_request(a);
  }
}

void Events::maybe_request(uint32_t a) {
  if (graph_.activities[a].eager) {
    request_card(a);
  } else if (states_[a].posted) {
    if (graph_.handshake > 0) clock_.at(clock_.now() + graph_.handshake, Occurrence::handshake_done, a);
    else request_card(a);
  }
}

void Events::request_card(uint32_t a) {
  Card& card = cards_[static_cast<size_t>(graph_.host_of_device[static_cast<size_t>(graph_.activities[a].device)])];
  if (graph_.nic_window > 0 && card.busy >= graph_.nic_window) {
    card.waiting.push_back(a);
    return;
  }
  ++card.busy;
  launch(a);
}

void Events::launch(uint32_t a) { clock_.send(a); }

void Events::happens(Occurrence what, uint32_t a) {
  const Activity& activity = graph_.activities[a];
  switch (what) {
    case Occurrence::block_ends:
      timing_.sent[a] = timing_.finish[a] = clock_.now();
      timing_.makespan = std::max(timing_.makespan, timing_.finish[a]);
      ++finished_;
      fire(a, Event::delivered);
      break;
    case Occurrence::handshake_done: request_card(a); break;
    case Occurrence::message_sent: {
      timing_.sent[a] = clock_.now();
      const Route& route = graph_.routes[static_cast<size_t>(activity.route)];
      clock_.at(clock_.now() + route.latency.value(), Occurrence::message_arrives, a);
      Card& card = cards_[static_cast<size_t>(graph_.host_of_device[static_cast<size_t>(activity.device)])];
      --card.busy;
      if (card.next < card.waiting.size()) {
        ++card.busy;
        launch(card.waiting[card.next++]);
      }
      fire(a, Event::sent);
      break;
    }
    case Occurrence::message_arrives:
      states_[a].arrived = true;
      if (states_[a].posted) deliver(a);   // an eager message waits in the transport until its recv is posted
      break;
  }
}

void Events::deliver(uint32_t a) {
  timing_.finish[a] = clock_.now();
  timing_.makespan = std::max(timing_.makespan, timing_.finish[a]);
  ++finished_;
  fire(a, Event::delivered);
}

void Events::fire(uint32_t a, Event event) {
  for (uint32_t e = out_begin_[a]; e < out_begin_[a + 1]; ++e) {
    if (out_edge_[e].when != event) continue;
    const uint32_t to = out_to_[e];
    State& state = states_[to];
    if (out_edge_[e].what == Gate::start) {
      if (--state.start_missing == 0) start(to);
    } else if (--state.post_missing == 0) {
      post(to);
    }
  }
}

}  // namespace nlsplit

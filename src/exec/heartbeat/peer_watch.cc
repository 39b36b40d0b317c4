#include "exec/heartbeat/peer_watch.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace nlsplit::inline exec {
namespace {

std::vector<std::string> names_of(const std::vector<Greeting>& greetings) {
  std::vector<std::string> names;
  for (size_t r = 0; r < greetings.size(); ++r) names.push_back(name_of(static_cast<int>(r), greetings[r]));
  return names;
}

}  // namespace

PeerWatch::PeerWatch(int rank, std::vector<Greeting> greetings, PeerWatchOptions options, OwnActivity own, Moment now)
    : options_(options),
      name_(name_of(rank, greetings[static_cast<size_t>(rank)])),
      begin_(now),
      start_(rank, greetings, options.start, now),
      heartbeat_(rank, names_of(greetings), options.limit_s, std::move(own)),
      connection_of_(greetings.size(), -1) {}

int PeerWatch::accepted(Moment now) { return start_.accepted(now); }
void PeerWatch::connected(int connection, Moment now) { start_.connected(connection, now); }

void PeerWatch::received(int connection, std::string_view line, Moment now) {
  if (const auto it = rank_of_.find(connection); it != rank_of_.end()) {
    heartbeat_.received(it->second, line, now);
  } else {
    start_.received(connection, line, now);
    take_new_ranks(now);
  }
}

void PeerWatch::closed(int connection, Moment now) {
  if (const auto it = rank_of_.find(connection); it != rank_of_.end())
    heartbeat_.broke(it->second, now);
  else
    start_.closed(connection, now);
}

void PeerWatch::take_new_ranks(Moment now) {
  for (const Start::Met& met : start_.take_met()) {
    rank_of_[met.connection] = met.rank;
    connection_of_[static_cast<size_t>(met.rank)] = met.connection;
    heartbeat_.joined(met.rank, now);
  }
}

void PeerWatch::tick(Moment now) {
  start_.tick(now);
  if (start_.done() && !std::exchange(started_, true)) heartbeat_.started(now);
  if (const auto why = start_.gave_up(now); why && !std::exchange(gave_up_, true)) heartbeat_.give_up(*why, now);
  heartbeat_.tick(now);
  if (noticed_ || start_.done() || now < begin_ + of_seconds(options_.notice_s)) return;
  noticed_ = true;
  if (!heartbeat_.lower_rank_starts())
    notice_ = fmt::format("{} still waits in the start for {}", name_, start_.missing());
}

bool PeerWatch::end(const Error& why) { return heartbeat_.end(why); }
void PeerWatch::leave() { heartbeat_.leave(); }

// The start's first: "met" opens a connection that the heartbeat then uses.
std::vector<Action> PeerWatch::take_actions() {
  std::vector<Action> actions = start_.take_actions();
  for (PeerLine& line : heartbeat_.take_lines()) {
    actions.push_back({Action::Kind::send, connection_of_[static_cast<size_t>(line.peer)], std::move(line.line)});
  }
  return actions;
}

std::optional<std::string> PeerWatch::take_notice() { return std::exchange(notice_, std::nullopt); }

Moment PeerWatch::next() const {
  Moment next = heartbeat_.next();
  if (start_.done() || gave_up_ || next == Moment::max()) return start_.done() && !started_ ? begin_ : next;
  if (!noticed_) next = std::min(next, begin_ + of_seconds(options_.notice_s));
  return std::min(next, start_.next());
}

}  // namespace nlsplit::inline exec

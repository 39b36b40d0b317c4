#include "exec/heartbeat/start.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "exec/heartbeat/neighbours.h"

namespace nlsplit::inline exec {
namespace {

constexpr double rest_s = 0.1;  // between rounds of calls; more after each
constexpr int longest_rounds = 8;

// Loopback is no way to another host.
std::vector<std::string> ways(const Greeting& from, const Greeting& to) {
  std::vector<std::string> addresses = to.addresses;
  if (to.host != from.host)
    std::erase_if(addresses, [](const std::string& address) { return address.starts_with("127."); });
  return addresses;
}

}  // namespace

Start::Start(int rank, std::vector<Greeting> greetings, StartOptions options, Moment now)
    : rank_(rank),
      greetings_(std::move(greetings)),
      options_(options),
      begin_(now),
      met_(greetings_.size(), true),
      calls_(static_cast<size_t>(rank)) {
  visitors_.reserve(most_visitors);
  const std::vector<int> others = neighbours(rank_, static_cast<int>(greetings_.size()));
  missing_ = static_cast<int>(others.size());
  for (const int other : others) {
    met_[static_cast<size_t>(other)] = false;
    if (other > rank_) continue;
    Call& call = calls_[static_cast<size_t>(other)];
    call.addresses = ways(own(), greetings_[static_cast<size_t>(other)]);
    call.until = now;
  }
}

void Start::send(int connection, std::string line) {
  actions_.push_back({Action::Kind::send, connection, std::move(line)});
}
void Start::close(int connection) { actions_.push_back({Action::Kind::close, connection}); }

std::vector<Action> Start::take_actions() { return std::exchange(actions_, {}); }
std::vector<Start::Met> Start::take_met() { return std::exchange(newly_met_, {}); }

int Start::find_call(int connection) const {
  for (size_t r = 0; r < calls_.size(); ++r) {
    if (calls_[r].connection == connection && calls_[r].state != State::resting) return static_cast<int>(r);
  }
  return -1;
}

Start::Visitor* Start::find_visitor(int connection) {
  const auto it = std::ranges::find(visitors_, connection, &Visitor::connection);
  return it == visitors_.end() ? nullptr : &*it;
}

void Start::dismiss(size_t visitor) {
  close(visitors_[visitor].connection);
  visitors_.erase(visitors_.begin() + static_cast<ptrdiff_t>(visitor));
}

void Start::meet(int rank, int connection) {
  met_[static_cast<size_t>(rank)] = true;
  newly_met_.push_back({rank, connection});
  if (--missing_ > 0) return;
  while (!visitors_.empty()) dismiss(0);
}

void Start::call(int rank, Moment now) {
  Call& call = calls_[static_cast<size_t>(rank)];
  if (call.addresses.empty()) return;
  call.connection = next_connection_++;
  call.state = State::connecting;
  call.until = now + of_seconds(options_.attempt_s * (1 + call.round));
  actions_.push_back({Action::Kind::connect, call.connection, call.addresses[call.address],
                      greetings_[static_cast<size_t>(rank)].port});
}

void Start::call_failed(int rank, bool refused, Moment now) {
  Call& call = calls_[static_cast<size_t>(rank)];
  call.state = State::resting;
  call.connection = -1;
  call.until = now;
  call.refused = call.refused && refused;
  if (++call.address < call.addresses.size()) return;
  if (!call.refused)
    call.refused_since.reset();
  else if (!call.refused_since)
    call.refused_since = now;
  call.refused = true;
  call.address = 0;
  call.until = now + of_seconds(rest_s * (1 + call.round));
  call.round = std::min(call.round + 1, longest_rounds);
}

int Start::accepted(Moment now) {
  if (done()) {
    close(next_connection_);
    return next_connection_++;
  }
  if (static_cast<size_t>(std::ranges::count(visitors_, -1, &Visitor::rank)) >= most_visitors)
    dismiss(static_cast<size_t>(std::ranges::find(visitors_, -1, &Visitor::rank) - visitors_.begin()));
  visitors_.push_back({next_connection_, -1, now + of_seconds(options_.visit_s)});
  return next_connection_++;
}

void Start::connected(int connection, Moment) {
  const int rank = find_call(connection);
  if (rank < 0) return;
  calls_[static_cast<size_t>(rank)].state = State::greeted;
  send(connection, fmt::format("hello {} {}", greetings_[static_cast<size_t>(rank)].token, rank_));
}

// true: the visitor stays.
bool Start::admit(Visitor& visitor, std::string_view line) {
  if (visitor.rank >= 0) {
    if (line != "met" || met_[static_cast<size_t>(visitor.rank)]) return false;
    return true;
  }
  const std::string expected = "hello " + own().token + " ";
  if (!line.starts_with(expected)) return false;
  line.remove_prefix(expected.size());
  int rank = -1;
  const auto [rest, failure] = std::from_chars(line.data(), line.data() + line.size(), rank);
  if (failure != std::errc() || rest != line.data() + line.size()) return false;
  if (rank <= rank_ || rank >= static_cast<int>(greetings_.size()) || met_[static_cast<size_t>(rank)]) return false;
  visitor.rank = rank;
  send(visitor.connection, "hello " + greetings_[static_cast<size_t>(rank)].token);
  return true;
}

void Start::received(int connection, std::string_view line, Moment now) {
  if (Visitor* visitor = find_visitor(connection); visitor != nullptr) {
    const auto index = static_cast<size_t>(visitor - visitors_.data());
    const int rank = visitor->rank;
    if (!admit(*visitor, line)) return dismiss(index);
    if (rank < 0) return;
    visitors_.erase(visitors_.begin() + static_cast<ptrdiff_t>(index));
    return meet(rank, connection);
  }
  const int rank = find_call(connection);
  if (rank < 0) return;
  if (line != "hello " + own().token) {  // another program has that address and port
    close(connection);
    return call_failed(rank, true, now);
  }
  send(connection, "met");
  calls_[static_cast<size_t>(rank)].state = State::resting;
  meet(rank, connection);
}

void Start::closed(int connection, Moment now) {
  if (const Visitor* visitor = find_visitor(connection); visitor != nullptr) {
    visitors_.erase(visitors_.begin() + (visitor - visitors_.data()));
    return;
  }
  if (const int rank = find_call(connection); rank >= 0)
    call_failed(rank, calls_[static_cast<size_t>(rank)].state == State::connecting, now);
}

void Start::tick(Moment now) {
  for (size_t v = 0; v < visitors_.size();) {
    // A rank that has said hello may have been answered and count on this connection: it alone may end it.
    if (now >= visitors_[v].until && visitors_[v].rank < 0)
      dismiss(v);
    else
      ++v;
  }
  for (size_t r = 0; r < calls_.size(); ++r) {
    if (met_[r] || now < calls_[r].until) continue;
    const int rank = static_cast<int>(r);
    if (calls_[r].state != State::resting) {
      close(calls_[r].connection);
      call_failed(rank, false, now);
    }
    if (now >= calls_[r].until) call(rank, now);
  }
}

Moment Start::next() const {
  if (done()) return Moment::max();
  Moment next = begin_ + of_seconds(options_.patience_s);
  for (const Visitor& visitor : visitors_) {
    if (visitor.rank < 0) next = std::min(next, visitor.until);
  }
  for (size_t r = 0; r < calls_.size(); ++r) {
    if (!met_[r] && !calls_[r].addresses.empty()) next = std::min(next, calls_[r].until);
  }
  return next;
}

std::string Start::missing() const {
  std::string names;
  for (size_t r = 0; r < met_.size(); ++r) {
    if (met_[r]) continue;
    names += (names.empty() ? "" : ", ") + name_of(static_cast<int>(r), greetings_[r]);
  }
  return names;
}

std::optional<std::string> Start::gave_up(Moment now) const {
  if (done()) return std::nullopt;
  bool refuses = false;
  std::string why;
  for (size_t r = 0; r < met_.size(); ++r) {
    if (met_[r]) continue;
    const std::string name = name_of(static_cast<int>(r), greetings_[r]);
    why += why.empty() ? "" : "; ";
    if (r >= calls_.size()) {
      why += fmt::format("no connection came from {}", name);
      continue;
    }
    const Call& call = calls_[r];
    const bool ended = call.refused_since && now - *call.refused_since >= of_seconds(options_.refusal_s);
    refuses = refuses || ended;
    why += fmt::format("{} {} over TCP at {} port {}", ended ? "refused by" : "it cannot reach", name,
                       fmt::join(call.addresses, ", "), greetings_[r].port);
  }
  if (!refuses && now < begin_ + of_seconds(options_.patience_s)) return std::nullopt;
  return fmt::format("{} waited {:.3g} s in the start: {}", name_of(rank_, own()),
                     std::chrono::duration<double>(now - begin_).count(), why);
}

}  // namespace nlsplit::inline exec

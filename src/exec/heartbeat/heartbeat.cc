#include "exec/heartbeat/heartbeat.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "exec/heartbeat/neighbours.h"

namespace nlsplit::inline exec {
namespace {

constexpr double silent_share = 0.7;  // of the limit: then a rank is lost
// So long a rank that hears of no lower one waits for what a lower one may say: of two that are cut off the lower one
// then speaks first. One that does hear of a lower one waits longer, the longer the more lower ones it hears itself.
constexpr double courtesy_share = 0.1, turn_share = 0.01;
constexpr int turns = 10;
constexpr double asleep_share = 0.3;  // this process itself did nothing for so long: it cannot blame others
constexpr int beats_per_limit = 10;
// A rank that was asked to end breaks its connections too, so messages to others must have time to arrive first.
constexpr double settling_s = 0.1, settling_share = 0.1;
constexpr size_t longest_text = 4000;

// A text of several lines as one, and back.
std::string one_line(std::string text) {
  if (text.size() > longest_text) text.resize(longest_text);
  std::replace(text.begin(), text.end(), '\n', '\x1f');
  return text;
}
std::string many_lines(std::string_view line) {
  std::string text(line);
  std::replace(text.begin(), text.end(), '\x1f', '\n');
  return text;
}
std::string farewell(const Error& why) {
  return fmt::format("end {} {}", static_cast<int>(why.kind), one_line(why.message));
}

// "waits in …" → "waited in …".
std::string in_the_past(std::string doing) {
  for (const auto& [now, then] :
       {std::pair("computes", "computed"), std::pair("works", "worked"), std::pair("waits", "waited")}) {
    if (doing.starts_with(now)) return doing.replace(0, std::string_view(now).size(), then);
  }
  return doing;
}

std::string_view take_word(std::string_view& line, char after = ' ') {
  const size_t end = std::min(line.find(after), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

template <class Number>
Number number_of(std::string_view word, Number otherwise) {
  Number value{};
  const auto [rest, failure] = std::from_chars(word.data(), word.data() + word.size(), value);
  return failure == std::errc() && rest == word.data() + word.size() ? value : otherwise;
}

}  // namespace

Heartbeat::Heartbeat(int rank, std::vector<std::string> names, double limit_s, OwnActivity own)
    : rank_(rank),
      names_(std::move(names)),
      interval_(of_seconds(limit_s / beats_per_limit)),
      silence_(of_seconds(limit_s * silent_share)),
      courtesy_(of_seconds(limit_s * courtesy_share)),
      turn_(of_seconds(limit_s * turn_share)),
      settling_(of_seconds(std::min(settling_s, limit_s * settling_share))),
      asleep_(of_seconds(limit_s * asleep_share)),
      own_(std::move(own)),
      hops_(static_cast<size_t>(hops_between(static_cast<int>(names_.size())))),
      peers_(names_.size()),
      lowest_(rank) {}

void Heartbeat::tell_all(const std::string& line) {
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (peers_[r].watched()) lines_.push_back({static_cast<int>(r), line});
  }
}

std::vector<PeerLine> Heartbeat::take_lines() { return std::exchange(lines_, {}); }

// Time in which this process did not run does not count as silence of other ranks.
void Heartbeat::advance(Moment now) {
  const Duration gap = now - std::exchange(last_, now);
  if (gap <= asleep_) return;
  const Duration asleep = gap - interval_;
  for (Peer& peer : peers_) {
    peer.heard += asleep;
    peer.broke_at += asleep;
  }
  loss_at_ += asleep;
}

void Heartbeat::joined(int peer, Moment now) {
  advance(now);
  Peer& it = peers_[static_cast<size_t>(peer)];
  it.joined = true;
  it.heard = now;
  if (ended_ || left_) return;
  if (started_) lines_.push_back({peer, "started"});
  if (!loss_.empty()) lines_.push_back({peer, fmt::format("lost {} {}", lowest_, one_line(loss_))});
  next_beat_ = now;
}

void Heartbeat::started(Moment now) {
  advance(now);
  started_ = true;
  if (!ended_ && !left_) tell_all("started");
}

void Heartbeat::broke(int peer, Moment now) {
  advance(now);
  Peer& it = peers_[static_cast<size_t>(peer)];
  if (std::exchange(it.broke, true)) return;
  it.broke_at = now;
}

void Heartbeat::received(int peer, std::string_view line, Moment now) {
  advance(now);
  peers_[static_cast<size_t>(peer)].heard = now;
  take(peer, line, now);
}

void Heartbeat::take(int peer, std::string_view line, Moment now) {
  Peer& it = peers_[static_cast<size_t>(peer)];
  const std::string_view what = take_word(line);
  if (what == "beat") {
    it.idle_s.clear();
    for (std::string_view idle = take_word(line); !idle.empty();)
      it.idle_s.push_back(std::max(0.0, number_of(take_word(idle, ','), 0.0)));
    it.doing = many_lines(line);
  } else if (what == "started") {
    it.started = true;
  } else if (what == "bye") {
    it.left = true;
  } else if (what == "lost") {
    const int lowest = number_of(take_word(line), peer);
    if (!ended_ && !left_ && lowest >= 0) learn(many_lines(line), lowest, now);
  } else if (what == "end") {
    const int kind = number_of(take_word(line), static_cast<int>(ErrorKind::failed));
    Error why = failed(many_lines(line));
    if (kind >= 0 && kind <= static_cast<int>(ErrorKind::lost)) why.kind = static_cast<ErrorKind>(kind);
    conclude({why, false});
  }
}

void Heartbeat::tick(Moment now) {
  advance(now);
  if (ended_ || left_) return;
  if (now >= next_beat_) beat(now);
  judge(now);
}

void Heartbeat::beat(Moment now) {
  std::vector<double> idle_s = idle_within_hops();
  idle_s.pop_back();  // who hears this is a hop away
  tell_all(fmt::format("beat {:.3f} {}", fmt::join(idle_s, ","), one_line(own_.doing(-1))));
  next_beat_ = now + interval_;
}

bool Heartbeat::is_silent(const Peer& peer, Moment now) const { return now - peer.heard >= silence_; }

bool Heartbeat::is_suspect(int rank, Moment now) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  if (!peer.watched()) return false;
  return peer.broke ? now - peer.broke_at >= settling_ : is_silent(peer, now);
}

int Heartbeat::lowest_heard(Moment now) const {
  for (int r = 0; r < rank_; ++r) {
    const Peer& peer = peers_[static_cast<size_t>(r)];
    if (peer.watched() && !peer.broke && !is_silent(peer, now)) return r;
  }
  return rank_;
}

// How many lower ranks are heard.
int Heartbeat::lower_heard(Moment now) const {
  return static_cast<int>(std::count_if(peers_.begin(), peers_.begin() + rank_, [&](const Peer& peer) {
    return peer.watched() && !peer.broke && !is_silent(peer, now);
  }));
}

void Heartbeat::judge(Moment now) {
  if (loss_.empty()) {
    std::vector<int> suspects;
    for (size_t r = 0; r < peers_.size(); ++r) {
      if (is_suspect(static_cast<int>(r), now)) suspects.push_back(static_cast<int>(r));
    }
    if (!suspects.empty()) learn(accuse(suspects, now), rank_, now);
  }
  decide(now);
}

// A loss, found here or by another rank. The first reason counts. What follows from it is decided at the next tick: a
// process that was stopped may find behind this that another rank has already spoken.
void Heartbeat::learn(const std::string& why, int lowest, Moment now) {
  const int before = lowest_;
  lowest_ = std::min({lowest_, lowest, lowest_heard(now)});
  const bool is_new = loss_.empty();
  if (is_new) {
    loss_ = why.empty() ? "lost a rank" : why;
    loss_at_ = now;
  }
  if (is_new || lowest_ < before) tell_all(fmt::format("lost {} {}", lowest_, one_line(loss_)));
}

void Heartbeat::give_up(const std::string& why, Moment now) {
  advance(now);
  if (!ended_ && !left_ && loss_.empty()) learn(why, rank_, now);
}

// Until then this rank waits for a lower one to say what is lost.
Moment Heartbeat::speaks_at() const {
  if (rank_ == 0) return loss_at_;
  if (lowest_ < rank_) return loss_at_ + courtesy_ + turn_ * (1 + std::min(lower_heard(last_), turns));
  // None is heard. If all have died nothing will be; one that is silent may only be cut off. And one that has just
  // ended may have told others why.
  Moment at = loss_at_ + settling_;
  for (int r = 0; r < rank_; ++r) {
    const Peer& peer = peers_[static_cast<size_t>(r)];
    if (peer.broke) at = std::max(at, peer.broke_at + settling_);
    if (!peer.broke && !peer.left) at = std::max(at, loss_at_ + courtesy_);
  }
  return at;
}

void Heartbeat::decide(Moment now) {
  if (!ended_ && !loss_.empty() && now >= speaks_at()) conclude({lost(loss_), true});
}

std::string Heartbeat::accuse(const std::vector<int>& suspects, Moment now) const {
  std::string names;
  for (const int r : suspects) names += (names.empty() ? "" : ", ") + names_[static_cast<size_t>(r)];
  const Peer& first = peers_[static_cast<size_t>(suspects[0])];
  const std::string how = first.broke ? "its connection broke: it died or was cut off"
                                      : fmt::format("it was silent for {:.1f} s: it hangs, is stopped or cut off",
                                                    std::chrono::duration<double>(now - first.heard).count());
  return fmt::format("lost {} ({})\n  {} {}\n  the last that was heard of rank {}: it {}", names, how,
                     names_[static_cast<size_t>(rank_)], in_the_past(own_.doing(suspects[0])), suspects[0],
                     first.doing.empty() ? "had begun" : first.doing);
}

// The first reason counts.
void Heartbeat::conclude(Ending ending) {
  if (ended_ || left_) return;
  ended_ = true;
  if (ending.error.message.empty()) ending.error.message = "ended by another rank";
  // Also what was heard: between the one who said it and another the link may be cut.
  tell_all(farewell(ending.error));
  ending_ = std::move(ending);
}

bool Heartbeat::end(const Error& why) {
  if (ended_ || left_) return false;
  ended_ = true;
  tell_all(farewell(why));
  return true;
}

void Heartbeat::leave() {
  if (!ended_ && !left_) tell_all("bye");
  left_ = true;
}

Moment Heartbeat::next() const {
  if (ended_ || left_) return Moment::max();
  Moment next = next_beat_;
  if (!loss_.empty()) next = std::min(next, speaks_at());
  for (const Peer& peer : peers_) {
    if (!peer.watched() || !loss_.empty()) continue;
    next = std::min(next, peer.broke ? peer.broke_at + settling_ : peer.heard + silence_);
  }
  return next;
}

// [hops]: the least of all ranks that are no farther. A neighbour that has not said so much may have been busy just
// now.
std::vector<double> Heartbeat::idle_within_hops() const {
  std::vector<double> least(hops_ + 1, own_.idle_s());
  for (const Peer& peer : peers_) {
    if (!peer.watched()) continue;
    for (size_t hops = 1; hops <= hops_; ++hops)
      least[hops] = std::min(least[hops], hops <= peer.idle_s.size() ? peer.idle_s[hops - 1] : 0.0);
  }
  return least;
}

double Heartbeat::idle_s() const { return idle_within_hops().back(); }

std::string Heartbeat::others() const {
  std::string text;
  for (const int r : neighbours(rank_, static_cast<int>(peers_.size()))) {
    const Peer& peer = peers_[static_cast<size_t>(r)];
    text += fmt::format("\n  {} {}", names_[static_cast<size_t>(r)],
                        peer.left            ? "has ended its run"
                        : peer.doing.empty() ? "has not been heard of"
                                             : peer.doing);
  }
  return text;
}

bool Heartbeat::lower_rank_starts() const {
  return std::any_of(peers_.begin(), peers_.begin() + rank_,
                     [](const Peer& peer) { return peer.watched() && !peer.broke && !peer.started; });
}

bool Heartbeat::all_left() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return !peer.joined || peer.left || peer.broke; });
}

}  // namespace nlsplit::inline exec

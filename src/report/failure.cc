#include "report/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "report/table.h"

namespace nlsplit::inline reports {
namespace {

using Kind = Failure::Kind;
using State = FlightRecord::State;
using Records = std::map<int, const FlightRecord*>;

std::string name_of_rank(int rank, const FlightRecord* record) {
  if (record == nullptr) return fmt::format("rank {}", rank);
  if (record->device == "?") return fmt::format("rank {} (host {})", rank, record->host);
  return fmt::format("rank {} ({} on host {})", rank, record->device, record->host);
}

std::string since(double s) { return s < 10 ? fmt::format("{:.2f} s", s) : fmt::format("{:.0f} s", s); }

// What the other end of an open message says of it; empty: it has not begun it.
std::string other_end(const FlightRecord& mine, const FlightFifo& fifo, const FlightRecord& peer) {
  const std::string_view done = fifo.native ? "ended" : fifo.sends ? "received" : "sent";
  if (peer.repeat > mine.repeat || (peer.repeat == mine.repeat && peer.state == State::outside && peer.repeat > 0))
    return fmt::format("rank {} has {} it", peer.rank, done);
  if (peer.repeat < mine.repeat) return "";
  for (const FlightFifo& other : peer.fifos) {
    const bool is_end = fifo.native ? other.native : !other.native && other.sends != fifo.sends;
    if (other.peer != mine.rank || !is_end || other.tag != fifo.tag) continue;
    if (other.completed > fifo.completed) return fmt::format("rank {} has {} it", peer.rank, done);
    if (other.completed == fifo.completed && other.open)
      return fmt::format("rank {} has begun it, too, {} ago", peer.rank, since(other.since_s));
  }
  return "";
}

// The one that holds this rank up: the oldest of those it needs; of a native collective a member that has not begun it.
const FlightFifo* needed_fifo(const FlightRecord& record, const Records& records) {
  const FlightFifo* oldest = nullptr;
  bool is_begun = false;
  for (const FlightFifo& fifo : record.fifos) {
    if (!fifo.open || !fifo.needed) continue;
    const auto peer = records.find(fifo.peer);
    const bool begun = fifo.native && peer != records.end() && !other_end(record, fifo, *peer->second).empty();
    const bool older = oldest == nullptr || fifo.since_s > oldest->since_s;
    if (!older && (fifo.since_s < oldest->since_s || begun || !is_begun)) continue;
    oldest = &fifo;
    is_begun = begun;
  }
  return oldest;
}

void explain_phase(const FlightRecord& record, Failure::Rank& rank) {
  rank.since_s = record.phase_s;
  if (record.phase_works) {
    rank.kind = Kind::works;
    rank.doing = fmt::format("works on {} since {}", record.phase, since(record.phase_s));
  } else if (record.phase_peer >= 0 && record.phase_peer != record.rank) {
    rank.waits_for = record.phase_peer;
    rank.doing =
        fmt::format("waits for rank {} since {} in {}", record.phase_peer, since(record.phase_s), record.phase);
  } else {
    rank.doing = fmt::format("waits since {} in {}", since(record.phase_s), record.phase);
  }
}

void explain_waiting(const FlightRecord& record, const Records& records, Failure::Rank& rank) {
  rank.since_s = record.since_s;
  const std::string what =
      record.state == State::finished ? "before the execution ends" : fmt::format("to run {}", record.instruction);
  const FlightFifo* fifo = needed_fifo(record, records);
  if (fifo == nullptr) {
    rank.doing = fmt::format("waits since {} {}; no message that it needs is under way", since(record.since_s), what);
    return;
  }
  rank.since_s = std::min(record.since_s, fifo->since_s);
  rank.waits_for = fifo->peer;
  rank.doing = fmt::format("waits for rank {} since {} in {}, {} of repeat {}", fifo->peer, since(rank.since_s),
                           fifo->instruction, what, record.repeat);
  const auto peer = records.find(fifo->peer);
  if (peer == records.end()) return;
  const std::string other = other_end(record, *fifo, *peer->second);
  if (other.empty()) return;
  rank.kind = Kind::message;  // it waits for the network, not for what the other rank does
  rank.doing += fmt::format("; {}: the message is under way or lost", other);
}

Failure::Rank explain_rank(const FlightRecord& record, const Records& records) {
  Failure::Rank rank{record.rank, name_of_rank(record.rank, &record), ""};
  switch (record.state) {
    case State::outside:
      explain_phase(record, rank);
      break;
    case State::computes:
      rank.kind = Kind::computes;
      rank.since_s = record.since_s;
      rank.doing =
          fmt::format("computes {} of repeat {} since {}", record.instruction, record.repeat, since(record.since_s));
      break;
    case State::between:
      rank.kind = Kind::works;
      rank.since_s = record.since_s;
      rank.doing =
          fmt::format("is between two computations since {}, after {}", since(record.since_s), record.instruction);
      break;
    case State::waits:
    case State::finished:
      explain_waiting(record, records, rank);
      break;
  }
  rank.moments = record.moments;
  return rank;
}

// From one rank to where its waiting ends.
Failure::Cause follow(const std::vector<Failure::Rank>& ranks, int from) {
  Failure::Cause cause;
  std::vector<bool> seen(ranks.size(), false);
  for (int at = from;;) {
    const Failure::Rank& rank = ranks[static_cast<size_t>(at)];
    if (seen[static_cast<size_t>(at)]) {
      cause.kind = Kind::circle;
      cause.chain.erase(cause.chain.begin(), std::ranges::find(cause.chain, at));
      // Whoever it is entered by, it is one circle.
      std::rotate(cause.chain.begin(), std::ranges::min_element(cause.chain), cause.chain.end());
      return cause;
    }
    seen[static_cast<size_t>(at)] = true;
    cause.chain.push_back(at);
    cause.kind = rank.kind;
    const bool ends = rank.kind != Kind::unknown || rank.waits_for < 0;
    if (ends) return cause;
    at = rank.waits_for;
  }
}

std::string text_of_cause(const Failure::Cause& cause, const std::vector<Failure::Rank>& ranks) {
  const Failure::Rank& last = ranks[static_cast<size_t>(cause.chain.back())];
  std::string chain;
  for (const int rank : cause.chain) chain += fmt::format("{}rank {}", chain.empty() ? "" : " waits for ", rank);
  switch (cause.kind) {
    case Kind::no_record:
      return fmt::format("{} left no record: it was killed, its machine failed, or it could not write ({})", last.name,
                         chain);
    case Kind::circle:
      return fmt::format("a cycle: {} waits for rank {}", chain, cause.chain.front());
    case Kind::message:
      return fmt::format("a message between rank {} and rank {}: both ends have begun it, and it does not arrive",
                         last.rank, last.waits_for);
    case Kind::computes:
    case Kind::works:
    case Kind::unknown:
      break;
  }
  return fmt::format("{} {}{}", last.name, last.doing, cause.chain.size() > 1 ? " (" + chain + ")" : "");
}

std::string_view name_of_kind(Kind kind) {
  switch (kind) {
    case Kind::no_record:
      return "no_record";
    case Kind::computes:
      return "computes";
    case Kind::works:
      return "works";
    case Kind::message:
      return "message";
    case Kind::circle:
      return "circle";
    case Kind::unknown:
      return "unknown";
  }
  CHECK(false, "unknown kind of cause");
}

}  // namespace

Failure explain_failure(const std::vector<FlightRecord>& records) {
  CHECK(!records.empty(), "no records");
  Failure failure;
  failure.run = records[0].run;
  Records by_rank;
  for (const FlightRecord& record : records) {
    by_rank[record.rank] = &record;
    if (!record.why.empty() && std::ranges::find(failure.whys, record.why) == failure.whys.end())
      failure.whys.push_back(record.why);
  }
  for (int r = 0; r < records[0].ranks; ++r) {
    const auto found = by_rank.find(r);
    if (found != by_rank.end()) {
      failure.ranks.push_back(explain_rank(*found->second, by_rank));
      if (!found->second->whole) failure.ranks.back().doing += " (its record is cut off)";
    } else {
      failure.ranks.push_back({r, name_of_rank(r, nullptr), "left no record", -1, 0, Kind::no_record});
    }
  }
  for (int r = 0; r < records[0].ranks; ++r) {
    Failure::Cause cause = follow(failure.ranks, r);
    const auto same = std::ranges::find_if(failure.causes, [&cause](const Failure::Cause& other) {
      return cause.kind == other.kind &&
             (cause.kind == Kind::circle ? cause.chain == other.chain : cause.chain.back() == other.chain.back());
    });
    if (same == failure.causes.end()) {
      cause.waiting = cause.chain.size() > 1 ? 1 : 0;
      failure.causes.push_back(std::move(cause));
    } else {
      if (cause.chain.size() > 1) ++same->waiting;
      if (cause.kind != Kind::circle && cause.chain.size() > same->chain.size()) same->chain = std::move(cause.chain);
    }
  }
  for (Failure::Cause& cause : failure.causes) cause.text = text_of_cause(cause, failure.ranks);
  std::ranges::stable_sort(failure.causes, std::greater<>(), [](const Failure::Cause& cause) {
    return std::pair(cause.waiting, cause.kind == Kind::no_record);
  });
  return failure;
}

std::string failure_text(const Failure& failure, size_t last) {
  std::string text;
  for (const std::string& why : failure.whys) text += fmt::format("ended   {}\n", why);
  text += "\n";
  for (const Failure::Rank& rank : failure.ranks) {
    text += fmt::format("{} {}\n", rank.name, rank.doing);
    const size_t shown = std::min(last, rank.moments.size());
    for (size_t i = rank.moments.size() - shown; i < rank.moments.size(); ++i) {
      const FlightMoment& moment = rank.moments[i];
      text += fmt::format("  {:>10} ago  {:<9}  {}\n", since(moment.ago_s), moment.event, moment.instruction);
    }
  }
  text += "\n";
  for (size_t i = 0; i < failure.causes.size(); ++i) {
    const Failure::Cause& cause = failure.causes[i];
    text += fmt::format("{}   {}", i == 0 ? "cause" : "also ", cause.text);
    if (cause.waiting > 0)
      text +=
          fmt::format("; {} for it", cause.waiting == 1 ? "1 rank waits" : counted(cause.waiting, "rank") + " wait");
    text += "\n";
  }
  return text;
}

std::string failure_json(const Failure& failure) {
  using nlohmann::json;
  json ranks = json::array(), causes = json::array();
  for (const Failure::Rank& rank : failure.ranks) {
    json moments = json::array();
    for (const FlightMoment& moment : rank.moments)
      moments.push_back({{"ago_s", moment.ago_s}, {"event", moment.event}, {"instruction", moment.instruction}});
    ranks.push_back({{"rank", rank.rank},
                     {"name", rank.name},
                     {"doing", rank.doing},
                     {"waits_for", rank.waits_for < 0 ? json() : json(rank.waits_for)},
                     {"since_s", rank.since_s},
                     {"record", rank.kind != Kind::no_record},
                     {"moments", std::move(moments)}});
  }
  for (const Failure::Cause& cause : failure.causes) {
    causes.push_back({{"kind", name_of_kind(cause.kind)},
                      {"rank", cause.chain.back()},
                      {"chain", cause.chain},
                      {"waiting", cause.waiting},
                      {"text", cause.text}});
  }
  const json file = {{"format", "nlsplit-failure"}, {"version", 1},
                     {"run", failure.run},          {"why", failure.whys},
                     {"causes", std::move(causes)}, {"ranks", std::move(ranks)}};
  return file.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace nlsplit::inline reports

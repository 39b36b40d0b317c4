#include "exec/nccl/pairing.h"

#include <fmt/format.h>

#include <algorithm>

namespace nlsplit::inline exec {

Status Pairing::post(int peer, const MessageEnd& end) {
  if (peer > rank_) {
    led_[peer].here[{end.sends, end.tag}].push_back(end);
    return pair(peer, end.sends, end.tag);
  }
  ++told_[peer];
  said_.push_back({peer, {PairingRecord::What::end, end.sends ? 1u : 0u, end.tag, end.id, end.bytes}});
  return ok_status();
}

Status Pairing::hear(int peer, const PairingRecord& record) {
  using enum PairingRecord::What;
  const bool leads = rank_ < peer;
  if (record.what == end && leads) {
    const bool sends = record.sends == 0;  // this rank
    led_[peer].there[{sends, record.tag}].push_back({record.sends != 0, record.tag, record.bytes, record.id});
    return pair(peer, sends, record.tag);
  }
  if ((record.what == ask || record.what == last_ask) && !leads && told_[peer] > 0) {
    --told_[peer];
    asked_[peer].push_back(record.id);
    if (record.what == last_ask) {
      wanting_.push_back({peer, std::exchange(asked_[peer], {})});
      give_port();
    }
    return ok_status();
  }
  if (record.what == go && waits_for_go_ && waits_for_go_->peer == peer) {
    begun_ = std::exchange(waits_for_go_, std::nullopt);
    return ok_status();
  }
  return failed(
      fmt::format("rank {} heard from rank {} what nobody says: {}", rank_, peer, static_cast<uint32_t>(record.what)));
}

// Of a direction and a tag: both ends, if they are there.
Status Pairing::pair(int peer, bool sends, int32_t tag) {
  Led& led = led_[peer];
  auto &here = led.here[{sends, tag}], &there = led.there[{sends, tag}];
  if (here.empty() || there.empty()) return ok_status();
  const MessageEnd own = here.front(), other = there.front();
  here.pop_front();
  there.pop_front();
  if (own.bytes != other.bytes) {
    const auto [from, to] = sends ? std::pair(rank_, peer) : std::pair(peer, rank_);
    return failed(fmt::format("rank {} sends {} B where rank {} expects {} B (tag {})", from,
                              sends ? own.bytes : other.bytes, to, sends ? other.bytes : own.bytes, tag));
  }
  led.paired.push_back({own.id, other.id});
  queue(peer);
  return ok_status();
}

void Pairing::queue(int peer) {
  const auto same = [peer](const PairingBatch& batch) { return batch.peer == peer && batch.ids.empty(); };
  if (std::ranges::none_of(wanting_, same)) wanting_.push_back({peer, {}});
  give_port();
}

void Pairing::give_port() {
  if (port_taken_ || wanting_.empty()) return;
  port_taken_ = true;
  PairingBatch batch = std::move(wanting_.front());
  wanting_.pop_front();
  if (batch.peer < rank_) {
    said_.push_back({batch.peer, {.what = PairingRecord::What::go}});
    begun_ = std::move(batch);
    return;
  }
  const std::vector<Paired> all = std::exchange(led_[batch.peer].paired, {});
  for (const Paired& one : all) {
    batch.ids.push_back(one.own);
    const bool last = &one == &all.back();
    said_.push_back(
        {batch.peer, {.what = last ? PairingRecord::What::last_ask : PairingRecord::What::ask, .id = one.other}});
  }
  waits_for_go_ = std::move(batch);
}

void Pairing::batch_ended() {
  port_taken_ = false;
  give_port();
}

std::string Pairing::waits_for() const {
  std::string text;
  const auto add = [&text](const std::string& what) { text += (text.empty() ? "" : "; ") + what; };
  if (waits_for_go_) add(fmt::format("rank {} has asked rank {} for its turn", rank_, waits_for_go_->peer));
  for (const auto& [peer, count] : told_) {
    if (count > 0) add(fmt::format("rank {} waits for rank {} to ask for {} of its messages", rank_, peer, count));
  }
  for (const auto& [peer, led] : led_) {
    for (const auto& [which, ends] : led.here) {
      if (ends.empty()) continue;
      add(fmt::format("rank {} has {} end{} of messages {} rank {} with tag {} without the other end", rank_,
                      ends.size(), ends.size() == 1 ? "" : "s", which.first ? "to" : "from", peer, which.second));
    }
  }
  return text;
}

}  // namespace nlsplit::inline exec

// What every transport does, whatever carries its messages: one suite for all of them.
//
//   HostMemory memory;
//   EXPECT_EQ(conform(transport, memory), "");      // on all ranks of the transport
//
// No GoogleTest: ranks may be programs of their own (exec/mpi_conformance).
#pragma once

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "exec/collectives.h"
#include "exec/transport.h"

namespace nlsplit::testing {

// Where a rank's messages lie.
class MessageMemory {
 public:
  virtual ~MessageMemory() = default;
  virtual std::span<std::byte> take(size_t bytes) = 0;  // until this is gone
  virtual void put(std::span<std::byte> room, std::string_view bytes) = 0;
  virtual std::string get(std::span<const std::byte> room) = 0;
};

class HostMemory final : public MessageMemory {
 public:
  std::span<std::byte> take(size_t bytes) override { return all_.emplace_back(bytes); }
  void put(std::span<std::byte> room, std::string_view bytes) override {
    if (!bytes.empty()) std::memcpy(room.data(), bytes.data(), bytes.size());
  }
  std::string get(std::span<const std::byte> room) override {
    return {reinterpret_cast<const char*>(room.data()), room.size()};
  }

 private:
  std::deque<std::vector<std::byte>> all_;
};

class Conformance {
 public:
  Conformance(Transport& transport, MessageMemory& memory) : transport_(transport), memory_(memory) {}

  // The first difference; empty: none.
  std::string run() {
    in_a_circle();
    for (uint64_t seed = 1; seed <= 2; ++seed) random_traffic(seed);
    ahead_of_receiver();
    return wrong_;
  }

 private:
  static constexpr int tags = 3;
  struct One {
    Transport::Request request;
    std::span<std::byte> room;
    std::string expected;  // of what is received
    bool receives;
    std::string what;
  };

  static std::string text_of(int from, int to, int tag, int number, uint64_t seed) {
    constexpr std::array<size_t, 8> sizes = {0, 1, 24, 1000, 65'536, 65'537, 262'144, 700'001};
    Random random(seed * 1'000'003 + static_cast<uint64_t>(((from * 10 + to) * 10 + tag) * 1000 + number));
    std::string text(sizes[random.below(sizes.size())], '.');
    for (size_t i = 0; i < text.size(); i += 97) text[i] = static_cast<char>(random.below(256));
    return text;
  }

  void send(int peer, int tag, const std::string& text) {
    const std::span<std::byte> room = memory_.take(text.size());
    memory_.put(room, text);
    all_.push_back({transport_.isend(peer, tag, room), room, "", false, fmt::format("to rank {} tag {}", peer, tag)});
  }
  void receive(int peer, int tag, std::string expected) {
    const std::span<std::byte> room = memory_.take(expected.size());
    memory_.put(room, std::string(expected.size(), '#'));
    all_.push_back({transport_.irecv(peer, tag, room), room, std::move(expected), true,
                    fmt::format("from rank {} tag {}", peer, tag)});
  }
  void complain(const std::string& what) {
    if (wrong_.empty()) wrong_ = fmt::format("rank {}: {}", transport_.rank(), what);
  }

  // In the order in which they began.
  void wait_for_all(const std::string& when) {
    for (const One& one : all_) {
      const Status ended = wait(transport_, -1, one.request, {60, nullptr, when});
      if (!ended.ok()) return complain(ended.error().message);
      if (one.receives && memory_.get(one.room) != one.expected) complain(when + ": other bytes " + one.what);
    }
    all_.clear();
  }

  // Everybody sends to the next one before it receives from the one before, large messages and small ones; then both
  // ways at once.
  void in_a_circle() {
    const int size = transport_.size(), rank = transport_.rank();
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int round = 0; round < 8 && wrong_.empty(); ++round) {
      send(next, round % tags, text_of(rank, next, round % tags, round, 7));
      receive(before, round % tags, text_of(before, rank, round % tags, round, 7));
      if (round % 2 == 1) wait_for_all("in a circle");
    }
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      send(peer, 0, text_of(rank, peer, 0, 99, 7));
      receive(peer, 0, text_of(peer, rank, 0, 99, 7));
    }
    wait_for_all("both ways");
  }

  // Rank 0 sends rank 1 one message after the other, which receives none until rank 0 says that it could not go on.
  // What was sent until then is kept somewhere, so it must not be any amount.
  void ahead_of_receiver() {
    constexpr size_t each = size_t{4} << 20;
    constexpr int messages = 16, most_kept = 10;
    constexpr std::chrono::milliseconds stuck(300);
    const auto text = [](int number) { return std::string(each, static_cast<char>('a' + number)); };
    if (transport_.size() < 2 || transport_.rank() > 1 || !wrong_.empty()) return;
    if (transport_.rank() == 1) {
      receive(0, control_tag, "go");
      wait_for_all("before it receives");
      for (int number = 0; number < messages; ++number) receive(0, 0, text(number));
      return wait_for_all("behind the sender");
    }
    int kept = 0;
    for (bool goes_on = true; goes_on && kept < messages;) {
      send(1, 0, text(kept));
      goes_on = ends_within(all_.back().request, stuck);
      if (!goes_on) break;
      all_.pop_back();
      ++kept;
    }
    if (kept > most_kept) complain(fmt::format("{} messages of 4 MiB have left, and nobody receives", kept));
    send(1, control_tag, "go");
    for (int number = kept + 1; number < messages; ++number) send(1, 0, text(number));
    wait_for_all("ahead of the receiver");
  }

  bool ends_within(Transport::Request request, std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    for (int rounds = 0; std::chrono::steady_clock::now() < until; transport_.pause(rounds++)) {
      switch (transport_.test(request)) {
        case Transport::State::pending:
          break;
        case Transport::State::failed:
          complain(transport_.error().message);
          return true;
        case Transport::State::done:
          return true;
      }
    }
    return false;
  }

  // Between all pairs, several under way: the messages of one tag in their order, those of different tags in any, here
  // another one at each end.
  void random_traffic(uint64_t seed) {
    constexpr int messages = 8, at_once = 16;
    struct Ends {
      int peer;
      bool receives;
      std::array<int, tags> next{};  // message of each tag
    };
    const int rank = transport_.rank();
    Random random(seed * 31 + static_cast<uint64_t>(rank));
    std::vector<Ends> ends;
    for (int peer = 0; peer < transport_.size(); ++peer) {
      if (peer == rank) continue;
      ends.push_back({peer, false, {}});
      ends.push_back({peer, true, {}});
    }
    // Receives are all begun before anybody waits: so no rank waits for a message whose other end does not come.
    size_t left = ends.size() * tags * messages;
    while (left > 0 && wrong_.empty()) {
      Ends& one = ends[random.below(ends.size())];
      const auto tag = static_cast<size_t>(random.below(tags));
      if (one.next[tag] == messages) continue;
      const int number = one.next[tag]++;
      --left;
      if (one.receives)
        receive(one.peer, static_cast<int>(tag), text_of(one.peer, rank, static_cast<int>(tag), number, seed));
      else
        send(one.peer, static_cast<int>(tag), text_of(rank, one.peer, static_cast<int>(tag), number, seed));
      if (left % at_once == 0) transport_.pause(0);
    }
    wait_for_all(fmt::format("random traffic {}", seed));
    const Status together = barrier(transport_, false, {60, nullptr, "the end of the traffic"});
    if (!together.ok()) complain(together.error().message);
  }

  Transport& transport_;
  MessageMemory& memory_;
  std::vector<One> all_;
  std::string wrong_;
};

inline std::string conform(Transport& transport, MessageMemory& memory) { return Conformance(transport, memory).run(); }

}  // namespace nlsplit::testing

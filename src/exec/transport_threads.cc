#include "exec/transport_threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>

#include "base/check.h"
#include "exec/waker.h"

namespace nlsplit::inline exec {
namespace {

using Flag = std::atomic<Transport::State>;

struct Sent {
  int tag;
  std::span<const std::byte> data;
  std::vector<std::byte> aside;  // eager: the copy that `data` then points to
  Flag* done = nullptr;          // rendezvous: the sender's request
};

struct Posted {
  int tag;
  std::span<std::byte> room;
  Flag* done;
};

// One direction between two devices.
struct Channel {
  std::mutex mutex;
  std::deque<Sent> sent;
  std::deque<Posted> posted;
};

// The channels that lead to one device, by their sources: made when they are first used, since most pairs never talk.
struct Inbox {
  std::mutex mutex;
  std::map<int, Channel> channels;
};

template <class Queue>
auto first_with_tag(Queue& queue, int tag) {
  return std::find_if(queue.begin(), queue.end(), [tag](const auto& item) { return item.tag == tag; });
}

}  // namespace

struct ThreadWorld::Shared {
  int size;
  size_t eager_limit;
  std::vector<Inbox> inboxes;
  std::vector<Liveness> livenesses;
  std::vector<Waker> wakers;
  std::atomic<bool> failed{false};
  mutable std::mutex why_mutex;
  std::optional<Error> why;

  std::function<void(const Error&)> on_failure;

  Shared(int size, size_t eager_limit, std::function<void(const Error&)> on_failure)
      : size(size),
        eager_limit(eager_limit),
        inboxes(static_cast<size_t>(size)),
        livenesses(static_cast<size_t>(size)),
        wakers(static_cast<size_t>(size)),
        on_failure(std::move(on_failure)) {}

  // Stays where it is.
  Channel& channel(int source, int destination) {
    Inbox& inbox = inboxes[static_cast<size_t>(destination)];
    const std::lock_guard lock(inbox.mutex);
    return inbox.channels[source];
  }

  // With the channel locked, so that no thread copies after fail() has returned.
  void deliver(std::span<const std::byte> data, std::span<std::byte> room, Flag* sender, Flag* receiver) {
    if (failed) return;
    if (data.size() != room.size()) {
      note(
          nlsplit::failed(fmt::format("a message of {} B arrived where {} B were expected", data.size(), room.size())));
      failed = true;
      return;
    }
    if (!data.empty()) std::memcpy(room.data(), data.data(), data.size());
    receiver->store(Transport::State::done, std::memory_order_release);
    if (sender != nullptr) sender->store(Transport::State::done, std::memory_order_release);
  }

  // Whether it was the first.
  bool note(const Error& error) {
    const std::lock_guard lock(why_mutex);
    if (why) return false;
    why = error;
    return true;
  }

  void fail() {
    failed = true;
    for (Inbox& inbox : inboxes) {
      const std::lock_guard lock(inbox.mutex);
      for (auto& [source, channel] : inbox.channels) const std::lock_guard copying(channel.mutex);  // ends first
    }
    for (Waker& waker : wakers) waker.wake();
  }
};

class ThreadWorld::Endpoint : public Transport {
 public:
  Endpoint(Shared& shared, int rank) : shared_(shared), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return shared_.size; }
  std::vector<int> same_machine() const override {
    std::vector<int> all(static_cast<size_t>(shared_.size));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  Request isend(int peer, int tag, std::span<const std::byte> data) override {
    const Request request = new_request();
    Channel& channel = channel_of(to_, rank_, peer, peer);
    {
      const std::lock_guard lock(channel.mutex);
      const auto receiver = first_with_tag(channel.posted, tag);
      if (receiver != channel.posted.end()) {
        shared_.deliver(data, receiver->room, &flags_[request], receiver->done);
        channel.posted.erase(receiver);
      } else if (data.size() <= shared_.eager_limit) {
        Sent& sent = channel.sent.emplace_back(Sent{tag, {}, {data.begin(), data.end()}, nullptr});
        sent.data = sent.aside;
        flags_[request] = State::done;
      } else {
        channel.sent.push_back({tag, data, {}, &flags_[request]});
      }
    }
    shared_.wakers[static_cast<size_t>(peer)].wake();
    return request;
  }

  Request irecv(int peer, int tag, std::span<std::byte> room) override {
    const Request request = new_request();
    Channel& channel = channel_of(from_, peer, rank_, peer);
    bool freed_sender = false;
    {
      const std::lock_guard lock(channel.mutex);
      const auto sender = first_with_tag(channel.sent, tag);
      if (sender != channel.sent.end()) {
        shared_.deliver(sender->data, room, sender->done, &flags_[request]);
        freed_sender = sender->done != nullptr;
        channel.sent.erase(sender);
      } else {
        channel.posted.push_back({tag, room, &flags_[request]});
      }
    }
    if (freed_sender) shared_.wakers[static_cast<size_t>(peer)].wake();
    return request;
  }

  State test(Request request) override {
    const State state = flags_[request].load(std::memory_order_acquire);
    if (state == State::done) {
      free_.push_back(request);
      return state;
    }
    if (!shared_.failed) return State::pending;
    shared_.fail();  // after this no other thread touches this rank's bytes
    return State::failed;
  }

  Error error() const override {
    const std::lock_guard lock(shared_.why_mutex);
    return shared_.why.value_or(failed("the run has ended"));
  }

  void pause(int /*rounds*/) override {
    if (!shared_.failed) shared_.wakers[static_cast<size_t>(rank_)].sleep(std::chrono::milliseconds(50));
  }

  void wake() override { shared_.wakers[static_cast<size_t>(rank_)].wake(); }

  Liveness& liveness() override { return shared_.livenesses[static_cast<size_t>(rank_)]; }

  double idle_s() const override {
    double least = std::numeric_limits<double>::infinity();
    for (const Liveness& liveness : shared_.livenesses) least = std::min(least, liveness.idle_s());
    return least;
  }

  void abort(const Error& why) override {
    if (shared_.note(why) && shared_.on_failure) shared_.on_failure(why);
    shared_.fail();
  }

 private:
  Request new_request() {
    if (free_.empty()) {
      flags_.emplace_back(State::pending);
      return static_cast<Request>(flags_.size() - 1);
    }
    const Request request = free_.back();
    free_.pop_back();
    flags_[request] = State::pending;
    return request;
  }

  // Asked once for each peer.
  Channel& channel_of(std::map<int, Channel*>& known, int source, int destination, int peer) {
    Channel*& channel = known[peer];
    if (channel == nullptr) channel = &shared_.channel(source, destination);
    return *channel;
  }

  Shared& shared_;
  int rank_;
  std::map<int, Channel*> to_, from_;  // by peer
  std::deque<Flag> flags_;             // a deque: peers keep addresses of its elements
  std::vector<Request> free_;
};

ThreadWorld::ThreadWorld(int size, Bytes eager_limit, std::function<void(const Error&)> on_failure)
    : shared_(std::make_unique<Shared>(size, static_cast<size_t>(eager_limit.value()), std::move(on_failure))) {
  CHECK(size > 0, "a world without devices");
  for (int rank = 0; rank < size; ++rank) endpoints_.push_back(std::make_unique<Endpoint>(*shared_, rank));
}

ThreadWorld::~ThreadWorld() = default;

Transport& ThreadWorld::endpoint(int rank) { return *endpoints_[static_cast<size_t>(rank)]; }

std::optional<Error> ThreadWorld::failure() const {
  const std::lock_guard lock(shared_->why_mutex);
  return shared_->why;
}

std::unique_ptr<World> make_thread_world(int size, Bytes eager_limit, std::function<void(const Error&)> on_failure) {
  return std::make_unique<ThreadWorld>(size, eager_limit, std::move(on_failure));
}

}  // namespace nlsplit::inline exec

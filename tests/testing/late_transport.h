// A rank that is late: it sees some time after the others what has arrived for it, as on a busy machine.
#pragma once

#include <chrono>
#include <thread>
#include <vector>

#include "exec/transport.h"

namespace nlsplit::testing {

class LateTransport : public Transport {
 public:
  // Only exec's own messages come late: those of the Program do not.
  LateTransport(Transport& real, std::chrono::milliseconds late) : real_(real), late_(late) {}

  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  std::vector<int> same_machine() const override { return real_.same_machine(); }
  Request isend(int peer, int tag, std::span<const std::byte> data) override { return real_.isend(peer, tag, data); }
  Request irecv(int peer, int tag, std::span<std::byte> room) override {
    const Request request = real_.irecv(peer, tag, room);
    if (tag == control_tag) control_ = request;
    return request;
  }
  State test(Request request) override {
    const State state = real_.test(request);
    if (state == State::done && request == control_) std::this_thread::sleep_for(late_);
    return state;
  }
  Error error() const override { return real_.error(); }
  void pause(int rounds) override { real_.pause(rounds); }
  void wake() override { real_.wake(); }
  Liveness& liveness() override { return real_.liveness(); }
  double idle_s() const override { return real_.idle_s(); }
  void abort(const Error& why) override { real_.abort(why); }

 private:
  Transport& real_;
  std::chrono::milliseconds late_;
  Request control_ = ~Request{0};
};

}  // namespace nlsplit::testing

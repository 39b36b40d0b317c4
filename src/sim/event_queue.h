// What is to come, by time. At equal times in order of activities, so that every run is the same.
#pragma once

#include <cstdint>
#include <tuple>

#include "base/readiness.h"

namespace nlsplit::inline sim {

enum class Step : uint8_t { block_done, handshake_done, released, flow_done, arrived };

struct TimedStep {
  double time = 0;
  uint32_t activity = 0;
  Step step{};
  friend bool operator>(const TimedStep& a, const TimedStep& b) {
    return std::tie(a.time, a.activity, a.step) > std::tie(b.time, b.activity, b.step);
  }
};

using EventQueue = TimeQueue<TimedStep>;

}  // namespace nlsplit::inline sim

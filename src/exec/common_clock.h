// CommonClock: rank 0's clock on every rank, so that times of different devices can be compared, and a moment at which
// all of them begin.
//
//   ASSIGN_OR_RETURN(CommonClock clock, CommonClock::measure(transport, waiting));       // all ranks
//   ASSIGN_OR_RETURN(const auto zero, clock.agree_on_start(transport, waiting));         // this rank's clock
//
// Ranks of one machine share the clock (the kernel's CLOCK_MONOTONIC, also between network namespaces). For another
// machine the offset is measured as NTP does it (Mills, RFC 5905): of several round trips the shortest; the error is at
// most half of that round trip.
#pragma once

#include <chrono>
#include <vector>

#include "exec/collectives.h"

namespace nlsplit::inline exec {

class CommonClock {
 public:
  using Clock = std::chrono::steady_clock;

  // `foreign_s`: [rank], for tests. Not 0: the rank acts as on another machine, whose clock is ahead by this time.
  static Result<CommonClock> measure(Transport& transport, const std::vector<double>& foreign_s,
                                     const Waiting& waiting);

  // When all ranks begin, by this rank's clock; returns at that moment, or later where the processor or the message is
  // late. All ranks call it.
  Result<Clock::time_point> agree_on_start(Transport& transport, const Waiting& waiting);

  // Measures again where clocks of different machines may have drifted apart. All ranks call it.
  Status refresh(Transport& transport, const Waiting& waiting);

  // On rank 0: the largest error in seconds between the times of two ranks; 0: all have the same clock. All ranks call.
  Result<double> worst_error_s(Transport& transport, const Waiting& waiting) const;

 private:
  Clock::time_point now() const { return Clock::now() + ahead_; }
  Status synchronize(Transport& transport, const Waiting& waiting);
  Status serve(Transport& transport, int peer, const Waiting& waiting);
  Status ask(Transport& transport, const Waiting& waiting);

  Clock::duration ahead_{};       // for tests
  Clock::duration offset_{};      // rank 0's clock minus this one's
  Clock::duration round_trip_{};  // on rank 0 the longest of all ranks
  bool same_clock_ = true;        // as rank 0's
  bool all_same_ = true;          // all ranks have its clock
  double error_s_ = 0;            // of the offset, at most
  Clock::time_point measured_{};
};

}  // namespace nlsplit::inline exec

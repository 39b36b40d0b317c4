// Times of messages between two hosts, from the samples of a test (validate/network_tests.h), and lines fitted to them.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cost/cluster.h"
#include "validate/network_tests.h"

namespace nlsplit::inline validation {

// Seconds one way, of a message of so many bytes.
struct RouteSample {
  int64_t bytes = 0;
  double seconds = 0;
};

struct RouteFit {
  MessageCost eager, rendezvous;
  double largest_error = 0;  // relative, of the lines at the medians of each size
};
// Of a test, from the trace `nlbench run --trace` writes: of each slot half of what ping waits from the end of its
// computing to the beginning of the next, without pong's computing. Each host's times are by its own clock.
Result<std::vector<RouteSample>> samples_of(const PingPongTest& test, const std::string& chrome_trace,
                                            const std::string& file);

// Of `answers`, from its trace: seconds of each of `here`'s messages until its last byte had left.
Result<std::vector<double>> send_times(const std::string& chrome_trace, const std::string& file);

// Of a busy pair with `quiet_too`, from its trace.
struct BusyTimes {
  // By how many seconds each device's computing was longer, slot by slot, while a message passed. First the sender's
  // slots, then the receiver's.
  std::array<std::vector<double>, 2> taken;
  double chore_s = 0;  // the median of a computation, of the device that is faster
};
Result<BusyTimes> busy_times(const std::string& chrome_trace, const std::string& file);

// Through the median of each size, by least squares of the relative errors; a line each up to the limit and above it.
// Latencies then get what samples are longer than their medians on average: the simulator adds up many messages.
// With no size above it the one line is that of both. Error: too few sizes, or times that do not grow with the size.
Result<RouteFit> fit_route(const std::vector<RouteSample>& samples, Bytes eager_limit);

}  // namespace nlsplit::inline validation

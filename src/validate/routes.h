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
// Samples of a test, from the trace of `nlbench run --trace`. The sample of a slot is half of the time that ping waits
// between two of its computations, less pong's computing. Each host's times are by its own clock.
Result<std::vector<RouteSample>> samples_of(const PingPongTest& test, const std::string& chrome_trace,
                                            const std::string& file);

// Of the same trace: seconds from each message's request until the sender was done with the message.
Result<std::vector<RouteSample>> sends_of(const std::string& chrome_trace, const std::string& file);

// When a sender is done with a message above the eager limit (Overheads), from the medians of each size.
struct SenderFit {
  double held = 0, handover = 0;
};
// `held` is from the largest size: the message's time (`samples`) without the latency, less the time of the send after
// its handshake. `handover` is for a byte beyond the limit, once the request, which carries as many bytes as the limit,
// has passed; the least over sizes from twice the limit on, since large messages wait for the link. Every size of
// `sends` has samples.
SenderFit fit_sender(const std::vector<RouteSample>& samples, const std::vector<RouteSample>& sends,
                     const RouteFit& fit, Bytes eager_limit);

// Of a clear_to_send_pair, from its trace: seconds of each message of `here`, until its last byte had left.
Result<std::vector<double>> send_times(const std::string& chrome_trace, const std::string& file);

// Of a late_receiver, from its trace: whether all messages had left when half of the receiver's computing was done. If
// each waits for its receiver the last one leaves after three quarters.
Result<bool> left_early(const std::string& chrome_trace, const std::string& file);

// Of a busy pair with `also_without_messages`, from its trace.
struct BusyTimes {
  // Additional seconds of computing while a message passed, [device][slot]: device 0 is the sender, 1 the receiver.
  std::array<std::vector<double>, 2> taken;
  double computation_s = 0;  // the median of a computation, of the device that is faster
};
Result<BusyTimes> busy_times(const std::string& chrome_trace, const std::string& file);

// Two lines through the medians of the sizes, up to the eager limit and above it, by least squares of the relative
// errors. The difference of mean and median, the median over sizes, is added to the latency, because the simulator adds
// up many messages. Without a size above the limit one line serves for both. Error: too few sizes, or times that do not
// grow with the size.
Result<RouteFit> fit_route(const std::vector<RouteSample>& samples, Bytes eager_limit);

}  // namespace nlsplit::inline validation

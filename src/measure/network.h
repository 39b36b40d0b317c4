// Runs small Programs to measure a network: ping-pong, computing with and without messages. validate/network_tests.h
// makes the Programs.
#pragma once

#include <string>
#include <vector>

#include "measure/launch.h"
#include "validate/routes.h"

namespace nlsplit::inline measure {

// The tests of a scenario, saved in a new folder by nlsim (its path, or empty: beside us). pairs: nlsim's --pairs.
// Error: no two devices exchange messages.
Result<NetworkTests> make_network_tests(const std::string& nlsim, const std::string& scenario,
                                        const std::string& folder, Bytes eager_limit, const std::string& pairs);

struct MeasuredMessages {
  RouteFit fit;
  SenderFit sender;
};
// Runs it, up to three times while the lines miss the median of a size by more than 5 %; samples of all runs count.
Result<MeasuredMessages> play(const LaunchArguments& arguments, const std::string& set, const PingPongTest& test,
                              Bytes eager_limit);

// Seconds a repeat, median over them.
struct Played {
  double makespan_s = 0;
  std::vector<double> compute_s;  // by device
  double messages_s = 0;          // of all messages together
};
Result<Played> run_saved(const LaunchArguments& arguments, const std::string& folder,
                         const std::vector<std::string>& hosts, int repeats);

// The time that a byte takes from the computing of both ends (Overheads): the median of differences between interleaved
// halves with and without messages.
struct BusyFigures {
  double sender = 0, receiver = 0;
  double computation_s = 0;  // of one of the pair's computations, on the faster device
};
Result<BusyFigures> measure_overheads(const LaunchArguments& arguments, const std::string& set, const BusyPair& pair);

// MeasuredRoute::clear_to_send_delay of messages from test.a to test.b: the difference of medians with and without a
// long message in the other direction.
Result<Seconds> measure_clear_to_send_delay(const LaunchArguments& arguments, const std::string& set,
                                            const ClearToSendTest& test);

// MeasuredRoute::starts_early of messages from test.a to test.b: whether the sender is done with them long before their
// receiver is ready.
Result<bool> measure_starts_early(const LaunchArguments& arguments, const std::string& set, const MessageTest& test);

// How many seconds longer than `alone` a message of a test takes while both ends compute: the median of some runs, at
// least zero. They compute for as long as two messages take, as computation_s (the time of a computation) says; at most
// the test's number of computations.
Result<double> measure_longer(const LaunchArguments& arguments, const std::string& set, const MessageTest& test,
                              const MessageCost& alone, double computation_s);

}  // namespace nlsplit::inline measure

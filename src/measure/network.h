// Small Programs that are played to measure a network: messages there and back, computing with and without messages.
// validate/network_tests.h makes them.
#pragma once

#include <string>
#include <vector>

#include "measure/launch.h"
#include "validate/routes.h"

namespace nlsplit::inline measure {

// The tests of a scenario, saved in a new folder by nlsim (its path, or empty: beside us). Error: no two devices
// exchange messages.
Result<NetworkTests> make_network_tests(const std::string& nlsim, const std::string& scenario,
                                        const std::string& folder, Bytes eager_limit);

// Plays it up to three times, if something disturbs it.
Result<RouteFit> play(const LaunchArguments& arguments, const std::string& set, const PingPongTest& test,
                      Bytes eager_limit);

// Seconds a repeat, median over them.
struct Played {
  double makespan_s = 0;
  std::vector<double> compute_s;  // by device
  double messages_s = 0;          // of all messages together
};
Result<Played> run_saved(const LaunchArguments& arguments, const std::string& folder,
                         const std::vector<std::string>& hosts, int repeats);

// What messages take from the computing of both ends: the median of differences, with and without, in turns. `slowed`
// stays 0.
struct BusyFigures {
  Overheads overheads;
  double chore_s = 0;  // of one of the pair's computations, on the faster device
};
Result<BusyFigures> measure_overheads(const LaunchArguments& arguments, const std::string& set, const BusyPair& pair);

// MeasuredRoute::clear_to_send_delay of messages from test.a to test.b: medians, with what comes the other way and
// without.
Result<Seconds> measure_clear_to_send_delay(const LaunchArguments& arguments, const std::string& set,
                                            const ClearToSendTest& test);

// How many seconds longer than `alone` a message of a test takes, whose ends compute: the median of some runs, none
// below zero. They compute for as long as two messages take: so many computations of `chore_s`, or as many as the test
// has.
Result<double> measure_longer(const LaunchArguments& arguments, const std::string& set, const MessageTest& test,
                              const MessageCost& alone, double chore_s);

}  // namespace nlsplit::inline measure

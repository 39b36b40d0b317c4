// Small Programs that are played to measure a network: messages there and back, computing with and without messages.
// validate/games.h makes them.
#pragma once

#include <string>
#include <vector>

#include "measure/launch.h"
#include "validate/ways.h"

namespace nlsplit::inline measure {

// The games of a scenario, saved in a new folder by nlsim (its path, or empty: beside us). Error: no two devices
// exchange messages.
Result<GameSet> make_games(const std::string& nlsim, const std::string& scenario, const std::string& folder,
                           Bytes eager_limit);

// Plays it up to three times, if something disturbs it.
Result<WayFit> play(const LaunchArguments& arguments, const std::string& set, const Game& game, Bytes eager_limit);

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
Result<Overheads> measure_overheads(const LaunchArguments& arguments, const std::string& set, const BusyPair& pair);

// Way::answer_wait of messages from game.a to game.b: medians, with what comes the other way and without.
Result<Seconds> measure_answer_wait(const LaunchArguments& arguments, const std::string& set, const AnswersGame& game);

// Overheads::slowed: how much longer than `alone` large messages take while both ends compute. The median of some runs.
Result<double> measure_slowed(const LaunchArguments& arguments, const std::string& set, const MessageGame& game,
                              const MessageCost& alone);

}  // namespace nlsplit::inline measure

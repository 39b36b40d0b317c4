// The order of points, what tells them apart, and what does not.
#include "sweep/grid.h"

#include <gmock/gmock.h>

#include <set>

#include "sweep/experiments.h"

namespace nlsplit {
namespace {

using namespace testing;  // NOLINT

std::vector<GridPoint> grid(const std::string& text, const std::string& file = "e.yaml") {
  return grid_of(experiment_of(text, file)).value();
}

std::vector<std::string> lines(const std::vector<GridPoint>& points) {
  std::vector<std::string> all;
  for (const GridPoint& point : points) all.push_back(fmt::format("{}", fmt::join(point.cells, " ")));
  return all;
}

TEST(Grid, ChangesTheLastAxisFirst) {
  const std::string text =
      "pipeline: {devices: 2, micro_batches: 4, times: [1s, 1s, 1s]}\n"
      "axes: {message: [0s, 1ms], schedule: [gpipe, 1f1b]}\n";
  EXPECT_EQ(setting_columns(experiment_of(text)),
            (std::vector<std::string>{"schedule", "micro_batches", "message_s", "seed"}));
  EXPECT_EQ(lines(grid(text)),
            (std::vector<std::string>{"gpipe 4 0 ", "1f1b 4 0 ", "gpipe 4 0.001 ", "1f1b 4 0.001 "}));
}

TEST(Grid, HasNoSeedsWhereNothingIsRandom) {
  const std::vector<std::string> points =
      lines(grid("pipeline: {devices: 2, micro_batches: 4, times: [1s, 1s, 1s]}\n"
                 "axes: {schedule: [gpipe], jitter: [0%, 10%], seeds: 3}\n"));
  EXPECT_EQ(points, (std::vector<std::string>{"gpipe 4 0 ", "gpipe 4 0.1 1", "gpipe 4 0.1 2", "gpipe 4 0.1 3"}));
}

TEST(Grid, FingerprintsAreOfPointsAndNotOfGrids) {
  const std::string text =
      "pipeline: {devices: 2, micro_batches: 4, times: [1s, 1s, 1s]}\naxes: {schedule: [gpipe, 1f1b]}\n";
  const auto points = grid(text);
  EXPECT_NE(points[0].fingerprint, points[1].fingerprint);
  // Another grid, the same points; a default written out changes nothing.
  EXPECT_EQ(grid(with(text, "[gpipe, 1f1b]", "[zb_h1, 1f1b]"))[1].fingerprint, points[1].fingerprint);
  EXPECT_EQ(grid(with(text, "[gpipe, 1f1b]", "[gpipe], straggler: {0: [1]}"))[0].fingerprint, points[0].fingerprint);
  std::set<uint64_t> all = {points[0].fingerprint, points[1].fingerprint};
  for (const auto& [from, to] : std::initializer_list<std::pair<const char*, const char*>>{
           {"devices: 2", "devices: 3"},
           {"micro_batches: 4", "micro_batches: 5"},
           {"[1s, 1s, 1s]", "[1s, 1s, 2s]"},
           {"times:", "stages: 4, times:"},
           {"times:", "placement: loop, times:"},
           {"times:", "message: 1ms, times:"},
           {"times:", "kept: 1kB, times:"},
           {"times:", "kept: 1kB, memory: 1MB, times:"},
           {"times:", "jitter: 1%, times:"},
           {"times:", "speed: [1, 2], times:"},
           {"[gpipe, 1f1b]", "[gpipe], straggler: {1: [2]}"},
           {"[gpipe, 1f1b]", "[gpipe], device_speed: {1: [4]}"}}) {
    EXPECT_TRUE(all.insert(grid(with(text, from, to))[0].fingerprint).second) << to;
  }
}

TEST(Grid, FingerprintsOfScenariosKnowTheirFiles) {
  const Scratch scratch;
  scratch.write("s.yaml", training_scenario());
  const std::string text =
      "scenario: s.yaml\naxes: {schedule: [gpipe, file: t.csv], plan: [mine], micro_batches: [2]}\n";
  const auto fingerprints = [&] {
    std::vector<uint64_t> all;
    for (const GridPoint& point : grid(text, scratch / "e.yaml")) all.push_back(point.fingerprint);
    return all;
  };
  scratch.write("t.csv", "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
  const auto before = fingerprints();
  EXPECT_EQ(fingerprints(), before);
  scratch.write("t.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  const auto after = fingerprints();
  EXPECT_EQ(after[0], before[0]);
  EXPECT_NE(after[1], before[1]);
  scratch.write("s.yaml", training_scenario("2Gbps"));
  EXPECT_NE(fingerprints()[0], before[0]);
}

}  // namespace
}  // namespace nlsplit

#include "validate/alike_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// All figures are so many times those of another.
NamedRoute route(const std::string& from, const std::string& to, double factor, double error = 0.01) {
  return {from,
          to,
          {seconds(1e-4 * factor), bytes_per_second(1e8 * factor)},
          {seconds(3e-4 * factor), bytes_per_second(9e7 * factor)},
          {1e-9 * factor, 2e-9 * factor, 0.05 * factor, 3e-4 * factor},
          error,
          bytes_per_second(8e7 * factor),
          seconds(0.02 * factor)};
}

NetworkProfile profile_of(std::vector<NamedRoute> routes) {
  return {"n.json", "a machine", "mpi", bytes(65480), std::move(routes)};
}

void expect_figures(const NamedRoute& found, double factor) {
  const NamedRoute wanted = route(found.from, found.to, factor);
  for (const auto which : {&NamedRoute::eager, &NamedRoute::rendezvous}) {
    EXPECT_DOUBLE_EQ((found.*which).latency.value(), (wanted.*which).latency.value());
    EXPECT_DOUBLE_EQ((found.*which).bandwidth.value(), (wanted.*which).bandwidth.value());
  }
  for (const auto which : {&Overheads::sender, &Overheads::receiver, &Overheads::slowed, &Overheads::busy})
    EXPECT_DOUBLE_EQ(found.overheads.*which, wanted.overheads.*which);
  EXPECT_DOUBLE_EQ(found.crossing.value(), wanted.crossing.value());
  EXPECT_DOUBLE_EQ(found.clear_to_send_delay.value(), wanted.clear_to_send_delay.value());
}

std::vector<std::string> names(const NetworkProfile& profile, size_t first) {
  std::vector<std::string> names;
  for (size_t r = first; r < profile.routes.size(); ++r) names.push_back(profile.routes[r].from + profile.routes[r].to);
  return names;
}

TEST(AlikeRoutes, StartEarlyIfAllThatWereMeasuredDo) {
  for (const bool all : {false, true}) {
    NetworkProfile profile = profile_of({route("a", "b", 1), route("b", "a", 1)});
    profile.routes[0].starts_early = true;
    profile.routes[1].starts_early = all;
    add_medians(std::vector<AlikePairs>{{{{"a", "b"}}, {{"a", "c"}}, true}}, profile);
    EXPECT_EQ(profile.routes.back().starts_early, all);
  }
}

// Both directions are alike: all four routes that were measured count for each that was not.
TEST(AlikeRoutes, GetTheMedianOfEveryFigure) {
  NetworkProfile profile =
      profile_of({route("a", "b", 1), route("b", "a", 1.1), route("c", "d", 1.3), route("d", "c", 1.6)});
  add_medians(std::vector<AlikePairs>{{{{"a", "b"}, {"c", "d"}}, {{"a", "c"}, {"b", "d"}}, true}}, profile);
  EXPECT_THAT(names(profile, 4), ElementsAre("ac", "bd", "ca", "db"));
  for (size_t r = 4; r < 8; ++r) {
    expect_figures(profile.routes[r], 1.2);
    EXPECT_EQ(profile.routes[r].median_of.size(), 4u);
    EXPECT_EQ(std::ranges::count(profile.routes[r].median_of, RouteEnds{"d", "c"}), 1);
    // A message takes up to 1.6 / 1.2 times as long as on the median, and its lines were off by 1 % already.
    EXPECT_NEAR(profile.routes[r].largest_error, 0.01 + 1.6 / 1.2 - 1, 1e-9);
  }
  for (size_t r = 0; r < 4; ++r) EXPECT_THAT(profile.routes[r].median_of, IsEmpty());
}

// One end is slower: each direction for itself. Pair c, d stands the other way round in the profile.
TEST(AlikeRoutes, KeepTheirDirections) {
  NetworkProfile profile =
      profile_of({route("a", "b", 1), route("b", "a", 2), route("c", "d", 2.2), route("d", "c", 1.2)});
  add_medians(std::vector<AlikePairs>{{{{"a", "b"}, {"d", "c"}}, {{"e", "f"}}, false}}, profile);
  ASSERT_THAT(names(profile, 4), ElementsAre("ef", "fe"));
  expect_figures(profile.routes[4], 1.1);
  expect_figures(profile.routes[5], 2.1);
  EXPECT_THAT(profile.routes[4].median_of, ElementsAre(RouteEnds{"a", "b"}, RouteEnds{"d", "c"}));
  EXPECT_THAT(profile.routes[5].median_of, ElementsAre(RouteEnds{"b", "a"}, RouteEnds{"c", "d"}));
}

TEST(AlikeRoutes, WithinHostsHaveOneDirection) {
  NetworkProfile profile = profile_of({route("a", "a", 1), route("b", "b", 3), route("c", "c", 1.5)});
  add_medians(std::vector<AlikePairs>{{{{"a", "a"}, {"b", "b"}, {"c", "c"}}, {{"d", "d"}, {"e", "e"}}, true}}, profile);
  ASSERT_THAT(names(profile, 3), ElementsAre("dd", "ee"));
  expect_figures(profile.routes[3], 1.5);
  EXPECT_EQ(profile.routes[3].median_of.size(), 3u);
}

TEST(AlikeRoutes, TimesDifferMostAtTheEndsOfARange) {
  const NamedRoute x = route("a", "b", 1);
  NamedRoute y = x;
  EXPECT_DOUBLE_EQ(longer_by(x, y, bytes(65480)), 0);
  y.rendezvous.bandwidth = bytes_per_second(9e7 * 1.25);
  EXPECT_DOUBLE_EQ(longer_by(x, y, bytes(65480)), 0.25);
  EXPECT_DOUBLE_EQ(longer_by(y, x, bytes(65480)), 0.25);
  y = x;
  y.eager.latency = seconds(2e-4);
  const double of_256 = 256 / 1e8;
  EXPECT_DOUBLE_EQ(longer_by(x, y, bytes(65480)), (2e-4 + of_256) / (1e-4 + of_256) - 1);
  y = x;
  y.rendezvous.latency = seconds(4e-4);
  const double of_limit = 65480 / 9e7;
  EXPECT_DOUBLE_EQ(longer_by(x, y, bytes(65480)), (4e-4 + of_limit) / (3e-4 + of_limit) - 1);
}

TEST(AlikeRoutes, WarningsNameThoseThatAreNot) {
  const std::vector<AlikePairs> alike = {{{{"a", "b"}, {"c", "d"}, {"e", "f"}}, {{"a", "c"}, {"a", "d"}}, true}};
  const auto profile = [](double factor, double error) {
    return profile_of({route("a", "b", 1, error), route("b", "a", 1, error), route("c", "d", 1.05, error),
                       route("d", "c", 1.05, error), route("e", "f", factor, error), route("f", "e", factor, error)});
  };
  EXPECT_THAT(warnings_of(alike, profile(1.11, 0.01)), IsEmpty()) << "10 %, and 1 % of each line";
  const std::vector<std::string> warnings = warnings_of(alike, profile(1.14, 0.01));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0],
            "the scenario describes 5 pairs of hosts alike, but a - b and e - f differ: a message takes up to 14 % "
            "longer on one of them (12 % would be within the errors). Medians were given to 2 more; --pairs all "
            "measures every pair");
  EXPECT_THAT(warnings_of(alike, profile(1.14, 0.03)), IsEmpty()) << "lines that are off by more say less";
}

}  // namespace
}  // namespace nlsplit

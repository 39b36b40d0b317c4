#include "sim/link_course.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nlsplit {
namespace {

TEST(LinkCourse, DegradesAndRecovers) {
  LinkCourse course(LinkId(3));
  EXPECT_EQ(course.link(), LinkId(3));
  EXPECT_EQ(course.share(), 1);
  EXPECT_EQ(course.until(), for_ever);
  course.add(Degradation{LinkId(3), bytes_per_second(20), 1, 5}, bytes_per_second(100));
  course.add(Degradation{LinkId(3), bytes_per_second(10), 2, 3}, bytes_per_second(100));  // the worst of two counts
  course.add(Background{LinkId(3), 0.25}, 1);
  const std::vector<std::pair<double, double>> expected = {
      {0.75, 1}, {0.15, 2}, {0.075, 3}, {0.15, 5}, {0.75, for_ever}};
  for (const auto& [share, until] : expected) {
    EXPECT_DOUBLE_EQ(course.share(), share);
    EXPECT_DOUBLE_EQ(course.until(), until);
    if (until < for_ever) course.advance();
  }
}

// Mean lengths of 20 000 bursts and pauses: the deviation of a mean is mean / sqrt(20000), and four of them
// are allowed.
// And a quarter of all courses begin in a burst.
TEST(LinkCourse, BurstsHaveTheirMeans) {
  LinkCourse course(LinkId(0));
  course.add(Background{LinkId(0), 0.4, 2, 6}, 7);
  double on = 0, off = 0, now = 0;
  size_t bursts = 0;
  for (int i = 0; i < 40'000; ++i) {
    const bool is_on = course.share() < 1;
    if (is_on) {
      EXPECT_DOUBLE_EQ(course.share(), 0.6);
      ++bursts;
    }
    (is_on ? on : off) += course.until() - now;
    now = course.until();
    course.advance();
    EXPECT_EQ(course.share() < 1, !is_on);
  }
  ASSERT_EQ(bursts, 20'000u);
  EXPECT_NEAR(on / 20'000, 2, 4 * 2 / std::sqrt(20'000));
  EXPECT_NEAR(off / 20'000, 6, 4 * 6 / std::sqrt(20'000));
  int begin_on = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    LinkCourse other(LinkId(0));
    other.add(Background{LinkId(0), 0.4, 2, 6}, Random(seed).next());
    begin_on += other.share() < 1 ? 1 : 0;
  }
  EXPECT_NEAR(begin_on / 2000.0, 0.25, 4 * std::sqrt(0.25 * 0.75 / 2000));
}

}  // namespace
}  // namespace nlsplit

#include "exec/heartbeat/neighbours.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

namespace nlsplit {
namespace {

using ::testing::ElementsAre;

TEST(Neighbours, FewRanksWatchAllOthers) {
  EXPECT_THAT(neighbours(0, 1), ElementsAre());
  EXPECT_THAT(neighbours(1, 3), ElementsAre(0, 2));
  EXPECT_EQ(neighbours(16, 17).size(), 16u);
  EXPECT_EQ(hops_between(17), 1);
}

TEST(Neighbours, OfManyARankWatchesThoseAtPowersOfTwo) {
  EXPECT_THAT(neighbours(0, 18), ElementsAre(1, 2, 4, 8, 10, 14, 16, 17));
  EXPECT_THAT(neighbours(40, 64), ElementsAre(8, 24, 32, 36, 38, 39, 41, 42, 44, 48, 56));
}

TEST(Neighbours, AreFewMutualAndReachAll) {
  for (const int ranks : {18, 19, 31, 32, 33, 64, 100, 512, 1000}) {
    SCOPED_TRACE(ranks);
    const auto bits = static_cast<size_t>(std::bit_width(static_cast<unsigned>(ranks)));
    std::set<int> reached = {0};
    for (int hop = 0; hop < hops_between(ranks); ++hop) {
      for (const int rank : std::set<int>(reached)) {
        for (const int other : neighbours(rank, ranks)) reached.insert(other);
      }
    }
    EXPECT_EQ(reached.size(), static_cast<size_t>(ranks));
    EXPECT_LE(static_cast<size_t>(hops_between(ranks)), bits / 2 + 1);
    for (const int rank : {0, 1, ranks / 3, ranks - 1}) {
      const std::vector<int> own = neighbours(rank, ranks);
      EXPECT_LE(own.size(), 2 * bits);
      EXPECT_TRUE(std::ranges::is_sorted(own));
      for (const int other : own) {
        EXPECT_NE(other, rank);
        EXPECT_TRUE(std::ranges::binary_search(neighbours(other, ranks), rank));
      }
    }
  }
}

}  // namespace
}  // namespace nlsplit

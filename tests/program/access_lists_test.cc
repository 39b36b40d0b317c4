// Earlier accesses to a buffer are found by their bytes as by looking at all of them.
#include "program/access_lists.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"

namespace nlsplit {
namespace {

Access access_to(uint32_t instance, int64_t begin, int64_t end, bool writes) {
  Access access{};
  access.instance = instance;
  access.begin = begin;
  access.end = end;
  access.instance_end = 1000;
  access.writes = writes;
  return access;
}

// Parts of a buffer like those of gradients: a few whole ones, again and again, and parts of messages.
Access random_access(Random& random, uint32_t instance) {
  const bool whole = random.below(4) > 0;
  const auto begin = static_cast<int64_t>(whole ? 10 * random.below(100) : random.below(1000));
  const auto size = static_cast<int64_t>(whole ? 10 : random.below(60));
  return access_to(instance, begin, std::min<int64_t>(begin + size, 1000), random.below(2) == 0);
}

TEST(AccessLists, FindWhatSharesBytes) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    AccessList list;
    std::vector<Access> all;  // the slow and obvious way
    size_t met = 0;
    for (uint32_t i = 0; i < 2000; ++i) {
      const Access now = random_access(random, i);
      const auto overlaps = [&](const Access& earlier) { return earlier.begin < now.end && now.begin < earlier.end; };
      const auto covered = [&](const Access& earlier) {
        return now.writes && now.begin <= earlier.begin && earlier.end <= now.end;
      };
      std::vector<uint32_t> wanted, found;
      for (const Access& earlier : all) {
        if (overlaps(earlier)) wanted.push_back(earlier.instance);
      }
      std::erase_if(all, covered);
      all.push_back(now);
      list.add(now, [&](const Access& earlier) {
        if (overlaps(earlier)) found.push_back(earlier.instance);
        return covered(earlier);
      });
      ASSERT_EQ(found, wanted) << "seed " << seed << ", access " << i;
      met += found.size();
    }
    EXPECT_GT(met, 2000u);
  }
}

}  // namespace
}  // namespace nlsplit

// Speculation: what is taken on several cores, and which items, is what one core takes.
#include "ranking/speculation.h"

#include <gtest/gtest.h>

#include <atomic>

namespace nlsplit {
namespace {

// Items are wanted while they are below what those before them say: 3 times the least so far.
std::vector<int> taken(const std::vector<int>& items, size_t workers, std::atomic<size_t>* made = nullptr) {
  int least = 1'000'000;
  const auto wanted = [&](size_t i) { return items[i] < 3 * least; };
  Speculation<int> speculation(items.size(), workers, 16, wanted, [&](size_t i) {
    if (made != nullptr) ++*made;
    return items[i];
  });
  std::vector<int> all;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!wanted(i)) continue;
    const int item = speculation.take(i);
    all.push_back(item);
    speculation.change([&] { least = std::min(least, item); });
  }
  return all;
}

std::vector<int> many_items() {
  std::vector<int> items;
  for (int i = 0; i < 5000; ++i) items.push_back(100'000 / (1 + i * 37 % 101) - i * 19 % 97);
  return items;
}

TEST(Speculation, TakesWhatOneCoreTakes) {
  const std::vector<int> one = taken(many_items(), 1);
  ASSERT_GT(one.size(), 10u);
  ASSERT_LT(one.size(), many_items().size());
  for (const size_t workers : {2u, 3u, 8u}) EXPECT_EQ(taken(many_items(), workers), one) << workers;
}

TEST(Speculation, OneCoreMakesNothingInVain) {
  std::atomic<size_t> made = 0;
  EXPECT_EQ(taken(many_items(), 1, &made).size(), made);
}

TEST(Speculation, IsOverBeforeTheLastItem) {
  std::atomic<size_t> made = 0;
  {
    Speculation<int> speculation(
        1000, 4, 16, [](size_t) { return true; },
        [&](size_t i) {
          ++made;
          return static_cast<int>(i);
        });
    EXPECT_EQ(speculation.take(0), 0);
    EXPECT_EQ(speculation.take(7), 7);  // the others before it are not asked for
  }
  EXPECT_LT(made, 1000u);
}

}  // namespace
}  // namespace nlsplit

// Times on paper: every expected figure is derived beside it.
#include "emulate/fluid.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

namespace nlsplit {
namespace {

constexpr double gbit = 125e6;  // byte/s

std::map<uint32_t, double> all_of(Fluid& fluid) {
  std::vector<FluidDelivery> delivered;
  fluid.advance(1e9, delivered);
  std::map<uint32_t, double> due;
  for (const FluidDelivery& one : delivered) due[one.packet] = one.due;
  return due;
}

TEST(Fluid, APacketTakesItsBytesAndTheLatency) {
  Fluid fluid({gbit});
  const FluidRoute route{{0}, 50e-6};
  fluid.offer(2.0, 1, route, 125'000, 7);
  EXPECT_DOUBLE_EQ(fluid.next_due(0), 2.001050);
  EXPECT_TRUE(std::isinf(fluid.next_due(1)));
  EXPECT_NEAR(all_of(fluid).at(7), 2.001050, 1e-9);
}

TEST(Fluid, PacketsOfAFlowQueue) {
  Fluid fluid({gbit});
  const FluidRoute route{{0}, 0};
  for (uint32_t p = 0; p < 3; ++p) fluid.offer(0, 1, route, 125'000, p);
  const auto due = all_of(fluid);
  for (uint32_t p = 0; p < 3; ++p) EXPECT_NEAR(due.at(p), 1e-3 * (p + 1), 1e-9);
}

// Both at half the rate until the small one has gone at 2 ms; of the other then 250'000 of 375'000 bytes are left: 2
// ms.
TEST(Fluid, FlowsShareALinkEvenly) {
  Fluid fluid({gbit});
  const FluidRoute route{{0}, 0};
  fluid.offer(0, 1, route, 125'000, 1);
  fluid.offer(0, 2, route, 375'000, 2);
  const auto due = all_of(fluid);
  EXPECT_NEAR(due.at(1), 2e-3, 1e-9);
  EXPECT_NEAR(due.at(2), 4e-3, 1e-9);
}

// A second flow comes when half of the first has gone: 0.5 ms + 62'500 B at half rate = 1.5 ms.
TEST(Fluid, ALateFlowGetsItsShareAtOnce) {
  Fluid fluid({gbit});
  const FluidRoute route{{0}, 0};
  fluid.offer(0, 1, route, 125'000, 1);
  fluid.offer(0.5e-3, 2, route, 125'000, 2);
  const auto due = all_of(fluid);
  EXPECT_NEAR(due.at(1), 1.5e-3, 1e-9);
  EXPECT_NEAR(due.at(2), 2e-3, 1e-9);
}

// Links of 10 and 4 byte/s. Flow 1 crosses both, flow 2 the second, flow 3 the first: 1 and 2 get 2 byte/s each, 3 the
// 8 that are left of the first. One evenly split link after the other would give 3 only 5.
TEST(Fluid, SharesAreMaxMinFair) {
  Fluid fluid({10, 4});
  const FluidRoute both{{0, 1}, 0}, second{{1}, 0}, first{{0}, 0};
  fluid.offer(0, 1, both, 20, 1);
  fluid.offer(0, 2, second, 20, 2);
  fluid.offer(0, 3, first, 80, 3);
  for (const auto& [packet, due] : all_of(fluid)) EXPECT_NEAR(due, 10, 1e-9) << packet;
}

TEST(Fluid, SeveralLinksTakeTheSlowestOnesTime) {
  Fluid fluid({2 * gbit, gbit, 4 * gbit});
  const FluidRoute route{{0, 1, 2}, 3e-4};
  fluid.offer(0, 1, route, 125'000, 1);
  EXPECT_NEAR(all_of(fluid).at(1), 1.3e-3, 1e-9);
}

// Random traffic over one link: each flow stays in order, the link never idles while there is something to send, and
// never sends more than it can.
TEST(Fluid, ALinkIsBusyAndNeverOverdrawn) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    Fluid fluid({1000});
    const FluidRoute route{{0}, 0};
    std::vector<FluidDelivery> delivered;
    std::map<uint32_t, uint64_t> flow_of;
    double now = 0, busy_until = 0;
    for (uint32_t p = 0; p < 200; ++p) {
      now += static_cast<double>(random() % 100) / 100;
      const double size = 1 + random() % 1000;
      const uint64_t flow = random() % 5;
      fluid.advance(now, delivered);
      fluid.offer(now, flow, route, size, p);
      flow_of[p] = flow;
      busy_until = std::max(busy_until, now) + size / 1000;
    }
    fluid.advance(1e9, delivered);
    ASSERT_EQ(delivered.size(), 200u);
    EXPECT_NEAR(delivered.back().due, busy_until, 1e-6);
    std::map<uint64_t, uint32_t> last;
    double before = 0;
    for (const FluidDelivery& one : delivered) {
      EXPECT_GE(one.due, before - 1e-9);
      before = one.due;
      const auto [seen, is_first] = last.emplace(flow_of[one.packet], one.packet);
      EXPECT_TRUE(is_first || seen->second < one.packet);
      seen->second = one.packet;
    }
  }
}

}  // namespace
}  // namespace nlsplit

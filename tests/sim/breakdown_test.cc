#include "sim/breakdown.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "sim/disturb.h"
#include "sim/hand_cases.h"

namespace nlsplit::testing {
namespace {

struct Parts {  // milliseconds
  double computing, exposed, waiting;
};

void expect_parts(const Case& one, const std::vector<Parts>& expected) {
  for (const Timing& timing : {fast(one), simgrid(one)}) {
    const Breakdown breakdown = break_down(one.graph, timing, one.cluster);
    ASSERT_EQ(breakdown.devices.size(), expected.size());
    for (size_t d = 0; d < expected.size(); ++d) {
      SCOPED_TRACE(one.program.devices[d].name);
      EXPECT_NEAR(breakdown.devices[d].computing, expected[d].computing * ms, 1e-11);
      EXPECT_NEAR(breakdown.devices[d].exposed_communication, expected[d].exposed * ms, 1e-11);
      EXPECT_NEAR(breakdown.devices[d].waiting, expected[d].waiting * ms, 1e-11);
    }
  }
}

// The times of each event stand beside these cases in hand_cases.h.
TEST(Breakdown, ByHand) {
  const std::vector<HandCase> cases = hand_cases();
  // A computes 0-1, its message is under way 1-4, B computes 4-5. B waits for A first; A for the end last.
  expect_parts(hand_case(cases, "one message"), {{1, 3, 1}, {1, 3, 1}});
  // B computes but for 3-4, when the first message is under way. A has computed at 2; its second message can go when B
  // has room for it, at 5, and is there at 8.
  expect_parts(hand_case(cases, "rendezvous"), {{2, 3, 4}, {8, 1, 0}});
  // With one instance nobody's computing hides a message: 5 times 3 ms, and A's first copy before.
  expect_parts(hand_case(cases, "back-pressure of 1 instances"), {{5, 3, 23}, {15, 15, 1}});
  // What A sends is there at 3, but B has no room for it before 4: no message holds anybody up.
  expect_parts(hand_case(cases, "eager, before its recv is posted"), {{2, 0, 6}, {8, 0, 0}});
  // C's message waits for the card 1-2, moves 2-3 and arrives at 5: all of that is communication.
  expect_parts(hand_case(cases, "send queue"), {{1, 4, 0}, {0, 3, 2}, {0, 4, 1}});
}

// B needs two messages; the second waits behind the first. A computes 0-0.5 and 0.5-1, they move 0.5-1.5 and 1.5-2.5, B
// computes 2.5-4.5.
TEST(Breakdown, AMessageBehindAnother) {
  expect_parts(make_case(R"(
program behind batch 1 micro_batches 1
device A cpu host a memory 1000000
  buffer x f32[500] input
  buffer a f32[1000] comm
  buffer b f32[1000] comm
  segment F stage 0 phase F
    a[0:500] = copy(x)
    b[0:500] = copy(x)
    send a to B tag 0
    send b to B tag 1
  order
    F.0
device B cpu host b memory 1000000
  buffer a f32[1000] comm
  buffer b f32[1000] comm
  buffer y f32[1000] output
  segment F stage 1 phase F
    recv a from A tag 0
    recv b from A tag 1
    y = copy(b)
    y = copy(a)
  order
    F.0
)",
                         chain(2, 0)),
               {{1, 1.5, 2}, {2, 2, 0.5}});
}

TEST(Breakdown, LinksByHand) {
  // 4000 B in 1 of 5 ms.
  const std::vector<HandCase> cases = hand_cases();
  const Case& one = hand_case(cases, "one message");
  Breakdown breakdown = break_down(one.graph, fast(one), one.cluster);
  ASSERT_EQ(breakdown.links.size(), 1u);
  EXPECT_EQ(name_of(one.cluster, breakdown.links[0].hop), "a>b");
  EXPECT_EQ(breakdown.links[0].bytes, 4000);
  EXPECT_NEAR(breakdown.links[0].utilisation, 0.2, 1e-12);
  EXPECT_NEAR(breakdown.links[0].busy, 0.2, 1e-12);
  // Two hops: 4000 B take 1 ms of 6 at 4 MB/s, and keep the link of 8 MB/s busy as long without filling it.
  const Case& two = hand_case(cases, "two hops");
  breakdown = break_down(two.graph, simgrid(two), two.cluster);
  ASSERT_EQ(breakdown.links.size(), 2u);
  EXPECT_NEAR(breakdown.links[0].utilisation, 0.5 / 6, 1e-9);
  EXPECT_NEAR(breakdown.links[0].busy, 1.0 / 6, 1e-9);
  EXPECT_NEAR(breakdown.links[1].utilisation, 1.0 / 6, 1e-9);
  // A half-duplex link is one: two messages of 1 ms share it for 2 of 4 ms, and fill it.
  const Case both = make_case(exchange(), chain(2, 2 * ms, link_rate, false));
  breakdown = break_down(both.graph, simgrid(both), both.cluster);
  ASSERT_EQ(breakdown.links.size(), 1u);
  EXPECT_EQ(name_of(both.cluster, breakdown.links[0].hop), "a-b");
  EXPECT_EQ(breakdown.links[0].bytes, 8000);
  EXPECT_NEAR(breakdown.links[0].utilisation, 0.5, 1e-9);
  EXPECT_NEAR(breakdown.links[0].busy, 0.5, 1e-9);
}

// shares_links: false for the fast tier, in which a link may carry more than it can.
void expect_whole(const Case& one, const TimedGraph& graph, const Timing& timing, bool shares_links,
                  const std::string& what) {
  SCOPED_TRACE(what);
  const Breakdown breakdown = break_down(graph, timing, one.cluster);
  const double tolerance = 1e-9 * timing.makespan;
  for (size_t d = 0; d < breakdown.devices.size(); ++d) {
    const DeviceBreakdown& parts = breakdown.devices[d];
    EXPECT_NEAR(parts.computing + parts.exposed_communication + parts.waiting, timing.makespan, tolerance) << d;
    for (const double part : {parts.computing, parts.exposed_communication, parts.waiting}) EXPECT_GE(part, 0) << d;
    double computing = 0;
    for (size_t a = 0; a < graph.activities.size(); ++a) {
      const Activity& activity = graph.activities[a];
      if (!activity.is_transfer && activity.device == static_cast<int>(d))
        computing += timing.finish[a] - timing.start[a];
    }
    EXPECT_NEAR(parts.computing, computing, tolerance) << d;
  }
  for (const LinkUse& link : breakdown.links) {
    EXPECT_GT(link.bytes, 0);
    // SimGrid gets parts of bytes.
    if (shares_links) {
      EXPECT_LE(link.utilisation, link.busy + 1e-6);
    }
    EXPECT_LE(link.busy, 1 + 1e-9);
  }
}

// Generated pipelines over a chain, and over one wire for all, with and without noise: the parts add up.
TEST(Breakdown, PartsAddUpWhateverHappens) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    const auto between = [&](int low, int high) {
      return low + static_cast<int>(random.below(static_cast<uint64_t>(high - low + 1)));
    };
    Pipeline pipeline;
    const int stages = between(2, 6);
    for (int s = 0; s < stages; ++s) pipeline.sizes.push_back(between(1, 3000));
    pipeline.micro_batches = between(1, 12);
    pipeline.instances = between(1, 3);
    pipeline.eager_limit = between(0, 2) == 0 ? 0 : between(0, 12000);
    pipeline.nic_window = between(0, 2);
    const double latency = 1e-6 * between(0, 2000);
    Cluster cluster = between(0, 1) == 0 ? chain(stages, latency) : star(stages, latency, link_rate, false);
    if (between(0, 1) == 1) cluster.handshake = seconds(1e-6 * between(1, 500));
    const Case one = make_case(text_of(pipeline), cluster);
    const std::string name = fmt::format("seed {}", seed);
    expect_whole(one, one.graph, fast(one), false, name + ", fast");
    expect_whole(one, one.graph, simgrid(one), true, name + ", SimGrid");
    Noise noise;
    noise.compute_jitter = 0.3;
    noise.link_jitter = 0.3;
    noise.stragglers.push_back({.device = DeviceId(0), .slowdown = 2, .from = 1e-3, .until = 9e-3});
    noise.background.push_back({LinkId(0), 0.5, 1e-3, 1e-3});
    TimedGraph graph = one.graph;
    disturb(graph, noise, cluster, noise_keys(one.program, one.dependencies, one.graph, cluster), 1);
    const auto noisy = simulate_all(simgrid_tier(), cluster, {&graph});
    ASSERT_TRUE(noisy.ok()) << noisy.error().to_string();
    expect_whole(one, graph, noisy->front(), true, name + ", noise");
  }
}

// Without messages, and without anything.
TEST(Breakdown, NothingToTell) {
  const Case alone = make_case(text_of({{1000}, 3}), chain(1, 0));
  expect_parts(alone, {{3, 0, 0}});
  EXPECT_TRUE(break_down(alone.graph, fast(alone), alone.cluster).links.empty());
}

}  // namespace
}  // namespace nlsplit::testing

// The SimGrid tier against arithmetic, and against the fast tier where nothing is contended.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "sim/hand_cases.h"
#include "sim/simgrid/simgrid_tier.h"

namespace nlsplit::testing {
namespace {

using ::testing::HasSubstr;

TEST(SimGrid, HandTimedCases) {
  for (const HandCase& hand : hand_cases()) {
    SCOPED_TRACE(hand.name);
    check(hand, simgrid(hand.one));
  }
}

// S bytes over a link take latency + S/bandwidth, whatever their magnitudes: no factor, no TCP window, no merging of
// close events.
TEST(SimGrid, LatencyPlusBytesOverBandwidth) {
  for (const double rate : {1e3, 125e6, 450e9}) {
    for (const double latency : {0.0, 1e-6, 50e-3}) {
      for (const int floats : {1, 250, 1 << 20}) {
        Case one = make_case(text_of({{floats, floats}, 1}), chain(2, latency, rate));
        const size_t transfer = activity_of(one, "A", 0, 1);
        const Timing timing = simgrid(one);
        const double wanted = latency + 4.0 * floats / rate;
        // Times are near the copies' floats * 1 us, so a difference of two of them has their last digits.
        EXPECT_NEAR(timing.finish[transfer] - timing.start[transfer], wanted, 1e-9 * wanted + 1e-12 * timing.makespan)
            << rate << " B/s, " << latency << " s, " << 4 * floats << " B";
        const double makespan = 2 * floats * us + wanted;
        EXPECT_NEAR(timing.makespan, makespan, 1e-9 * makespan);
      }
    }
  }
}

// The message alone, from time 0: no digits are lost to anything else.
TEST(SimGrid, LatencyPlusBytesOverBandwidthFromZero) {
  for (const double rate : {1e3, 125e6, 450e9}) {
    for (const double latency : {0.0, 1e-6, 50e-3}) {
      const double wanted = latency + 4000 / rate;
      expect_near_relative(simgrid(make_case(exchange(), chain(2, latency, rate))).makespan, wanted, 1e-9,
                           fmt::format("{} B/s, {} s", rate, latency));
    }
  }
}

// Two streams of a thousand messages of 40 B side by side, over links of 450 GB/s whose bandwidths differ by 1e-7: the
// k-th messages end k * 9e-18 s apart. Were such close events merged (SimGrid does that to all within its precision),
// the slower stream would keep the pace of the other.
TEST(SimGrid, CloseEventsStayApart) {
  constexpr int messages = 1000, floats = 10;
  std::string text = fmt::format("program close batch {0} micro_batches {0}\n", messages);
  for (const auto& [name, shard, peer, sends] : {std::tuple{'A', 0, 'B', true}, std::tuple{'B', 2, 'A', false},
                                                 std::tuple{'C', 1, 'D', true}, std::tuple{'D', 3, 'C', false}}) {
    text += fmt::format("device {} cpu host {} memory 1000000\n", name, static_cast<char>(name + ('a' - 'A')));
    text += fmt::format("  buffer {} f32[{}] {} instances {}\n", name, floats, sends ? "input" : "output", messages);
    text += fmt::format("  segment F stage 0 shard {} phase F\n", shard);
    text += fmt::format("    {} {} {} {} tag 0\n  order\n", sends ? "send" : "recv", name, sends ? "to" : "from", peer);
    for (int m = 0; m < messages; ++m) text += fmt::format("    F.{0} {1}:{0}\n", m, name);
  }
  Cluster cluster = chain(4, 0, 450e9);
  const double slower = 450e9 * (1 - 1e-7);
  cluster.links[2].bandwidth = bytes_per_second(slower);
  const Case one = make_case(text, cluster);
  const Timing timing = simgrid(one);
  const double size = 4.0 * floats;
  expect_near_relative(timing.finish[activity_of(one, "A", messages - 1, 0)], messages * size / 450e9, 1e-9, "A to B");
  expect_near_relative(timing.finish[activity_of(one, "C", messages - 1, 0)], messages * size / slower, 1e-9, "C to D");
}

TEST(SimGrid, TwoFlowsShareALink) {
  // Each has half: 4000 B at 2 MB/s are out after 2 ms. Then 12000 - 4000 B remain for B alone, at 4 MB/s: 2 ms more.
  const Case one = make_case(two_senders(1000, 3000), star(3, 1 * ms));
  const Timing timing = simgrid(one);
  const size_t a = activity_of(one, "A", 0, 0), b = activity_of(one, "B", 0, 0);
  expect_near_relative(timing.sent[a], 2 * ms, 1e-9, "A sent");
  expect_near_relative(timing.finish[a], 4 * ms, 1e-9, "A delivered, two hops later");
  expect_near_relative(timing.sent[b], 4 * ms, 1e-9, "B sent");
  expect_near_relative(timing.makespan, 6 * ms, 1e-9, "makespan");
  expect_near_relative(fast(one).makespan, 5 * ms, 1e-9, "the fast tier sees no sharing: 3 + 2");
}

// A has the link to C for itself up to 1 ms, half of it while B sends, all of it again; the last message meets nobody.
TEST(SimGrid, AMessageIsJoinedOnItsWay) {
  const Case one = make_case(R"(
program joined batch 1 micro_batches 1
device A cpu host a memory 1000000
  buffer x f32[3000] input
  segment F stage 0 shard 0 phase F
    send x to C tag 0
  order
    F.0
device B cpu host b memory 1000000
  buffer x f32[1000] input
  buffer first f32[1000] comm
  buffer big f32[4000] scratch
  buffer late f32[4000] comm
  segment F stage 0 shard 1 phase F
    first = copy(x)
    send first to C tag 0
    late = copy(big)
    send late to C tag 1
  order
    F.0
device C cpu host c memory 1000000
  buffer ya f32[3000] output
  buffer yb f32[1000] output
  buffer yc f32[4000] output
  segment F stage 1 phase F
    recv ya from A tag 0
    recv yb from B tag 0
    recv yc from B tag 1
  order
    F.0
)",
                             star(3, 0));
  const Timing timing = simgrid(one);
  expect_near_relative(timing.sent[activity_of(one, "B", 0, 1)], 3 * ms, 1e-9, "1000 at half the rate from 1 ms on");
  expect_near_relative(timing.sent[activity_of(one, "A", 0, 0)], 4 * ms, 1e-9, "1000, 1000 in 2 ms, 1000");
  expect_near_relative(timing.sent[activity_of(one, "B", 0, 3)], 9 * ms, 1e-9, "4000 from 5 ms on");
}

// Sharing does not depend on latency: A is far away (SimGrid by itself would give it less).
TEST(SimGrid, SharingIsFairWhateverTheLatency) {
  Cluster cluster = star(3, 1 * ms);
  cluster.links[0].latency = seconds(100 * ms);
  const Case one = make_case(two_senders(1000, 1000), cluster);
  const Timing timing = simgrid(one);
  expect_near_relative(timing.sent[activity_of(one, "A", 0, 0)], 2 * ms, 1e-9, "A sent");
  expect_near_relative(timing.sent[activity_of(one, "B", 0, 0)], 2 * ms, 1e-9, "B sent");
}

// Max-min: A's own link has 1 MB/s, so B has what A cannot use of the shared 4 MB/s.
TEST(SimGrid, SharingIsMaxMinFair) {
  Cluster cluster = star(3, 0);
  cluster.links[0].bandwidth = bytes_per_second(1e6);
  const Case one = make_case(two_senders(3000, 3000), cluster);
  const Timing timing = simgrid(one);
  // B: 12000 B at 3 MB/s = 4 ms. A: 12000 B at 1 MB/s = 12 ms.
  expect_near_relative(timing.sent[activity_of(one, "B", 0, 0)], 4 * ms, 1e-9, "B sent");
  expect_near_relative(timing.sent[activity_of(one, "A", 0, 0)], 12 * ms, 1e-9, "A sent");
}

// Two messages ready at once: shared, both are out after 2 ms; from a queue, one after 1 and one after 2.
TEST(SimGrid, ASendQueueQueues) {
  for (const int window : {0, 1, 2}) {
    const Case one = make_case(two_receivers(window), star(3, 0));
    const Timing timing = simgrid(one);
    expect_near_relative(timing.sent[activity_of(one, "A", 0, 1)], (1 + (window == 1 ? 1 : 2)) * ms, 1e-9, "to B");
    expect_near_relative(timing.sent[activity_of(one, "A", 0, 2)], (1 + 2) * ms, 1e-9, "to C");
  }
}

TEST(SimGrid, HalfDuplexIsShared) {
  // 2 x 4000 B at 4 MB/s, then 2 ms.
  expect_near_relative(simgrid(make_case(exchange(), chain(2, 2 * ms, link_rate, false))).makespan, 4 * ms, 1e-9,
                       "half duplex");
}

// Generated pipelines with one flow at a time on each link: instances, eager limits, handshakes, windows, bandwidths
// over seven decades.
TEST(SimGrid, AgreesWithFastTierWithoutContention) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    const auto between = [&](int low, int high) {
      return low + static_cast<int>(random.below(static_cast<uint64_t>(high - low + 1)));
    };
    Pipeline pipeline;
    const int stages = between(2, 7);
    for (int s = 0; s < stages; ++s) pipeline.sizes.push_back(between(1, 3000));
    pipeline.micro_batches = between(1, 20);
    pipeline.instances = between(1, 3);
    pipeline.eager_limit = between(0, 2) == 0 ? 0 : between(0, 12000);
    pipeline.nic_window = between(0, 2);
    Cluster cluster = chain(stages, 0);
    for (Link& link : cluster.links) {
      link.bandwidth = bytes_per_second(std::pow(10.0, 3 + 7 * random.uniform()));
      link.latency = seconds(between(0, 3) == 0 ? 0 : 1e-6 * between(1, 5000));
    }
    if (between(0, 1) == 1) cluster.handshake = seconds(1e-6 * between(1, 500));
    const Case one = make_case(text_of(pipeline), cluster);
    expect_same(simgrid(one), fast(one), 1e-9, fmt::format("seed {}", seed));
    // Measured ways, slower and faster than the links, down to less than a byte's time a message. SimGrid gets its
    // bytes in parts (engine.cc): half a part of the smallest message is what it may be off.
    for (size_t a = 0; a < cluster.hosts.size(); ++a) {
      for (size_t b = 0; b < cluster.hosts.size(); ++b) {
        const auto cost = [&] {
          return MessageCost{seconds(1e-6 * between(0, 5000)),
                             bytes_per_second(std::pow(10.0, 4 + 8 * random.uniform()))};
        };
        cluster.routes.push_back({HostId(a), HostId(b), cost(), cost(), {}});
      }
    }
    const Case measured = make_case(text_of(pipeline), cluster);
    double part = 0;
    for (const Link& link : cluster.links) part = std::max(part, 1 / link.bandwidth.value() / 4096);
    const double makespan = fast(measured).makespan;
    expect_same(simgrid(measured), fast(measured),
                1e-9 + static_cast<double>(measured.graph.activities.size()) * part / makespan,
                fmt::format("seed {}, measured", seed));
  }
}

// Any scenario after any other, in any company: always the same bits, also where links are contended.
TEST(SimGrid, IsDeterministic) {
  const Case shared = make_case(two_senders(1000, 3000), star(3, 1 * ms));
  const Case queue = make_case(two_receivers(1), star(3, 1 * ms));
  const auto alone = simulate_all(simgrid_tier(), shared.cluster, {&shared.graph});
  const auto company =
      simulate_all(simgrid_tier(), shared.cluster, {&queue.graph, &shared.graph, &queue.graph, &shared.graph});
  ASSERT_TRUE(alone.ok() && company.ok());
  for (const size_t i : {size_t{1}, size_t{3}}) {
    EXPECT_EQ((*company)[i].finish, (*alone)[0].finish);
    EXPECT_EQ((*company)[i].sent, (*alone)[0].sent);
    EXPECT_EQ((*company)[i].makespan, (*alone)[0].makespan);
  }
  EXPECT_EQ((*company)[0].finish, (*company)[2].finish);
}

TEST(SimGrid, NothingToDo) {
  const Cluster cluster = chain(1, 0);
  const auto none = simulate_all(simgrid_tier(), cluster, {});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
  TimedGraph empty;
  empty.edge_begin = {0};
  const auto timing = simulate_all(simgrid_tier(), cluster, {&empty});
  ASSERT_TRUE(timing.ok()) << timing.error().to_string();
  EXPECT_EQ(timing->front().makespan, 0);
}

// A platform that SimGrid refuses, or dies of, is an error, and the process goes on.
TEST(SimGrid, TroubleIsAnError) {
  const Case good = make_case(two_senders(1000, 1000), star(3, 0));
  Cluster broken = good.cluster;
  for (Link& link : broken.links) link.bandwidth = bytes_per_second(-1);
  const auto timings = simulate_all(simgrid_tier(), broken, {&good.graph, &good.graph, &good.graph});
  ASSERT_FALSE(timings.ok());
  EXPECT_EQ(timings.error().kind, ErrorKind::failed);
  EXPECT_THAT(timings.error().message, HasSubstr("simulation 1 of 3"));
  EXPECT_TRUE(simulate_all(simgrid_tier(), good.cluster, {&good.graph}).ok());
}

// What waits for ever is reported, not left out: a start that waits for itself.
TEST(SimGrid, ActivitiesLeftOverAreAnError) {
  Case one = make_case(text_of({{1000, 1000}, 1}), chain(2, 2 * ms));
  const auto last = static_cast<uint32_t>(one.graph.activities.size() - 1);
  one.graph.edges.push_back({last, Event::delivered, Gate::start});
  ++one.graph.edge_begin.back();
  const auto timings = simulate_all(simgrid_tier(), one.cluster, {&one.graph});
  ASSERT_FALSE(timings.ok());
  EXPECT_THAT(timings.error().message, HasSubstr("1 of 3 activities left"));
}

}  // namespace
}  // namespace nlsplit::testing

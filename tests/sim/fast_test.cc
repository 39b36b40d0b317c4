// The rules of timed_graph.h, timed by hand. simgrid_test.cc runs the same Programs through the other tier.
#include "sim/fast.h"

#include "sim/hand_cases.h"
#include "sim/scale_transfer.h"

namespace nlsplit::testing {
namespace {

TEST(Fast, HandTimedCases) {
  for (const HandCase& hand : hand_cases()) {
    SCOPED_TRACE(hand.name);
    check(hand, fast(hand.one));
  }
}

// Contention is what this tier does not see: two messages of one sender take as long as one, unless its card is said to
// queue.
TEST(Fast, SharesNothing) {
  Case both = make_case(two_receivers(0), star(3, 0));
  EXPECT_NEAR(fast(both).makespan, (1000 + 1000) * us, 1e-15);
  both = make_case(two_receivers(1), star(3, 0));
  EXPECT_NEAR(fast(both).makespan, (1000 + 2 * 1000) * us, 1e-15);
}

TEST(Fast, LoadIsWhatDevicesAndLinksMustDo) {
  const Cluster cluster = chain(2, 2 * ms, link_rate, false);
  const Case one = make_case(text_of({{3000, 1000}, 4}), cluster);
  const Load load = load_of(one.graph, cluster, one.program.devices.size());
  ASSERT_EQ(load.device_seconds.size(), 2u);
  EXPECT_NEAR(load.device_seconds[0], 4 * 3000 * us, 1e-15);
  EXPECT_NEAR(load.device_seconds[1], 4 * 1000 * us, 1e-15);
  ASSERT_EQ(load.link_seconds.size(), 1u);
  EXPECT_EQ(load.link_seconds[0].first, (Hop{LinkId(0), true}));
  EXPECT_NEAR(load.link_seconds[0].second, 4 * 3000 * us, 1e-15);
  EXPECT_NEAR(load.busiest(), 12 * ms, 1e-15);
  EXPECT_LE(load.busiest(), fast(one).makespan);
}

// Both directions of a full-duplex link are apart, those of a half-duplex link one.
TEST(Fast, LoadOfDuplexLinks) {
  for (const bool full_duplex : {true, false}) {
    const Cluster cluster = chain(2, 0, link_rate, full_duplex);
    const Case one = make_case(exchange(), cluster);
    const Load load = load_of(one.graph, cluster, 2);
    ASSERT_EQ(load.link_seconds.size(), full_duplex ? 2u : 1u);
    for (const auto& [hop, busy] : load.link_seconds) EXPECT_NEAR(busy, (full_duplex ? 1 : 2) * 1000 * us, 1e-15);
  }
}

// A window no busier than the card ever is changes nothing: the event loop agrees with the sweep.
TEST(Fast, EventLoopEqualsSweep) {
  for (int stages = 2; stages <= 5; ++stages) {
    for (const int64_t eager : {int64_t{0}, int64_t{1200}, int64_t{1} << 30}) {
      Pipeline pipeline{{}, 7, 2, eager, 0};
      for (int s = 0; s < stages; ++s) pipeline.sizes.push_back(200 + 150 * ((s * 7) % 4));
      const Cluster cluster = chain(stages, 0.3 * ms);
      const Timing sweep = fast(make_case(text_of(pipeline), cluster));
      pipeline.nic_window = 1;
      expect_same(fast(make_case(text_of(pipeline), cluster)), sweep, 1e-13,
                  fmt::format("{} stages, eager {}", stages, eager));
    }
  }
}

// Two blocks on devices of one machine. B's 1 s has no company to fear. A's 2 s take 1.5 s a second while B computes
// (company 1 s for its 2 s): after 1 s, 2/3 s of it are done, and the rest takes 4/3 s alone.
TimedGraph two_on_one_machine() {
  TimedGraph graph;
  for (int device = 0; device < 2; ++device) {
    Activity block;
    block.device = device;
    block.duration = device == 0 ? 2 : 1;
    block.company = device == 0 ? 1 : 0;
    graph.activities.push_back(block);
  }
  graph.edge_begin = {0, 0, 0};
  graph.host_of_device = {0, 1};
  graph.machine_of_device = {0, 0};
  return graph;
}

TEST(Fast, DevicesOfOneMachineSlowEachOtherDown) {
  TimedGraph graph = two_on_one_machine();
  for (const bool judged : {false, true}) {
    Timing timing;
    if (judged) {
      auto timings = simulate_all(simgrid_tier(), {}, {&graph});
      ASSERT_TRUE(timings.ok()) << timings.error().message;
      timing = (*timings)[0];
    } else {
      simulate_fast(graph, timing);
    }
    EXPECT_NEAR(timing.finish[1], 1, 1e-12);
    EXPECT_NEAR(timing.finish[0], 1 + 4.0 / 3, 1e-12);
  }
  graph.activities[1].company = 0.25;  // now both: B ends after 1.25 s, with 1.25 / 1.5 s of A's done
  Timing timing;
  simulate_fast(graph, timing);
  EXPECT_NEAR(timing.finish[1], 1.25, 1e-12);
  EXPECT_NEAR(timing.finish[0], 1.25 + 2 - 1.25 / 1.5, 1e-12);
  graph.machine_of_device = {-1, -1};  // apart
  simulate_fast(graph, timing);
  EXPECT_NEAR(timing.makespan, 2, 1e-12);
}

// A block of 1 s, a message of 2 s with 0.5 s of handshake and 0.25 s of latency, a block of 1 s.
TEST(Fast, LinksMayBeOthersThanTheScenarios) {
  TimedGraph graph;
  Activity block, message;
  block.duration = 1;
  message.is_transfer = true;
  message.peer = 1;
  message.duration = 2, message.handshake = 0.5, message.latency = 0.25;
  graph.activities = {block, message, block};
  graph.activities[2].device = 1;
  graph.edges = {{0, Event::delivered, Gate::start}, {1, Event::delivered, Gate::start}};
  graph.edge_begin = {0, 0, 1, 2};
  graph.host_of_device = {0, 1};
  graph.machine_of_device = {-1, -1};
  for (const int window : {0, 1}) {  // the sweep, the event loop
    graph.nic_window = window;
    Timing timing;
    simulate_fast(graph, timing);
    EXPECT_DOUBLE_EQ(timing.makespan, 1 + 0.5 + 2 + 0.25 + 1);
    simulate_fast(graph, timing, {.bandwidth = 4, .latency = 2});
    EXPECT_DOUBLE_EQ(timing.makespan, 1 + 1 + 0.5 + 0.5 + 1);
  }
}

// A message of 1 s on its own, which needs 1.2 s while both ends compute and 12/11 s while one does.
TEST(Fast, MessagesAreSlowerWhileTheirEndsCompute) {
  TimedGraph graph;
  Activity message;
  message.is_transfer = true;
  message.device = 0, message.peer = 1;
  message.duration = 1, message.slowed = 0.2;
  graph.activities.push_back(message);
  graph.has_overheads = true;
  for (int device = 0; device < 2; ++device) {
    Activity block;
    block.device = device;
    block.duration = 2;
    graph.activities.push_back(block);
  }
  graph.edge_begin = {0, 0, 0, 0};
  graph.host_of_device = {0, 1};
  graph.machine_of_device = {-1, -1};
  graph.nic_window = 1;
  Timing timing;
  const auto arrives = [&] {
    simulate_fast(graph, timing);
    return timing.finish[0];
  };
  EXPECT_NEAR(arrives(), 1.2, 1e-12);
  graph.activities[2].duration = 0;
  EXPECT_NEAR(arrives(), 12.0 / 11, 1e-12);
  graph.activities[1].duration = 0.5;  // a quarter of both ends' time until it would have arrived
  EXPECT_NEAR(arrives(), 1 / (1 - 0.25 * 0.2 / 1.2), 1e-12);
  graph.activities[1].duration = 0;
  EXPECT_NEAR(arrives(), 1, 1e-12);
}

// One device computes for 4 s, the other for 10 s. A message of 1 s between them, posted from the start, shakes hands
// for 0.5 s, and for 0.25 s more because both ends compute then. Its last byte takes 0.125 s from the one and 0.0625 s
// from the other.
TimedGraph computed_beside_a_message() {
  TimedGraph graph;
  Activity message;
  message.is_transfer = true;
  message.device = 0, message.peer = 1;
  message.duration = 1, message.handshake = 0.5, message.latency = 0.5, message.busy = 0.25;
  message.sender_overhead = 0.125, message.receiver_overhead = 0.0625;
  graph.activities.push_back(message);
  for (int device = 0; device < 2; ++device) {
    Activity block;
    block.device = device;
    block.duration = device == 0 ? 4 : 10;
    graph.activities.push_back(block);
  }
  graph.has_overheads = true;
  graph.edge_begin = {0, 0, 0, 0};
  graph.host_of_device = {0, 1};
  graph.machine_of_device = {-1, -1};
  return graph;
}

// How late a thread wakes up does not depend on how far away the other end is.
TEST(Fast, OtherLinksLeaveWhatEndsPay) {
  const TimedGraph graph = computed_beside_a_message();
  Timing timing;
  simulate_fast(graph, timing);
  EXPECT_DOUBLE_EQ(timing.finish[0], 0.5 + 0.25 + 1 + 0.5);
  simulate_fast(graph, timing, {.bandwidth = 2, .latency = 3});
  EXPECT_DOUBLE_EQ(timing.finish[0], 1.5 + 0.25 + 0.5 + 1.5);
  EXPECT_DOUBLE_EQ(timing.finish[1], 4.125);
  EXPECT_DOUBLE_EQ(timing.finish[2], 10.0625);
}

TEST(Fast, MessagesWithoutOverheadsLeaveComputationsAlone) {
  const TimedGraph graph = computed_beside_a_message();
  Timing timing;
  simulate_fast(graph, timing, {.overheads = false});
  EXPECT_DOUBLE_EQ(timing.finish[0], 0.5 + 1 + 0.5);
  EXPECT_DOUBLE_EQ(timing.finish[1], 4);
  EXPECT_DOUBLE_EQ(timing.finish[2], 10);
  simulate_fast(graph, timing, {.bandwidth = 1e300, .latency = 0, .overheads = false});
  EXPECT_LT(timing.finish[0], 1e-200);
  EXPECT_DOUBLE_EQ(timing.makespan, 10);
}

// The socket holds 6 ms. It takes all of the first message of 4 ms when that is written, at 1 ms. The second is written
// at 2 and ends to move at 9, so the socket holds the rest of it from 3 on.
TEST(Fast, ASocketTakesAMessageWhileTheOneBeforeMoves) {
  const std::vector<HandCase> cases = hand_cases();
  const Case& one = hand_case(cases, "a socket that holds several");
  const Timing timing = fast(one);
  EXPECT_DOUBLE_EQ(timing.released[activity_of(one, "A", 0, 1)], 1 * ms);
  EXPECT_DOUBLE_EQ(timing.released[activity_of(one, "A", 1, 1)], 3 * ms);
}

// Its release too, whichever of its parts decides: what is queued, the hand-over, the whole way.
TEST(Fast, OneFactorScalesAllOfAMessage) {
  for (const auto& [queued, handover] : {std::pair(0.25, 0.0), std::pair(0.9, 0.3), std::pair(0.9, 5.0)}) {
    Activity message;
    message.is_transfer = true;
    message.duration = 1, message.latency = 0.5, message.handshake = 0.25, message.bytes = 1000;
    message.request = 0.125, message.clear_to_send_delay = 0.75;
    message.queued = queued, message.handover = handover;
    Activity longer = message;
    scale_transfer(longer, 1.5, 1.5);
    EXPECT_DOUBLE_EQ(longer.until_released(), 1.5 * message.until_released()) << queued << " " << handover;
    EXPECT_DOUBLE_EQ(longer.duration, 1.5);
    EXPECT_DOUBLE_EQ(longer.latency, 0.75);
    EXPECT_DOUBLE_EQ(longer.handshake, 0.375);
    EXPECT_DOUBLE_EQ(longer.bytes, 1500);
    EXPECT_DOUBLE_EQ(longer.clear_to_send_delay, 1.125);
  }
}

}  // namespace
}  // namespace nlsplit::testing

// Online runs in both tiers: worked out by hand, and logs that replay bit for bit.
#include "sim/online.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "sim/breakdown.h"
#include "sim/cases.h"
#include "sim/disturb.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a run with an online policy needs beside a Case.
struct OnlineCase {
  Case one;
  Dependencies free;
};

TimedGraph graph_of(const OnlineCase& c, const Online& online) {
  auto graph =
      build_online_graph(c.one.program, c.free, online, c.one.cluster, copies_at_8_mb_per_second(c.one.cluster));
  EXPECT_TRUE(graph.ok()) << graph.error().to_string();
  return std::move(graph).value();
}

OnlineCase online_case(const std::string& text, Cluster cluster) {
  OnlineCase made{make_case(text, std::move(cluster)), {}};
  made.free = free_dependencies(made.one.program).value();
  made.one.graph = graph_of(made, {"longest_path"});
  return made;
}

Timing in_simgrid(const Cluster& cluster, const TimedGraph& graph) {
  auto timings = simulate_all(simgrid_tier(), cluster, {&graph});
  EXPECT_TRUE(timings.ok()) << timings.error().to_string();
  return timings.ok() ? timings->front() : Timing{};
}
Timing in_fast(const Cluster&, const TimedGraph& graph) {
  Timing timing;
  simulate_fast(graph, timing);
  return timing;
}
constexpr std::array tiers = {&in_fast, &in_simgrid};

// A has the first stage (1 ms) and the last (3 ms), B the one between them (1 ms); five micro-batches, and room for
// all.
std::string there_and_back(int instances = 5) {
  std::string text = fmt::format(R"(
program back batch 5 micro_batches 5
device A cpu host a memory 1000000
  buffer x f32[1000] input instances 5
  buffer a f32[1000] comm instances {0}
  buffer b f32[1000] comm instances {0}
  buffer t f32[1000] scratch
  buffer y f32[1000] output instances 5
  segment F stage 0 phase F
    a = copy(x)
    send a to B tag 0
  segment G stage 2 phase F
    recv b from B tag 1
    t = copy(b)
    t = copy(b)
    y = copy(b)
  order
)",
                                 instances);
  const int ahead = instances == 1 ? 1 : 4;  // so many F before the G of a micro-batch: more would wait for it for ever
  for (int m = 0; m < 5 + ahead; ++m) {
    if (m < 5) text += fmt::format("    F.{0} x:{0} a:{1}\n", m, m % instances);
    if (m >= ahead) text += fmt::format("    G.{0} b:{1} y:{0}\n", m - ahead, (m - ahead) % instances);
  }
  text += fmt::format(R"(device B cpu host b memory 1000000
  buffer a f32[1000] comm instances {0}
  buffer b f32[1000] comm instances {0}
  segment F stage 1 phase F
    recv a from A tag 0
    b = copy(a)
    send b to A tag 1
  order
)",
                      instances);
  for (int m = 0; m < 5; ++m) text += fmt::format("    F.{0} a:{1} b:{1}\n", m, m % instances);
  return text;
}

std::optional<size_t> last_stage(std::span<const ReadySlot> ready, const DeviceState&) {
  const auto best = std::ranges::max_element(ready, {}, [](const ReadySlot& slot) { return slot.slot.stage; });
  return static_cast<size_t>(best - ready.begin());
}
constexpr OnlinePolicy last_stage_first = {"last_stage_first", "", last_stage};
constexpr OnlinePolicy never = {
    "never", "", [](std::span<const ReadySlot>, const DeviceState&) -> std::optional<size_t> { return std::nullopt; }};

// Of the cases here A's slots 0 to 4 are F, 5 to 9 are G.
std::vector<int> order_on_a(const TimedGraph& graph, const Timing& timing) { return decisions_of(graph, timing, 2)[0]; }

// The first answer is there at 1 + 1 (way) + 1 (B) + 1 (way) = 4 ms, when A has done four F. Longest path: the fifth F
// has 1 + 1 + 1 + 1 + 3 before it, G has 3. So F first, then five G: 5 + 15. The other way round G.0 to G.3 are ready
// in time, 4 + 12, and then F.4 takes 1, its answer comes 3 later, and G.4 takes 3: 23.
TEST(OnlineRun, ByHand) {
  OnlineCase c = online_case(there_and_back(), chain(2, 0));
  for (const auto& tier : tiers) {
    c.one.graph.online->policy = *find_online_policy("longest_path");
    const Timing timing = tier(c.one.cluster, c.one.graph);
    expect_near_relative(timing.makespan, 20 * ms, 1e-9, "longest path");
    EXPECT_THAT(order_on_a(c.one.graph, timing), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
    c.one.graph.online->policy = &last_stage_first;
    const Timing other = tier(c.one.cluster, c.one.graph);
    expect_near_relative(other.makespan, 23 * ms, 1e-9, "last stage first");
    EXPECT_THAT(order_on_a(c.one.graph, other), ElementsAre(0, 1, 2, 3, 5, 6, 7, 8, 4, 9));
    const size_t f4 = activity_of(c.one, "A", 4, 0), g4 = activity_of(c.one, "A", 9, 1);
    expect_near_relative(other.start[f4], 16 * ms, 1e-9, "F.4");
    expect_near_relative(other.start[g4], 20 * ms, 1e-9, "G.4");
    EXPECT_EQ(other.turn[f4], 8);
    EXPECT_EQ(other.turn[activity_of(c.one, "A", 4, 1)], -1) << "a message has no turn";
    const Breakdown parts = break_down(c.one.graph, other, c.one.cluster);
    expect_near_relative(parts.devices[0].computing, 20 * ms, 1e-9, "computing");
    expect_near_relative(parts.devices[0].exposed_communication + parts.devices[0].waiting, 3 * ms, 1e-9, "idle");
  }
}

// With one instance for each message F.1 waits until F.0's message is out, and so on: room for freedom is memory.
TEST(OnlineRun, InstancesBind) {
  OnlineCase c = online_case(there_and_back(1), chain(2, 0));
  c.one.graph.online->policy = &last_stage_first;
  const Timing fast_timing = in_fast(c.one.cluster, c.one.graph);
  expect_same(in_simgrid(c.one.cluster, c.one.graph), fast_timing, 1e-9, "tiers");
  // F.0 0-1, its message 1-2, so F.1 2-3; B 2-3; F.1's message may come when B has read: 3-4.
  expect_near_relative(fast_timing.start[activity_of(c.one, "A", 1, 0)], 2 * ms, 1e-9, "F.1");
  expect_near_relative(fast_timing.sent[activity_of(c.one, "A", 1, 1)], 4 * ms, 1e-9, "its message");
}

// The longest way from F.0: messages of one tag come one after the other, so F.0, five messages, B, the way back and G.
TEST(OnlineRun, RemainingIsTheLongestWay) {
  const OnlineCase c = online_case(there_and_back(), chain(2, 0));
  const Online online = online_of(c.one.graph, c.one.program);
  const std::vector<double>& on_a = online.remaining_s[0];
  expect_near_relative(on_a[0], (1 + 5 + 1 + 1 + 3) * ms, 1e-9, "F.0");
  expect_near_relative(on_a[4], (1 + 1 + 1 + 1 + 3) * ms, 1e-9, "F.4");
  for (size_t g = 5; g < 10; ++g) expect_near_relative(on_a[g], 3 * ms, 1e-9, "G");
  expect_near_relative(online.remaining_s[1][4], (1 + 1 + 3) * ms, 1e-9, "B");
  EXPECT_EQ(online.policy, "longest_path");
}

// Two stages of A send to B at once: messages of different tags may overtake each other, but share their way in turns.
TEST(OnlineRun, MessagesOfOneDirectionGoOneAfterTheOther) {
  OnlineCase c = online_case(R"(
program two batch 1 micro_batches 1
device A cpu host a memory 1000000
  buffer x f32[2000] input
  buffer a f32[1000] comm
  buffer b f32[2000] comm
  segment F stage 0 phase F
    a = copy(x[0:1000])
    b = copy(x)
    send b to B tag 1
    send a to B tag 0
  order
    F.0
device B cpu host b memory 1000000
  buffer a f32[1000] comm
  buffer b f32[2000] comm
  buffer y f32[1000] output
  segment F stage 1 phase F
    recv b from A tag 1
    recv a from A tag 0
    y = copy(a)
  order
    F.0
)",
                             chain(2, 0));
  for (const auto& tier : tiers) {
    const Timing timing = tier(c.one.cluster, c.one.graph);
    // `a` is there after 1 ms and goes ahead, 1-2; b is written 1-3 and goes 3-5.
    expect_near_relative(timing.sent[activity_of(c.one, "A", 0, 3)], 2 * ms, 1e-9, "a");
    expect_near_relative(timing.sent[activity_of(c.one, "A", 0, 2)], 5 * ms, 1e-9, "b");
  }
}

Online replay_of(const Case& one, const TimedGraph& graph, const Timing& timing) {
  const std::vector<std::vector<int>> order = decisions_of(graph, timing, one.program.devices.size());
  return {"replay", table_of_slots(one.program, order).devices};
}

void expect_same_bits(const Timing& a, const Timing& b) {
  EXPECT_EQ(a.makespan, b.makespan);
  EXPECT_EQ(a.posted, b.posted);
  EXPECT_EQ(a.start, b.start);
  EXPECT_EQ(a.moves, b.moves);
  EXPECT_EQ(a.sent, b.sent);
  EXPECT_EQ(a.finish, b.finish);
  EXPECT_EQ(a.turn, b.turn);
}

// Whoever decided, and whatever the noise: following the log gives the same bits. Over shared wires too.
TEST(OnlineRun, ALogReplaysBitForBit) {
  for (int run = 0; run < 6; ++run) {
    for (const bool contended : {false, true}) {
      const Cluster cluster = contended ? star(2, 0.3 * ms, link_rate, false) : chain(2, 0.2 * ms);
      OnlineCase c = online_case(there_and_back(run % 2 == 0 ? 5 : 2), cluster);
      c.one.graph.online->policy = run % 3 == 0 ? &last_stage_first : *find_online_policy("longest_path");
      Noise noise;
      noise.compute_jitter = 0.4;
      noise.link_jitter = 0.2;
      noise.stragglers.push_back({.device = DeviceId(1), .slowdown = 4, .from = 3 * ms, .until = 9 * ms});
      const NoiseKeys keys = noise_keys(c.one.program, c.one.dependencies, c.one.graph, c.one.cluster);
      TimedGraph decided = c.one.graph;
      disturb(decided, noise, c.one.cluster, keys, run);
      for (const auto& tier : tiers) {
        const Timing timing = tier(c.one.cluster, decided);
        TimedGraph followed = graph_of(c, replay_of(c.one, decided, timing));
        disturb(followed, noise, c.one.cluster, keys, run);
        expect_same_bits(tier(c.one.cluster, followed), timing);
      }
    }
  }
}

// All hand-made Programs, among them a ring whose slots keep their places, and a training step: what may not change
// does not, so wherever the order is the Program's so are the times.
TEST(OnlineRun, FollowingTheProgramIsTheProgram) {
  for (const auto& entry : std::filesystem::directory_iterator(NLS_SOURCE_DIR "/tests/programs")) {
    SCOPED_TRACE(entry.path());
    const std::string text = value_of(read_file(entry.path()));
    const Program program = parse_program(text, entry.path()).value();
    Cluster cluster;
    for (const DeviceProgram& device : program.devices) add_device(cluster, device.name, device.host);
    const size_t hosts = cluster.hosts.size();
    for (size_t a = 0; a < hosts; ++a) {
      for (size_t b = a + 1; b < hosts; ++b)
        add_link(cluster, cluster.hosts[a].name, cluster.hosts[b].name, 50 * us, 1e8);
    }
    const Case fixed = make_case(program, cluster);
    const Timing wanted = fast(fixed);
    OnlineCase c{fixed, free_dependencies(program).value()};
    const SlotTable table = table_of_slots(program, static_order(program));
    const TimedGraph graph = graph_of(c, {"replay", table.devices});
    for (const auto& tier : tiers) {
      const Timing timing = tier(cluster, graph);
      expect_near_relative(timing.makespan, wanted.makespan, 1e-9, "makespan");
    }
    // And any other order ends.
    for (const char* policy : {"longest_path", "backward_first"})
      EXPECT_TRUE(std::isfinite(in_fast(cluster, graph_of(c, {policy})).makespan)) << policy;
  }
}

TEST(OnlineRun, NobodyChoosing) {
  OnlineCase c = online_case(there_and_back(), chain(2, 0));
  c.one.graph.online->policy = &never;
  Timing timing;
  const Status status = simulate_online(c.one.graph, timing);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(exit_code(status.error()), 2);
  EXPECT_EQ(status.error().message,
            "online policy never left every device waiting; device 0 could run 0F0, 0F1, 0F2, 0F3, 0F4");
  EXPECT_TRUE(std::isinf(in_fast(c.one.cluster, c.one.graph).makespan));
  const auto shared = simulate_all(simgrid_tier(), c.one.cluster, {&c.one.graph});
  ASSERT_FALSE(shared.ok());
  EXPECT_THAT(shared.error().message, HasSubstr("online policy never left every device waiting"));
}

// A log that the instances do not allow, and one of another plan.
TEST(OnlineRun, LogsThatDoNotFit) {
  const OnlineCase c = online_case(there_and_back(1), chain(2, 0));
  Online online{"replay", table_of_slots(c.one.program, static_order(c.one.program)).devices};
  std::swap(online.table[0][0], online.table[0][1]);
  Timing timing;
  const Status stuck = simulate_online(graph_of(c, online), timing);
  ASSERT_FALSE(stuck.ok());
  EXPECT_THAT(stuck.error().message, AllOf(HasSubstr("online policy replay left every device waiting"),
                                           HasSubstr("device 0 could run 0F0; its table has 0F1 next")));
  const auto refused = [&](const Online& wrong) {
    const auto graph =
        build_online_graph(c.one.program, c.free, wrong, c.one.cluster, copies_at_8_mb_per_second(c.one.cluster));
    return graph.ok() ? "fine" : graph.error().message;
  };
  online.table[0].pop_back();
  EXPECT_THAT(refused(online), HasSubstr("another plan: device A runs 2F4 here, but not there"));
  online.table[0].push_back({2, Phase::forward, 3});
  EXPECT_THAT(refused(online), HasSubstr("another plan: device A does not run 2F3 here, or not twice"));
  EXPECT_THAT(refused({"no_such"}), HasSubstr("unknown online policy 'no_such'"));
}

// What the simulator hands to the executor.
TEST(OnlineRun, KnowledgeAsText) {
  const OnlineCase c = online_case(there_and_back(), chain(2, 0));
  Online online = online_of(c.one.graph, c.one.program);
  online.policy = "replay";
  online.table = table_of_slots(c.one.program, static_order(c.one.program)).devices;
  const auto back = parse_online(online_text(online), c.one.program, "online.json");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->policy, online.policy);
  EXPECT_EQ(back->remaining_s, online.remaining_s);
  EXPECT_EQ(back->table, online.table);
  const auto refused = [&](const Online& wrong) {
    return parse_online(online_text(wrong), c.one.program, "online.json").error().message;
  };
  online.remaining_s[0].pop_back();
  EXPECT_EQ(refused(online), "online.json: this is the online run of another program");
  online.policy = "no_such";
  EXPECT_THAT(refused(online), HasSubstr("unknown online policy 'no_such'"));
  EXPECT_THAT(parse_online("{}", c.one.program, "online.json").error().message, HasSubstr("online.json: "));
}

}  // namespace
}  // namespace nlsplit::testing

// What build_timed_graph makes of a Program, and what a Timing makes of its instructions.
#include "sim/timed_graph.h"

#include <gmock/gmock.h>

#include "sim/cases.h"

namespace nlsplit::testing {
namespace {

using ::testing::HasSubstr;

std::string_view name_of(Event event) {
  switch (event) {
    case Event::posted:
      return "posted";
    case Event::ready:
      return "ready";
    case Event::sent:
      return "sent";
    case Event::delivered:
      return "delivered";
    case Event::released:
      return "released";
  }
  return "?";
}

// One line an activity: what it is, how long, its instructions, and what it waits for.
std::string print(const Case& one) {
  const TimedGraph& graph = one.graph;
  const auto instance = [&](uint32_t i) {
    const Instance& at = one.dependencies.instances[i];
    return fmt::format("{}{}.{}", one.program.devices[static_cast<size_t>(at.device)].name, at.slot, at.instr);
  };
  std::string text;
  for (size_t a = 0; a < graph.activities.size(); ++a) {
    const Activity& activity = graph.activities[a];
    text += fmt::format("{}: ", a);
    if (activity.is_transfer) {
      text += fmt::format("transfer {} to {} {:g} B", instance(activity.first_instance),
                          instance(one.dependencies.match[activity.first_instance]), activity.bytes);
    } else {
      text += "block";
      for (uint32_t m = activity.first_instance; m < activity.first_instance + activity.count; ++m) {
        text += fmt::format(" {}@{:g}", instance(graph.members[m]), graph.member_offset[m] / us);
      }
    }
    text += fmt::format(" {:g} us", activity.duration / us);
    for (uint32_t e = graph.edge_begin[a]; e < graph.edge_begin[a + 1]; ++e) {
      const TimedEdge& edge = graph.edges[e];
      text +=
          fmt::format(", {} after {} {}", edge.what == Gate::post ? "post" : "start", edge.from, name_of(edge.when));
    }
    text += "\n";
  }
  return text;
}

constexpr const char* two_slots = R"(
program p batch 2 micro_batches 2 eager_limit {}
device A cpu host a memory 1000000
  buffer x f32[100] input instances 2
  buffer t f32[100] scratch
  buffer a f32[100] comm
  segment F stage 0 phase F
    t = copy(x)
    a = copy(t)
    send a to B tag 0
    t = copy(x)
  order
    F.0 x:0
    F.1 x:1
device B cpu host b memory 1000000
  buffer big f32[500] scratch
  buffer big2 f32[500] scratch
  buffer a f32[100] comm
  buffer y f32[100] output instances 2
  segment F stage 1 phase F
    recv a from A tag 0
    big2 = copy(big)
    y = copy(a)
  order
    F.0 y:0
    F.1 y:1
)";

// A: (t, a) is a block that the send waits for, the last copy another; the second slot's `a` waits until the first is
// sent. B: `big2` waits for nobody; `y` waits for the message; the second recv is posted when `y` has read the
// instance.
TEST(TimedGraph, CutsBlocksWhereStreamsMeet) {
  EXPECT_EQ(print(make_case(fmt::format(two_slots, 0), chain(2, 2 * ms))),
            "0: block A0.0@0 A0.1@100 200 us\n"
            "1: block B0.1@0 500 us\n"
            "2: block A0.3@0 100 us, start after 0 delivered\n"
            "3: transfer A0.2 to B0.0 400 B 100 us, start after 0 delivered\n"
            "4: block A1.0@0 100 us, start after 2 delivered\n"
            "5: block B0.2@0 100 us, start after 1 delivered, start after 3 delivered\n"
            "6: block A1.1@0 100 us, start after 4 delivered, start after 3 sent\n"
            "7: block B1.1@0 500 us, start after 5 delivered\n"
            "8: block A1.3@0 100 us, start after 6 delivered\n"
            "9: transfer A1.2 to B1.0 400 B 100 us, start after 3 sent, start after 6 delivered, post after 3 posted, "
            "post after 3 "
            "delivered, post after 5 delivered\n"
            "10: block B1.2@0 100 us, start after 7 delivered, start after 9 delivered\n");
}

// The eager send's buffer is free once it was copied: only that edge changes.
TEST(TimedGraph, EagerSendsFreeTheirBufferAtReady) {
  const std::string rendezvous = print(make_case(fmt::format(two_slots, 399), chain(2, 2 * ms)));
  std::string eager = print(make_case(fmt::format(two_slots, 400), chain(2, 2 * ms)));
  EXPECT_NE(eager, rendezvous);
  const size_t at = eager.find("start after 3 ready");
  ASSERT_NE(at, std::string::npos);
  eager.replace(at, std::string("start after 3 ready").size(), "start after 3 sent");
  EXPECT_EQ(eager, rendezvous);
}

TEST(TimedGraph, TraceHasEveryInstruction) {
  const Case one = make_case(fmt::format(two_slots, 0), chain(2, 2 * ms));
  const Trace trace = to_trace(one.program, one.dependencies, one.graph, fast(one));
  EXPECT_EQ(trace.fingerprint, fingerprint(one.program));
  EXPECT_EQ(trace.peak_bytes[0], one.program.devices[0].arena);
  struct Wanted {
    int device, slot, instr;
    double start, finish;  // microseconds
  };
  // t 0-100, a 100-200, message 200-300 and 2 ms more, t 200-300; second slot: t 300-400, a 400-500, message ready at
  // 500. B: big2 0-500; y when the message is there at 2300; its second recv is posted at 2400, so the second message
  // leaves then.
  const std::vector<Wanted> wanted = {
      {0, 0, 0, 0, 100},     {0, 0, 1, 100, 200},   {0, 0, 2, 200, 300},   {0, 0, 3, 200, 300},  {0, 1, 0, 300, 400},
      {0, 1, 1, 400, 500},   {0, 1, 2, 500, 2500},  {0, 1, 3, 500, 600},   {1, 0, 0, 0, 2300},   {1, 0, 1, 0, 500},
      {1, 0, 2, 2300, 2400}, {1, 1, 0, 2400, 4500}, {1, 1, 1, 2400, 2900}, {1, 1, 2, 4500, 4600}};
  ASSERT_EQ(trace.spans.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Span& span = trace.spans[i];
    EXPECT_EQ(span.device, wanted[i].device);
    EXPECT_EQ(span.slot, wanted[i].slot);
    EXPECT_EQ(span.instr, wanted[i].instr);
    EXPECT_NEAR(span.start, wanted[i].start * us, 1e-12) << i;
    EXPECT_NEAR(span.finish, wanted[i].finish * us, 1e-12) << i;
  }
  EXPECT_NEAR(trace.makespan, 4600 * us, 1e-12);
}

// Roofline: bytes read and written over 8 MB/s. pack and unpack move the part only.
TEST(TimedGraph, MovementCostsItsTraffic) {
  const Case one = make_case(R"(
program p batch 1 micro_batches 1
device A cpu host a memory 1000000
  buffer x f32[10,100] input
  buffer part f32[10,20] scratch
  buffer sum f32[10,20] scratch
  buffer y f32[10,100] output
  segment F stage 0 phase F
    part = pack(x) axis 1 begin 0 end 20
    sum = reduce(part, part, part)
    y = copy(x)
    y = unpack(sum) axis 1 begin 0 end 20
  order
    F.0
)",
                             chain(1, 0));
  ASSERT_EQ(one.graph.activities.size(), 1u);
  // 200 floats: pack 2 x 800 B = 200 us; reduce 4 x 800 B = 400 us; copy 2 x 4000 B = 1000 us; unpack 200 us.
  EXPECT_EQ(one.graph.members.size(), 4u);
  EXPECT_NEAR(one.graph.member_offset[1], 200 * us, 1e-15);
  EXPECT_NEAR(one.graph.member_offset[2], 600 * us, 1e-15);
  EXPECT_NEAR(one.graph.member_offset[3], 1600 * us, 1e-15);
  EXPECT_NEAR(one.graph.activities[0].duration, 1800 * us, 1e-15);
}

constexpr const char* relu = R"(
program p batch 1 micro_batches 1
device A cpu host a memory 1000000
  buffer x f32[16] input
  buffer t f32[16] scratch
  buffer y f32[16] output
  segment F stage 0 phase F
    t = Relu(x) kernel {} as "relu1"
    {}
  order
    F.0
)";

TEST(TimedGraph, MissingCostsAreErrors) {
  const Cluster cluster = chain(1, 0);
  ComputeDesc wanted;
  wanted.op = Op::Relu;
  wanted.inputs = wanted.outputs = {TensorType{DType::f32, {16}}};
  wanted.kernel = choose_kernel(wanted, Isa::v3).value();
  const auto build = [&](const std::string& last, const Profile& profile) {
    const Program program = parse(fmt::format(relu, to_string(wanted.kernel), last));
    return build_timed_graph(program, dependencies(program).value(), cluster,
                             CostTable({measured(profile)}, "mine.yaml"));
  };
  const std::string second = fmt::format("y = Relu(t) kernel {} as \"relu2\"", to_string(wanted.kernel));

  Profile profile;
  profile.file = "mine.json";
  auto graph = build(second, profile);
  ASSERT_FALSE(graph.ok());
  EXPECT_THAT(graph.error().message, HasSubstr("relu1"));
  EXPECT_THAT(graph.error().message, HasSubstr("nlbench profile mine.yaml"));

  profile.kernels[signature(wanted)] = {seconds(3e-6), seconds(0), 1};
  graph = build(second, profile);
  ASSERT_TRUE(graph.ok()) << graph.error().to_string();
  EXPECT_DOUBLE_EQ(graph->activities[0].duration, 6e-6);  // both, from one measurement

  graph = build("y = copy(t)", profile);
  ASSERT_FALSE(graph.ok());
  EXPECT_THAT(graph.error().message, HasSubstr("nlbench profile mine.yaml"));
  EXPECT_EQ(graph.error().fragment, "copy Identity(f32[16]) -> f32[16]");
  profile.kernels["copy Identity(f32[16]) -> f32[16]"] = {seconds(1e-6), seconds(0), 1};
  graph = build("y = copy(t)", profile);
  ASSERT_TRUE(graph.ok()) << graph.error().to_string();
  EXPECT_DOUBLE_EQ(graph->activities[0].duration, 4e-6);
}

TEST(TimedGraph, WhatTheClusterLacksIsAnError) {
  const Program program = parse(text_of({{10, 10}, 1}));
  const Dependencies deps = dependencies(program).value();
  const auto error_on = [&](const Cluster& cluster) {
    const auto graph = build_timed_graph(program, deps, cluster, copies_at_8_mb_per_second(cluster));
    return graph.ok() ? std::string("none") : graph.error().message;
  };
  Cluster cluster = chain(2, 1 * ms);
  EXPECT_EQ(error_on(cluster), "none");
  cluster.links.clear();
  EXPECT_THAT(error_on(cluster), HasSubstr("no links connect host 'a' with host 'b'"));
  cluster = chain(2, 1 * ms, 0.0);
  EXPECT_THAT(error_on(cluster), HasSubstr("has no bandwidth"));
  cluster = chain(2, 1 * ms);
  cluster.devices[1].name = "Z";
  EXPECT_THAT(error_on(cluster), HasSubstr("the cluster has no device B"));
  cluster = chain(2, 1 * ms);
  cluster.devices[1].host = HostId(0);
  EXPECT_THAT(error_on(cluster), HasSubstr("device B is on host 'b' in the program, but not in the cluster"));
  cluster = chain(2, 1 * ms);
  cluster.hosts[1].name = "z";
  EXPECT_THAT(error_on(cluster), HasSubstr("host 'b', which the cluster does not have"));
}

// What an endpoint does with its own data is free; it has no kernels.
TEST(TimedGraph, EndpointsMoveTheirDataForFree) {
  const Case one = make_case(R"(
program p batch 1 micro_batches 1
device A cpu host a memory 1000000
  buffer x f32[100] input
  buffer a f32[100] comm
  segment F stage 0 phase F
    a = copy(x)
    send a to S tag 0
  order
    F.0
device S host host b memory 1000000
  buffer a f32[100] comm
  buffer y f32[100] output
  segment out stage io shard 1 phase F
    recv a from A tag 0
    y = copy(a)
  order
    out.0
)",
                             chain(2, 2 * ms));
  EXPECT_NEAR(fast(one).makespan, 100 * us + 100 * us + 2 * ms, 1e-15);
}

}  // namespace
}  // namespace nlsplit::testing

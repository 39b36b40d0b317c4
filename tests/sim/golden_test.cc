// Every span of a small pipeline as text, and what stands in the middle of a way.
#include <gmock/gmock.h>

#include "sim/cases.h"

namespace nlsplit::testing {
namespace {

// "A0.1 send 1000-2000": device, slot, instruction, microseconds.
std::string print(const Case& one, const Timing& timing) {
  const Trace trace = to_trace(one.program, one.dependencies, one.graph, timing);
  std::string text;
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    const Span& span = trace.spans[i];
    text += fmt::format("{}{}.{} {} {:.6g}-{:.6g}\n", one.program.devices[static_cast<size_t>(span.device)].name,
                        span.slot, span.instr, name_of(instr_of(one.program, one.dependencies.instances[i]).opcode),
                        span.start / us, span.finish / us);
  }
  return text + fmt::format("makespan {:.6g}\n", trace.makespan / us);
}

// A copies 1000 floats (1000 us), B copies 500 of what it gets (500 us). On the link 1000 us and 250 us more;
// rendezvous, two instances on either side. A: copies 0-1000 and 1000-2000; the third reuses instance 0, which is free
// when the first message is out at 2000: 2000-3000. Messages are sent 1000-2000, 2000-3000, 3000-4000, and there 250
// later. B: 2250-2750, 3250-3750, 4250-4750. Its recvs are posted at 0 and 0; the third when instance 0 was read, at
// 2750, before its message is ready at 3000.
constexpr const char* golden =
    "A0.0 copy 0-1000\n"
    "A0.1 send 1000-2000\n"
    "A1.0 copy 1000-2000\n"
    "A1.1 send 2000-3000\n"
    "A2.0 copy 2000-3000\n"
    "A2.1 send 3000-4000\n"
    "B0.0 recv 0-2250\n"
    "B0.1 copy 2250-2750\n"
    "B1.0 recv 0-3250\n"
    "B1.1 copy 3250-3750\n"
    "B2.0 recv 2750-4250\n"
    "B2.1 copy 4250-4750\n"
    "makespan 4750\n";

TEST(Golden, TwoStagePipeline) {
  const Case one = make_case(text_of({{1000, 500}, 3, 2, 0, 0}), chain(2, 250 * us));
  EXPECT_EQ(print(one, fast(one)), golden);
  EXPECT_EQ(print(one, simgrid(one)), golden);
}

// A way of three links whose middle one is the slowest: 4000 B at 1 MB/s are 4 ms, latencies 1 + 2 + 3 ms.
TEST(Golden, SlowestLinkInTheMiddle) {
  Cluster cluster = chain(2, 0);
  cluster.links.clear();
  cluster.hosts.push_back({"s", true});
  cluster.hosts.push_back({"t", true});
  add_link(cluster, "a", "s", 1 * ms, 8e6);
  add_link(cluster, "t", "s", 2 * ms, 1e6);
  add_link(cluster, "t", "b", 3 * ms, 4e6);
  const Case one = make_case(text_of({{1000, 1000}, 1}), cluster);
  const double wanted = (1 + 4 + 6 + 1) * ms;
  expect_near_relative(fast(one).makespan, wanted, 1e-12, "fast");
  expect_near_relative(simgrid(one).makespan, wanted, 1e-9, "SimGrid");
}

// Three messages wait at a card that sends one at a time, in the order of the Program.
TEST(Golden, QueueOfThree) {
  std::string text = R"(
program three batch 1 micro_batches 1 nic_window 1
device A cpu host a memory 1000000
  buffer x f32[1000] input
  buffer a f32[1000] comm
  segment F stage 0 phase F
    a = copy(x)
    send a to B tag 0
    send a to C tag 0
    send a to D tag 0
  order
    F.0
)";
  for (const char name : {'B', 'C', 'D'}) {
    text += fmt::format(
        "device {0} cpu host {1} memory 1000000\n  buffer y f32[1000] output\n  segment F stage 1 shard {2} phase F\n"
        "    recv y from A tag 0\n  order\n    F.0\n",
        name, static_cast<char>(name + ('a' - 'A')), name - 'B');
  }
  const Case one = make_case(text, star(4, 1 * ms, link_rate, false));
  for (const Timing& timing : {fast(one), simgrid(one)}) {
    for (int k = 0; k < 3; ++k) {  // k-th: written at 1 ms, k before it and itself 1 ms each, then two hops of 1 ms
      const size_t a = activity_of(one, "A", 0, 1 + k);
      expect_near_relative(timing.sent[a], (2 + k) * ms, 1e-9, "sent");
      expect_near_relative(timing.finish[a], (4 + k) * ms, 1e-9, "delivered");
    }
  }
}

// Two messages ask A's card at 1 ms: what came from D at that moment and goes on to B, and what A has just made for C.
// The first has the lower number, so it goes first in both tiers, although in SimGrid a flow ends and a timer comes.
TEST(Golden, EqualTimesAtACardGoByNumber) {
  std::string text = R"(
program tie batch 1 micro_batches 1 nic_window 1
device A cpu host a memory 1000000
  buffer x f32[1000] input
  buffer a f32[1000] comm
  buffer r f32[1000] comm
  segment F stage 0 phase F
    recv r from D tag 0
    send r to B tag 0
    a = copy(x)
    send a to C tag 0
  order
    F.0
)";
  for (const char name : {'B', 'C'}) {
    text += fmt::format(
        "device {0} cpu host {1} memory 1000000\n  buffer y f32[1000] output\n  segment F stage 1 shard {2} phase F\n"
        "    recv y from A tag 0\n  order\n    F.0\n",
        name, static_cast<char>(name + ('a' - 'A')), name - 'B');
  }
  text += R"(device D cpu host d memory 1000000
  buffer z f32[1000] input
  segment F stage 0 shard 1 phase F
    send z to A tag 0
  order
    F.0
)";
  const Case one = make_case(text, star(4, 0));
  const size_t forwarded = activity_of(one, "A", 0, 1), made = activity_of(one, "A", 0, 3);
  ASSERT_LT(forwarded, made);
  for (const Timing& timing : {fast(one), simgrid(one)}) {
    expect_near_relative(timing.start[forwarded], 1 * ms, 1e-9, "to B ready");
    expect_near_relative(timing.start[made], 1 * ms, 1e-9, "to C ready");
    expect_near_relative(timing.sent[forwarded], 2 * ms, 1e-9, "to B");
    expect_near_relative(timing.sent[made], 3 * ms, 1e-9, "to C");
  }
}

}  // namespace
}  // namespace nlsplit::testing

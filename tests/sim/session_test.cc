// Sessions in both tiers.
#include "program/session.h"

#include <gmock/gmock.h>

#include "sim/cases.h"
#include "testing/counter_session.h"
#include "testing/value_of.h"

namespace nlsplit::testing {
namespace {

struct Both {
  Timing fast, simgrid;
  Trace trace;  // of SimGrid
};

Both simulate(const Sequence& sequence, const Cluster& cluster) {
  const TimedGraph graph =
      value_of(build_timed_graph(sequence.program, sequence.dependencies, cluster, copies_at_8_mb_per_second(cluster)));
  Both both;
  simulate_fast(graph, both.fast);
  both.simgrid = value_of(simulate_all(simgrid_tier(), cluster, {&graph})).front();
  expect_same(both.fast, both.simgrid, 1e-9, "tiers");
  both.trace = to_trace(sequence.program, sequence.dependencies, graph, both.simgrid);
  return both;
}

// A copies n floats and sends them, B copies them: one buffer at each end, every message as rendezvous.
constexpr double n = 1000 * us, latency = 300 * us, choice = 4 * us;

Session pair() {
  return value_of(parse_session(R"(nlsplit session 1
session pair
nlsplit program 1
program step batch 1 micro_batches 1
device A cpu host a memory 1000000
  buffer s f32[1000] state
  buffer a f32[1000] comm
  segment S stage 0 phase step
    a = copy(s)
    send a to B tag 0
  order
    S.-
device B cpu host b memory 1000000
  buffer a f32[1000] comm
  buffer s f32[1000] state
  segment S stage 1 phase step
    recv a from A tag 0
    s = copy(a)
  order
    S.-
)",
                                "pair.session"));
}

// The next message moves when A has copied it again (n after the last one left) and B has its buffer back (latency and
// a copy after that): n + latency after the last one left; and moves for n.
TEST(SessionSimulation, ExecutionsOverlap) {
  for (const int times : {1, 2, 5, 1000}) {
    const std::vector<Choice> choices = {{0, times}};
    const Sequence sequence = value_of(in_sequence(pair(), choices, Choosing::known));
    const Both both = simulate(sequence, chain(2, latency));
    expect_near_relative(both.fast.makespan, n + times * (2 * n + latency), 1e-9, std::to_string(times));
  }
}

// A chooses again when its message has left. B takes the choice when its copy has ended; A then copies, and meanwhile
// the choice arrives and B posts its receive.
TEST(SessionSimulation, AChoiceIsAMessage) {
  for (const int runs : {1, 2, 5, 1000}) {
    const std::vector<Choice> choices(static_cast<size_t>(runs), Choice{0, 1});
    const Sequence sequence = value_of(in_sequence(pair(), choices, Choosing::messages));
    const Both both = simulate(sequence, chain(2, latency));
    const double period = choice + std::max(n, latency) + n + latency + n;
    expect_near_relative(both.fast.makespan, runs * period, 1e-9, std::to_string(runs));
  }
}

// Nobody computes, sends or receives for an execution before its choice is there.
TEST(SessionSimulation, NothingRunsBeforeItIsChosen) {
  const std::vector<Choice> choices = {{counter_init, 1}, {counter_push, 3}, {counter_read, 2}, {counter_push, 1}};
  const Sequence sequence = value_of(in_sequence(counter_session(), choices, Choosing::messages));
  Cluster cluster = chain(3, latency);
  add_link(cluster, "a", "c", latency);
  const Both both = simulate(sequence, cluster);
  std::vector<double> told(3, -1);
  size_t looked_at = 0;
  for (const Span& span : both.trace.spans) {
    const auto d = static_cast<size_t>(span.device);
    const bool chooses = sequence.execution_of[d][static_cast<size_t>(span.slot)] < 0;
    const Segment& segment =
        sequence.program.devices[d]
            .segments[static_cast<size_t>(sequence.program.devices[d].order[static_cast<size_t>(span.slot)].segment)];
    if (chooses) {
      told[d] = span.finish;
    } else {
      EXPECT_GE(span.start, told[d] - 1e-12) << segment.name;
      ++looked_at;
    }
  }
  EXPECT_GT(looked_at, 40u);
}

TEST(SessionSimulation, TheCounterAThousandTimes) {
  const std::vector<Choice> together = {{counter_init, 1}, {counter_push, 1000}, {counter_read, 1}};
  std::vector<Choice> one_by_one(1002, Choice{counter_push, 1});
  one_by_one.front() = {counter_init, 1};
  one_by_one.back() = {counter_read, 1};
  Cluster mesh = chain(3, latency);
  add_link(mesh, "a", "c", latency);
  const Sequence known = value_of(in_sequence(counter_session(), together, Choosing::known));
  const Sequence chosen = value_of(in_sequence(counter_session(), one_by_one, Choosing::messages));
  const double fast = simulate(known, mesh).fast.makespan, slow = simulate(chosen, mesh).fast.makespan;
  // Three messages lead from a value to what A is told of the next one but one.
  EXPECT_GT(fast, 1000 * 3 * latency / 2);
  EXPECT_LT(fast, 1000 * 3 * latency / 2 * 1.25);
  EXPECT_GT(slow, 1000 * 3 * latency);  // a choice, and then all of an execution
}

}  // namespace
}  // namespace nlsplit::testing

// One physics: what one feature of the fast tier does to the times does not depend on which others are on, and the
// closed sweep gives the times of the event loop. On pipelines, training steps with replicas and their collectives,
// layers split over devices, and sessions; each with every subset of the features.
#include <gmock/gmock.h>

#include <functional>

#include "base/random.h"
#include "graph/passes/passes.h"
#include "partition/expand.h"
#include "program/session.h"
#include "sim/disturb.h"
#include "sim/hand_cases.h"
#include "testing/compile_program.h"
#include "testing/counter_session.h"
#include "testing/layers.h"
#include "testing/value_of.h"

namespace nlsplit::testing {
namespace {

struct Feature {
  const char* name;
  std::function<void(const Case&, TimedGraph&, Random&)> on;  // with an effect
  std::function<void(TimedGraph&)> neutral;                   // without one: the times must stay. May be empty
  bool closed = false;                                        // the sweep goes on serving
};

template <class Change>
void each_transfer(TimedGraph& graph, Change change) {
  for (Activity& activity : graph.activities) {
    if (activity.is_transfer) change(activity);
  }
}

template <class Change>
void each_block(TimedGraph& graph, Change change) {
  for (Activity& activity : graph.activities) {
    if (!activity.is_transfer) change(activity);
  }
}

constexpr int no_limit = 1 << 20;

std::vector<Feature> features() {
  const auto one_machine = [](TimedGraph& graph) { graph.machine_of_device.assign(graph.machine_of_device.size(), 0); };
  return {
      {"overheads",
       [](const Case&, TimedGraph& graph, Random& random) {
         graph.has_overheads = true;
         each_transfer(graph, [&](Activity& a) {
           a.sender_overhead = random.uniform() * 0.1 * a.duration;
           a.receiver_overhead = random.uniform() * 0.1 * a.duration;
         });
       },
       {}},
      {"slowed",
       [](const Case&, TimedGraph& graph, Random& random) {
         graph.has_overheads = true;
         each_transfer(graph, [&](Activity& a) {
           a.slowed = random.uniform();
           a.busy = random.uniform() * 0.1 * ms;
         });
       },
       {}},
      {"company",
       [=](const Case&, TimedGraph& graph, Random& random) {
         one_machine(graph);
         each_block(graph, [&](Activity& a) { a.company = random.uniform() * 0.3 * a.duration; });
       },
       one_machine},
      {"card window", [](const Case&, TimedGraph& graph, Random&) { graph.nic_window = 1; },
       [](TimedGraph& graph) { graph.nic_window = no_limit; }},
      {"stragglers",
       [](const Case&, TimedGraph& graph, Random& random) {
         graph.slowness.resize(graph.host_of_device.size());
         for (Slowness& slow : graph.slowness)
           slow_down(slow, random.uniform(1, 3), random.uniform(0, 2 * ms), random.uniform(2 * ms, 5 * ms));
       },
       [](TimedGraph& graph) { graph.slowness.resize(graph.host_of_device.size()); }},
      {"answers that wait",
       [](const Case&, TimedGraph& graph, Random& random) {
         graph.clear_to_send_waits = graph.has_queues = true;
         each_transfer(graph, [&](Activity& a) {
           a.clear_to_send_delay = a.eager ? 0 : random.uniform() * ms;
           a.queued = random.uniform() * ms;
         });
       },
       [](TimedGraph& graph) { graph.clear_to_send_waits = graph.has_queues = true; }},
      {"messages that do not wait",
       [](const Case&, TimedGraph& graph, Random& random) {
         each_transfer(graph, [&](Activity& a) { a.waits = a.waits && random.below(2) == 0; });
       },
       {},
       true},
      {"jitter",
       [](const Case& one, TimedGraph& graph, Random& random) {
         Noise noise;
         noise.compute_jitter = 0.3;
         noise.link_jitter = 0.3;
         disturb(graph, noise, one.cluster, noise_keys(one.program, one.dependencies, graph, one.cluster),
                 static_cast<int>(random.below(1000)));
       },
       {},
       true},
  };
}

int64_t random_eager_limit(Random& random) { return std::array<int64_t, 3>{0, 1500, 1 << 20}[random.below(3)]; }

// Times without ties.
void vary(TimedGraph& graph, Random& random) {
  for (Activity& activity : graph.activities) {
    activity.duration *= random.uniform(0.5, 1.5);
    if (activity.is_transfer && !activity.eager) activity.handshake = random.uniform() * 0.2 * ms;
  }
}

Case random_pipeline(Random& random) {
  const int stages = 2 + static_cast<int>(random.below(4));
  Pipeline pipeline;
  pipeline.micro_batches = 1 + static_cast<int>(random.below(6));
  pipeline.instances = 1 + static_cast<int>(random.below(2));
  pipeline.eager_limit = random_eager_limit(random);
  for (int s = 0; s < stages; ++s) pipeline.sizes.push_back(100 + static_cast<int>(random.below(900)));
  return make_case(text_of(pipeline), chain(stages, random.uniform() * 0.3 * ms));
}

// Stages on one device or two, of which some are split inside their layers.
Case compiled(Random& random, bool training) {
  const int devices = 2 + static_cast<int>(random.below(3));
  const Cluster cluster = star(devices, random.uniform() * 0.1 * ms);
  Plan plan;
  plan.micro_batches = 2 + static_cast<int>(random.below(3));
  const size_t stages = 1 + random.below(3);
  const Graph graph = layers(static_cast<int>(stages) * 2, 4, 8);
  for (size_t s = 0; s < stages; ++s) {
    Stage& stage = plan.stages.emplace_back();
    stage.begin = 4 * s;
    stage.end = 4 * s + 4;
    const size_t first = random.below(static_cast<size_t>(devices));
    for (size_t d = 0; d < 1 + (s == 0 ? 1 : random.below(2)); ++d)
      stage.devices.push_back(DeviceId((first + d) % static_cast<size_t>(devices)));
    if (training || stage.devices.size() < 2) continue;
    Split split;
    const std::vector<SplitAxis> axes = applicable_axes(graph, stage.begin, stage.end);
    split.axis = axes[random.below(axes.size())];
    split.shares = {1, 1 + static_cast<int>(random.below(2))};
    stage.split = std::move(split);
  }
  plan.schedule = training ? "list" : random.below(2) == 0 ? "streaming" : "fill_drain";
  const auto network =
      training ? choose_kernels(graph, {Isa::v3}, {},
                                TrainingOptions{.optimizer = Optimizer::adam,
                                                .recompute = random.below(2) == 0 ? Recompute::full : Recompute::none,
                                                .micro_batches = plan.micro_batches})
               : choose_kernels(graph, {Isa::v3});
  const CostTable costs = copies_at_8_mb_per_second(cluster);
  Program program = value_of(compile_program(value_of(network), plan, cluster, {HostId(0), HostId(1)}, &costs));
  program.eager_limit = bytes(random_eager_limit(random));
  return make_case(std::move(program), cluster);
}

Case random_session(Random& random) {
  const Session session = counter_session();
  std::vector<Choice> choices = {{counter_init, 1}};
  for (size_t i = 0; i < 2; ++i) choices.push_back({counter_push, 1 + static_cast<int>(random.below(4))});
  choices.push_back({counter_read, 1});
  Sequence sequence =
      value_of(in_sequence(session, choices, random.below(2) == 0 ? Choosing::known : Choosing::messages));
  Case one;
  one.program = std::move(sequence.program);
  one.dependencies = std::move(sequence.dependencies);
  for (const DeviceProgram& device : one.program.devices) add_device(one.cluster, device.name, device.host);
  one.cluster.hosts.push_back({"sw", true});
  for (size_t h = 0; h + 1 < one.cluster.hosts.size(); ++h)
    add_link(one.cluster, one.cluster.hosts[h].name, "sw", random.uniform() * 0.1 * ms);
  one.graph =
      value_of(build_timed_graph(one.program, one.dependencies, one.cluster, copies_at_8_mb_per_second(one.cluster)));
  return one;
}

Case random_case(size_t kind, Random& random) {
  Case one = kind == 0   ? random_pipeline(random)
             : kind == 1 ? compiled(random, true)
             : kind == 2 ? compiled(random, false)
                         : random_session(random);
  vary(one.graph, random);
  return one;
}

void expect_equal_timings(const Timing& one, const Timing& other, const std::string& what) {
  for (const auto& [a, b] :
       {std::pair(&one.start, &other.start), std::pair(&one.moves, &other.moves), std::pair(&one.sent, &other.sent),
        std::pair(&one.posted, &other.posted), std::pair(&one.finish, &other.finish)}) {
    ASSERT_THAT(*a, ::testing::Pointwise(::testing::DoubleNear(1e-12), *b)) << what;
  }
}

void expect_equal_times(const TimedGraph& graph, const TimedGraph& same, const std::string& what) {
  Timing one, other;
  simulate_fast(graph, one);
  simulate_fast(same, other);
  expect_equal_timings(one, other, what);
}

TEST(Features, NeitherDependsOnTheOthers) {
  const std::vector<Feature> all = features();
  Random random(20);
  size_t slower = 0, checked = 0, collectives = 0;
  constexpr size_t graphs = 60;
  for (size_t g = 0; g < graphs; ++g) {
    const Case plain = random_case(g % 4, random);
    for (const DeviceProgram& device : plain.program.devices) {
      for (const Segment& segment : device.segments) collectives += segment.collectives.size();
    }
    Timing alone;
    simulate_fast(plain.graph, alone);
    for (size_t set = 0; set < size_t{1} << all.size(); ++set) {
      TimedGraph graph = plain.graph;
      std::string what = fmt::format("graph {} ({}) with", g, plain.program.name);
      bool closed = true;
      for (size_t f = 0; f < all.size(); ++f) {
        if ((set >> f & 1) == 0) continue;
        all[f].on(plain, graph, random);
        closed = closed && all[f].closed;
        what += std::string(" ") + all[f].name + ",";
      }
      EXPECT_EQ(is_closed(graph), closed) << what;
      Timing timing, by_events;
      simulate_fast(graph, timing);
      simulate_by_events(graph, by_events);
      expect_equal_timings(timing, by_events, what);
      slower += timing.makespan > alone.makespan * (1 + 1e-9);
      for (size_t f = 0; f < all.size(); ++f) {
        if ((set >> f & 1) != 0 || !all[f].neutral) continue;
        TimedGraph same = graph;
        all[f].neutral(same);
        expect_equal_times(graph, same, what + " and a neutral " + all[f].name);
        ++checked;
      }
    }
  }
  EXPECT_GT(slower, graphs * 64) << "the features have an effect";
  EXPECT_GT(checked, graphs * 128);
  EXPECT_GT(collectives, 10u);
}

}  // namespace
}  // namespace nlsplit::testing

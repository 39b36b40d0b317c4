// One physics: what one feature of the fast tier does to the times does not depend on which others are on, and the
// closed sweep gives the times of the event loop.
#include <gmock/gmock.h>

#include <functional>

#include "base/random.h"
#include "sim/hand_cases.h"

namespace nlsplit::testing {
namespace {

struct Feature {
  const char* name;
  std::function<void(TimedGraph&, Random&)> on;  // with an effect
  std::function<void(TimedGraph&)> neutral;      // without one: the times must stay. May be empty
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
       [](TimedGraph& graph, Random& random) {
         each_transfer(graph, [&](Activity& a) {
           a.sender_overhead = random.uniform() * 0.1 * a.duration;
           a.receiver_overhead = random.uniform() * 0.1 * a.duration;
         });
       },
       {}},
      {"slowed",
       [](TimedGraph& graph, Random& random) {
         each_transfer(graph, [&](Activity& a) { a.slowed = random.uniform(); });
       },
       {}},
      {"company",
       [=](TimedGraph& graph, Random& random) {
         one_machine(graph);
         each_block(graph, [&](Activity& a) { a.company = random.uniform() * 0.3 * a.duration; });
       },
       one_machine},
      {"card window", [](TimedGraph& graph, Random&) { graph.nic_window = 1; },
       [](TimedGraph& graph) { graph.nic_window = no_limit; }},
      {"stragglers",
       [](TimedGraph& graph, Random& random) {
         graph.slowness.resize(graph.host_of_device.size());
         for (Slowness& slow : graph.slowness)
           slow_down(slow, random.uniform(1, 3), random.uniform(0, 2 * ms), random.uniform(2 * ms, 5 * ms));
       },
       [](TimedGraph& graph) { graph.slowness.resize(graph.host_of_device.size()); }},
      {"answers that wait",
       [](TimedGraph& graph, Random& random) {
         graph.answers_wait = true;
         each_transfer(graph, [&](Activity& a) { a.answer_wait = a.eager ? 0 : random.uniform() * ms; });
       },
       [](TimedGraph& graph) { graph.answers_wait = true; }},
  };
}

// Devices around a switch, times without ties.
TimedGraph random_graph(Random& random) {
  const int stages = 2 + static_cast<int>(random.below(4));
  Pipeline pipeline;
  pipeline.micro_batches = 1 + static_cast<int>(random.below(6));
  pipeline.banks = 1 + static_cast<int>(random.below(2));
  pipeline.eager_limit = random.below(2) == 0 ? 0 : 1500;
  for (int s = 0; s < stages; ++s) pipeline.sizes.push_back(100 + static_cast<int>(random.below(900)));
  Case one = make_case(text_of(pipeline), chain(stages, random.uniform() * 0.3 * ms));
  for (Activity& activity : one.graph.activities) {
    activity.duration *= random.uniform(0.5, 1.5);
    if (activity.is_transfer && !activity.eager) activity.handshake = random.uniform() * 0.2 * ms;
  }
  return one.graph;
}

void expect_equal_times(const TimedGraph& graph, const TimedGraph& same, const std::string& what) {
  Timing one, other;
  simulate_fast(graph, one);
  simulate_fast(same, other);
  for (const auto& [a, b] :
       {std::pair(&one.start, &other.start), std::pair(&one.moves, &other.moves), std::pair(&one.sent, &other.sent),
        std::pair(&one.posted, &other.posted), std::pair(&one.finish, &other.finish)}) {
    ASSERT_THAT(*a, ::testing::Pointwise(::testing::DoubleNear(1e-12), *b)) << what;
  }
}

TEST(Features, NeitherDependsOnTheOthers) {
  const std::vector<Feature> all = features();
  Random random(20);
  size_t closed = 0, slower = 0, checked = 0;
  for (int g = 0; g < 60; ++g) {
    const TimedGraph plain = random_graph(random);
    Timing alone;
    simulate_fast(plain, alone);
    for (size_t set = 0; set < size_t{1} << all.size(); ++set) {
      TimedGraph graph = plain;
      std::string what = "graph " + std::to_string(g) + " with";
      for (size_t f = 0; f < all.size(); ++f) {
        if ((set >> f & 1) == 0) continue;
        all[f].on(graph, random);
        what += std::string(" ") + all[f].name + ",";
      }
      closed += is_closed(graph);
      EXPECT_EQ(is_closed(graph), set == 0) << what;
      Timing timing, by_events;
      simulate_fast(graph, timing);
      simulate_by_events(graph, by_events);
      ASSERT_THAT(timing.finish, ::testing::Pointwise(::testing::DoubleNear(1e-12), by_events.finish)) << what;
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
  EXPECT_EQ(closed, 60u);
  EXPECT_GT(slower, 60u * 40) << "the features have an effect";
  EXPECT_GT(checked, 60u * 64);
}

}  // namespace
}  // namespace nlsplit::testing

// What SimGrid's objects take must follow what is in flight, not how long the run is.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>

#include "sim/cases.h"

namespace nlsplit::testing {
namespace {

long resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  long size = 0, resident = 0;
  statm >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// The peak of the process that simulates, beyond what it was born with: one of its own, or its only child.
long simulation_bytes(const Cluster& cluster, const TimedGraph& graph) {
  std::array<int, 2> pipe{};
  EXPECT_EQ(::pipe(pipe.data()), 0);
  const pid_t process = ::fork();
  if (process == 0) {
    const long born_with = resident_bytes();
    const auto timings = simulate_all(simgrid_tier(), cluster, {&graph});
    if (!timings.ok()) std::fprintf(stderr, "%s\n", timings.error().to_string().c_str());
    rusage here{}, in_children{};  // where it needs SimGrid
    ::getrusage(RUSAGE_SELF, &here);
    ::getrusage(RUSAGE_CHILDREN, &in_children);
    const long own = timings.ok() ? std::max(here.ru_maxrss, in_children.ru_maxrss) * 1024 - born_with : -1;
    ::_exit(::write(pipe[1], &own, sizeof own) == sizeof own ? 0 : 1);
  }
  long own = -1;
  EXPECT_EQ(::read(pipe[0], &own, sizeof own), static_cast<ssize_t>(sizeof own));
  ::waitpid(process, nullptr, 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
  return own;
}

// A pipeline of as many stages as `like` has devices, of blocks of 1 ms and messages of 0.5 ms. Built here, because a
// Program of so many micro-batches is far larger than its simulation.
TimedGraph pipeline(const TimedGraph& like, uint32_t micro_batches) {
  TimedGraph graph = like;
  graph.activities.clear();
  graph.edges.clear();
  graph.edge_begin = {0};
  const auto stages = static_cast<uint32_t>(like.host_of_device.size());
  const uint32_t round = 2 * stages - 1;  // block 0, message 0, block 1, …
  for (uint32_t m = 0; m < micro_batches; ++m) {
    for (uint32_t i = 0; i < round; ++i) {
      const auto number = static_cast<uint32_t>(graph.activities.size());
      Activity activity;
      activity.device = static_cast<int>(i / 2);
      activity.duration = 1 * ms;
      if (i % 2 == 1) {
        activity.is_transfer = activity.eager = true;
        activity.peer = activity.device + 1;
        activity.route = activity.device;
        activity.duration = 0.5 * ms;
        activity.bytes = activity.duration * link_rate;
      }
      if (i > 0) graph.edges.push_back({number - 1, Event::delivered, Gate::start});
      if (m > 0) graph.edges.push_back({number - round, i % 2 == 1 ? Event::sent : Event::delivered, Gate::start});
      graph.activities.push_back(activity);
      graph.edge_begin.push_back(static_cast<uint32_t>(graph.edges.size()));
    }
  }
  return graph;
}

// A message under way takes more than a kilobyte in SimGrid. What is left per activity is a dozen numbers: its times,
// where the parent can read them too, and who waits for it.
TEST(SimGridMemory, GrowsWithWhatIsInFlight) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is in the way";
#endif
  const Case one = make_case(text_of({{300, 200, 400, 100}, 1}), chain(4, 0.1 * ms));
  const TimedGraph few = pipeline(one.graph, 1000), many = pipeline(one.graph, 40'000);
  const long small = simulation_bytes(one.cluster, few), large = simulation_bytes(one.cluster, many);
  ASSERT_GT(small, 0);
  const double each =
      static_cast<double>(large - small) / static_cast<double>(many.activities.size() - few.activities.size());
  RecordProperty("bytes_per_activity", static_cast<int>(each));
  EXPECT_LT(each, 400);
}

}  // namespace
}  // namespace nlsplit::testing

// What is run without SimGrid (sim/simgrid/fair_flows.h) against SimGrid's engine: each time, bit by bit.
#include "sim/simgrid/fair_flows.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/random.h"
#include "sim/hand_cases.h"
#include "sim/simgrid/engine.h"

namespace nlsplit::testing {
namespace {

// When each activity begins to move, has left and has ended.
std::vector<double> times_of(const Timing& timing) {
  std::vector<double> times = timing.moves;
  times.insert(times.end(), timing.sent.begin(), timing.sent.end());
  times.insert(times.end(), timing.finish.begin(), timing.finish.end());
  return times;
}

// The same by SimGrid's engine, in a process of its own.
std::vector<double> times_in_engine(const TimedGraph& graph, const Cluster& cluster) {
  const size_t count = 3 * graph.activities.size();
  void* shared = ::mmap(nullptr, count * sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(shared, MAP_FAILED);
  const pid_t process = ::fork();
  if (process == 0) {
    Timing timing;
    if (!run_engine(graph, cluster, timing).ok()) ::_exit(1);
    std::ranges::copy(times_of(timing), static_cast<double*>(shared));
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(process, &status, 0);
  EXPECT_EQ(status, 0);
  const auto* values = static_cast<const double*>(shared);
  std::vector<double> times(values, values + count);
  ::munmap(shared, count * sizeof(double));
  return times;
}

void expect_same_bits(const TimedGraph& graph, const Cluster& cluster) {
  Timing timing;
  ASSERT_TRUE(run_here(graph, cluster, timing));
  EXPECT_EQ(times_of(timing), times_in_engine(graph, cluster));
  EXPECT_GT(timing.makespan, 0);
}

TEST(FairFlows, HandTimedCases) {
  for (const HandCase& hand : hand_cases()) {
    SCOPED_TRACE(hand.name);
    expect_same_bits(hand.one.graph, hand.one.cluster);
  }
}

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  // Few different values, so that much happens at the same time.
  Cluster cluster() {
    const int devices = between(3, 7);
    Cluster cluster = one_of(3) ? star(devices, 0) : chain(devices, 0);
    const bool alike = one_of(2);
    for (Link& link : cluster.links) {
      if (!alike) link.bandwidth = bytes_per_second(link_rate * between(1, 4) / (one_of(2) ? 1 : 3));
      link.latency = seconds(one_of(2) ? 0 : 0.1 * ms);
      link.full_duplex = !one_of(4);
      link.shared = !one_of(6);
    }
    return cluster;
  }

  TimedGraph graph(const Cluster& cluster) {
    TimedGraph graph;
    const int devices = static_cast<int>(cluster.devices.size());
    for (int d = 0; d < devices; ++d) graph.host_of_device.push_back(d);
    graph.machine_of_device.assign(cluster.devices.size(), -1);
    graph.nic_window = one_of(3) ? between(1, 2) : 0;
    graph.has_overheads = one_of(3);
    graph.clear_to_send_waits = one_of(3);
    std::map<std::pair<int, int>, int> routes;
    std::map<int, uint32_t> last_block;  // by device
    const auto count = static_cast<uint32_t>(between(5, 150));
    for (uint32_t i = 0; i < count; ++i) {
      graph.edge_begin.push_back(static_cast<uint32_t>(graph.edges.size()));
      for (int e = i == 0 ? 0 : between(0, 2); e > 0; --e) {
        const auto from =
            static_cast<uint32_t>(between(i < 12 ? 0 : static_cast<int>(i) - 12, static_cast<int>(i) - 1));
        graph.edges.push_back({from, Event::delivered, Gate::start});
      }
      Activity& activity = graph.activities.emplace_back();
      activity.device = between(0, devices - 1);
      if (one_of(5)) {
        activity.duration = between(1, 4) * 0.5 * ms;
        if (const auto before = last_block.find(activity.device); before != last_block.end())
          graph.edges.push_back({before->second, Event::delivered, Gate::start});
        last_block[activity.device] = i;
        continue;
      }
      activity.peer = (activity.device + between(1, devices - 1)) % devices;
      add_transfer(cluster, routes, graph, activity);
    }
    graph.edge_begin.push_back(static_cast<uint32_t>(graph.edges.size()));
    return graph;
  }

 private:
  int between(int low, int high) {
    return low + static_cast<int>(random_.below(static_cast<uint64_t>(high - low + 1)));
  }
  bool one_of(int many) { return between(1, many) == 1; }

  void add_transfer(const Cluster& cluster, std::map<std::pair<int, int>, int>& routes, TimedGraph& graph,
                    Activity& activity) {
    const auto [at, is_new] =
        routes.try_emplace({activity.device, activity.peer}, static_cast<int>(graph.routes.size()));
    if (is_new) {
      const auto host_of = [&](int d) { return cluster.devices[static_cast<size_t>(d)].host; };
      graph.routes.push_back(find_route(cluster, host_of(activity.device), host_of(activity.peer)).value());
    }
    const Route& route = graph.routes[static_cast<size_t>(at->second)];
    activity.is_transfer = true;
    activity.route = at->second;
    activity.eager = one_of(2);
    activity.waits = !activity.eager && one_of(2);
    activity.bytes = one_of(3) ? 1000 * random_.uniform() : 4000 * between(1, 3);
    activity.duration = activity.bytes / route.narrowest.value();
    activity.latency = route.eager.latency.value();
    activity.handshake = one_of(2) ? 0.25 * ms : 0;
    if (graph.has_overheads) activity.sender_overhead = activity.receiver_overhead = between(0, 2) * 0.25 * ms;
    if (graph.clear_to_send_waits) activity.clear_to_send_delay = between(0, 2) * 0.5 * ms;
  }

  Random random_;
};

TEST(FairFlows, HasSimGridsBits) {
  int uneven = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Draw draw(seed);
    const Cluster cluster = draw.cluster();
    const TimedGraph graph = draw.graph(cluster);
    Timing timing;
    uneven += run_evenly(graph, cluster, timing) ? 0 : 1;
    expect_same_bits(graph, cluster);
    if (HasFailure()) return;
  }
  EXPECT_GT(uneven, 200);  // else SimGrid had little to say
}

TEST(EvenClock, LeavesWhatIsNotEven) {
  Cluster cluster = star(3, 0);
  const Case even = make_case(two_senders(1000, 3000), cluster);
  Timing timing;
  EXPECT_TRUE(run_evenly(even.graph, cluster, timing));
  EXPECT_EQ(times_of(timing), times_in_engine(even.graph, cluster));
  cluster.links[0].bandwidth = bytes_per_second(1e6);
  const Case uneven = make_case(two_senders(3000, 3000), cluster);
  EXPECT_FALSE(run_evenly(uneven.graph, cluster, timing));
  TimedGraph changing = even.graph;
  changing.courses.emplace_back(LinkId(0));
  EXPECT_FALSE(run_evenly(changing, even.cluster, timing)) << "a link that changes";
}

TEST(FairFlows, LeavesToSimGridWhatItCannotTell) {
  const Case one = make_case(exchange(), chain(2, 0, link_rate, false));
  Timing timing;
  EXPECT_TRUE(run_here(one.graph, one.cluster, timing));
  TimedGraph changing = one.graph;
  changing.courses.emplace_back(LinkId(0));
  EXPECT_FALSE(run_here(changing, one.cluster, timing)) << "a link that changes";
  TimedGraph twice = one.graph;
  for (Route& route : twice.routes) route.hops.push_back(route.hops.front());
  EXPECT_FALSE(run_here(twice, one.cluster, timing)) << "a route that passes a link twice";
  Cluster broken = one.cluster;
  broken.links[0].bandwidth = bytes_per_second(-1);
  EXPECT_FALSE(run_here(one.graph, broken, timing)) << "a bandwidth that cannot be";
}

}  // namespace
}  // namespace nlsplit::testing

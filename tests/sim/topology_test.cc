// Generated topologies through both tiers: one message by hand on each, uncontended Programs alike to 1e-9, and routes
// as long as those of SimGrid's own zones.
#include "cost/topology.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/cases.h"

namespace nlsplit::testing {
namespace {

LinkSpec spec(double bandwidth, double latency, bool full_duplex = true) {
  return {bytes_per_second(bandwidth), seconds(latency), full_duplex};
}

struct Made {
  const char* name;
  Cluster cluster;
  std::vector<std::string> hosts;  // of devices A, B, …: messages between neighbours share no link
  double latency;                  // seconds, from the first to the second
  double bandwidth;                // bytes a second, the same
};

Cluster of(const Topology& topology) {
  Cluster cluster;
  const Status status = add_topology(cluster, topology);
  EXPECT_TRUE(status.ok());
  return cluster;
}

Cluster node_with_nvlink() {
  Cluster cluster;
  cluster.hosts.push_back({"node", false});
  InnerNetwork inner{HostId(0), "g", {}, {spec(link_rate / 4, 5 * us), false}, Peers{spec(link_rate, 2 * us), false}};
  for (int d = 0; d < 3; ++d) {
    inner.devices.push_back(HostId(cluster.hosts.size()));
    cluster.hosts.push_back({fmt::format("node.g{}", d), false, HostId(0)});
  }
  add_inner_networks(cluster, {inner});
  return cluster;
}

std::vector<Made> topologies() {
  std::vector<Made> all;
  all.push_back({"star", of(Star{3, spec(link_rate, 1 * ms)}), {"h0", "h1", "h2"}, 2 * ms, link_rate});
  all.push_back({"racks",
                 of(Racks{2, 2, spec(link_rate, 1 * ms), spec(link_rate / 2, 3 * ms)}),
                 {"h1", "h2", "h0"},
                 8 * ms,
                 link_rate / 2});
  // Level 1 has 1 ms a link, level 2 3 ms, half as wide.
  all.push_back({"fat tree",
                 of(FatTreeNetwork{{{{2, 1, 1}, {2, 2, 2}}}, {spec(link_rate, 1 * ms), spec(link_rate / 2, 3 * ms)}}),
                 {"h0", "h3", "h1"},
                 8 * ms,
                 link_rate / 2});
  all.push_back({"torus", of(TorusNetwork{{{4, 3}}, spec(link_rate, 1 * ms)}), {"h0", "h6", "h7"}, 3 * ms, link_rate});
  // h0 at g0r0, h5 at g1r1. g0 meets g1 at router 0 mod 2, g1 meets g0 at its router 0: host, global, local, host.
  all.push_back(
      {"dragonfly",
       of(DragonflyNetwork{{3, 2, 1}, spec(link_rate, 1 * ms), spec(link_rate, 2 * ms), spec(link_rate / 2, 5 * ms)}),
       {"h0", "h3", "h2"},
       9 * ms,
       link_rate / 2});
  Cluster wan = of(Wan{{{"x", 2, spec(link_rate, 1 * ms)}, {"y", 1, spec(link_rate, 1 * ms)}}});
  add_link(wan, "x", "y", 20 * ms, link_rate / 4);
  all.push_back({"wan", std::move(wan), {"x1", "y0"}, 22 * ms, link_rate / 4});
  all.push_back({"wifi", of(Wifi{2, spec(link_rate, 1 * ms)}), {"h0", "h1"}, 2 * ms, link_rate / 2});
  all.push_back({"nvlink", node_with_nvlink(), {"node.g0", "node.g2", "node.g1"}, 2 * us, link_rate});
  Made pcie{"pcie", node_with_nvlink(), {"node.g0", "node"}, 5 * us, link_rate / 4};
  all.push_back(std::move(pcie));
  for (Made& made : all) {
    for (size_t d = 0; d < made.hosts.size(); ++d)
      add_device(made.cluster, std::string(1, static_cast<char>('A' + d)), made.hosts[d]);
  }
  return all;
}

// A copies n floats (n us), sends them to B, which copies them; and so on through all the devices.
std::string relay(const std::vector<std::string>& hosts, int floats, int micro_batches) {
  std::string text = fmt::format("program relay batch {0} micro_batches {0}\n", micro_batches);
  for (size_t d = 0; d < hosts.size(); ++d) {
    const bool first = d == 0, last = d + 1 == hosts.size();
    text += fmt::format("device {} cpu host {} memory 1000000000\n", static_cast<char>('A' + d), hosts[d]);
    text += fmt::format("  buffer x f32[{}] {} instances {}\n", floats, first ? "input" : "comm", micro_batches);
    text += fmt::format("  buffer y f32[{}] {} instances {}\n", floats, last ? "output" : "comm", micro_batches);
    text += fmt::format("  segment F stage {} phase F\n", d);
    if (!first) text += fmt::format("    recv x from {} tag 0\n", static_cast<char>('A' + d - 1));
    text += "    y = copy(x)\n";
    if (!last) text += fmt::format("    send y to {} tag 0\n", static_cast<char>('A' + d + 1));
    text += "  order\n";
    for (int m = 0; m < micro_batches; ++m) text += fmt::format("    F.{0} x:{0} y:{0}\n", m);
  }
  return text;
}

TEST(Topologies, OneMessageByHand) {
  for (const Made& made : topologies()) {
    const std::vector<std::string> two(made.hosts.begin(), made.hosts.begin() + 2);
    const Case one = make_case(relay(two, 1000, 1), made.cluster);
    const double wanted = 1 * ms + (made.latency + 4000 / made.bandwidth) + 1 * ms;
    EXPECT_NEAR(fast(one).makespan, wanted, 1e-9 * wanted) << made.name;
    EXPECT_NEAR(simgrid(one).makespan, wanted, 1e-9 * wanted) << made.name;
  }
}

TEST(Topologies, TiersAgreeWithoutContention) {
  for (const Made& made : topologies()) {
    for (const int floats : {1, 777, 5000}) {
      const Case one = make_case(relay(made.hosts, floats, 12), made.cluster);
      expect_same(simgrid(one), fast(one), 1e-9, fmt::format("{}, {} floats", made.name, floats));
    }
  }
}

// Two boards send to the desk: one channel, so each has half of it. On a FATPIPE both have all of it.
TEST(Topologies, SharedAndUnsharedLinks) {
  const std::string text = R"(program share batch 1 micro_batches 1
device A cpu host h0 memory 1000000
  buffer xa f32[1000] input
  segment F stage 0 shard 0 phase F
    send xa to C tag 0
  order
    F.0
device B cpu host h1 memory 1000000
  buffer xb f32[1000] input
  segment F stage 0 shard 1 phase F
    send xb to C tag 0
  order
    F.0
device C cpu host desk memory 1000000
  buffer ya f32[1000] output
  buffer yb f32[1000] output
  segment F stage 1 phase F
    recv ya from A tag 0
    recv yb from B tag 0
  order
    F.0
)";
  Cluster wifi = of(Wifi{2, spec(link_rate, 0)});
  add_device(wifi, "A", "h0");
  add_device(wifi, "B", "h1");
  add_device(wifi, "C", "desk");
  add_link(wifi, "desk", "ap", 0, 100 * link_rate);
  const Case shared = make_case(text, wifi);
  EXPECT_NEAR(simgrid(shared).makespan, 2 * ms, 1e-9 * ms);  // 8000 B at 4 MB/s
  EXPECT_NEAR(load_of(shared.graph, shared.cluster, 3).busiest(), 2 * ms, 1e-9 * ms);
  wifi.links[0].shared = false;
  const Case unshared = make_case(text, wifi);
  EXPECT_NEAR(simgrid(unshared).makespan, 1 * ms, 1e-9 * ms);
  EXPECT_LT(load_of(unshared.graph, unshared.cluster, 3).busiest(), 0.1 * ms);
}

}  // namespace
}  // namespace nlsplit::testing

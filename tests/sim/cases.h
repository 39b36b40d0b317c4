// Programs, clusters and costs small enough to time by hand.
//
// Devices copy f32 vectors at 8 MB/s: copying n floats reads 4n bytes and writes 4n, so it takes n microseconds.
// Links move 4 MB/s unless a test says otherwise: n floats take n microseconds plus the latency.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "program/text.h"
#include "program/verify.h"
#include "sim/fast.h"
#include "sim/simgrid/simgrid_tier.h"

namespace nlsplit::testing {

constexpr double ms = 1e-3, us = 1e-6;
constexpr double link_rate = 4e6;

inline void add_device(Cluster& cluster, const std::string& name, const std::string& host) {
  HostId id = cluster.find_host(host);
  if (!id.valid()) {
    id = HostId(cluster.hosts.size());
    cluster.hosts.push_back({host, false});
  }
  cluster.devices.push_back({name, id, DeviceKind::cpu, bytes(int64_t{1} << 40), Isa::v3});
}

inline void add_link(Cluster& cluster, const std::string& a, const std::string& b, double latency,
                     double rate = link_rate, bool full_duplex = true) {
  cluster.links.push_back({fmt::format("{}-{}", a, b), cluster.find_host(a), cluster.find_host(b),
                           bytes_per_second(rate), seconds(latency), full_duplex});
}

// Devices A, B, … on hosts a, b, …, each joined with the next.
inline Cluster chain(int devices, double latency, double rate = link_rate, bool full_duplex = true) {
  Cluster cluster;
  for (int i = 0; i < devices; ++i)
    add_device(cluster, std::string(1, static_cast<char>('A' + i)), std::string(1, static_cast<char>('a' + i)));
  for (int i = 0; i + 1 < devices; ++i)
    add_link(cluster, cluster.hosts[i].name, cluster.hosts[i + 1].name, latency, rate, full_duplex);
  return cluster;
}

// The same around a switch.
inline Cluster star(int devices, double latency, double rate = link_rate, bool full_duplex = true) {
  Cluster cluster = chain(devices, 0);
  cluster.links.clear();
  cluster.hosts.push_back({"sw", true});
  for (int i = 0; i < devices; ++i) add_link(cluster, cluster.hosts[i].name, "sw", latency, rate, full_duplex);
  return cluster;
}

inline CostTable copies_at_8_mb_per_second(const Cluster& cluster) {
  const CostSourcePtr flat = roofline(flops_per_second(1e30), bytes_per_second(8e6));
  return CostTable(std::vector<CostSourcePtr>(cluster.devices.size(), flat), "test.yaml");
}

struct Case {
  Program program;
  Dependencies dependencies;
  Cluster cluster;
  TimedGraph graph;
};

inline Program parse(const std::string& text) {
  auto program = parse_program("nlsplit program 1\n" + text, "test.nls");
  EXPECT_TRUE(program.ok()) << program.error().to_string() << "\n" << text;
  const Status sound = verify(*program);
  EXPECT_TRUE(sound.ok()) << sound.error().to_string();
  return std::move(program).value();
}

inline Case make_case(Program program, Cluster cluster) {
  Case made;
  made.program = std::move(program);
  made.cluster = std::move(cluster);
  made.dependencies = dependencies(made.program).value();
  auto graph =
      build_timed_graph(made.program, made.dependencies, made.cluster, copies_at_8_mb_per_second(made.cluster));
  EXPECT_TRUE(graph.ok()) << graph.error().to_string();
  made.graph = std::move(graph).value();
  return made;
}
inline Case make_case(const std::string& text, Cluster cluster) { return make_case(parse(text), std::move(cluster)); }

inline Timing fast(const Case& one) {
  Timing timing;
  simulate_fast(one.graph, timing);
  return timing;
}

inline Timing simgrid(const Case& one) {
  auto timings = simulate_all(simgrid_tier(), one.cluster, {&one.graph});
  EXPECT_TRUE(timings.ok()) << timings.error().to_string();
  return timings.ok() ? timings->front() : Timing{};
}

// The activity of an instruction: "A 0" is instruction 0 of device A's first slot, "A 2.1" instruction 1 of its third.
inline size_t activity_of(const Case& one, const std::string& device, int slot, int instr) {
  for (size_t a = 0; a < one.graph.activities.size(); ++a) {
    const Activity& activity = one.graph.activities[a];
    const auto matches = [&](uint32_t i) {
      const Instance& at = one.dependencies.instances[i];
      return one.program.devices[static_cast<size_t>(at.device)].name == device && at.slot == slot && at.instr == instr;
    };
    if (activity.is_transfer) {
      if (matches(activity.first_instance) || matches(one.dependencies.match[activity.first_instance])) return a;
      continue;
    }
    for (uint32_t m = 0; m < activity.count; ++m) {
      if (matches(one.graph.members[activity.first_instance + m])) return a;
    }
  }
  ADD_FAILURE() << "no activity has " << device << " " << slot << "." << instr;
  return 0;
}

inline void expect_near_relative(double got, double wanted, double tolerance, const std::string& what) {
  EXPECT_NEAR(got, wanted, tolerance * std::max(std::abs(wanted), 1e-300)) << what;
}

// Every event of both tiers, relative to the makespan.
inline void expect_same(const Timing& a, const Timing& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.finish.size(), b.finish.size());
  const double allowed = tolerance * b.makespan;
  EXPECT_NEAR(a.makespan, b.makespan, allowed) << what;
  for (size_t i = 0; i < a.finish.size(); ++i) {
    EXPECT_NEAR(a.posted[i], b.posted[i], allowed) << what << ", activity " << i;
    EXPECT_NEAR(a.start[i], b.start[i], allowed) << what << ", activity " << i;
    EXPECT_NEAR(a.sent[i], b.sent[i], allowed) << what << ", activity " << i;
    EXPECT_NEAR(a.finish[i], b.finish[i], allowed) << what << ", activity " << i;
  }
}

// A pipeline of one device a stage. Stage s copies sizes[s] floats and sends them on; each side of a link has
// `instances` buffers.
struct Pipeline {
  std::vector<int> sizes;
  int micro_batches = 1;
  int instances = 2;
  int64_t eager_limit = 0;
  int nic_window = 0;
};

inline std::string text_of(const Pipeline& p) {
  std::string text = fmt::format("program pipeline batch {0} micro_batches {0} eager_limit {1} nic_window {2}\n",
                                 p.micro_batches, p.eager_limit, p.nic_window);
  const size_t stages = p.sizes.size();
  const auto name = [](size_t s) { return static_cast<char>('A' + s); };
  for (size_t s = 0; s < stages; ++s) {
    const bool first = s == 0, last = s + 1 == stages;
    text += fmt::format("device {} cpu host {} memory 1099511627776\n", name(s), static_cast<char>('a' + s));
    text += fmt::format("  buffer x f32[{}] {} instances {}\n", p.sizes[first ? s : s - 1], first ? "input" : "comm",
                        first ? p.micro_batches : p.instances);
    text += fmt::format("  buffer y f32[{}] {} instances {}\n", p.sizes[s], last ? "output" : "comm",
                        last ? p.micro_batches : p.instances);
    // What comes in is consumed by a copy of the part both sizes have.
    const int common = std::min(p.sizes[first ? s : s - 1], p.sizes[s]);
    text += fmt::format("  segment F stage {} phase F\n", s);
    if (!first) text += fmt::format("    recv x from {} tag 0\n", name(s - 1));
    text += fmt::format("    y[0:{0}] = copy(x[0:{0}])\n", common);
    if (!last) text += fmt::format("    send y to {} tag 0\n", name(s + 1));
    text += "  order\n";
    for (int m = 0; m < p.micro_batches; ++m) {
      text += fmt::format("    F.{0} x:{1} y:{2}\n", m, first ? m : m % p.instances, last ? m : m % p.instances);
    }
  }
  return text;
}

}  // namespace nlsplit::testing

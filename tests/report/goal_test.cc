// GOAL text: what another reader understands of it is the Program.
#include "report/goal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <sstream>

#include "base/file.h"
#include "program/text.h"
#include "sim/fast.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

// As much of GOAL's grammar as is needed here, read strictly.
struct Operation {
  char kind = ' ';  // c s r
  int64_t amount = 0;
  int peer = -1, tag = -1;
  std::vector<std::pair<std::string, bool>> waits;  // label, for its start only
};
using Rank = std::map<std::string, Operation>;

std::optional<std::vector<Rank>> parse_goal(const std::string& text) {
  std::istringstream in(text);
  std::string line;
  size_t ranks = 0;
  std::vector<Rank> all;
  bool open = false;
  while (std::getline(in, line)) {
    if (line.empty()) continue;
    std::istringstream words(line);
    std::string first, word;
    words >> first;
    if (first == "num_ranks") {
      words >> ranks;
    } else if (first == "rank") {
      size_t number = 0;
      words >> number >> word;
      if (open || number != all.size() || word != "{") return std::nullopt;
      all.emplace_back();
      open = true;
    } else if (first == "}") {
      if (!open) return std::nullopt;
      open = false;
    } else if (first.back() == ':') {
      Operation op;
      words >> word;
      op.kind = word[0];
      words >> op.amount;
      if (word == "send" || word == "recv") {
        std::string unit, way, tag;
        words >> unit >> way >> op.peer >> tag >> op.tag;
        std::string nic;
        int card = -1;
        words >> nic >> card;
        if (nic != "nic" || card < 0) return std::nullopt;
        if (unit != "b" || way != (word == "send" ? "to" : "from") || tag != "tag") return std::nullopt;
      } else if (word != "calc") {
        return std::nullopt;
      }
      if (!words || !all.back().emplace(first.substr(0, first.size() - 1), op).second) return std::nullopt;
    } else {
      std::string how, label;
      words >> how >> label;
      if (!words || (how != "requires" && how != "irequires") || !all.back().contains(first) ||
          !all.back().contains(label))
        return std::nullopt;
      all.back()[first].waits.emplace_back(label, how == "irequires");
    }
  }
  if (open || all.size() != ranks) return std::nullopt;
  return all;
}

// LogGOPSim's model where L = latency, G = 1 / bandwidth and nothing else costs anything, for messages that wait for
// their receiver; ns.
double makespan_of(const std::vector<Rank>& ranks, double latency, double per_byte) {
  std::map<std::pair<int, std::string>, std::pair<double, double>> done;       // start, end
  std::map<std::tuple<int, int, int>, std::vector<std::string>> sends, recvs;  // from, to, tag: in order of the text
  double makespan = 0;
  bool moved = true;
  const auto ready = [&](int r, const Operation& op) -> std::optional<double> {
    double when = 0;
    for (const auto& [label, start] : op.waits) {
      const auto at = done.find({r, label});
      if (at == done.end()) return std::nullopt;
      when = std::max(when, start ? at->second.first : at->second.second);
    }
    return when;
  };
  while (moved) {
    moved = false;
    for (size_t r = 0; r < ranks.size(); ++r) {
      const int rank = static_cast<int>(r);
      for (const auto& [label, op] : ranks[r]) {
        if (done.contains({rank, label})) continue;
        const std::optional<double> when = ready(rank, op);
        if (!when) continue;
        if (op.kind == 'c') {
          done[{rank, label}] = {*when, *when + static_cast<double>(op.amount)};
        } else if (op.kind == 's') {
          const std::string mate = "r" + label.substr(1);  // one activity has one number at both ends
          const std::optional<double> posted = ready(op.peer, ranks[static_cast<size_t>(op.peer)].at(mate));
          if (!posted) continue;
          const double start = std::max(*when, *posted), sent = start + static_cast<double>(op.amount) * per_byte;
          done[{rank, label}] = {start, sent};
          done[{op.peer, mate}] = {*posted, sent + latency};
          makespan = std::max(makespan, sent + latency);
        } else {
          continue;  // with its send
        }
        makespan = std::max(makespan, done[{rank, label}].second);
        moved = true;
      }
    }
  }
  size_t count = 0;
  for (const Rank& rank : ranks) count += rank.size();
  EXPECT_EQ(done.size(), count) << "some operations wait for each other";
  return makespan;
}

struct Lowered {
  Program program;
  Dependencies dependencies;
  TimedGraph graph;
};

Lowered contract(const std::string& name) {
  Lowered lowered;
  const std::string path = std::string(NLS_SOURCE_DIR) + "/tests/programs/" + name + ".nls";
  lowered.program = parse_program(value_of(read_file(path)), path).value();
  lowered.dependencies = dependencies(lowered.program).value();
  Cluster cluster;
  cluster.hosts.push_back({"sw", true});
  for (const DeviceProgram& device : lowered.program.devices) {
    const HostId host(cluster.hosts.size());
    cluster.hosts.push_back({device.host, false});
    cluster.devices.push_back({device.name, host, DeviceKind::cpu, device.memory, device.level});
    cluster.links.push_back({"", host, HostId(0), bytes_per_second(1e6), seconds(1e-6), true});
  }
  const CostSourcePtr flat = roofline(flops_per_second(1e6), bytes_per_second(4e6));
  const CostTable costs(std::vector<CostSourcePtr>(cluster.devices.size(), flat), "test.yaml");
  lowered.graph = build_timed_graph(lowered.program, lowered.dependencies, cluster, costs).value();
  return lowered;
}

TEST(Goal, HasEveryMessageAndEveryBlock) {
  for (const std::string name : {"train_1f1b", "ring_all_reduce", "replicas", "interleaved", "instances"}) {
    const Lowered one = contract(name);
    const auto ranks = parse_goal(goal_text(one.program, one.dependencies, one.graph));
    ASSERT_TRUE(ranks.has_value()) << name;
    ASSERT_EQ(ranks->size(), one.program.devices.size());
    size_t blocks = 0, sends = 0, recvs = 0, waits = 0;
    int64_t sent = 0, received = 0;
    double computed = 0;
    for (const Rank& rank : *ranks) {
      for (const auto& [label, op] : rank) {
        waits += op.waits.size();
        blocks += op.kind == 'c' ? 1 : 0;
        sends += op.kind == 's' ? 1 : 0;
        recvs += op.kind == 'r' ? 1 : 0;
        if (op.kind == 's') sent += op.amount;
        if (op.kind == 'r') received += op.amount;
        if (op.kind == 'c') computed += static_cast<double>(op.amount);
      }
    }
    size_t activities = 0, transfers = 0;
    double seconds_computed = 0;
    int64_t bytes_moved = 0;
    for (const Activity& activity : one.graph.activities) {
      ++activities;
      if (!activity.is_transfer) {
        seconds_computed += activity.duration;
        continue;
      }
      ++transfers;
      const Instance& at = one.dependencies.instances[activity.first_instance];
      bytes_moved +=
          bytes_of(one.program.devices[static_cast<size_t>(at.device)], instr_of(one.program, at).reads[0]).value();
    }
    EXPECT_EQ(blocks, activities - transfers) << name;
    EXPECT_EQ(sends, transfers) << name;
    EXPECT_EQ(recvs, transfers) << name;
    EXPECT_EQ(sent, bytes_moved) << name;
    EXPECT_EQ(received, bytes_moved) << name;
    EXPECT_EQ(waits, one.graph.edges.size()) << name;
    // What is rounded off is made up for.
    EXPECT_NEAR(computed, seconds_computed * 1e9, static_cast<double>(ranks->size())) << name;
  }
}

TEST(Goal, SimulatedByItsOwnRulesItTakesAsLong) {
  for (const std::string name : {"train_1f1b", "replicas", "interleaved", "instances", "ring_all_reduce"}) {
    const Lowered one = contract(name);
    Timing timing;
    simulate_fast(one.graph, timing);
    const auto ranks = parse_goal(goal_text(one.program, one.dependencies, one.graph));
    ASSERT_TRUE(ranks.has_value());
    // Two links of 1 us; 1 MB/s is 1000 ns a byte.
    EXPECT_NEAR(makespan_of(*ranks, 2000, 1000), timing.makespan * 1e9, 1e-6 * timing.makespan * 1e9 + 10) << name;
  }
}

TEST(Goal, ReadsLikeThis) {
  Lowered one;
  one.program = parse_program(R"(nlsplit program 1
program two batch 1 micro_batches 1 eager_limit 16
device A cpu host a isa v2 memory 4096
  buffer x f32[4] input
  buffer h f32[4] comm
  segment F stage 0 phase F
    h = copy(x)
    send h to B tag 3
  order
    F.0
device B cpu host b isa v2 memory 4096
  buffer h f32[4] comm
  buffer y f32[4] output
  segment G stage 1 phase F
    recv h from A tag 3
    y = copy(h)
  order
    G.0
)",
                              "two.nls")
                    .value();
  one.dependencies = dependencies(one.program).value();
  Cluster cluster;
  cluster.hosts = {{"a", false}, {"b", false}};
  cluster.devices = {{"A", HostId(0), DeviceKind::cpu, bytes(4096), Isa::v2},
                     {"B", HostId(1), DeviceKind::cpu, bytes(4096), Isa::v2}};
  cluster.links.push_back({"", HostId(0), HostId(1), bytes_per_second(1e6), seconds(1e-6), true});
  const CostTable costs({roofline(flops_per_second(1e9), bytes_per_second(32e6)),
                         roofline(flops_per_second(1e9), bytes_per_second(16e6))},
                        "test.yaml");  // 32 bytes: 1 us on A, 2 us on B
  one.graph = build_timed_graph(one.program, one.dependencies, cluster, costs).value();
  EXPECT_EQ(goal_text(one.program, one.dependencies, one.graph), R"(num_ranks 2

rank 0 {
b0: calc 1000
s1: send 16b to 1 tag 3 nic 0
s1 requires b0
}

rank 1 {
r1: recv 16b from 0 tag 3 nic 0
b2: calc 2000
b2 requires r1
}
)");
}

}  // namespace
}  // namespace nlsplit

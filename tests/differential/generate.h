// A random case for every seed: a network, a cluster, a plan, and the Program they lower to.
#pragma once

#include <algorithm>
#include <string>

#include "base/random.h"
#include "compile/compile.h"
#include "graph/passes/passes.h"
#include "partition/expand.h"
#include "testing/random_graph.h"
#include "testing/random_sequence.h"

namespace nlsplit {

inline constexpr uint64_t input_seed = 5;

struct Case {
  Model model;  // optimized
  Cluster cluster;
  std::vector<CostSourcePtr> costs;
  Endpoints endpoints;
  int64_t batch = 1;
  Plan plan;
};

class CaseMaker {
 public:
  CaseMaker(uint64_t seed, Level level) : random_(seed * 7919 + 17), seed_(seed), level_(level) {}

  Result<Case> make() {
    Case out{random_graph(seed_, between(3, 14)), {}, {}, {}, 1, {}};
    ASSIGN_OR_RETURN(out.model.graph, optimize(out.model.graph, out.model.weights));
    make_cluster(out);
    make_plan(out);
    return out;
  }

  // The same with splits inside layers, wherever they are legal; on two devices at least.
  Result<Case> make_with_splits() {
    const bool tokens = seed_ % 4 == 0;  // else images
    Case out{tokens ? random_sequence(seed_, between(2, 8)) : random_graph(seed_, between(3, 14)), {}, {}, {}, 1, {}};
    ASSIGN_OR_RETURN(out.model.graph, optimize(out.model.graph, out.model.weights));
    make_cluster(out, 2);
    make_plan(out);
    ASSIGN_OR_RETURN(const Graph graph, with_batch(out.model.graph, out.batch / out.plan.micro_batches));
    for (size_t s = 0; s < out.plan.stages.size(); ++s) split_stage(out, graph, s);
    return out;
  }

 private:
  int between(int low, int high) {
    return low + static_cast<int>(random_.below(static_cast<uint64_t>(high - low + 1)));
  }
  bool chance(double p) { return random_.uniform() < p; }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[random_.below(list.size())];
  }

  void make_cluster(Case& out, int least_devices = 1) {
    Cluster& cluster = out.cluster;
    const int hosts = between(1, 4);
    for (int h = 0; h < hosts; ++h) cluster.hosts.push_back({std::string(1, static_cast<char>('a' + h)), false});
    const auto link = [&](size_t a, size_t b) {
      Link made;
      made.name = "link" + std::to_string(cluster.links.size());
      made.a = HostId(a);
      made.b = HostId(b);
      made.bandwidth = bytes_per_second(random_.uniform(1e7, 1e9));
      made.latency = seconds(random_.uniform(1e-6, 1e-3));
      made.full_duplex = chance(0.7);
      cluster.links.push_back(made);
    };
    for (int h = 0; h < hosts; ++h) link(static_cast<size_t>(h), static_cast<size_t>(h));
    if (chance(0.5)) {  // a chain, hosts forward; else a switch
      for (int h = 1; h < hosts; ++h) link(static_cast<size_t>(h - 1), static_cast<size_t>(h));
    } else {
      cluster.hosts.push_back({"sw", true});
      for (int h = 0; h < hosts; ++h) link(static_cast<size_t>(h), static_cast<size_t>(hosts));
    }
    const int devices = between(least_devices, 4);
    for (int d = 0; d < devices; ++d) {
      Device device;
      device.name = std::string(1, static_cast<char>('A' + d));
      device.host = HostId(static_cast<size_t>(between(0, hosts - 1)));
      device.memory = bytes(int64_t{1} << 34);
      device.level = level_;
      device.kind = is_gpu(level_.isa) ? DeviceKind::cuda : DeviceKind::cpu;
      cluster.devices.push_back(device);
      out.costs.push_back(
          roofline(flops_per_second(random_.uniform(1e9, 1e10)), bytes_per_second(random_.uniform(1e9, 1e10))));
    }
    cluster.eager_limit = bytes(pick<int64_t>({0, 1024, 1 << 20}));
    cluster.handshake = seconds(chance(0.3) ? 1e-4 : 0);
    cluster.nic_window = chance(0.2) ? 1 : 0;
    out.endpoints.source = HostId(static_cast<size_t>(between(0, hosts - 1)));
    out.endpoints.sink = HostId(static_cast<size_t>(between(0, hosts - 1)));
  }

  void make_plan(Case& out) {
    const size_t nodes = out.model.graph.nodes.size(), devices = out.cluster.devices.size();
    std::vector<size_t> cuts;
    const int stages = between(1, static_cast<int>(std::min<size_t>(4, nodes)));
    while (cuts.size() + 1 < static_cast<size_t>(stages)) {
      const size_t cut = 1 + random_.below(nodes - 1);
      if (std::find(cuts.begin(), cuts.end(), cut) == cuts.end()) cuts.push_back(cut);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.push_back(nodes);
    size_t begin = 0;
    const size_t first = random_.below(devices);
    for (size_t s = 0; s < cuts.size(); ++s) {
      Stage stage{begin, cuts[s], {}};
      // Mostly one after the other; a device may serve two stages when there are more stages than devices.
      stage.devices.push_back(DeviceId((first + s) % devices));
      for (size_t d = 0; d < devices; ++d) {
        if (DeviceId(d) != stage.devices[0] && chance(0.25)) stage.devices.push_back(DeviceId(d));
      }
      begin = cuts[s];
      out.plan.stages.push_back(std::move(stage));
    }
    const int64_t per_micro_batch = between(1, 3);
    out.plan.micro_batches = between(1, 5);
    out.batch = per_micro_batch * out.plan.micro_batches;
    out.plan.schedule = pick<const char*>({"streaming", "fill_drain", "list", "sequential"});
  }

  void split_stage(Case& out, const Graph& graph, size_t s) {
    Plan plan = out.plan;
    Stage& stage = plan.stages[s];
    const std::vector<SplitAxis> axes = applicable_axes(graph, stage.begin, stage.end);
    if (axes.empty() || chance(0.25)) return;
    Split split;
    split.axis = axes[random_.below(axes.size())];
    split.recompute_halo = (split.axis == SplitAxis::height || split.axis == SplitAxis::width) && chance(0.4);
    const size_t devices = out.cluster.devices.size();
    const size_t shards = 2 + random_.below(devices - 1);
    for (size_t k = 0; k < shards; ++k) split.shares.push_back(between(1, 3));
    const size_t groups = 2 * shards <= devices && chance(0.5) ? 2 : 1;
    const size_t first = random_.below(devices);
    stage.devices.clear();
    for (size_t i = 0; i < shards * groups; ++i) stage.devices.push_back(DeviceId((first + i) % devices));
    stage.split = std::move(split);
    if (expand_splits(graph, plan).ok()) out.plan = std::move(plan);
  }

  Random random_;
  uint64_t seed_;
  Level level_;
};

}  // namespace nlsplit

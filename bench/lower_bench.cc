// Lowering and search: what ranking a thousand plans is made of.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "base/random.h"
#include "graph/memory.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "partition/search.h"
#include "program/verify.h"
#include "testing/compile_program.h"

namespace nlsplit {
namespace {

Cluster star(size_t devices) {
  Cluster cluster;
  for (size_t i = 0; i < devices; ++i) {
    cluster.hosts.push_back({fmt::format("h{}", i), false});
    cluster.devices.push_back({fmt::format("D{}", i), HostId(i), DeviceKind::cpu, bytes(int64_t{1} << 33), Isa::v3});
  }
  cluster.hosts.push_back({"sw", true});
  for (size_t i = 0; i < devices; ++i) {
    cluster.links.push_back({"", HostId(i), HostId(devices), bytes_per_second(125e6), seconds(1e-4), true});
  }
  return cluster;
}

CostTable rooflines(size_t devices) {
  return CostTable(std::vector<CostSourcePtr>(devices, roofline(flops_per_second(1e11), bytes_per_second(2e10))),
                   "bench");
}

Graph resnet50() {
  Model model = zoo_model("resnet50").value();
  return optimize(model.graph, model.weights).value();
}

// Plans of one search after the other. items = plans.
void lower_resnet50(benchmark::State& state) {
  const Cluster cluster = star(4);
  const CostTable costs = rooflines(4);
  const KernelGraph kernels = choose_kernels(resnet50(), {Isa::v3}).value();
  const auto micro_batches = static_cast<int>(state.range(0));
  const SearchCosts search = search_costs(kernels.graph, micro_batches, cluster, costs).value();
  const SearchResult found = search_layers(kernels.graph, cluster, HostId(0), HostId(0), search, {}).value();
  for (size_t i = 0; i < found.plans.size(); i += 50) {
    const Status sound =
        verify(*compile_program(kernels, found.plans[i].plan, cluster, {HostId(0), HostId(0)}, &costs));
    if (!sound.ok()) {
      state.SkipWithError(sound.error().message.c_str());
      return;
    }
  }
  size_t next = 0;
  for (auto _ : state) {
    auto program = compile_program(kernels, found.plans[next++ % found.plans.size()].plan, cluster,
                                   {HostId(0), HostId(0)}, &costs);
    benchmark::DoNotOptimize(program);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()));
}
BENCHMARK(lower_resnet50)->Arg(1)->Arg(16)->Arg(64)->Unit(benchmark::kMicrosecond);

// A search with 2,000 candidates. Equal machines, then machines that all differ. items = candidates.
void search_resnet50(benchmark::State& state) {
  const Graph graph = resnet50();
  const auto devices = static_cast<size_t>(state.range(0));
  const Cluster cluster = star(devices);
  SearchCosts costs = search_costs(graph, 16, cluster, rooflines(devices)).value();
  if (state.range(1) != 0) {
    for (size_t d = 0; d < devices; ++d) {
      for (double& s : costs.node_seconds[d]) s *= 1 + 0.3 * static_cast<double>(d);
    }
  }
  size_t plans = 0;
  for (auto _ : state) {
    const SearchResult found = search_layers(graph, cluster, HostId(0), HostId(0), costs, {}).value();
    plans += found.plans.size();
  }
  state.SetItemsProcessed(static_cast<int64_t>(plans));
}
BENCHMARK(search_resnet50)->Args({4, 0})->Args({4, 1})->Args({16, 0})->Args({16, 1})->Unit(benchmark::kMillisecond);

// Each of the nodes reads two of the last few values; one in twenty reads far back. items = nodes.
void plan_arena_of_nodes(benchmark::State& state) {
  Random random(1);
  std::vector<Lifetime> lifetimes;
  for (int64_t n = 0; n < state.range(0); ++n) {
    lifetimes.push_back({bytes(static_cast<int64_t>(64 * (1 + random.below(4000)))), n, n + 1});
    for (int i = 0; i < 2; ++i) {
      const auto back = static_cast<int64_t>(random.below(20) == 0 ? 1 + random.below(200) : 1 + random.below(6));
      if (back <= n) lifetimes[static_cast<size_t>(n - back)].last = n;
    }
  }
  double over = 0;
  for (auto _ : state) {
    const ArenaPlan plan = plan_arena(lifetimes);
    over = plan.size / plan.bound - 1;
  }
  state.counters["over_bound"] = over;
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(plan_arena_of_nodes)->Arg(100)->Arg(1'000)->Arg(10'000)->Unit(benchmark::kMillisecond);

void choose_kernels_resnet50(benchmark::State& state) {
  const Graph graph = resnet50();
  for (auto _ : state) {
    auto kernels = choose_kernels(graph, {Isa::v3});
    benchmark::DoNotOptimize(kernels);
  }
}
BENCHMARK(choose_kernels_resnet50)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace nlsplit

// Both tiers of the simulator on pipelines; items are activities (a block or a transfer).
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <cmath>
#include <string>

#include "program/text.h"
#include "program/verify.h"
#include "sim/fast.h"
#include "sim/simgrid/simgrid_tier.h"

namespace nlsplit {
namespace {

Cluster chain(int stages) {
  Cluster cluster;
  for (int s = 0; s < stages; ++s) {
    cluster.hosts.push_back({fmt::format("h{}", s), false});
    cluster.devices.push_back(
        {fmt::format("D{}", s), HostId(static_cast<size_t>(s)), DeviceKind::cpu, bytes(1 << 30), Isa::v3});
  }
  for (size_t s = 0; s + 1 < static_cast<size_t>(stages); ++s) {
    cluster.links.push_back({"", HostId(s), HostId(s + 1), bytes_per_second(125e6), seconds(1e-4), true});
  }
  return cluster;
}

// Each stage copies what it received and sends it on; sizes differ a little, so that stages do not march in step.
std::string pipeline(int stages, int micro_batches, int copies, int window) {
  constexpr int instances = 4;
  std::string text = fmt::format("nlsplit program 1\nprogram pipeline batch {0} micro_batches {0} nic_window {1}\n",
                                 micro_batches, window);
  for (int s = 0; s < stages; ++s) {
    const bool first = s == 0, last = s + 1 == stages;
    const int floats = 10000;
    text += fmt::format("device D{0} cpu host h{0} memory 1073741824\n", s);
    text += fmt::format("  buffer x f32[{}] {} instances {}\n", floats, first ? "input" : "comm",
                        first ? micro_batches : instances);
    text += fmt::format("  buffer t f32[{}] scratch\n", 1000 + 137 * (s * 5 % 7));
    text += fmt::format("  buffer u f32[{}] scratch\n", 1000 + 137 * (s * 5 % 7));
    text += fmt::format("  buffer y f32[{}] {} instances {}\n", floats, last ? "output" : "comm",
                        last ? micro_batches : instances);
    text += fmt::format("  segment F stage {} phase F\n", s);
    if (!first) text += fmt::format("    recv x from D{} tag 0\n", s - 1);
    text += "    y = copy(x)\n";
    if (!last) text += fmt::format("    send y to D{} tag 0\n", s + 1);
    for (int c = 0; c < copies; ++c) text += "    u = copy(t)\n";
    text += "  order\n";
    for (int m = 0; m < micro_batches; ++m) {
      text += fmt::format("    F.{} x:{} y:{}\n", m, first ? m : m % instances, last ? m : m % instances);
    }
  }
  return text;
}

struct Built {
  Program program;
  Dependencies dependencies;
  Cluster cluster;
  TimedGraph graph;
};

CostTable costs_of(const Cluster& cluster) {
  return CostTable(
      std::vector<CostSourcePtr>(cluster.devices.size(), roofline(flops_per_second(1e12), bytes_per_second(1e9))),
      "bench");
}

Built build(int stages, int micro_batches, int copies = 0, int window = 0) {
  Built built;
  built.program = parse_program(pipeline(stages, micro_batches, copies, window), "bench").value();
  built.dependencies = dependencies(built.program).value();
  built.cluster = chain(stages);
  built.graph = build_timed_graph(built.program, built.dependencies, built.cluster, costs_of(built.cluster)).value();
  return built;
}

void count_activities(benchmark::State& state, const TimedGraph& graph) {
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(graph.activities.size()));
}

// Argument: the card's window; 0 is the sweep.
void fast_tier_16x64(benchmark::State& state) {
  const Built built = build(16, 64, 0, static_cast<int>(state.range(0)));
  Timing timing;
  for (auto _ : state) {
    simulate_fast(built.graph, timing);
    benchmark::DoNotOptimize(timing.makespan);
  }
  count_activities(state, built.graph);
}
BENCHMARK(fast_tier_16x64)->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

double cpu_seconds() {
  double total = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    getrusage(who, &used);
    for (const timeval& part : {used.ru_utime, used.ru_stime}) {
      total += static_cast<double>(part.tv_sec) + 1e-6 * static_cast<double>(part.tv_usec);
    }
  }
  return total;
}

// The time is that of one core: simulate_all uses as many as there are, so it is the CPU time of this process, and of
// children where SimGrid itself runs.
void run_simgrid(benchmark::State& state, const Built& built, size_t at_a_time) {
  const std::vector<const TimedGraph*> graphs(at_a_time, &built.graph);
  for (auto _ : state) {
    const double before = cpu_seconds();
    auto timings = simulate_all(simgrid_tier(), built.cluster, graphs);
    if (!timings.ok()) state.SkipWithError(timings.error().message.c_str());
    benchmark::DoNotOptimize(timings);
    state.SetIterationTime(cpu_seconds() - before);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(graphs.size() * built.graph.activities.size()));
}

// Nothing is contended, so both tiers must agree.
void uncontended(benchmark::State& state, const Built& built, size_t at_a_time) {
  Timing fast;
  simulate_fast(built.graph, fast);
  const auto checked = simulate_all(simgrid_tier(), built.cluster, {&built.graph});
  if (!checked.ok() || std::abs(checked->front().makespan - fast.makespan) > 1e-9 * fast.makespan) {
    state.SkipWithError("the tiers disagree on a pipeline without contention");
    return;
  }
  run_simgrid(state, built, at_a_time);
}

// Argument: graphs at a time.
void simgrid_tier_16x64(benchmark::State& state) {
  uncontended(state, build(16, 64), static_cast<size_t>(state.range(0)));
}
BENCHMARK(simgrid_tier_16x64)->Arg(1)->Arg(16)->UseManualTime()->Unit(benchmark::kMillisecond);

// Argument: micro-batches.
void simgrid_tier_64_stages(benchmark::State& state) {
  uncontended(state, build(64, static_cast<int>(state.range(0))), 1);
}
BENCHMARK(simgrid_tier_64_stages)->Arg(64)->Arg(640)->UseManualTime()->Unit(benchmark::kMillisecond);

// Every link is busy nearly all the time. chain: with one flow. star: one half-duplex wire from each host to a switch,
// with a flow in and a flow out, so that all flows depend on each other.
// Argument: micro-batches; with 64 the pipeline fills and drains most of the time.
void saturated(benchmark::State& state, bool star) {
  Built built = build(64, static_cast<int>(state.range(0)));
  for (Link& link : built.cluster.links) link.bandwidth = bytes_per_second(125e5);
  if (star) {
    built.cluster.links.clear();
    built.cluster.hosts.push_back({"sw", true});
    for (size_t s = 0; s < 64; ++s) {
      built.cluster.links.push_back({"", HostId(s), HostId(64), bytes_per_second(125e5), seconds(5e-5), false});
    }
  }
  built.graph = build_timed_graph(built.program, built.dependencies, built.cluster, costs_of(built.cluster)).value();
  const auto once = simulate_all(simgrid_tier(), built.cluster, {&built.graph});
  double busy = 0;
  const Load load = load_of(built.graph, built.cluster, built.program.devices.size());
  for (const auto& [hop, seconds] : load.link_seconds) busy += seconds / once->front().makespan;
  state.counters["link_utilisation"] = busy / static_cast<double>(load.link_seconds.size());
  run_simgrid(state, built, 1);
}
BENCHMARK_CAPTURE(saturated, chain, false)->Arg(64)->Arg(640)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(saturated, star, true)->Arg(64)->Arg(640)->UseManualTime()->Unit(benchmark::kMillisecond);

// What ranking does for each candidate after lowering: 4 stages, 64 micro-batches, 18 instructions a slot. Items are
// instructions.
void dependencies_build_and_sweep_4x64(benchmark::State& state) {
  const Built built = build(4, 64, 15);
  const CostTable costs = costs_of(built.cluster);
  Timing timing;
  for (auto _ : state) {
    const auto deps = dependencies(built.program);
    const auto graph = build_timed_graph(built.program, *deps, built.cluster, costs);
    simulate_fast(*graph, timing);
    benchmark::DoNotOptimize(timing.makespan);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(built.dependencies.instances.size()));
}
BENCHMARK(dependencies_build_and_sweep_4x64)->Unit(benchmark::kMicrosecond);

void build_timed_graph_4x64(benchmark::State& state) {
  const Built built = build(4, 64, 15);
  const CostTable costs = costs_of(built.cluster);
  for (auto _ : state) {
    auto graph = build_timed_graph(built.program, built.dependencies, built.cluster, costs);
    benchmark::DoNotOptimize(graph);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(built.dependencies.instances.size()));
}
BENCHMARK(build_timed_graph_4x64)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace nlsplit

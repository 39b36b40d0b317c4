// The main job after loading: about 1,000 plans of ResNet-50 on four machines, and where its time goes.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "program/verify.h"
#include "ranking/evaluate.h"
#include "ranking/ranking.h"
#include "testing/compile_program.h"

namespace nlsplit {
namespace {

// Four equal machines around a switch at 1 Gbit/s, as in scenarios/four_machines.yaml. `candidates` plans, shared out
// among the micro-batch counts.
Scenario four_machines(size_t candidates) {
  Scenario scenario;
  scenario.file = "bench.yaml";
  scenario.model = "zoo:resnet50";
  scenario.batch = 64;
  scenario.micro_batches = {4, 8, 16, 32};
  for (const char* host : {"a", "b", "c", "d"}) {
    scenario.cluster.devices.push_back({fmt::format("{}0", host), HostId(scenario.cluster.hosts.size()),
                                        DeviceKind::cpu, bytes(int64_t{8} << 30), Isa::v3});
    scenario.cluster.hosts.push_back({host, false});
    scenario.costs.push_back(roofline(flops_per_second(60e9), bytes_per_second(10e9)));
  }
  scenario.cluster.hosts.push_back({"sw", true});
  for (size_t h = 0; h < 4; ++h) {
    scenario.cluster.links.push_back({"", HostId(h), HostId(4), bytes_per_second(125e6), seconds(50e-6), true});
  }
  scenario.endpoints = {HostId(0), HostId(0)};
  scenario.schedules = {"streaming"};
  scenario.search.max_candidates = candidates / scenario.micro_batches.size();
  return scenario;
}

Model resnet50() {
  Model model = zoo_model("resnet50").value();
  model.graph = optimize(model.graph, model.weights).value();
  return model;
}

// Wall-clock time of everything after loading: prepare, search, lower, time, verify and simulate the finalists,
// verdict.
void rank_resnet50_on_4(benchmark::State& state) {
  const Scenario scenario = four_machines(static_cast<size_t>(state.range(0)));
  const Model model = resnet50();
  size_t considered = 0, judged = 0;
  for (auto _ : state) {
    const auto ranking = rank_plans(scenario, model, {});
    if (!ranking.ok()) return state.SkipWithError(ranking.error().message.c_str());
    considered = ranking->considered;
    judged = ranking->judged.size();
  }
  state.counters["plans"] = static_cast<double>(considered);
  state.counters["simulated"] = static_cast<double>(judged);
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * considered));
}
BENCHMARK(rank_resnet50_on_4)->Arg(1000)->UseRealTime()->Unit(benchmark::kMillisecond);

// One plan after the other. items = plans.
enum class Upto { lowered, verified, timed };
void plan_by_plan(benchmark::State& state, Upto upto) {
  const Scenario scenario = four_machines(1000);
  const Model model = resnet50();
  const CostTable costs = cost_table(scenario, model.graph.name);
  const PreparedModel prepared = prepare_model(scenario, model.graph, 16).value();
  const SearchCosts search = search_costs(prepared.kernels.graph, 16, scenario.cluster, costs).value();
  const SearchResult found = search_layers(prepared.kernels.graph, scenario.cluster, scenario.endpoints.source,
                                           scenario.endpoints.sink, search, scenario.search)
                                 .value();
  size_t next = 0;
  for (auto _ : state) {
    const Plan& plan = found.plans[next++ % found.plans.size()].plan;
    if (upto == Upto::timed) {
      const auto lowered = lower_plan(scenario, prepared, plan, costs);
      const Estimate estimate = estimate_fast(scenario, *lowered);
      benchmark::DoNotOptimize(estimate.makespan_s);
      continue;
    }
    const auto program = compile_program(prepared.kernels, plan, scenario.cluster, scenario.endpoints, &costs);
    if (upto == Upto::verified) {
      if (const Status sound = verify(*program); !sound.ok()) return state.SkipWithError(sound.error().message.c_str());
    }
    benchmark::DoNotOptimize(program->batch);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()));
}
BENCHMARK_CAPTURE(plan_by_plan, lower, Upto::lowered)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan_by_plan, lower_and_verify, Upto::verified)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan_by_plan, lower_and_time, Upto::timed)->Unit(benchmark::kMicrosecond);

// A scenario of 256 hosts with 8 devices each, behind PCIe and NVLink, in a fat tree.
void load_2048_devices(benchmark::State& state) {
  constexpr std::string_view text = R"(model: zoo:simple_cnn
workload: {batch: 4}
topology:
  kind: fat_tree
  levels:
    - {down: 16, link: {bandwidth: 10Gbps, latency: 1us}}
    - {down: 16, up: 16, link: {bandwidth: 10Gbps, latency: 1us}}
devices:
  gpu:
    {hosts: all, count: 8, memory: 1GiB, costs: {roofline: {compute: 1TFLOPS, memory: 100GBps}},
     bus: {bandwidth: 8GBps, latency: 4us}, peers: {kind: mesh, bandwidth: 50GBps, latency: 2us}}
source: h0
sink: h0
)";
  for (auto _ : state) {
    const auto scenario = parse_scenario(text, "bench.yaml");
    CHECK(scenario.ok() && scenario->cluster.devices.size() == 2048, "the scenario is sound");
    benchmark::DoNotOptimize(scenario->cluster.links.size());
  }
}
BENCHMARK(load_2048_devices)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace nlsplit

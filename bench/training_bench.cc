// A long pipeline that trains: 1F1B with 256 stages and 512 micro-batches, played on paper times, swept by the fast
// tier, and simulated by SimGrid. Items are slots on paper, else activities.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "program/text.h"
#include "program/verify.h"
#include "schedule/evaluate.h"
#include "sim/fast.h"
#include "sim/online.h"
#include "sim/simgrid/simgrid_tier.h"

namespace nlsplit {
namespace {

constexpr int stages = 256, micro_batches = 512;

// Equal stages in a chain.
ScheduleInput shape(double message_seconds) {
  ScheduleInput input;
  input.micro_batches = micro_batches;
  input.devices = stages;
  for (int s = 0; s < stages; ++s) input.stage_devices.push_back({s});
  for (auto* times : {&input.stage_seconds, &input.input_gradient_seconds, &input.weight_gradient_seconds})
    times->assign(stages, {1.0});
  input.message_seconds.assign(stages, message_seconds);
  return input;
}

// From a plain ScheduleInput to the time of every slot.
void one_f_one_b_on_paper(benchmark::State& state) {
  const ScheduleInput input = shape(0.1);
  size_t slots = 0;
  for (auto _ : state) {
    const SlotTable table = make_schedule("1f1b", input).value();
    SlotPlayer player(input);
    if (!player.play(table)) state.SkipWithError("1F1B waits for itself");
    benchmark::DoNotOptimize(player.makespan());
    slots = 0;
    for (const auto& order : table.devices) slots += order.size();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(slots));
}
BENCHMARK(one_f_one_b_on_paper)->Unit(benchmark::kMillisecond);

// Stage s copies what it received and sends it on; backwards likewise; W copies the gradient once more.
std::string device_text(int s, const std::vector<ScheduledSlot>& order) {
  const bool first = s == 0, last = s + 1 == stages;
  constexpr int floats = 10000, instances = 4;
  std::string text = fmt::format("device D{0} cpu host h{0} memory 1073741824\n", s);
  text += fmt::format("  buffer x f32[{}] {} instances {}\n", floats, first ? "input" : "comm",
                      first ? micro_batches : instances);
  text += fmt::format("  buffer y f32[{}] comm instances {}\n", floats, instances);
  text += fmt::format("  buffer d f32[{}] comm instances {}\n", floats, instances);
  text += fmt::format("  buffer g f32[{}] comm instances {}\n", floats, instances);
  text += fmt::format("  buffer w f32[{}] stash\n", floats);
  text += fmt::format("  segment F stage {} phase F\n", s);
  if (!first) text += fmt::format("    recv x from D{} tag 0\n", s - 1);
  text += "    y = copy(x)\n";
  if (!last) text += fmt::format("    send y to D{} tag 0\n", s + 1);
  text += fmt::format("  segment I stage {} phase I\n", s);
  if (!last) text += fmt::format("    recv d from D{} tag 1\n", s + 1);
  text += fmt::format("    g = copy({})\n", last ? "y" : "d");
  if (!first) text += fmt::format("    send g to D{} tag 1\n", s - 1);
  text += fmt::format("  segment W stage {} phase W\n    w = copy(g)\n  order\n", s);
  for (const ScheduledSlot& slot : order) {
    const int m = slot.micro_batch, instance = m % instances;
    if (slot.phase == Phase::forward)
      text += fmt::format("    F.{} x:{} y:{}\n", m, first ? m : instance, instance);
    else if (slot.phase == Phase::input_gradient)
      text += fmt::format("    I.{} {}:{} g:{}\n", m, last ? "y" : "d", instance, instance);
    else if (slot.phase == Phase::weight_gradient)
      text += fmt::format("    W.{} g:{}\n", m, instance);
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

const Built& built() {
  static const Built built = [] {
    const ScheduleInput input = shape(0);
    const SlotTable table = make_schedule("1f1b", input).value();
    std::string text = fmt::format("nlsplit program 1\nprogram pipeline batch {0} micro_batches {0}\n", micro_batches);
    Built made;
    for (int s = 0; s < stages; ++s) {
      text += device_text(s, table.devices[static_cast<size_t>(s)]);
      made.cluster.hosts.push_back({fmt::format("h{}", s), false});
      made.cluster.devices.push_back(
          {fmt::format("D{}", s), HostId(static_cast<size_t>(s)), DeviceKind::cpu, bytes(1 << 30), Isa::v3});
      if (s > 0) {
        made.cluster.links.push_back({"", HostId(static_cast<size_t>(s) - 1), HostId(static_cast<size_t>(s)),
                                      bytes_per_second(1e9), seconds(1e-5), true});
      }
    }
    made.program = parse_program(text, "bench").value();
    made.dependencies = dependencies(made.program).value();
    made.graph = build_timed_graph(made.program, made.dependencies, made.cluster, costs_of(made.cluster)).value();
    return made;
  }();
  return built;
}

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

void one_f_one_b_fast(benchmark::State& state) {
  const Built& one = built();
  Timing timing;
  for (auto _ : state) {
    simulate_fast(one.graph, timing);
    benchmark::DoNotOptimize(timing.makespan);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(one.graph.activities.size()));
}
BENCHMARK(one_f_one_b_fast)->Unit(benchmark::kMillisecond);

// The same with a policy that is asked for every slot.
void one_f_one_b_online(benchmark::State& state) {
  const Built& one = built();
  const Dependencies free = free_dependencies(one.program).value();
  const TimedGraph graph =
      build_online_graph(one.program, free, {"longest_path"}, one.cluster, costs_of(one.cluster)).value();
  Timing timing;
  for (auto _ : state) {
    if (const Status ended = simulate_online(graph, timing); !ended.ok())
      state.SkipWithError(ended.error().message.c_str());
    benchmark::DoNotOptimize(timing.makespan);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(graph.activities.size()));
}
BENCHMARK(one_f_one_b_online)->Unit(benchmark::kMillisecond);

// The time is that of one core. Nothing is contended, so both tiers must agree.
void one_f_one_b_simgrid(benchmark::State& state) {
  const Built& one = built();
  Timing fast;
  simulate_fast(one.graph, fast);
  for (auto _ : state) {
    const double before = cpu_seconds();
    const auto timings = simulate_all(simgrid_tier(), one.cluster, {&one.graph});
    state.SetIterationTime(cpu_seconds() - before);
    if (!timings.ok() || std::abs(timings->front().makespan - fast.makespan) > 1e-9 * fast.makespan)
      state.SkipWithError("the tiers disagree on a pipeline without contention");
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(one.graph.activities.size()));
}
BENCHMARK(one_f_one_b_simgrid)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace nlsplit

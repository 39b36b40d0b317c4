// What a run costs by its number of ranks: the bytes of the Program that each of them is given, and the time and memory
// of a run with one execution.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>

#include "exec/fill_inputs.h"
#include "exec/run_threads.h"
#include "program/part.h"
#include "program/text.h"
#include "program/verify.h"

namespace nlsplit {
namespace {

constexpr int layers = 16, micro_batches = 16;

// A pipeline: each device computes the same layers of every micro-batch.
Program pipeline(int64_t devices) {
  std::string text =
      fmt::format("nlsplit program 1\nprogram pipeline batch {} micro_batches {}\n", micro_batches, micro_batches);
  for (int64_t d = 0; d < devices; ++d) {
    const bool first = d == 0, last = d + 1 == devices;
    text += fmt::format("device d{} cpu host h{} isa v2 memory 1048576\n", d, d);
    text += fmt::format("  buffer x0 f32[64] {} instances {}\n", first ? "input" : "comm", first ? micro_batches : 2);
    for (int i = 1; i < layers; ++i) text += fmt::format("  buffer x{} f32[64] scratch\n", i);
    text += fmt::format("  buffer x{} f32[64] {} instances {}\n", layers, last ? "output" : "comm",
                        last ? micro_batches : 2);
    text += fmt::format("  segment F stage {} phase F\n", d);
    if (!first) text += fmt::format("    recv x0 from d{} tag 0\n", d - 1);
    for (int i = 0; i < layers; ++i)
      text += fmt::format("    x{} = Tanh(x{}) kernel unary_v2 as \"layer{}\"\n", i + 1, i, d * layers + i);
    if (!last) text += fmt::format("    send x{} to d{} tag 0\n", layers, d + 1);
    text += "  order\n";
    for (int m = 0; m < micro_batches; ++m)
      text += fmt::format("    F.{} x0:{} x{}:{}\n", m, first ? m : m % 2, layers, last ? m : m % 2);
  }
  auto program = parse_program(text, "pipeline");
  if (!program) std::fprintf(stderr, "%s\n", program.error().to_string().c_str());
  return std::move(*program);
}

void parts(benchmark::State& state) {
  const Program whole = pipeline(state.range(0));
  size_t longest = 0, all = 0;
  for (auto _ : state) {
    longest = all = 0;
    for (size_t d = 0; d < whole.devices.size(); ++d) {
      const size_t bytes = to_string(part_of(whole, d).program).size();
      longest = std::max(longest, bytes);
      all += bytes;
    }
  }
  state.counters["whole_bytes"] = static_cast<double>(to_string(whole).size());
  state.counters["outline_bytes"] = static_cast<double>(to_string(outline_of(whole)).size());
  state.counters["part_bytes"] = static_cast<double>(longest);
  state.counters["all_parts_bytes"] = static_cast<double>(all);
}
BENCHMARK(parts)->Arg(8)->Arg(64)->Arg(512)->Unit(benchmark::kMillisecond);

struct Used {
  bool ok = false;
  double cpu_s = 0;
  double kib = 0;  // at most
};

// In a process of its own, since memory that a run has used does not come back.
Used in_child(const std::function<bool()>& what) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(what() ? 0 : 1);
  int status = 0;
  rusage used{};
  if (::wait4(child, &status, 0, &used) != child || status != 0) return {};
  const auto seconds_of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {true, seconds_of(used.ru_utime) + seconds_of(used.ru_stime), static_cast<double>(used.ru_maxrss)};
}

void run_once(benchmark::State& state) {
  const Program program = pipeline(state.range(0));
  const auto run_it = [&] {
    Job job;
    job.inputs = wanted_inputs(program).value();
    fill_inputs(program, 1, job.inputs);
    RunOptions options;
    options.warmup = 0;
    options.repeats = 1;
    options.watchdog_s = 0;
    const auto result = run_threads(program, job, options);
    if (!result.ok()) std::fprintf(stderr, "%s\n", result.error().to_string().c_str());
    return result.ok();
  };
  const double idle_kib = in_child([] { return true; }).kib;
  for (auto _ : state) {
    const Used used = in_child(run_it);
    if (!used.ok) return state.SkipWithError("the run failed");
    state.SetIterationTime(used.cpu_s);
    state.counters["KiB_a_rank"] = (used.kib - idle_kib) / static_cast<double>(state.range(0));
  }
}
// CPU time of all ranks.
BENCHMARK(run_once)->Arg(4)->Arg(16)->Arg(64)->Unit(benchmark::kMillisecond)->UseManualTime();

}  // namespace
}  // namespace nlsplit

#include "tools/nlbench_check.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "exec/rounding_gradients.h"
#include "exec/run_threads.h"
#include "graph/passes/precision.h"
#include "tools/exit.h"
#include "tools/nlbench_steps.h"

namespace nlsplit::inline tools {
namespace {

// The levels whose instructions make results; endpoints only hold data.
std::set<Level> levels_of(std::span<const Program> programs) {
  std::set<Level> levels;
  for (const Program& program : programs) {
    for (const DeviceProgram& device : program.devices) {
      if (device.kind != DeviceKind::host) levels.insert(device.level);
    }
  }
  return levels;
}

DType coarsest_type(std::span<const Program> programs) {
  DType type = DType::f32;
  for (const Program& program : programs) {
    for (const ComputeDesc& desc : program.descs) {
      for (const TensorType& output : desc.outputs) type = coarser(type, output.dtype);
      type = coarser(type, rounded_operand(desc.op, desc.inputs));
    }
  }
  return type;
}

RunOptions options_of_unsplit(const RunOptions& options) {
  RunOptions once;
  once.warmup = 0;
  once.states = true;
  once.repeats = 1;
  once.watchdog_s = options.watchdog_s;
  once.cancelled = options.cancelled;
  once.gpu = options.gpu;
  once.gpu.messages = GpuMessages::direct;  // it has one device
  return once;
}

Result<std::vector<OutputTensor>> run_unsplit(const LoadedJob& job, int steps, const RunOptions& options) {
  const RunOptions once = options_of_unsplit(options);
  const Job own{job.contents(), job.inputs, {}, {}, {}, job.checksums()};
  if (steps > 0) {
    const std::array choices = {Choice{0, steps}};
    ASSIGN_OR_RETURN(SessionResult result, run_session_threads(session_of_steps(job.saved.unsplit), job_of_steps(own),
                                                               choose_from(choices), once));
    return std::move(result.outputs);
  }
  ASSIGN_OR_RETURN(RunResult result, run_threads(job.saved.unsplit, own, once));
  return std::move(result.outputs);
}

// States that the forward pass moves in another order than the unsplit one: on several devices, each by the samples
// that it got, or not in the order of the micro-batches. They are running statistics.
std::set<std::string_view> moved_apart(const Program& program) {
  std::set<std::string_view> once, apart;
  for (const DeviceProgram& device : program.devices) {
    std::set<std::string_view> here;
    std::map<std::string_view, int> last;  // micro-batch
    for (const Slot& slot : device.order) {
      const Segment& segment = device.segments[static_cast<size_t>(slot.segment)];
      for (const Instr& instr : segment.instrs) {
        if (segment.phase != Phase::forward || instr.writes.empty()) continue;
        const Buffer& written = device.buffer(device.root(instr.writes[0].buffer));
        if (written.kind != BufferKind::state) continue;
        here.insert(written.name);
        const auto [before, is_first] = last.try_emplace(written.name, slot.micro_batch);
        if (before->second > slot.micro_batch) apart.insert(written.name);
        before->second = slot.micro_batch;
      }
    }
    for (const std::string_view name : here) (once.insert(name).second ? once : apart).insert(name);
  }
  return apart;
}

// `outputs` of the split Programs, `wanted` of the unsplit ones. tolerance < 0: as promised.
Result<Comparison> compare_all(std::span<const Program> split, std::span<const Program> unsplit, const Promise& promise,
                               const std::vector<OutputTensor>& outputs, const std::vector<OutputTensor>& wanted,
                               double tolerance) {
  Comparison comparison;
  if (tolerance >= 0) {
    comparison.tolerance = tolerance;
  } else {
    comparison.tolerance = promise.tolerance;
    comparison.why = promise.why;
    std::set<Level> levels = levels_of(split);
    levels.merge(levels_of(unsplit));
    const double mixed = std::max(mixed_levels_tolerance, rounding_tolerance(coarsest_type(unsplit)));
    if (levels.size() > 1 && comparison.tolerance < mixed) {
      comparison.tolerance = mixed;
      comparison.why = "the devices' instruction levels differ";
    }
  }
  std::set<std::string_view> apart;
  for (const Program& program : split) apart.merge(moved_apart(program));
  const std::set<std::string> roundings = only_roundings(outputs, wanted);
  for (const OutputTensor& want : wanted) {
    if (apart.contains(want.tensor.name)) continue;
    const auto got = std::find_if(outputs.begin(), outputs.end(),
                                  [&](const OutputTensor& output) { return output.tensor.name == want.tensor.name; });
    if (got == outputs.end()) return failed(fmt::format("--check: the plan has no output {}", want.tensor.name));
    if (got->tensor.type != want.tensor.type) {
      return failed(fmt::format("--check: output {} is {}, but {} unsplit", want.tensor.name,
                                to_string(got->tensor.type), to_string(want.tensor.type)));
    }
    comparison.outputs.push_back(compare(got->tensor.values, want.tensor.values, want.tensor.name));
    comparison.outputs.back().is_roundings = roundings.contains(want.tensor.name);
  }
  return comparison;
}

}  // namespace

void add_check_options(CLI::App& command, bool& check, double& tolerance) {
  command.add_flag(
      "--check", check,
      "Also run the unsplit network on rank 0 and compare the results: bit for bit, or within the tolerance "
      "that the plan promises (docs/plans.md; gradients that are roundings alone: docs/training.md); exit code 1 if "
      "they differ");
  command
      .add_option("--tolerance", tolerance,
                  "With --check: allowed difference of each output, relative to its largest value, at most 0.1 "
                  "(default 0;\n"
                  "1e-4 if the plan adds partial sums, 1e-3 if the devices' instruction levels differ, whose roundings "
                  "do,\n"
                  "1e-2 if values travel as f16, 8e-2 if as bf16 or q8)")
      ->check(not_negative());
}

Result<Comparison> check_against_unsplit(const LoadedJob& job, const std::vector<OutputTensor>& outputs, int steps,
                                         double tolerance, const RunOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<OutputTensor> unsplit, run_unsplit(job, steps, options));
  const SavedProgram& saved = job.saved;
  return compare_all({&saved.program, 1}, {&saved.unsplit, 1}, saved.promise, outputs, unsplit, tolerance);
}

Result<Comparison> check_against_unsplit(const SavedSession& saved, const Job& job, std::span<const Choice> choices,
                                         const std::vector<OutputTensor>& outputs, double tolerance,
                                         const RunOptions& options) {
  CHECK(saved.unsplit.has_value(), "a check needs the unsplit network");
  Job own = job;
  own.clocks = {};
  ASSIGN_OR_RETURN(const SessionResult result,
                   run_session_threads(*saved.unsplit, own, choose_from(choices), options_of_unsplit(options)));
  return compare_all(saved.session.programs, saved.unsplit->programs, saved.promise, outputs, result.outputs,
                     tolerance);
}

}  // namespace nlsplit::inline tools

#include "tools/nlbench_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "exec/run_threads.h"
#include "graph/passes/precision.h"

namespace nlsplit::inline tools {
namespace {

// The levels whose instructions make results; endpoints only hold data.
std::set<Isa> levels_of(const Program& program) {
  std::set<Isa> levels;
  for (const DeviceProgram& device : program.devices) {
    if (device.kind != DeviceKind::host) levels.insert(device.isa);
  }
  return levels;
}

DType coarsest_type(const Program& program) {
  DType type = DType::f32;
  for (const ComputeDesc& desc : program.descs) {
    for (const TensorType& output : desc.outputs) type = coarser(type, output.dtype);
  }
  return type;
}

}  // namespace

Result<Comparison> check_against_unsplit(const LoadedJob& job, const RunResult& result, double tolerance,
                                         const RunOptions& options) {
  RunOptions once;
  once.warmup = 0;
  once.states = true;
  once.repeats = options.continues ? options.repeats : 1;
  once.continues = options.continues;
  once.watchdog_s = options.watchdog_s;
  once.cancelled = options.cancelled;
  once.gpu = options.gpu;
  ASSIGN_OR_RETURN(const RunResult unsplit,
                   run_threads(job.saved.unsplit, {job.contents(), job.inputs, {}, {}, {}, job.checksums()}, once));

  Comparison comparison;
  std::set<Isa> levels = levels_of(job.saved.program);
  levels.merge(levels_of(job.saved.unsplit));
  if (tolerance >= 0) {
    comparison.tolerance = tolerance;
  } else {
    comparison.tolerance = job.saved.promise.tolerance;
    comparison.why = job.saved.promise.why;
    const double mixed = std::max(mixed_levels_tolerance, rounding_tolerance(coarsest_type(job.saved.unsplit)));
    if (levels.size() > 1 && comparison.tolerance < mixed) {
      comparison.tolerance = mixed;
      comparison.why = "the devices' instruction levels differ";
    }
  }
  for (const OutputTensor& want : unsplit.outputs) {
    const auto got = std::find_if(result.outputs.begin(), result.outputs.end(),
                                  [&](const OutputTensor& output) { return output.tensor.name == want.tensor.name; });
    if (got == result.outputs.end()) return failed(fmt::format("--check: the plan has no output {}", want.tensor.name));
    if (got->tensor.type != want.tensor.type) {
      return failed(fmt::format("--check: output {} is {}, but {} unsplit", want.tensor.name,
                                to_string(got->tensor.type), to_string(want.tensor.type)));
    }
    comparison.outputs.push_back(compare(got->tensor.values, want.tensor.values, want.tensor.name));
  }
  return comparison;
}

}  // namespace nlsplit::inline tools

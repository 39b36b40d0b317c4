// What the profiler of another runtime wrote: executions of a network, and in each the operators with their times.
//
//   ASSIGN_OR_RETURN(const OperatorTrace trace, read_ort_trace("onnxruntime_profile.json"));
//   trace.runs[3].events[0].name   // "conv1"
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"

namespace nlsplit::inline traces {

// One operator of one execution.
struct OperatorTime {
  std::string name;  // of its node, as the runtime calls it
  std::string op;    // the kind of operator, as the runtime calls it
  double start_s = 0, seconds = 0;
  std::optional<Shape> output = {};  // of its first result; none: the profile does not say
};

struct ProfiledRun {
  double seconds = 0;                // from the call to the answer
  std::vector<OperatorTime> events;  // by start; none lies within another one
};

struct OperatorTrace {
  std::string file;
  std::string runtime;  // "ONNX Runtime, CPUExecutionProvider"
  std::vector<ProfiledRun> runs;
};

// More events than that are refused: 24 layers of a transformer have 450 in a run.
inline constexpr size_t most_operator_times = 1 << 20;

// ONNX Runtime's profile (SessionOptions.enable_profiling): a list of Chrome trace events. Times of nodes are events of
// the category "Node" called NAME_kernel_time, executions are those called "model_run". Errors: no JSON, cut short, no
// execution, executions that overlap, nodes of another provider than the CPU's, whose events are launches.
Result<OperatorTrace> read_ort_trace(const std::string& path);

}  // namespace nlsplit::inline traces

// What the profiler of another runtime wrote: executions of a network, and in each the operators with their times.
// A reader for each runtime makes these records; what all else needs to know of that runtime is in them.
//
//   ASSIGN_OR_RETURN(const OperatorTrace trace, read_ort_trace("onnxruntime_profile.json"));
//   trace.runs[3].events[0].name   // "conv1"
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"

namespace nlsplit::inline traces {

// Whose time an operator's is that no node of the network stands for.
enum class Beside : uint8_t { none, after, before };

// One operator of one execution.
struct OperatorTime {
  std::string name;  // of its node, as the runtime calls it
  std::string op;    // the kind of operator, as the runtime calls it
  double start_s = 0, seconds = 0;
  std::optional<Shape> output = {};     // of its first result; none: the profile does not say
  std::vector<Shape> inputs = {};       // of its operands; empty: the profile does not say, or it is no tensor
  std::vector<std::string> nodes = {};  // what the network may call its node, the likeliest first
  std::vector<std::string> kinds = {};  // what kinds of operator its node may be, the likeliest first
  Beside beside = Beside::none;         // an operator that the network may lack, such as a change of layout
};

struct ProfiledRun {
  double seconds = 0;                // from the call to the answer
  std::vector<OperatorTime> events;  // by start; of one thread, none lies within another one
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

// PyTorch's profile (torch.profiler, export_chrome_trace): a Chrome trace whose operators are events of the category
// "cpu_op"; those within another one count with it. Where operators launched kernels on a GPU, their time is that of
// these kernels. Executions are ranges (runs.h) of the category "user_annotation", or else calls of the outermost
// nn.Module. Errors: as above; no shapes of operands.
Result<OperatorTrace> read_torch_trace(const std::string& path, const std::string& range);

// Nsight Systems' export to SQLite: kernels by their launches within NVTX ranges (runs.h), which carry the names of
// nodes. Errors: no database, tables or columns that are missing, kernels outside of all ranges only.
Result<OperatorTrace> read_nsys_trace(const std::string& path, const std::string& range);

// Its report nvtx_gpu_proj_trace as CSV, where ranges have the times of their kernels already. Ranges within which
// there are no others are operators. Errors: columns that are missing, cells that are no numbers, at their line.
Result<OperatorTrace> read_nsys_csv(const std::string& path, const std::string& range);

}  // namespace nlsplit::inline traces

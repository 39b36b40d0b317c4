#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/json_place.h"
#include "traces/chrome_events.h"
#include "traces/runs.h"

namespace nlsplit::inline traces {
namespace {

using nlohmann::json;

constexpr std::string_view kernel_suffix = "_kernel_time";

// [{"float": [1, 64, 112, 112]}, …]: of the first.
std::optional<Shape> first_shape(const json* shapes) {
  if (shapes == nullptr || !shapes->is_array() || shapes->empty() || !shapes->front().is_object()) return std::nullopt;
  const json& tensor = shapes->front();
  if (tensor.empty() || !tensor.begin()->is_array()) return std::nullopt;
  Shape shape;
  for (const json& extent : *tensor.begin()) {
    if (!extent.is_number_integer() || shape.size() == most_axes) return std::nullopt;
    shape.push_back(extent.get<int64_t>());
  }
  return shape;
}

// Where it fuses operators it names the kernel anew. Here: the last of the network's operators within it, the one that
// is found by order (docs/ContribOperators.md of ONNX Runtime).
struct FusedKind {
  std::string_view fused, last;
};
constexpr std::array fused_kinds = {
    FusedKind{"SkipLayerNormalization", "LayerNormalization"},
    FusedKind{"EmbedLayerNormalization", "LayerNormalization"},
    FusedKind{"FusedConv", "Conv"},
    FusedKind{"FusedGemm", "Gemm"},
    FusedKind{"FusedMatMul", "MatMul"},
    FusedKind{"BiasGelu", "Gelu"},
    FusedKind{"FastGelu", "Gelu"},
    FusedKind{"QuickGelu", "Mul"},
    FusedKind{"BiasSoftmax", "Softmax"},
};

// Kinds that change where elements lie, and nothing else.
constexpr std::array<std::string_view, 11> layout_kinds = {"ReorderInput", "ReorderOutput",  "Reshape", "Transpose",
                                                           "Squeeze",      "Unsqueeze",      "Flatten", "Cast",
                                                           "MemcpyToHost", "MemcpyFromHost", "Identity"};

std::string network_kind(std::string_view op) {
  const auto found = std::ranges::find(fused_kinds, op, &FusedKind::fused);
  return std::string(found == fused_kinds.end() ? op : found->last);
}

// "ReorderOutput_token_12" → "ReorderOutput".
std::string_view without_number(std::string_view name) {
  constexpr std::string_view token = "_token_";
  const size_t at = name.rfind(token);
  if (at == name.npos || name.find_first_not_of("0123456789", at + token.size()) != name.npos) return name;
  return name.substr(0, at);
}

// What it puts behind names: "conv1_nchwc", "fc1/MatMulAddFusion", "scores/MatMulScaleFusion/".
std::optional<std::string_view> shorter(std::string_view name) {
  for (const std::string_view end : {"_nchwc", "_nhwc"}) {
    if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
  }
  const std::string_view inner = name.ends_with('/') ? name.substr(0, name.size() - 1) : name;
  const size_t slash = inner.rfind('/');
  if (slash != inner.npos && slash > 0 && inner.ends_with("Fusion")) return inner.substr(0, slash);
  return std::nullopt;
}

// What it adds behind an operator; all else is before one.
bool comes_after(const OperatorTime& event) {
  return event.op == "ReorderOutput" || event.name.starts_with("gemm_output_reshape");
}

OperatorTime operator_time(const ChromeEvent& event) {
  OperatorTime one{event.name.substr(0, event.name.size() - kernel_suffix.size()), event.text("op_name"),
                   event.start_us * microsecond, event.duration_us * microsecond,
                   first_shape(event.argument("output_type_shape"))};
  for (std::optional<std::string_view> part = without_number(one.name); part; part = shorter(*part))
    one.nodes.emplace_back(*part);
  one.kinds = {network_kind(one.op)};
  if (std::ranges::find(layout_kinds, std::string_view(one.op)) != layout_kinds.end())
    one.beside = comes_after(one) ? Beside::after : Beside::before;
  return one;
}

class OrtReader {
 public:
  Status take(const ChromeEvent& event) {
    if (event.category == "Session" && event.name == "model_run") {
      executions_.push_back({event.start_us * microsecond, event.duration_us * microsecond});
      return ok_status();
    }
    if (event.category != "Node" || !event.name.ends_with(kernel_suffix)) return ok_status();
    const std::string provider = event.text("provider");
    if (!provider.empty() && provider != "CPUExecutionProvider") {
      return unsupported(fmt::format(
          "node '{}' ran on {}: ONNX Runtime's times of such nodes are those of their launch, not of their kernels; "
          "profile with Nsight Systems instead",
          event.name, provider));
    }
    if (events_.size() == most_operator_times)
      return invalid_input(fmt::format("more than {} times of nodes: profile fewer runs", most_operator_times));
    events_.push_back({operator_time(event), event.thread});
    return ok_status();
  }

  Result<OperatorTrace> trace(const std::string& path) && {
    if (executions_.empty() || events_.empty()) {
      return in_file(path,
                     invalid_input(fmt::format(
                         "no {}: this is not a profile of ONNX Runtime, or its session did not run (make one with "
                         "SessionOptions.enable_profiling, and end it with end_profiling())",
                         executions_.empty() ? "event \"model_run\"" : "event \"…_kernel_time\" of a node")));
    }
    OperatorTrace trace{path, "ONNX Runtime, CPUExecutionProvider", {}};
    ASSIGN_OR_RETURN(trace.runs, in_runs(path, std::move(executions_), std::move(events_)));
    return trace;
  }

 private:
  std::vector<Execution> executions_;
  std::vector<ThreadEvent> events_;
};

}  // namespace

Result<OperatorTrace> read_ort_trace(const std::string& path) {
  OrtReader reader;
  RETURN_IF_ERROR(read_chrome_events(path, [&](const ChromeEvent& event) { return reader.take(event); }));
  return std::move(reader).trace(path);
}

}  // namespace nlsplit::inline traces

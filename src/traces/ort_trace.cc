#include <fmt/format.h>

#include "base/json_place.h"
#include "traces/chrome_events.h"

namespace nlsplit::inline traces {
namespace {

using nlohmann::json;

constexpr std::string_view kernel_suffix = "_kernel_time";
constexpr double microsecond = 1e-6;

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

class Reader {
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
    OperatorTime one{event.name.substr(0, event.name.size() - kernel_suffix.size()), event.text("op_name"),
                     event.start_us * microsecond, event.duration_us * microsecond,
                     first_shape(event.argument("output_type_shape"))};
    events_.push_back({std::move(one), event.thread});
    return ok_status();
  }

  Result<OperatorTrace> trace(const std::string& path) && {
    if (executions_.empty() || events_.empty()) {
      return in_file(path, invalid_input(fmt::format(
                               "no {}: this is no profile of ONNX Runtime, or its session did not run (make one with "
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
  Reader reader;
  RETURN_IF_ERROR(read_chrome_events(path, [&](const ChromeEvent& event) { return reader.take(event); }));
  return std::move(reader).trace(path);
}

}  // namespace nlsplit::inline traces

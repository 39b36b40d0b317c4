#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/json_place.h"
#include "traces/chrome_events.h"
#include "traces/runs.h"
#include "traces/torch_kinds.h"

namespace nlsplit::inline traces {
namespace {

using nlohmann::json;

constexpr std::string_view module_prefix = "nn.Module: ";

// [[1, 3, 224, 224], [], …]: of tensors; a list of tensors is a list of lists and counts as nothing.
std::vector<Shape> shapes_of(const json& all) {
  std::vector<Shape> shapes;
  for (const json& one : all) {
    Shape& shape = shapes.emplace_back();
    if (!one.is_array() || one.size() > most_axes) continue;
    for (const json& extent : one) {
      if (extent.is_number_integer()) shape.push_back(extent.get<int64_t>());
    }
    if (shape.size() != one.size()) shape.clear();
  }
  return shapes;
}

// What ran on a GPU, by the number that its launch has too.
struct DeviceWork {
  int64_t correlation = 0;
  double start_s = 0, seconds = 0;
};
struct Launch {
  int64_t thread = 0;
  double at_s = 0;
};

bool is_device_work(std::string_view category) {
  return category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset";
}

class TorchReader {
 public:
  Status take(const ChromeEvent& event) {
    if (event.category == "cpu_op") return take_operator(event);
    if (event.category == "user_annotation") marks_.push_back(range_of(event));
    if (event.category == "python_function" && event.name.starts_with(module_prefix))
      modules_.push_back(range_of(event));
    if (event.category == "cuda_runtime" || event.category == "cuda_driver") {
      if (const auto number = correlation(event))
        launches_[*number] = {event.thread, since_origin(event) + event.duration_us * microsecond / 2};
    }
    if (is_device_work(event.category)) {
      if (const auto number = correlation(event))
        works_.push_back({*number, since_origin(event), event.duration_us * microsecond});
    }
    if (std::max({marks_.size(), modules_.size(), works_.size(), launches_.size()}) <= most_operator_times)
      return ok_status();
    return too_many();
  }

  Result<OperatorTrace> trace(const std::string& path, const std::string& range) && {
    if (operators_.empty()) {
      return in_file(path,
                     invalid_input("no event of the category \"cpu_op\": this is not a profile of PyTorch, or nothing "
                                   "ran (make one with torch.profiler.profile and export_chrome_trace())"));
    }
    if (!shapes_) {
      return in_file(path, invalid_input("no operator has \"Input Dims\": profile with record_shapes=True, else "
                                         "operators of a kind cannot be told apart"));
    }
    const bool on_device = !works_.empty();
    OperatorTrace trace{path, on_device ? "PyTorch, GPU" : "PyTorch, CPU", {}};
    const Ranges marks(marks_.empty() ? std::move(modules_) : std::move(marks_));
    if (marks.empty()) {
      return in_file(path, invalid_input("nothing marks an execution: call the network within "
                                         "torch.profiler.record_function(\"run\"), or profile with with_stack=True"));
    }
    ASSIGN_OR_RETURN(trace.runs, in_ranges(path, marks, range, on_device ? on_gpu() : on_cpu(), on_device));
    return trace;
  }

 private:
  static Error too_many() {
    return invalid_input(fmt::format("more than {} events: profile fewer runs", most_operator_times));
  }

  // Times are since some far beginning: without it, more of their digits count.
  double since_origin(const ChromeEvent& event) {
    if (!origin_us_) origin_us_ = event.start_us;
    return (event.start_us - *origin_us_) * microsecond;
  }

  TraceRange range_of(const ChromeEvent& event) {
    const double start = since_origin(event);
    return {event.name, event.thread, start, start + event.duration_us * microsecond};
  }

  static std::optional<int64_t> correlation(const ChromeEvent& event) {
    const json* number = event.argument("correlation");
    if (number == nullptr || !number->is_number_integer()) return std::nullopt;
    return number->get<int64_t>();
  }

  Status take_operator(const ChromeEvent& event) {
    if (operators_.size() == most_operator_times) return too_many();
    TraceRange range = range_of(event);
    range.index = operators_.size();
    OperatorTime one{event.name, std::string(torch_kind(event.name)), range.start_s, event.duration_us * microsecond};
    TorchKind kind = network_kinds(one.op);
    one.kinds = std::move(kind.nodes);
    one.beside = kind.beside;
    const json* shapes = event.argument("Input Dims");
    shapes_ = shapes_ || shapes != nullptr;
    if (shapes != nullptr && shapes->is_array() && !kind.fused) one.inputs = shapes_of(*shapes);
    // addmm(bias, x, weight): a node has the bias last.
    if (one.op == "addmm" && one.inputs.size() > 2)
      std::rotate(one.inputs.begin(), one.inputs.begin() + 1, one.inputs.begin() + 3);
    operators_.push_back(std::move(one));
    ranges_.push_back(std::move(range));
    return ok_status();
  }

  // The operators that lie in no other one.
  std::vector<Called> on_cpu() {
    const Ranges nested(ranges_);
    std::vector<Called> called;
    for (const TraceRange& range : ranges_) {
      const std::vector<int> around = nested.around(range.thread, range.start_s);
      if (around.empty() || nested[around.back()].index != range.index) continue;
      called.push_back({std::move(operators_[range.index]), range.thread, range.start_s});
    }
    return called;
  }

  // The same, each with the time of what was launched within it.
  std::vector<Called> on_gpu() {
    const Ranges nested(std::move(ranges_));
    std::map<size_t, Called> called;  // by operator
    std::ranges::stable_sort(works_, {}, &DeviceWork::start_s);
    for (const DeviceWork& work : works_) {
      const auto launch = launches_.find(work.correlation);
      if (launch == launches_.end()) continue;
      const auto& [thread, at_s] = launch->second;
      const std::vector<int> around = nested.around(thread, at_s);
      if (around.empty()) continue;
      const size_t index = nested[around.back()].index;
      const auto [one, first] = called.try_emplace(index);
      if (first) {
        one->second = {operators_[index], thread, at_s};
        one->second.event.start_s = work.start_s;
        one->second.event.seconds = 0;
      }
      one->second.event.seconds += work.seconds;
    }
    std::vector<Called> all;
    for (auto& [index, one] : called) all.push_back(std::move(one));
    return all;
  }

  std::optional<double> origin_us_;
  bool shapes_ = false;
  std::vector<OperatorTime> operators_;
  std::vector<TraceRange> ranges_;  // of operators
  std::vector<TraceRange> marks_, modules_;
  std::map<int64_t, Launch> launches_;  // by correlation
  std::vector<DeviceWork> works_;
};

}  // namespace

Result<OperatorTrace> read_torch_trace(const std::string& path, const std::string& range) {
  TorchReader reader;
  RETURN_IF_ERROR(read_chrome_events(path, [&](const ChromeEvent& event) { return reader.take(event); }));
  return std::move(reader).trace(path, range);
}

}  // namespace nlsplit::inline traces

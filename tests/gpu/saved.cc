// Programs that nlsim has saved, on the devices of this process.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>

#include "base/npy.h"
#include "base/temporary_folder.h"
#include "compile/compile.h"
#include "exec/cuda/launches.h"
#include "exec/fill_inputs.h"
#include "exec/run_threads.h"
#include "gpu/gpu_check.h"
#include "graph/passes/passes.h"
#include "graph/passes/precision.h"
#include "graph/zoo/zoo.h"
#include "testing/read_npy.h"
#include "tools/nlbench_check.h"
#include "tools/nlbench_job.h"

namespace nlsplit::testing {
namespace {

namespace fs = std::filesystem;

// Of the largest value: between a CPU and a GPU, and wherever TF32 rounds what differs in the last bits.
constexpr double float32_tolerance = 1e-3, tf32_tolerance = 1e-2;

// Each once, on stderr. Devices may speak at the same time.
class Notices {
 public:
  std::function<void(const std::string&)> hear() {
    return [this](const std::string& notice) {
      const std::lock_guard lock(mutex_);
      if (said_.insert(notice).second) fmt::print(stderr, "gpu_check: {}\n", notice);
    };
  }
  bool without_graphs() const {
    return std::ranges::any_of(said_, [](const std::string& said) { return said.ends_with(nlsplit::without_graphs); });
  }

 private:
  std::mutex mutex_;
  std::set<std::string> said_;
};

bool uses_tf32(const Program& program) {
  return std::ranges::any_of(program.devices,
                             [](const DeviceProgram& device) { return device.level.precision == Precision::tf32; });
}

Status check_has_gpu(const Program& program, const std::string& dir) {
  for (const DeviceProgram& device : program.devices) {
    if (device.kind == DeviceKind::cuda) return ok_status();
  }
  return invalid_input(
      fmt::format("{}: no device of kind cuda is in this program (nlsim lower MODEL --isa cuda --save {})", dir, dir));
}

// Where `nlbench run DIR --output DIR/expected.npy` has written the i-th output.
std::string expected_file(const std::string& dir, const OutputTensor& output, size_t i) {
  std::string name = output.tensor.name;
  std::ranges::replace(name, '/', '_');
  return i == 0 ? dir + "/expected.npy" : fmt::format("{}/expected.{}.npy", dir, name);
}

// false: something differs by more than it may.
Result<bool> check_expected(const LoadedJob& job, const RunResult& result, const std::string& dir) {
  std::error_code failure;
  if (!fs::exists(dir + "/expected.npy", failure)) {
    fmt::print("  no {}/expected.npy: nothing from another machine to compare with\n", dir);
    return true;
  }
  Comparison all;
  all.tolerance = uses_tf32(job.saved.program) ? tf32_tolerance : float32_tolerance;
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const OutputTensor& got = result.outputs[i];
    const std::string file = expected_file(dir, got, i);
    ASSIGN_OR_RETURN(const NpyArray want, read_npy(file));
    if (want.shape != got.tensor.type.shape) {
      return invalid_input(fmt::format("{} is {}, but output {} is {}", file,
                                       to_string(TensorType{DType::f32, want.shape}), got.tensor.name,
                                       to_string(got.tensor.type)));
    }
    all.outputs.push_back(compare(got.tensor.values, want.values, got.tensor.name));
  }
  for (const OutputComparison& output : all.outputs) {
    fmt::print(
        "  {} {} against {}/expected.npy: the largest difference is {:.3g}, the largest value {:.3g}, allowed "
        "{:g} of it\n",
        output.name, output.equal(all.tolerance) ? "equal" : "DIFFERS", dir, output.largest_difference,
        output.largest_value, all.tolerance);
  }
  return all.equal();
}

Result<LoadedJob> load(const std::string& dir) {
  std::error_code failure;
  if (!fs::is_directory(dir, failure))
    return invalid_input(fmt::format("{} is not a folder that `nlsim lower --save` has written", dir));
  std::optional<TemporaryFolder> unused;
  JobArguments arguments;
  arguments.what = dir;
  return load_job(arguments, unused);
}

}  // namespace

Result<int> check_saved(const GpuOptions& gpu, const std::string& dir) {
  ASSIGN_OR_RETURN(const LoadedJob job, load(dir));
  RETURN_IF_ERROR(check_has_gpu(job.saved.program, dir));
  int differing = 0;
  std::vector<float> first;
  Notices notices;
  // A plan that promises bits keeps them in TF32 too.
  const bool rounds = job.saved.promise.tolerance > 0 && uses_tf32(job.saved.program);
  for (const GpuGraphs graphs : {GpuGraphs::off, GpuGraphs::timed, GpuGraphs::untimed}) {
    RunOptions options;
    options.poison = true;
    options.gpu = gpu;
    options.gpu.graphs = graphs;
    options.notice = notices.hear();
    const Job whole{job.contents(), job.inputs, job.saved.clocks, job.saved.online, {}, job.checksums()};
    ASSIGN_OR_RETURN(const RunResult result, run_threads(job.saved.program, whole, options));
    const char* how = graphs == GpuGraphs::off     ? "one by one"
                      : graphs == GpuGraphs::timed ? "graphs"
                                                   : "untimed graphs";
    fmt::print("{} on {} devices, {}: {:.3f} ms\n", job.saved.program.name, job.saved.program.devices.size(), how,
               median(result.makespans_s) * 1e3);
    ASSIGN_OR_RETURN(const Comparison unsplit,
                     check_against_unsplit(job, result.outputs, 0, rounds ? tf32_tolerance : -1, options));
    fmt::print("  {}\n", to_string(unsplit));
    ASSIGN_OR_RETURN(const bool expected, check_expected(job, result, dir));
    differing += unsplit.equal() && expected ? 0 : 1;
    std::vector<float> values;
    for (const OutputTensor& output : result.outputs)
      values.insert(values.end(), output.tensor.values.begin(), output.tensor.values.end());
    if (graphs == GpuGraphs::off) first = values;
    const int64_t different = values.size() == first.size() ? compare(values, first).different : -1;
    if (different == 0) continue;
    ++differing;
    fmt::print("  DIFFERS: {} of {} values have other bits than one by one\n", different, values.size());
  }
  return differing;
}

Status print_times(const GpuOptions& gpu, const TimedNetwork& what) {
  const auto precision = parse_precision(what.level);
  Level level{Isa::cuda, Precision::tf32};
  if (!precision.ok()) {
    ASSIGN_OR_RETURN(level, parse_level(what.level));
  }
  if (!is_gpu(level.isa)) return invalid_input(fmt::format("'{}' is not a level of a GPU", what.level));
  ASSIGN_OR_RETURN(Model model, zoo_model(what.network));
  ASSIGN_OR_RETURN(Graph graph, optimize(model.graph, model.weights));
  if (precision.ok()) {
    ASSIGN_OR_RETURN(graph, with_precision(graph, model.weights, *precision));
  }
  ASSIGN_OR_RETURN(const Graph at_batch, with_batch(graph, what.batch));
  ASSIGN_OR_RETURN(const KernelGraph kernels, choose_kernels(at_batch, {level}));
  Device device;
  device.name = "G";
  device.kind = DeviceKind::cuda;
  device.memory = bytes(int64_t{1} << 40);
  device.level = level;
  ASSIGN_OR_RETURN(const Program program, compile_unsplit(kernels, 1, device, "here"));
  RunOptions options;
  options.gpu = gpu;
  options.gpu.graphs = what.graphs;
  options.warmup = 3;
  options.duration_s = what.seconds;
  Notices notices;
  options.notice = notices.hear();
  ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, wanted_inputs(program));
  fill_inputs(program, 1, inputs);
  ASSIGN_OR_RETURN(const RunResult result, run_threads(program, {contents_of(model.weights), inputs}, options));
  std::string times;
  for (const double time : result.makespans_s) times += fmt::format("{}{:.9g}", times.empty() ? "" : ", ", time);
  fmt::print("{{\"network\": \"{}\", \"batch\": {}, \"level\": \"{}\", \"graphs\": {}, \"times_s\": [{}]}}\n",
             what.network, what.batch, what.level, what.graphs != GpuGraphs::off && !notices.without_graphs(), times);
  return ok_status();
}

}  // namespace nlsplit::testing

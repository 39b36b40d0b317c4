#include "gpu/gpu_check.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "exec/fill_inputs.h"
#include "exec/run_threads.h"
#include "graph/passes/passes.h"
#include "graph/passes/precision.h"
#include "graph/zoo/zoo.h"
#include "kernels/cpu.h"
#include "kernels/find_module.h"
#include "kernels/module/kernel_library.h"
#include "testing/compile_program.h"

namespace nlsplit::testing {
namespace {

Device gpu_device(size_t number, Level level) {
  Device device;
  device.name = fmt::format("G{}", number);
  device.host = HostId(number);
  device.kind = DeviceKind::cuda;
  device.memory = bytes(int64_t{1} << 40);
  device.level = level;
  return device;
}

// The network in `devices` equal pieces, on as many devices of this machine's GPUs.
Result<Program> split_program(const KernelGraph& kernels, size_t nodes, size_t devices, int micro_batches,
                              Level level) {
  Cluster cluster;
  Plan plan;
  plan.micro_batches = micro_batches;
  for (size_t d = 0; d < devices; ++d) {
    cluster.hosts.push_back({fmt::format("h{}", d), false});
    cluster.devices.push_back(gpu_device(d, level));
    plan.stages.push_back({nodes * d / devices, nodes * (d + 1) / devices, {DeviceId(d)}});
    if (d > 0) cluster.links.push_back({"l", HostId(d - 1), HostId(d), bytes_per_second(1e9), seconds(1e-5)});
  }
  return compile_program(kernels, plan, cluster, {HostId(0), HostId(devices - 1)}, nullptr);
}

Result<int> check_split(const GpuOptions& gpu, int repeats, const std::vector<size_t>& numbers_of_devices = {2, 4}) {
  int differing = 0;
  for (const char* network : {"simple_cnn", "resnet50"}) {
    ASSIGN_OR_RETURN(Model model, zoo_model(network));
    ASSIGN_OR_RETURN(const Graph graph, optimize(model.graph, model.weights));
    ASSIGN_OR_RETURN(const Graph plain, with_batch(graph, 2));
    for (const auto& [type, level] :
         {std::pair(DType::f32, Level(Isa::cuda)), std::pair(DType::f32, Level(Isa::cuda, Precision::tf32)),
          std::pair(DType::f16, Level(Isa::cuda)), std::pair(DType::bf16, Level(Isa::cuda))}) {
      Graph at_micro_batch = plain;
      if (type != DType::f32) {
        ASSIGN_OR_RETURN(at_micro_batch, with_precision(plain, model.weights, type));
      }
      ASSIGN_OR_RETURN(const KernelGraph kernels, choose_kernels(at_micro_batch, {level}));
      constexpr int micro_batches = 4;
      ASSIGN_OR_RETURN(const Program whole, compile_unsplit(kernels, micro_batches, gpu_device(0, level), "h0"));
      RunOptions options;
      options.poison = true;
      options.repeats = repeats;
      options.gpu = gpu;
      ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, wanted_inputs(whole));
      fill_inputs(whole, 1, inputs);
      const Job job{contents_of(model.weights), inputs};
      RunOptions alone = options;
      alone.gpu.messages = GpuMessages::direct;
      ASSIGN_OR_RETURN(const RunResult want, run_threads(whole, job, alone));
      for (const size_t devices : numbers_of_devices) {
        ASSIGN_OR_RETURN(const Program split,
                         split_program(kernels, at_micro_batch.nodes.size(), devices, micro_batches, level));
        ASSIGN_OR_RETURN(const RunResult got, run_threads(split, job, options));
        const std::vector<float>&a = got.outputs[0].tensor.values, &b = want.outputs[0].tensor.values;
        const bool same = a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
        differing += same ? 0 : 1;
        fmt::print("{} {} {} on {} devices: {} ({:.3f} ms unsplit, {:.3f} ms split)\n", network, name_of(type),
                   name_of(level), devices, same ? "the same bits" : "OTHER BITS", median(want.makespans_s) * 1e3,
                   median(got.makespans_s) * 1e3);
        std::fflush(stdout);
      }
    }
  }
  return differing;
}

// On two GPUs, and on four if they are there.
Result<int> check_nccl(const ChosenBackend& chosen, GpuOptions gpu, const std::string& file) {
  if (chosen.devices < 2)
    return unsupported(fmt::format("NCCL takes one rank a GPU, and this machine has {}", chosen.devices));
  ASSIGN_OR_RETURN(const NcclLibrary library, load_nccl(file));
  fmt::print("{}: NCCL {}\n", library.name, nccl_version_text(library.version));
  std::vector<size_t> numbers = {2};
  if (chosen.devices >= 4) numbers.push_back(4);
  for (const size_t gpus : numbers) {
    RETURN_IF_ERROR(check_nccl_messages(*chosen.backend, library, {static_cast<int>(gpus), 0}));
    fmt::print("messages between {} GPUs: fine\n", gpus);
  }
  gpu.messages = GpuMessages::nccl;
  gpu.nccl = file;
  return check_split(gpu, 5, numbers);
}

int report(const Error& error) {
  fmt::print(stderr, "gpu_check: {}\n", error.to_string());
  return exit_code(error);
}

int64_t number(const std::vector<std::string_view>& words, size_t i, int64_t otherwise) {
  if (i >= words.size()) return otherwise;
  int64_t value = otherwise;
  std::from_chars(words[i].data(), words[i].data() + words[i].size(), value);
  return value;
}

constexpr const char* usage =
    "gpu_check [--cpu | --emulated] operators [SEED [CASES]] | generated [SEED [CASES]] | attention [SEED] | split | "
    "nccl [FILE] | run DIR | table [NETWORK "
    "[BATCH]] | overlap |\n"
    "  time NETWORK BATCH LEVEL [SECONDS [on|untimed|off]]\n";

// "time resnet50 32 tf32 2 off"; none: it is not that.
std::optional<TimedNetwork> timed_network(const std::vector<std::string_view>& words) {
  if (words.size() < 4 || words.size() > 6) return std::nullopt;
  TimedNetwork what{std::string(words[1]), number(words, 2, 0), std::string(words[3])};
  if (words.size() > 4) what.seconds = static_cast<double>(number(words, 4, 0));
  const std::string_view graphs = words.size() > 5 ? words[5] : "untimed";
  what.graphs = graphs == "off" ? GpuGraphs::off : graphs == "on" ? GpuGraphs::timed : GpuGraphs::untimed;
  const bool known = graphs == "off" || graphs == "on" || graphs == "untimed";
  if (!known || what.batch < 1 || what.seconds < 1) return std::nullopt;
  return what;
}

int run_command(std::vector<std::string_view> words) {
  GpuOptions gpu;
  gpu.missing = GpuMissing::error;
  bool emulated = false;  // seconds for an image, and the times are not a GPU's
  if (!words.empty() && words[0] == "--cpu") {
    gpu = {"/nonexistent", GpuMissing::cpu};
    words.erase(words.begin());
  } else if (!words.empty() && words[0] == "--emulated") {
    auto found = find_module("libbackend_cuda_emulated.so");
    if (!found.ok()) return report(found.error());
    gpu.backend = std::move(*found);
    emulated = true;
    words.erase(words.begin());
  }
  const std::string_view command = words.empty() ? "" : words[0];
  const auto chosen = choose_backend(gpu);
  if (!chosen.ok()) return report(chosen.error());
  if (command == "split") {
    const auto differing = check_split(gpu, emulated ? 1 : 5);
    return differing.ok() ? (*differing == 0 ? 0 : 1) : report(differing.error());
  }
  if (command == "nccl") {
    const auto differing = check_nccl(*chosen, gpu, std::string(words.size() > 1 ? words[1] : ""));
    return differing.ok() ? (*differing == 0 ? 0 : 1) : report(differing.error());
  }
  if (command == "run" && words.size() == 2) {
    const auto differing = check_saved(gpu, std::string(words[1]));
    return differing.ok() ? (*differing == 0 ? 0 : 1) : report(differing.error());
  }
  if (command == "time") {
    const std::optional<TimedNetwork> what = timed_network(words);
    const Status printed = what ? print_times(gpu, *what) : Status(invalid_input(usage));
    return printed.ok() ? 0 : report(printed.error());
  }
  auto bench = Bench::open(*chosen->backend);
  if (!bench.ok()) return report(bench.error());
  fmt::print("{}\n", bench->text());
  if (command == "operators") {
    const auto seed = static_cast<uint64_t>(number(words, 1, static_cast<int64_t>(std::random_device()())));
    const auto differing = check_operators(*bench, seed, static_cast<int>(number(words, 2, 100)));
    return differing.ok() ? (*differing == 0 ? 0 : 1) : report(differing.error());
  }
  if (command == "generated") {
    const auto seed = static_cast<uint64_t>(number(words, 1, static_cast<int64_t>(std::random_device()())));
    std::optional<Isa> in_place;
    if (!chosen->notice.empty()) {
      const auto best = best_isa();
      if (!best.ok()) return report(best.error());
      in_place = *best;
    }
    const auto differing = check_generated(*bench, seed, static_cast<int>(number(words, 2, 8)), in_place);
    return differing.ok() ? (*differing == 0 ? 0 : 1) : report(differing.error());
  }
  if (command == "attention") {
    const auto differing = check_attention_passes(*bench, static_cast<uint64_t>(number(words, 1, 1)));
    return differing.ok() ? (*differing == 0 ? 0 : 1) : report(differing.error());
  }
  if (command == "table") {
    const std::string network(words.size() > 1 ? words[1] : "resnet50");
    const Status printed = print_table(*bench, network, number(words, 2, 1));
    return printed.ok() ? 0 : report(printed.error());
  }
  if (command == "overlap") {
    const Status printed = bench->print_overlap(emulated || !chosen->notice.empty());
    return printed.ok() ? 0 : report(printed.error());
  }
  fmt::print(stderr, "{}", usage);
  return 2;
}

}  // namespace
}  // namespace nlsplit::testing

int main(int argc, char** argv) {
  return nlsplit::testing::run_command(std::vector<std::string_view>(argv + 1, argv + argc));
}

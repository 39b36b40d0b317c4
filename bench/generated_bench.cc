// Generated kernels beside the reference loops they stand for: one thread, this CPU's best level. Results are compared
// before anything is timed. And what it takes to compile all of them, or to load them from a cache.
//
//   generated_bench --benchmark_enable_random_interleaving --benchmark_repetitions=5
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "graph/elements.h"
#include "kernels/cpu.h"
#include "kernels/find_module.h"
#include "kernels/generated/compiled.h"
#include "kernels/generated/lower.h"
#include "kernels/module/kernel_library.h"
#include "kernels/signature.h"

namespace nlsplit {
namespace {

struct GeneratedCase {
  const char* name;
  const char* signature;
};

#define NLS_RESIZE(mode)                                                                                  \
  "{antialias=0, coordinate_transformation_mode=\"half_pixel\", cubic_coeff_a=-0.75, exclude_outside=0, " \
  "extrapolation_value=0.0, mode=\"" mode                                                                 \
  "\", nearest_mode=\"round_prefer_floor\", roi=[0.0,0.0,0.0,0.0,1.0,1.0,1.0,1.0], "                      \
  "scales=[1.0,1.0,2.0,2.0], sizes=[0,0,80,80]}"

// As large as the layers of usual networks have them.
constexpr GeneratedCase cases[] = {
    {"resize_nearest", "Resize(f32[1,96,40,40]) " NLS_RESIZE("nearest") " -> f32[1,96,80,80]"},
    {"resize_linear", "Resize(f32[1,32,40,40]) " NLS_RESIZE("linear") " -> f32[1,32,80,80]"},
    {"resize_cubic", "Resize(f32[1,8,40,40]) " NLS_RESIZE("cubic") " -> f32[1,8,80,80]"},
    {"abs", "Abs(f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"floor", "Floor(f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"sign", "Sign(f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"reciprocal", "Reciprocal(f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"elu", "Elu(f32[1,64,56,56]) {alpha=1.0} -> f32[1,64,56,56]"},
    {"softplus", "Softplus(f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"mish", "Mish(f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"log", "Log(f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"prelu", "PRelu(f32[1,64,56,56], const f32[64,1,1]) -> f32[1,64,56,56]"},
    {"sin", "Sin(f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"cos", "Cos(f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"tan", "Tan(f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"asin", "Asin(f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"atan", "Atan(f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"sinh", "Sinh(f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"asinh", "Asinh(f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"pow", "Pow(f32[1,64,56,56], const f32[]) -> f32[1,64,56,56]"},
    {"max", "Max(f32[1,64,56,56], f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"mean", "Mean(f32[1,64,56,56], f32[1,64,56,56], f32[1,64,56,56]) -> f32[1,64,56,56]"},
    {"where", "Where(bool[1,1,56,56], f32[1,64,56,56], f32[]) -> f32[1,64,56,56]"},
    {"equal", "Equal(f32[1,64,56,56], f32[1,64,56,56]) -> bool[1,64,56,56]"},
    {"and", "And(bool[1,64,56,56], bool[1,64,56,56]) -> bool[1,64,56,56]"},
    {"add_i64", "Add(i64[1,64,56,56], i64[]) -> i64[1,64,56,56]"},
    {"bitwise_xor", "BitwiseXor(i32[1,64,56,56], i32[1,64,56,56]) -> i32[1,64,56,56]"},
    {"cast_to_i64", "Cast(f32[1,64,56,56]) {to=\"i64\"} -> i64[1,64,56,56]"},
    {"cast_u8_to_f32", "Cast(u8[1,3,224,224]) {to=\"f32\"} -> f32[1,3,224,224]"},
    {"quantize", "QuantizeLinear(f32[1,64,56,56], const f32[], const u8[]) {axis=1} -> u8[1,64,56,56]"},
    {"dequantize", "DequantizeLinear(u8[1,64,56,56], const f32[], const u8[]) {axis=1} -> f32[1,64,56,56]"},
    {"tile", "Tile(f32[1,32,56,56]) {repeats=[1,2,1,1]} -> f32[1,64,56,56]"},
    {"slice_steps",
     "Slice(f32[1,64,112,112]) {axes=[2,3], ends=[112,112], starts=[0,0], steps=[2,2]} -> f32[1,64,56,56]"},
    {"transpose_i64", "Transpose(i64[64,56,56]) {perm=[2,0,1]} -> i64[56,64,56]"},
    {"gather_elements", "GatherElements(f32[64,3136], i64[64,3136]) {axis=1} -> f32[64,3136]"},
    {"scatter_elements",
     "ScatterElements(f32[64,3136], i64[64,1568], f32[64,1568]) {axis=1, reduction=\"none\"} -> f32[64,3136]"},
    {"scatter_nd", "ScatterND(f32[2048,64], i64[512,1], f32[512,64]) {reduction=\"none\"} -> f32[2048,64]"},
    {"scatter_nd_add", "ScatterND(f32[2048,64], i64[512,1], f32[512,64]) {reduction=\"add\"} -> f32[2048,64]"},
    {"einsum", "Einsum(f32[4,64,32], f32[4,64,32]) {equation=\"bik,bjk->bij\"} -> f32[4,64,64]"},
    {"einsum_of_three", "Einsum(f32[64,32], f32[64,32], f32[64,32]) {equation=\"ik,jk,jl->il\"} -> f32[64,32]"},
    {"matmul_i32", "MatMul(i32[128,256], i32[256,256]) -> i32[128,256]"},
    {"grid_sample",
     "GridSample(f32[1,16,56,56], f32[1,56,56,2]) {align_corners=0, mode=\"linear\", padding_mode=\"zeros\"} -> "
     "f32[1,16,56,56]"},
    {"roi_align",
     "RoiAlign(f32[1,64,50,50], f32[16,4], i64[16]) {coordinate_transformation_mode=\"half_pixel\", mode=\"avg\", "
     "output_height=7, output_width=7, sampling_ratio=2, spatial_scale=0.25} -> f32[16,64,7,7]"},
    {"conv_3d",
     "Conv(f32[1,16,8,16,16], const f32[16,16,3,3,3], const f32[16]) {dilations=[1,1,1], group=1, "
     "kernel_shape=[3,3,3], pads=[1,1,1,1,1,1], strides=[1,1,1]} -> f32[1,16,8,16,16]"},
    {"lp_pool",
     "LpPool(f32[1,64,56,56]) {ceil_mode=0, kernel_shape=[2,2], p=2, pads=[0,0,0,0], strides=[2,2]} -> "
     "f32[1,64,28,28]"},
    {"max_unpool", "MaxUnpool(f32[1,16,56,56], i64[1,16,56,56]) {shape=[0,0,112,112]} -> f32[1,16,112,112]"},
    {"reduce_max", "ReduceMax(f32[64,56,56]) {axes=[2], keepdims=1} -> f32[64,56,1]"},
    {"reduce_l2", "ReduceL2(f32[64,56,56]) {axes=[0], keepdims=0} -> f32[56,56]"},
    {"reduce_log_sum_exp", "ReduceLogSumExp(f32[64,1000]) {axes=[1], keepdims=0} -> f32[64]"},
    {"arg_max", "ArgMax(f32[1,21,128,128]) {axis=1, keepdims=0, select_last_index=0} -> i64[1,128,128]"},
    {"cum_sum", "CumSum(f32[64,1000]) {axis=1, exclusive=0, reverse=0} -> f32[64,1000]"},
    {"log_softmax", "LogSoftmax(f32[64,1000]) {axis=1} -> f32[64,1000]"},
    {"concat_i64", "Concat(i64[64,128], i64[64,128]) {axis=1} -> i64[64,256]"},
    {"pad_u8", "Pad(u8[1,3,224,224]) {pads=[0,0,3,3,0,0,3,3], value=0.0} -> u8[1,3,230,230]"},
    {"one_hot", "OneHot(i64[1024], f32[2]) {axis=-1, depth=200} -> f32[1024,200]"},
};

std::string random_bytes(const TensorType& type, Random& random) {
  const auto count = static_cast<size_t>(element_count(type.shape));
  if (is_real(type.dtype)) {
    std::vector<double> values(count);
    for (double& value : values) value = std::abs(random.normal()) + 0.01;
    return raw_of(type.dtype, std::span<const double>(values));
  }
  std::vector<int64_t> values(count);
  for (int64_t& value : values) value = static_cast<int64_t>(random.below(200));
  return raw_of(type.dtype, std::span<const int64_t>(values));
}

struct GeneratedRun {
  ComputeDesc desc;
  std::vector<std::string> operands;
  std::string result;
  const KernelCode* code = nullptr;

  GeneratedRun(const KernelLibrary& library, const GeneratedCase& it, KernelName kernel)
      : desc(parse_signature(it.signature).value()) {
    desc.kernel = {kernel, library.isa()};
    Random random(1);
    for (const TensorType& type : desc.inputs) operands.push_back(random_bytes(type, random));
    result.assign(static_cast<size_t>(size_of(desc.outputs[0]).value()), '\0');
    code = library.find(desc.kernel).value();
  }
  void run() {
    std::vector<const void*> inputs;
    for (const std::string& operand : operands) inputs.push_back(operand.data());
    void* outputs[] = {result.data()};
    code->run({&desc, inputs.data(), outputs, nullptr});
  }
};

bool alike(const GeneratedRun& a, const GeneratedRun& b) {
  const DType type = a.desc.outputs[0].dtype;
  if (!is_real(type)) return a.result == b.result;
  const std::vector<double> x = reals_of(type, a.result), y = reals_of(type, b.result);
  for (size_t i = 0; i < x.size(); ++i) {
    const bool none = std::isnan(x[i]) && std::isnan(y[i]);
    if (!none && !(std::abs(x[i] - y[i]) <= 1e-6 * (1 + std::abs(y[i])))) return false;
  }
  return true;
}

void time_generated(benchmark::State& state, const KernelLibrary& library, const GeneratedCase& it, KernelName kernel) {
  GeneratedRun run(library, it, kernel), other(library, it, KernelName::reference);
  run.run();
  other.run();
  if (!alike(run, other)) return state.SkipWithError("the result is wrong");
  for (auto _ : state) run.run();
}

// All cases one after the other, as a process does that begins: `fill` an empty cache, or use a full one.
void time_compiling(benchmark::State& state, const CodegenModule& codegen, Isa isa, bool fill) {
  std::string folder = (std::filesystem::temp_directory_path() / "nlsplit_code_XXXXXX").string();
  CHECK(::mkdtemp(folder.data()) != nullptr, folder);
  std::vector<Loops> all;
  for (const GeneratedCase& it : cases) all.push_back(lower(parse_signature(it.signature).value()));
  const auto compile_all = [&](CodeCache& cache) {
    int found = 0;
    for (const Loops& loops : all) found += codegen.compile(loops, isa, &cache).value().from_cache ? 1 : 0;
    return found;
  };
  if (!fill) compile_all(*CodeCache::open(folder).value());
  for (auto _ : state) {
    if (fill) {
      state.PauseTiming();
      std::filesystem::remove_all(folder);
      state.ResumeTiming();
    }
    const int found = compile_all(*CodeCache::open(folder).value());
    if (found != (fill ? 0 : static_cast<int>(all.size()))) state.SkipWithError("not what the cache should hold");
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(all.size()));
  std::filesystem::remove_all(folder);
}

void register_compiling() {
  const auto path = find_module(codegen_file);
  if (!path) return;  // built without LLVM
  const CodegenModule* const codegen = load_codegen(*path).value();
  for (const bool fill : {true, false}) {
    benchmark::RegisterBenchmark(
        fill ? "compile" : "load_from_cache",
        [codegen, fill](benchmark::State& state) { time_compiling(state, *codegen, supported_levels().back(), fill); })
        ->Unit(benchmark::kMillisecond)
        ->ComputeStatistics("p90", [](const std::vector<double>& times) {
          std::vector<double> sorted = times;
          std::sort(sorted.begin(), sorted.end());
          return sorted[(sorted.size() * 9 + 9) / 10 - 1];
        });
  }
}

}  // namespace
}  // namespace nlsplit

int main(int argc, char** argv) {
  using namespace nlsplit;
  static const KernelLibrary library = KernelLibrary::load(supported_levels().back()).value();
  for (const GeneratedCase& it : cases) {
    for (const KernelName kernel : {KernelName::generated, KernelName::reference}) {
      benchmark::RegisterBenchmark(
          fmt::format("{}/{}", it.name, name_of(kernel)).c_str(),
          [&it, kernel](benchmark::State& state) { time_generated(state, library, it, kernel); })
          ->Unit(benchmark::kMicrosecond);
    }
  }
  register_compiling();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}

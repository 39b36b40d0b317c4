// Linear, one thread, at this CPU's best level and in one cache at the others: bytes of weights a second and flop/s, by
// the weights' type, for one row of x (a token is decoded) and for 128 (a prompt). `read`: what a plain loop reads a
// second from memory that is as large as the weights. Each product has so many matrices of weights of its own that
// together they are `MiB`, and takes one after the other, so that they come from the cache that has room for them, or
// from memory.
//
//   linear_bench --benchmark_filter=q4_0
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "graph/elements.h"
#include "kernels/cpu.h"
#include "kernels/module/kernel_library.h"

namespace nlsplit {
namespace {

constexpr int64_t mebibyte = int64_t{1} << 20;

// Memory at a boundary that vectors and cache lines have.
class Aligned {
 public:
  explicit Aligned(int64_t bytes) : memory_(new (std::align_val_t{64}) char[static_cast<size_t>(bytes) + 1]()) {}
  char* data() { return memory_.get(); }

 private:
  struct Free {
    void operator()(char* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  std::unique_ptr<char[], Free> memory_;
};

void read_memory(benchmark::State& state, int64_t bytes) {
  Aligned memory(bytes);
  std::memset(memory.data(), 1, static_cast<size_t>(bytes));
  const auto* words = reinterpret_cast<const uint64_t*>(memory.data());
  const int64_t count = bytes / int64_t{sizeof(uint64_t)};
  for (auto _ : state) benchmark::DoNotOptimize(std::accumulate(words, words + count, uint64_t{0}));
  state.counters["read/s"] =
      benchmark::Counter(static_cast<double>(bytes), benchmark::Counter::kIsIterationInvariantRate);
}

ComputeDesc linear(DType type, int64_t m, int64_t n, int64_t k, Isa isa) {
  ComputeDesc desc;
  desc.op = Op::Linear;
  desc.weights = 0b10;
  desc.inputs = {{DType::f32, {m, k}}, {type, {n, k}}};
  desc.outputs = infer(desc.op, desc.inputs, desc.attrs).value();
  desc.kernel = choose_kernel(desc, isa).value();
  return desc;
}

void time_linear(benchmark::State& state, const KernelLibrary& library, const ComputeDesc& desc, int64_t bytes) {
  const TensorType& type = desc.inputs[1];
  const int64_t each = size_of(type).value(), matrices = std::max<int64_t>(1, bytes / each);
  // A row of blocks, again and again: what the numbers are changes no time.
  std::vector<float> row(static_cast<size_t>(type.shape[1]));
  fill_normal(1, row.data(), type.shape[1]);
  const std::vector<double> reals(row.begin(), row.end());
  const std::string raw = raw_of(type.dtype, std::span<const double>(reals));
  Aligned weights(matrices * each), x(size_of(desc.inputs[0]).value()), out(size_of(desc.outputs[0]).value()),
      workspace(workspace_of(desc, 1).value());
  for (int64_t at = 0; at < matrices * each; at += static_cast<int64_t>(raw.size()))
    std::memcpy(weights.data() + at, raw.data(), raw.size());
  fill_normal(2, reinterpret_cast<float*>(x.data()), element_count(desc.inputs[0].shape));
  const KernelCode& code = **library.find(desc.kernel);
  int64_t matrix = 0;
  for (auto _ : state) {
    const void* inputs[] = {x.data(), weights.data() + matrix * each};
    void* outputs[] = {out.data()};
    code.run({&desc, inputs, outputs, workspace.data(), {}});
    benchmark::ClobberMemory();
    matrix = (matrix + 1) % matrices;
  }
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["weights/s"] = benchmark::Counter(static_cast<double>(each), rate);
  state.counters["flop/s"] = benchmark::Counter(work_of(desc).flops.value(), rate);
}

}  // namespace
}  // namespace nlsplit

int main(int argc, char** argv) {
  using namespace nlsplit;
  benchmark::Initialize(&argc, argv);
  std::vector<KernelLibrary> libraries;
  for (const Isa isa : supported_levels()) libraries.push_back(KernelLibrary::load(isa).value());
  constexpr DType types[] = {DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::q4_k,
                             DType::q6_k, DType::f16,  DType::bf16, DType::f32};
  for (const int64_t size : {1, 8, 512}) {  // MiB
    benchmark::RegisterBenchmark(fmt::format("read/{}MiB", size).c_str(),
                                 [=](benchmark::State& state) { read_memory(state, size * mebibyte); });
    for (const KernelLibrary& library : libraries) {
      if (&library != &libraries.back() && size != 8) continue;
      for (const DType type : types) {
        for (const int64_t rows : {1, 128}) {
          // A feed-forward layer's; in the smallest cache a small model's.
          const int64_t n = size == 1 ? 512 : 4096, k = size == 1 ? 512 : 1536;
          const ComputeDesc desc = linear(type, rows, n, k, library.isa());
          const auto name =
              fmt::format("linear/{}/{}/{}x{}/rows_{}/{}MiB", name_of(library.isa()), name_of(type), n, k, rows, size);
          benchmark::RegisterBenchmark(name.c_str(), [=, &library](benchmark::State& state) {
            time_linear(state, library, desc, size * mebibyte);
          });
        }
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
}

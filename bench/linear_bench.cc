// Linear, one thread, at this CPU's best level and in one cache at the others: bytes of weights a second and flop/s, by
// the weights' type, for one row of x (a token is decoded) and for 128 (a prompt). `read`: what a plain loop reads a
// second from memory that is as large as the weights. Each product has so many matrices of weights of its own that
// together they are `MiB`, and takes one after the other, so that they come from the cache that has room for them, or
// from memory. `pause`: the first product after so many milliseconds without any, in which the thread spins or sleeps.
//
//   linear_bench --benchmark_filter=q4_0
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
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

// Products with one matrix of weights after the other.
class Products {
 public:
  Products(const KernelLibrary& library, const ComputeDesc& desc, int64_t bytes)
      : desc_(desc),
        code_(**library.find(desc.kernel)),
        each_(size_of(desc.inputs[1]).value()),
        matrices_(std::max<int64_t>(1, bytes / each_)),
        weights_(matrices_ * each_),
        x_(size_of(desc.inputs[0]).value()),
        out_(size_of(desc.outputs[0]).value()),
        workspace_(workspace_of(desc, 1).value()) {
    // A row of blocks, again and again: what the numbers are changes no time.
    const TensorType& type = desc.inputs[1];
    std::vector<float> row(static_cast<size_t>(type.shape[1]));
    fill_normal(1, row.data(), type.shape[1]);
    const std::vector<double> reals(row.begin(), row.end());
    const std::string raw = raw_of(type.dtype, std::span<const double>(reals));
    for (int64_t at = 0; at < matrices_ * each_; at += static_cast<int64_t>(raw.size()))
      std::memcpy(weights_.data() + at, raw.data(), raw.size());
    fill_normal(2, reinterpret_cast<float*>(x_.data()), element_count(desc.inputs[0].shape));
  }

  void next() {
    const void* inputs[] = {x_.data(), weights_.data() + matrix_ * each_};
    void* outputs[] = {out_.data()};
    code_.run({&desc_, inputs, outputs, workspace_.data(), {}});
    benchmark::ClobberMemory();
    matrix_ = (matrix_ + 1) % matrices_;
  }
  int64_t bytes_of_each() const { return each_; }

 private:
  const ComputeDesc& desc_;
  const KernelCode& code_;
  int64_t each_, matrices_, matrix_ = 0;
  Aligned weights_, x_, out_, workspace_;
};

void time_linear(benchmark::State& state, const KernelLibrary& library, const ComputeDesc& desc, int64_t bytes) {
  Products products(library, desc, bytes);
  for (auto _ : state) products.next();
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["weights/s"] = benchmark::Counter(static_cast<double>(products.bytes_of_each()), rate);
  state.counters["flop/s"] = benchmark::Counter(work_of(desc).flops.value(), rate);
}

void time_after_pause(benchmark::State& state, const KernelLibrary& library, const ComputeDesc& desc, int64_t bytes,
                      std::chrono::milliseconds pause, bool spins) {
  using Clock = std::chrono::steady_clock;
  Products products(library, desc, bytes);
  for (auto _ : state) {
    for (int before = 0; before < 4; ++before) products.next();
    const Clock::time_point until = Clock::now() + pause;
    if (!spins) std::this_thread::sleep_until(until);
    while (Clock::now() < until) {
    }
    const Clock::time_point begin = Clock::now();
    products.next();
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - begin).count());
  }
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
  // A layer's product for a short sequence.
  const KernelLibrary& best = libraries.back();
  const ComputeDesc layer = linear(DType::f32, 16, 768, 768, best.isa());
  for (const int64_t size : {18, 108}) {
    for (const int pause : {0, 1, 5, 15, 50}) {
      for (const bool spins : {true, false}) {
        const auto name = fmt::format("pause/{}ms/{}/{}MiB", pause, spins ? "spins" : "sleeps", size);
        benchmark::RegisterBenchmark(name.c_str(), [=, &best, &layer](benchmark::State& state) {
          time_after_pause(state, best, layer, size * mebibyte, std::chrono::milliseconds(pause), spins);
        })->UseManualTime();
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
}

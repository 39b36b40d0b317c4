#include "onednn_row.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <optional>

#include "kernel_case.h"
#include "onednn/onednn.h"

namespace nlsplit {
namespace {

using namespace onednn;

// The best of a few runs in CPU time: other work on the machine shall not decide between variants.
std::clock_t clocks_of(OneDnnComputation& computation) {
  std::clock_t best = std::numeric_limits<std::clock_t>::max();
  for (int i = 0; i < 10; ++i) {
    const std::clock_t start = std::clock();
    computation.run();
    best = std::min(best, std::clock() - start);
  }
  return best;
}

void time_onednn(benchmark::State& state, const ComputeDesc& desc) {
  const std::vector<Tensor> operands = operands_of(desc, 1);
  std::vector<std::span<const float>> inputs;
  for (const Tensor& operand : operands) inputs.emplace_back(operand.values);
  std::optional<OneDnnComputation> fastest;
  std::vector<float> result;
  std::string label, error;
  std::clock_t best = std::numeric_limits<std::clock_t>::max();
  for (OneDnnVariant variant : all_onednn_variants()) {
    Result<OneDnnComputation> prepared = prepare_onednn(desc, inputs, variant);
    if (!prepared.ok()) {
      if (variant == OneDnnVariant::usual) error = prepared.error().message;
      continue;
    }
    prepared->run();
    std::vector<float> first = prepared->result();
    const std::clock_t clocks = clocks_of(*prepared);
    if (clocks >= best) continue;
    best = clocks;
    result = std::move(first);
    label = fmt::format("{}, {}", name_of(variant), prepared->implementation());
    fastest.emplace(std::move(*prepared));
  }
  if (!fastest) return state.SkipWithError(error.c_str());
  if (!right(desc, operands, {result})) return state.SkipWithError("the result is wrong");
  state.SetLabel(label);
  for (auto _ : state) fastest->run();
  count(state, work_of(desc));
}

}  // namespace

void add_onednn_row(const std::string& label, const ComputeDesc& desc) {
  if (!onednn_refusal(desc).empty()) return;
  benchmark::RegisterBenchmark((label + "/onednn").c_str(),
                               [desc](benchmark::State& state) { time_onednn(state, desc); });
}

}  // namespace nlsplit

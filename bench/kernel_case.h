// What the rows of timed computations share, whoever computes: operands, whether what came out is right, rates.
#pragma once

#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "graph/reference/evaluate.h"
#include "kernels/catalogue.h"

namespace nlsplit {

// Row-major, whatever the desc's layouts are.
inline std::vector<Tensor> operands_of(const ComputeDesc& desc, uint64_t seed) {
  std::vector<Tensor> operands;
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    const auto count = static_cast<size_t>(element_count(desc.inputs[i].shape));
    Tensor& raw = operands.emplace_back(Tensor{desc.inputs[i], std::vector<float>(count)});
    fill_normal(seed + i, raw.values.data(), static_cast<int64_t>(count));
    // Weights as a trained network's, so that what a layer gives stays near 1.
    const bool recurrent = desc.op == Op::LSTM || desc.op == Op::GRU;
    float scale = 1;
    if (recurrent && (i == 1 || i == 2))
      scale = 1 / std::sqrt(static_cast<float>(desc.inputs[i].shape[2]));
    else if (i == 1 && desc.op != Op::Add && desc.inputs[i].shape.size() > 1)
      scale = 1 / std::sqrt(static_cast<float>(count / desc.inputs[i].shape[0]));
    for (float& v : raw.values) v *= scale;
  }
  return operands;
}

// actual: row-major, one for each output.
inline bool right(const ComputeDesc& desc, const std::vector<Tensor>& operands,
                  const std::vector<std::vector<float>>& actual) {
  std::vector<EpilogueStep> steps;
  for (const DescStep& step : desc.epilogue) {
    steps.push_back({step.op, has(step.op, traits::is_step_with_operand) ? ValueId(0) : ValueId(), step.attrs, {}});
  }
  std::vector<const Tensor*> inputs;
  for (const Tensor& operand : operands) inputs.push_back(&operand);
  const std::vector<Tensor> expected = evaluate_op(desc.op, desc.attrs, steps, inputs, desc.outputs);
  for (size_t o = 0; o < expected.size(); ++o) {
    if (actual[o].size() != expected[o].values.size()) return false;
    for (size_t i = 0; i < actual[o].size(); ++i) {
      const float e = expected[o].values[i];
      if (!(std::abs(actual[o][i] - e) <= 1e-4f + 1e-4f * std::abs(e))) return false;
    }
  }
  return true;
}

inline void count(benchmark::State& state, Work work) {
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["flop/s"] = benchmark::Counter(work.flops.value(), rate);
  state.counters["byte/s"] =
      benchmark::Counter(static_cast<double>((work.bytes_read + work.bytes_written).value()), rate);
}

}  // namespace nlsplit

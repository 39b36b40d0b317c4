// Runs one kernel as an executor would, in memory laid out to catch it reading or writing where it must not: every
// operand lies between guards of NaN at an address that is aligned to a float only, outputs and workspace begin as NaN,
// inputs must not change.
//
//   Tensor y = run_kernel(library, desc, {&x, &w})[0];
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "graph/reference/evaluate.h"
#include "kernels/catalogue.h"
#include "kernels/module/kernel_library.h"
#include "testing/layouts.h"

namespace nlsplit::testing {

class GuardedFloats {
 public:
  // offset: floats behind a 64-byte boundary.
  GuardedFloats(size_t count, size_t offset) : count_(count), memory_(count + offset + 3 * guard, poison()) {
    const auto address = std::bit_cast<uintptr_t>(memory_.data() + guard);
    begin_ = guard + (64 - address % 64) % 64 / sizeof(float) + offset;
  }
  float* data() { return memory_.data() + begin_; }
  std::vector<float> values() { return {data(), data() + count_}; }
  bool intact() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const bool inside = i >= begin_ && i < begin_ + count_;
      if (!inside && std::bit_cast<uint32_t>(memory_[i]) != std::bit_cast<uint32_t>(poison())) return false;
    }
    return true;
  }

 private:
  static constexpr size_t guard = 64;
  static float poison() { return std::numeric_limits<float>::quiet_NaN(); }
  size_t count_;
  std::vector<float> memory_;
  size_t begin_ = 0;
};

inline size_t floats_of(Bytes size) { return static_cast<size_t>((size.value() + 3) / 4); }

// Threads that share a call, started for it.
inline void run_on_threads(void* self, void (*body)(void*, int), void* context) {
  std::vector<std::thread> others;
  for (int worker = 1; worker < *static_cast<int*>(self); ++worker) others.emplace_back(body, context, worker);
  body(context, 0);
  for (std::thread& other : others) other.join();
}

// Inputs and results are row-major; in between they lie as the desc says. `over`: the input on whose bytes the only
// result is written; -1: on none.
inline std::vector<Tensor> run_kernel(const KernelLibrary& library, const ComputeDesc& desc,
                                      const std::vector<const Tensor*>& inputs, int workers = 1, int over = -1) {
  const auto found = library.find(desc.kernel);
  EXPECT_TRUE(found.ok()) << to_string(desc.kernel);
  const KernelCode& entry = **found;
  std::vector<GuardedFloats> memory;
  std::vector<std::vector<float>> before;
  memory.reserve(inputs.size());
  std::vector<const void*> in;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool whole =
        desc.inputs[i].dtype != DType::f32;  // integers: their bytes, at an address that is aligned to them
    std::vector<float> raw(whole ? floats_of(bytes(static_cast<int64_t>(inputs[i]->raw.size()))) : 0);
    if (whole)
      std::memcpy(raw.data(), inputs[i]->raw.data(), inputs[i]->raw.size());
    else
      raw = stored(desc.inputs[i], inputs[i]->values);
    const Bytes packed = packed_bytes_of(desc, i);
    if (packed.value() > 0) {
      memory.emplace_back(floats_of(packed), 0);
      entry.pack(desc, i, raw.data(), memory.back().data());
      EXPECT_TRUE(memory.back().intact()) << "packing writes elsewhere: " << signature(desc);
    } else {
      memory.emplace_back(raw.size(), whole ? 2 * i : i + 1);
      std::copy(raw.begin(), raw.end(), memory.back().data());
    }
    before.push_back(memory.back().values());
    in.push_back(memory.back().data());
  }
  std::vector<GuardedFloats> out;
  out.reserve(desc.outputs.size());
  std::vector<void*> outputs;
  for (const TensorType& type : desc.outputs) {
    out.emplace_back(static_cast<size_t>(stored_elements(type)), out.size() + 3);
    outputs.push_back(out.back().data());
  }
  if (over >= 0) outputs[0] = memory[static_cast<size_t>(over)].data();
  GuardedFloats workspace(floats_of(workspace_of(desc, workers)), 0);
  entry.run({&desc, in.data(), outputs.data(), workspace.data(), {workers, run_on_threads, &workers}});
  EXPECT_TRUE(workspace.intact()) << "writes outside of its workspace: " << signature(desc);
  for (size_t i = 0; i < memory.size(); ++i) {
    const std::vector<float> after = memory[i].values();
    const bool unchanged = std::equal(after.begin(), after.end(), before[i].begin(), [](float a, float b) {
      return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
    });
    EXPECT_TRUE(memory[i].intact() && (unchanged || static_cast<int>(i) == over))
        << "changes its input " << i << ": " << signature(desc);
  }
  std::vector<Tensor> results;
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_TRUE(out[i].intact()) << "writes outside of its output " << i << ": " << signature(desc);
    const std::vector<float> made = over >= 0 ? memory[static_cast<size_t>(over)].values() : out[i].values();
    results.push_back({with_block(desc.outputs[i], 0), row_major(desc.outputs[i], made)});
  }
  return results;
}

inline std::vector<Tensor> run_reference(const ComputeDesc& desc, const std::vector<const Tensor*>& inputs) {
  std::vector<EpilogueStep> steps;
  for (const DescStep& step : desc.epilogue) {
    steps.push_back({step.op, has(step.op, traits::is_step_with_operand) ? ValueId(0) : ValueId(), step.attrs, {}});
  }
  return evaluate_op(desc.op, desc.attrs, steps, inputs, desc.outputs);
}

}  // namespace nlsplit::testing

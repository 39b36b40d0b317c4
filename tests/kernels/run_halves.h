// Computations whose operands and results are float16 or bfloat16, as run_kernel.h runs those of float32.
//
//   const Tensor half = rounded_to(x, DType::bf16);
//   Tensor y = run_halves(library, desc, {half, w})[0];     // widened_from(y): its values
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "graph/elements.h"
#include "kernels/run_kernel.h"
#include "testing/layouts.h"

namespace nlsplit::testing {

inline ComputeDesc of_type(ComputeDesc desc, DType type) {
  for (TensorType& input : desc.inputs) input.dtype = type;
  for (TensorType& output : desc.outputs) output.dtype = type;
  return desc;
}

inline Tensor rounded_to(const Tensor& tensor, DType type) {
  const std::vector<double> values(tensor.values.begin(), tensor.values.end());
  return tensor_of({type, tensor.type.shape}, raw_of(type, std::span<const double>(values)));
}

inline Tensor widened_from(const Tensor& tensor) {
  Tensor wide{{DType::f32, tensor.type.shape}, {}};
  for (const double value : reals_of(tensor.type.dtype, tensor.raw)) wide.values.push_back(static_cast<float>(value));
  return wide;
}

// Row-major bytes as the type stores them, and back. Lanes without meaning are NaN.
inline std::string stored_halves(const TensorType& type, const std::string& row_major) {
  if (type.block == 0) return row_major;
  std::string result(static_cast<size_t>(2 * stored_elements(type)), '\xff');
  size_t i = 0;
  for (int64_t n = 0; n < type.shape[0]; ++n) {
    for (int64_t c = 0; c < type.shape[1]; ++c) {
      for (int64_t p = 0; p < pixels_of(type); ++p, ++i)
        std::memcpy(&result[static_cast<size_t>(2 * place_in_blocks(type, n, c, p))], &row_major[2 * i], 2);
    }
  }
  return result;
}
inline std::string row_major_halves(const TensorType& type, const std::string& as_stored) {
  if (type.block == 0) return as_stored;
  std::string result;
  for (int64_t n = 0; n < type.shape[0]; ++n) {
    for (int64_t c = 0; c < type.shape[1]; ++c) {
      for (int64_t p = 0; p < pixels_of(type); ++p)
        result += as_stored.substr(static_cast<size_t>(2 * place_in_blocks(type, n, c, p)), 2);
    }
  }
  return result;
}

// With a guard behind each operand, at addresses aligned to an element only; constants that the kernel packs are
// packed. Operands and results are row-major, in between they lie as the desc says. `over`: as run_kernel has it.
inline std::vector<Tensor> run_halves(const KernelLibrary& library, const ComputeDesc& desc,
                                      const std::vector<Tensor>& inputs, int workers = 1, int over = -1) {
  constexpr size_t guard = 64;
  const KernelCode& code = **library.find(desc.kernel);
  const auto lead = [](const TensorType& type) { return static_cast<size_t>(size_of(type.dtype)); };
  const auto framed = [&](const TensorType& type, const std::string& content) {
    return std::string(lead(type), '\xff') + content + std::string(guard, '\xff');
  };
  std::vector<std::string> in, out;
  std::vector<GuardedFloats> packed;
  std::vector<const void*> reads;
  packed.reserve(inputs.size());
  in.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string raw(bytes_of(inputs[i]));
    in.push_back(framed(inputs[i].type, stored_halves(desc.inputs[i], raw)));
    reads.push_back(in[i].data() + lead(inputs[i].type));
    const Bytes size = packed_bytes_of(desc, i);
    if (size.value() == 0) continue;
    packed.emplace_back(floats_of(size), 0);
    code.pack(desc, i, reads[i], packed.back().data());
    EXPECT_TRUE(packed.back().intact()) << "packing writes elsewhere: " << signature(desc);
    reads[i] = packed.back().data();
  }
  for (const TensorType& type : desc.outputs)
    out.push_back(framed(type, std::string(static_cast<size_t>(size_of(type.dtype, stored_elements(type))), '\xff')));
  const std::vector<std::string> before = in;
  std::vector<void*> writes;
  for (size_t o = 0; o < out.size(); ++o) writes.push_back(out[o].data() + lead(desc.outputs[o]));
  if (over >= 0) writes[0] = in[static_cast<size_t>(over)].data() + lead(desc.outputs[0]);
  GuardedFloats workspace(floats_of(workspace_of(desc, workers)), 0);
  code.run({&desc, reads.data(), writes.data(), workspace.data(), {workers, run_on_threads, &workers}});
  EXPECT_TRUE(workspace.intact()) << "writes outside of its workspace: " << signature(desc);
  for (size_t i = 0; i < in.size(); ++i)
    EXPECT_TRUE(static_cast<int>(i) == over || in[i] == before[i]) << "changes its input " << i;
  std::vector<Tensor> results;
  for (size_t o = 0; o < out.size(); ++o) {
    const std::string& made = over >= 0 ? in[static_cast<size_t>(over)] : out[o];
    EXPECT_EQ(made.substr(made.size() - guard), std::string(guard, '\xff')) << "writes behind its output";
    const size_t first = lead(desc.outputs[o]);
    results.push_back(tensor_of(with_block(desc.outputs[o], 0),
                                row_major_halves(desc.outputs[o], made.substr(first, made.size() - first - guard))));
  }
  return results;
}

}  // namespace nlsplit::testing

// Programs for devices of kind cuda, and how their results compare.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/file.h"
#include "compile/compile.h"
#include "exec/programs.h"
#include "exec/run_threads.h"
#include "kernels/cuda/gpu.h"
#include "program/text.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit::testing {

inline Device gpu_device(Level level = Isa::cuda) {
  Device device;
  device.name = "G";
  device.kind = is_gpu(level.isa) ? DeviceKind::cuda : DeviceKind::cpu;
  device.memory = bytes(int64_t{1} << 40);
  device.level = level;
  return device;
}

inline Program unsplit_on(const Graph& graph, int micro_batches, Level level) {
  return compile_unsplit(choose_kernels(graph, {level}).value(), micro_batches, gpu_device(level), "here").value();
}

inline void expect_close(const RunResult& got, const RunResult& want) {
  ASSERT_EQ(got.outputs.size(), want.outputs.size());
  for (size_t o = 0; o < want.outputs.size(); ++o) {
    const std::vector<float>&a = got.outputs[o].tensor.values, &b = want.outputs[o].tensor.values;
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < b.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4 * (1 + std::abs(b[i]))) << "at " << i;
  }
}

// A Program written by hand for level v2, its devices turned into GPUs.
inline Program on_gpus(const std::string& name) {
  std::string text = value_of(read_file(std::string(NLS_SOURCE_DIR) + "/tests/programs/" + name + ".nls"));
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  };
  for (const char* letter : {"A", "B", "C"}) {
    const std::string device = std::string("device ") + letter;
    replace(device + " cpu", device + " cuda");
  }
  replace("isa v2", "isa cuda");
  replace("memory 1048576", "memory 1073741824");
  replace("matmul_v2", "matmul_cublaslt_cuda");
  replace("gemm_v2", "gemm_cublaslt_cuda");
  replace("binary_v2", "binary_cuda");
  replace("buffer ws f32[4096]", "buffer ws f32[8388608]");  // 32 MiB, as the catalogue says
  auto program = parse_program(text, name);
  EXPECT_TRUE(program.ok()) << program.error().to_string();
  return std::move(program).value();
}

}  // namespace nlsplit::testing

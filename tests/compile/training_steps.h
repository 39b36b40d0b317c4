// Training steps for tests of lowering: networks whose tensors all have one size, a layer on each device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "program/text.h"
#include "program/verify.h"
#include "testing/compile_program.h"
#include "testing/layers.h"
#include "testing/star.h"
#include "testing/training.h"

namespace nlsplit {

inline const Bytes device_memory = bytes(int64_t{1} << 36);

inline KernelGraph kernels_of(Graph graph, const TrainingOptions& options = {}) {
  auto kernels = choose_kernels(std::move(graph), {Isa::v3}, {}, options);
  EXPECT_TRUE(kernels.ok()) << kernels.error().message;
  return std::move(kernels).value();
}

inline KernelGraph zoo_training(std::string_view name, int64_t batch, const TrainingOptions& options = {}) {
  Model model = zoo_model(name).value();
  return kernels_of(with_batch(optimize(model.graph, model.weights, Purpose::training).value(), batch).value(),
                    options);
}

// y_i = relu(y_{i-1} w_i), square matrices, so that every tensor of a kind has the same size: 64 samples of 64 numbers
// are 16 KiB, and so is a matrix.
inline constexpr int64_t layer_width = 64;
inline constexpr int64_t tensor_bytes = layer_width * layer_width * 4;
inline constexpr int64_t label_bytes = layer_width * 8;    // an integer a sample
inline constexpr int64_t count_bytes = 8, rate_bytes = 4;  // of a step
inline Graph layers(int count) { return testing::layers(count, layer_width, layer_width); }

// A layer a device.
inline Plan layer_each(const KernelGraph& kernels, int stages, int micro_batches) {
  Plan plan;
  const size_t nodes = kernels.graph.nodes.size();
  for (int s = 0; s < stages; ++s) {
    const auto at = [&](int i) { return nodes * static_cast<size_t>(i) / static_cast<size_t>(stages); };
    plan.stages.push_back({at(s), at(s + 1), {DeviceId(static_cast<size_t>(s))}});
  }
  plan.micro_batches = micro_batches;
  plan.schedule = "test";
  return plan;
}

inline Program lowered(const KernelGraph& kernels, const Plan& plan, size_t devices, const SlotTable& table) {
  auto program = compile_program(kernels, plan, star(devices, device_memory), {HostId(0), HostId(0)}, nullptr, &table,
                                 CollectiveAlgorithm::ring);
  EXPECT_TRUE(program.ok()) << program.error().message;
  const Status sound = verify(*program);
  EXPECT_TRUE(sound.ok()) << sound.error().message << "\n" << to_string(*program);
  const std::string text = to_string(*program);
  const auto again = parse_program(text, "again.nls");
  EXPECT_TRUE(again.ok()) << again.error().to_string();
  if (again.ok()) {
    EXPECT_EQ(to_string(*again), text);
    EXPECT_TRUE(*again == *program);
  }
  return std::move(program).value();
}

inline Error refusal(const KernelGraph& kernels, const Plan& plan, size_t devices, const SlotTable& table) {
  const auto program = compile_program(kernels, plan, star(devices, device_memory), {HostId(0), HostId(0)}, nullptr,
                                       &table, CollectiveAlgorithm::ring);
  EXPECT_FALSE(program.ok());
  return program.ok() ? Error{} : program.error();
}

inline const Buffer* find(const DeviceProgram& device, const std::string& name) {
  const auto at = std::ranges::find(device.buffers, name, &Buffer::name);
  return at == device.buffers.end() ? nullptr : &*at;
}

inline int64_t bytes_of_kind(const DeviceProgram& device, BufferKind kind) {
  int64_t sum = 0;
  for (const Buffer& buffer : device.buffers) {
    if (buffer.kind == kind) sum += buffer.instances * buffer.bytes.value();
  }
  return sum;
}

}  // namespace nlsplit

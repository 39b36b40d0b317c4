// What is copied within caches, and that nothing else is touched.
#include "exec/cache_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "exec/guarded_backend.h"

namespace nlsplit::testing {
namespace {

constexpr int64_t samples = 2, heads = 3, extent = 5, width = 4, instances = 2;

// A cache of f16 in two micro-batches of two sequences, between two other states.
Program with_a_cache() {
  Program program;
  ComputeDesc desc;
  desc.op = Op::TensorScatter;
  desc.attrs = {{"axis", int64_t{-2}}, {"mode", std::string("linear")}};
  desc.inputs = {
      {DType::f16, {samples, heads, extent, width}}, {DType::f16, {samples, heads, 1, width}}, {DType::i64, {samples}}};
  program.descs = {desc};
  DeviceProgram& device = program.devices.emplace_back();
  const auto add = [&](const std::string& name, const TensorType& type, int count) {
    Buffer& buffer = device.buffers.emplace_back();
    buffer.name = name;
    buffer.type = type;
    buffer.kind = BufferKind::state;
    buffer.bytes = size_of(type);
    buffer.instances = count;
    buffer.offset = device.arena.value();
    device.arena = bytes(device.arena.value() + count * buffer.stride());
    return BufferId(device.buffers.size() - 1);
  };
  add("before", {DType::f32, {7}}, 1);
  const BufferId cache = add("cache", desc.inputs[0], instances);
  add("behind", {DType::f32, {7}}, 1);
  Instr& instr = device.segments.emplace_back().instrs.emplace_back();
  instr.opcode = Opcode::compute;
  instr.desc = 0;
  instr.writes = {{cache}};
  return program;
}

TEST(CacheCopies, AreOfTheFirstPositionsOfEachHead) {
  const Program program = with_a_cache();
  const Buffer& cache = program.devices[0].buffers[1];
  GuardedBackend backend(program, 0, {});
  const std::span<std::byte> arena = backend.host();
  for (size_t i = 0; i < arena.size(); ++i) arena[i] = static_cast<std::byte>(i * 7 % 251);
  std::vector<std::byte> expected(arena.begin(), arena.end());
  const auto copy_expected = [&](int64_t from, int64_t to, int64_t positions) {
    for (int64_t head = 0; head < heads; ++head) {
      const auto at = [&](int64_t sequence) {
        const int64_t in_instance = ((sequence % samples * heads + head) * extent) * width * 2;
        return expected.begin() + cache.offset + sequence / samples * cache.stride() + in_instance;
      };
      std::copy_n(at(from), positions * width * 2, at(to));
    }
  };
  // Into the same micro-batch, into another one; who has been given something lends it, and is overwritten.
  const std::vector<CacheCopy> copies = {{0, 1, 2}, {1, 3, 4}, {3, 2, 5}, {2, 1, 1}, {0, 3, 0}};
  for (const CacheCopy& copy : copies) copy_expected(copy.from, copy.to, copy.positions);
  ASSERT_TRUE(make_copies(copies, program, 0, backend).ok());
  EXPECT_TRUE(std::ranges::equal(arena, expected));
  EXPECT_EQ(backend.written_beside(), 0);
}

}  // namespace
}  // namespace nlsplit::testing

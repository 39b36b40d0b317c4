// Casts between f32 and q8_0: the same bits on every level, at any size, and how far a value can be from what it was.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "graph/elements.h"
#include "graph/half.h"
#include "kernels/run_kernel.h"
#include "testing/tensors.h"

namespace nlsplit::testing {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float no_number = std::numeric_limits<float>::quiet_NaN();

ComputeDesc cast(DType from, DType to, const Shape& shape) {
  ComputeDesc desc;
  desc.op = Op::Cast;
  desc.attrs = {{"to", std::string(name_of(to))}};
  desc.inputs = {{from, shape}};
  desc.outputs = {{to, shape}};
  return desc;
}

// Between guards, at addresses that are aligned to an element only.
std::string run(const ComputeDesc& desc, const KernelLibrary& library, const std::string& input, int workers) {
  constexpr size_t guard = 64, lead = 4;
  const std::string framed = std::string(lead, '\xff') + input + std::string(guard, '\xff');
  const auto size = static_cast<size_t>(size_of(desc.outputs[0]).value());
  std::string in = framed, out(lead + size + guard, '\x55');
  const void* reads[] = {in.data() + lead};
  void* writes[] = {out.data() + lead};
  (**library.find(desc.kernel)).run({&desc, reads, writes, nullptr, {workers, run_on_threads, &workers}});
  EXPECT_EQ(in, framed) << "changes its input";
  EXPECT_EQ(out.substr(0, lead) + out.substr(lead + size), std::string(lead + guard, '\x55')) << "writes elsewhere";
  return out.substr(lead, size);
}

std::string raw_of_floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}
std::vector<float> floats_in(const std::string& raw) {
  std::vector<float> values(raw.size() / sizeof(float));
  std::memcpy(values.data(), raw.data(), raw.size());
  return values;
}

// As this machine's best level has it, and every other one.
std::string blocks_of_floats(const std::vector<float>& values, const Shape& shape, int workers = 1) {
  ComputeDesc desc = cast(DType::f32, DType::q8_0, shape);
  std::string first;
  for (const Isa isa : supported_levels()) {
    desc.kernel = choose_kernel(desc, isa).value();
    EXPECT_EQ(desc.kernel, KernelId(KernelName::cast_blocks, isa));
    EXPECT_TRUE(verify(desc).ok()) << verify(desc).error().to_string();
    const std::string made = run(desc, KernelLibrary::load(isa).value(), raw_of_floats(values), workers);
    if (first.empty()) first = made;
    EXPECT_EQ(made, first) << name_of(isa);
  }
  return first;
}

std::vector<float> back(const std::string& blocks, const Shape& shape) {
  ComputeDesc desc = cast(DType::q8_0, DType::f32, shape);
  std::vector<float> first;
  for (const Isa isa : supported_levels()) {
    desc.kernel = choose_kernel(desc, isa).value();
    EXPECT_EQ(desc.kernel, KernelId(KernelName::cast_blocks, isa));
    const std::vector<float> made = floats_in(run(desc, KernelLibrary::load(isa).value(), blocks, 1));
    if (first.empty()) first = made;
    EXPECT_EQ(std::memcmp(made.data(), first.data(), made.size() * sizeof(float)), 0) << name_of(isa);
  }
  return first;
}

std::vector<float> there_and_back(std::vector<float> block) {
  const auto count = static_cast<int64_t>(block.size());
  return back(blocks_of_floats(block, {count}), {count});
}

std::vector<float> block_with(float first, float others) {
  std::vector<float> block(32, others);
  block[0] = first;
  return block;
}

TEST(CastBlocks, HaveTheReferencesBitsAtAnySize) {
  for (const Shape& shape : std::vector<Shape>{{32}, {1, 1, 96}, {3, 5, 32}, {2, 17 * 1024}}) {
    Tensor x = random_tensor({DType::f32, shape}, 7);
    for (size_t i = 0; i < x.values.size(); ++i)
      x.values[i] = std::ldexp(x.values[i], static_cast<int>(i / 32 % 61) - 40);
    const std::vector<double> numbers(x.values.begin(), x.values.end());
    const std::string want = raw_of(DType::q8_0, std::span<const double>(numbers));
    EXPECT_EQ(blocks_of_floats(x.values, shape), want);
    EXPECT_EQ(blocks_of_floats(x.values, shape, 3), want) << "on three threads";
    EXPECT_EQ(run_reference(cast(DType::f32, DType::q8_0, shape), {&x})[0].raw, want);
    const std::vector<double> held = reals_of(DType::q8_0, want);
    EXPECT_EQ(back(want, shape), std::vector<float>(held.begin(), held.end()));
  }
}

TEST(CastBlocks, AreOffByHalfAStepOfTheirOwnBlock) {
  const Tensor x = random_tensor({DType::f32, {1000, 32}}, 9);
  const std::vector<float> got = back(blocks_of_floats(x.values, x.type.shape), x.type.shape);
  double most = 0;
  for (size_t b = 0; b < 1000; ++b) {
    float largest = 0;
    for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(x.values[32 * b + i]));
    for (size_t i = 0; i < 32; ++i) {
      const double off = std::abs(double{got[32 * b + i]} - double{x.values[32 * b + i]}) / double{largest};
      EXPECT_LE(off, 1.0 / 253) << "block " << b;
      most = std::max(most, off);
    }
  }
  EXPECT_GT(most, 1.0 / 260);
}

TEST(CastBlocks, WholeStepsStayAsTheyAre) {
  std::vector<float> block;
  for (int i = 0; i < 32; ++i) block.push_back(static_cast<float>(i * 8 - 127) / 4);
  block[31] = 127.0f / 4;
  EXPECT_EQ(there_and_back(block), block);
  // The largest is step 127 of 1: halves go to the even one.
  std::vector<float> ties = block_with(127, 0), want = ties;
  for (size_t i = 1; i < 6; ++i) ties[i] = static_cast<float>(i) + 0.5f;
  for (size_t i = 1; i < 6; ++i) want[i] = static_cast<float>((i + 1) / 2 * 2);
  EXPECT_EQ(there_and_back(ties), want);
}

TEST(CastBlocks, ZerosAndTheLeastNumbers) {
  const std::vector<float> zeros(32, 0);
  EXPECT_EQ(there_and_back(zeros), zeros);
  EXPECT_EQ(there_and_back(std::vector<float>(32, -0.0f)), zeros);
  EXPECT_EQ(blocks_of_floats(zeros, {32}), std::string(34, '\0'));
  // Below half of float16's least scale all are zeros, above it none is off by more than that times 127.
  constexpr float least_scale = 0x1p-24f;
  EXPECT_EQ(there_and_back(block_with(127 * least_scale * 0.49f, 1e-38f)), zeros);
  for (float largest = 127 * least_scale; largest < 1e-3f; largest *= 1.1f) {
    const std::vector<float> block = block_with(largest, -largest / 3), got = there_and_back(block);
    for (size_t i = 0; i < 32; ++i) EXPECT_LE(std::abs(got[i] - block[i]), 127 * least_scale / 2 + largest / 250);
  }
}

// The others of the block are lost with it, and nobody takes them for results.
TEST(CastBlocks, WhatIsNotFiniteMakesItsBlockNoNumber) {
  for (const float bad : {infinity, -infinity, no_number, -no_number, 127 * 65536.0f, 3e38f, -3e38f}) {
    std::vector<float> two = block_with(1, 2);
    for (size_t i = 0; i < 32; ++i) two.push_back(i == 17 ? bad : 0.5f);
    const std::vector<float> got = there_and_back(two);
    for (size_t i = 0; i < 32; ++i) EXPECT_TRUE(std::isfinite(got[i])) << i;
    for (size_t i = 32; i < 64; ++i) EXPECT_TRUE(std::isnan(got[i])) << bad << " at " << i;
    const std::string raw = blocks_of_floats(two, {64});
    EXPECT_EQ(raw.substr(36), std::string(32, '\0'));
    const std::vector<double> numbers(two.begin(), two.end());
    EXPECT_EQ(raw_of(DType::q8_0, std::span<const double>(numbers)), raw);
  }
  const std::vector<float> largest = there_and_back(block_with(127 * 65000.0f, 1));
  EXPECT_NEAR(largest[0], 127 * 65000.0f, 127 * 32.0f);
}

TEST(CastBlocks, AreOfWholeBlocksOfFloats) {
  const auto complaint = [](DType from, DType to, const Shape& shape) {
    ComputeDesc desc = cast(from, to, shape);
    desc.kernel = {KernelName::cast_blocks, Isa::v2};
    const Status status = verify(desc);
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(complaint(DType::f32, DType::q8_0, {2, 64}), "");
  EXPECT_NE(complaint(DType::f32, DType::q8_0, {2, 48}), "");
  EXPECT_NE(complaint(DType::f32, DType::q8_0, {}), "");
  EXPECT_NE(complaint(DType::f16, DType::q8_0, {2, 64}), "");
  EXPECT_NE(complaint(DType::f32, DType::q4_0, {2, 64}), "");
  EXPECT_NE(complaint(DType::q8_0, DType::f16, {2, 64}), "");
  EXPECT_NE(complaint(DType::f32, DType::f16, {2, 64}), "");
  EXPECT_EQ(choose_kernel(cast(DType::q8_0, DType::f16, {2, 64}), Isa::v3).value().name, KernelName::reference);
  EXPECT_EQ(choose_kernel(cast(DType::f32, DType::q8_0, {2, 64}), Isa::cuda).value().name, KernelName::gpu_host);
}

TEST(CastBlocks, WorkCountsTheBytesOfBlocks) {
  const ComputeDesc desc = cast(DType::f32, DType::q8_0, {2, 64});
  EXPECT_EQ(work_of(desc).bytes_read.value(), 128 * 4);
  EXPECT_EQ(work_of(desc).bytes_written.value(), 4 * 34);
  EXPECT_EQ(parse_signature(signature(desc)).value(), desc);
}

}  // namespace
}  // namespace nlsplit::testing

// Products of bfloat16, pair by pair: near what the reference evaluator makes of the same numbers in float32, with the
// same bits whoever computes which part of them, and whether or not the CPU has the instruction.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>

#include "base/random.h"
#include "graph/half.h"
#include "kernels/assign.h"
#include "kernels/cpu.h"
#include "kernels/kernel_operands.h"
#include "kernels/layout.h"
#include "kernels/piece_of.h"
#include "kernels/random_desc.h"
#include "kernels/run_halves.h"
#include "testing/tensors.h"

namespace nlsplit::testing {
namespace {

class Bf16 : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!cpu_supports(GetParam())) GTEST_SKIP() << "this CPU lacks " << full_name_of(GetParam());
    library_.emplace(KernelLibrary::load(GetParam()).value());
  }
  void TearDown() override {
    if (library_) library_->use_dot_product(true);
  }

  ComputeDesc with_kernel(ComputeDesc desc, KernelName name) const {
    desc.kernel = {name, GetParam()};
    EXPECT_TRUE(verify(desc).ok()) << verify(desc).error().to_string();
    return desc;
  }

  // Against float32 of the same operands. A result is rounded once, by half a unit: 2^-8 of it. `sum`: what sums of its
  // size may differ by, before the steps behind them, whose slopes are below `slope`.
  void expect_right(const ComputeDesc& desc, const std::vector<Tensor>& halves, int64_t terms) {
    SCOPED_TRACE(signature(desc));
    std::vector<Tensor> wide;
    for (const Tensor& half : halves) wide.push_back(widened_from(half));
    ComputeDesc plain = of_type(desc, DType::f32);
    for (TensorType& type : plain.outputs) type.block = 0;
    const Tensor want = run_reference(plain, pointers(wide))[0];
    const Tensor got = run_halves(*library_, desc, halves)[0];
    const double sum = 2e-6 * std::sqrt(static_cast<double>(terms)), slope = 30;
    expect_close(widened_from(got), want, {0x1p-8, sum * slope});
    EXPECT_EQ(run_halves(*library_, desc, halves, 3)[0].raw, got.raw) << "on three threads";
    library_->use_dot_product(false);
    EXPECT_EQ(run_halves(*library_, desc, halves)[0].raw, got.raw) << "without the instruction";
    library_->use_dot_product(true);
  }

  std::vector<Tensor> halves_for(const ComputeDesc& desc, uint64_t seed) {
    std::vector<Tensor> halves;
    for (const Tensor& input : kernel_operands(of_type(desc, DType::f32), seed))
      halves.push_back(rounded_to(input, DType::bf16));
    return halves;
  }

  std::optional<KernelLibrary> library_;
};

ComputeDesc product(Op op, int64_t m, int64_t n, int64_t k, bool bias, bool turned) {
  ComputeDesc desc;
  desc.op = op;
  desc.weights = 0b110;
  desc.inputs = {{DType::bf16, {m, k}}, {DType::bf16, turned ? Shape{n, k} : Shape{k, n}}};
  if (bias) desc.inputs.push_back({DType::bf16, {n}});
  if (op == Op::Gemm)
    desc.attrs = {{"alpha", 1.0}, {"beta", 1.0}, {"transA", int64_t{0}}, {"transB", int64_t{turned ? 1 : 0}}};
  if (!bias) desc.weights = 0b10;
  desc.outputs = infer(desc.op, desc.inputs, desc.attrs).value();
  return desc;
}

TEST_P(Bf16, ProductsOfAllSizes) {
  uint64_t seed = 0;
  for (const int64_t k : {1, 2, 3, 31, 64, 257}) {
    for (const int64_t n : {1, 15, 16, 17, 33, 70}) {
      for (const int64_t m : {1, 2, 5, 14, 15, 31, 150}) {
        for (const Op op : {Op::Gemm, Op::MatMul}) {
          const bool bias = seed++ % 2 == 0;
          const ComputeDesc desc = with_kernel(product(op, m, n, k, bias, op == Op::Gemm && seed % 3 == 0),
                                               op == Op::Gemm ? KernelName::gemm_bf16 : KernelName::matmul_bf16);
          expect_right(desc, halves_for(desc, seed), k);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// Operands that a step makes: weights that change, their gradients, scores of attention.
TEST_P(Bf16, ProductsOfPlainOperands) {
  uint64_t seed = 0;
  for (const int64_t k : {1, 2, 31, 64, 257}) {
    for (const int64_t n : {1, 16, 33, 70}) {
      for (const int64_t m : {1, 5, 31, 150}) {
        for (const auto& [turn_left, turn_right] : {std::pair(0, 0), {1, 0}, {0, 1}, {1, 1}}) {
          ComputeDesc desc = product(Op::Gemm, m, n, k, seed++ % 2 == 0, turn_right == 1);
          desc.weights = 0;
          if (turn_left == 1) desc.inputs[0].shape = {k, m};
          set_attr(desc.attrs, "transA", int64_t{turn_left});
          desc = with_kernel(desc, KernelName::gemm_bf16_plain);
          expect_right(desc, halves_for(desc, seed), k);
          if (HasFailure()) return;
        }
        for (const auto& [a, b] : {std::pair<Shape, Shape>{{m, k}, {k, n}},
                                   {{3, m, k}, {k, n}},
                                   {{3, m, k}, {3, k, n}},
                                   {{2, 3, m, k}, {1, 3, k, n}},
                                   {{2, 1, m, k}, {3, k, n}}}) {
          ComputeDesc desc;
          desc.op = Op::MatMul;
          desc.inputs = {{DType::bf16, a}, {DType::bf16, b}};
          if (seed++ % 2 == 0) desc.inputs.push_back({DType::bf16, {n}});
          desc.outputs = infer(desc.op, desc.inputs, desc.attrs).value();
          desc = with_kernel(desc, KernelName::matmul_bf16_plain);
          expect_right(desc, halves_for(desc, seed), k);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// Sums that wait in float32 between blocks of k, and more panels of rows than are packed at once.
TEST_P(Bf16, ProductsOfSeveralBlocks) {
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 70, 9001}, {100, 37, 8500}, {300, 40, 40}}) {
    const ComputeDesc desc = with_kernel(product(Op::MatMul, m, n, k, true, false), KernelName::matmul_bf16);
    expect_right(desc, halves_for(desc, 3), k);
  }
}

TEST_P(Bf16, StepsBehindProductsAreRoundedOnce) {
  Random random(17);
  int compared = 0;
  for (int tried = 0; tried < 300 && compared < 60; ++tried) {
    const Op op = tried % 2 == 0 ? Op::Gemm : Op::MatMul;
    const auto plain = random_desc(op, random);
    if (!plain) continue;
    ComputeDesc desc = of_type(*plain, DType::bf16);
    desc.kernel = {op == Op::Gemm ? KernelName::gemm_bf16 : KernelName::matmul_bf16, GetParam()};
    if (refusal(desc.kernel, desc)) continue;
    EXPECT_EQ(choose_kernel(desc, GetParam()).value(), desc.kernel);
    expect_right(desc, halves_for(desc, static_cast<uint64_t>(tried)), 64);
    ++compared;
    if (HasFailure()) return;
  }
  EXPECT_GE(compared, 20);
}

TEST_P(Bf16, PiecesHaveTheBitsOfTheWhole) {
  for (const Op op : {Op::Gemm, Op::MatMul}) {
    const ComputeDesc desc = with_kernel(product(op, 37, 75, 131, true, false),
                                         op == Op::Gemm ? KernelName::gemm_bf16 : KernelName::matmul_bf16);
    const std::vector<Tensor> halves = halves_for(desc, 5);
    const Tensor whole = run_halves(*library_, desc, halves)[0];
    for (size_t axis = 0; axis < 2; ++axis) {
      const int64_t extent = whole.type.shape[axis];
      for (const auto& [begin, end] :
           {std::pair<int64_t, int64_t>{0, 1}, {0, extent / 2}, {extent / 2, extent}, {extent - 1, extent}}) {
        ASSERT_TRUE(is_exact(desc, axis, begin, end));
        const auto piece = piece_of(desc, axis, begin, end);
        ASSERT_TRUE(piece);
        ComputeDesc part = piece->desc;
        part.kernel = desc.kernel;
        EXPECT_EQ(run_halves(*library_, part, parts(*piece, halves))[0].raw, part_of(whole, {axis, begin, end}).raw)
            << signature(part);
      }
    }
  }
}

// Row-major and in blocks, as kernels of float32 have it.
TEST_P(Bf16, Convolutions) {
  Random random(23);
  std::map<KernelName, int> compared;
  std::map<size_t, int> cut;
  const int block = static_cast<int>(vector_width(GetParam()));
  for (int tried = 0;
       tried < 1500 && (compared[KernelName::conv_bf16] < 60 || compared[KernelName::conv_stem_bf16] < 40); ++tried) {
    const auto plain = random_desc(Op::Conv, random);
    if (!plain || (plain->weights & 2) == 0) continue;
    const ComputeDesc row_major = of_type(*plain, DType::bf16);
    for (const KernelName kernel : {KernelName::conv_bf16, KernelName::conv_stem_bf16}) {
      ComputeDesc desc = row_major;
      desc.outputs[0].block = block;
      if (kernel == KernelName::conv_bf16) desc.inputs[0].block = block;
      for (size_t i = desc.own_inputs(); i < desc.inputs.size(); ++i) desc.inputs[i].block = block;
      desc.kernel = {kernel, GetParam()};
      if (refusal(desc.kernel, desc)) continue;
      ASSERT_TRUE(verify(desc).ok()) << verify(desc).error().to_string();
      const std::vector<Tensor> halves = halves_for(row_major, static_cast<uint64_t>(tried));
      expect_right(desc, halves, 500);
      if (HasFailure()) return;
      ++compared[kernel];
      const Tensor whole = run_halves(*library_, desc, halves)[0];
      for (size_t axis = 0; axis < whole.type.shape.size(); ++axis) {
        const int64_t extent = whole.type.shape[axis];
        if (extent < 2) continue;
        const auto at = static_cast<int64_t>(random.below(static_cast<uint64_t>(extent - 1))) + 1;
        for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, at}, {at, extent}}) {
          const auto piece = piece_of(row_major, axis, begin, end);
          if (!piece) continue;
          ComputeDesc part = piece->desc;
          part.outputs[0].block = block;
          for (size_t i = 0; i < part.inputs.size(); ++i) part.inputs[i].block = desc.inputs[i].block;
          part.kernel = desc.kernel;
          if (refusal(part.kernel, part)) continue;
          ASSERT_TRUE(is_exact(desc, axis, begin, end));
          ASSERT_EQ(run_halves(*library_, part, parts(*piece, halves))[0].raw, part_of(whole, {axis, begin, end}).raw)
              << signature(part);
          ++cut[axis];
        }
      }
    }
  }
  EXPECT_GE(compared[KernelName::conv_bf16], 40);
  EXPECT_GE(compared[KernelName::conv_stem_bf16], 20);
  for (size_t axis = 0; axis < 4; ++axis) EXPECT_GE(cut[axis], 10) << axis;
}

// What has no kernel of its own there is widened as it lies.
TEST_P(Bf16, PoolsInBlocks) {
  Random random(29);
  int compared = 0;
  for (const Op op : {Op::MaxPool, Op::AveragePool, Op::GlobalAveragePool, Op::Relu, Op::Add}) {
    for (int tried = 0; tried < 40; ++tried) {
      const auto plain = random_desc(op, random);
      if (!plain || plain->outputs.size() != 1) continue;
      const ComputeDesc row_major = of_type(*plain, DType::bf16);
      const auto desc = in_blocks(row_major, GetParam());
      if (!desc) continue;
      const bool has_kernel = op == Op::MaxPool && desc->epilogue.empty();
      EXPECT_EQ(desc->kernel.name, has_kernel ? KernelName::max_pool_blocked : KernelName::widened);
      ComputeDesc plainly = row_major;
      plainly.kernel = {KernelName::widened, GetParam()};
      const std::vector<Tensor> halves = halves_for(row_major, static_cast<uint64_t>(tried));
      const Tensor got = run_halves(*library_, *desc, halves)[0];
      EXPECT_EQ(run_halves(*library_, *desc, halves, 3)[0].raw, got.raw);
      const Tensor want = run_halves(*library_, plainly, halves)[0];
      EXPECT_TRUE(!has_kernel || got.raw == want.raw) << signature(*desc);
      expect_close(widened_from(got), widened_from(want), {0x1p-7, 1e-5});
      ++compared;
    }
  }
  EXPECT_GE(compared, 40);
}

TEST_P(Bf16, ReordersMoveBits) {
  const int block = static_cast<int>(vector_width(GetParam()));
  const Tensor x = rounded_to(random_tensor({DType::f32, {2, 21, 5, 7}}, 3), DType::bf16);
  const ComputeDesc there = reorder_desc(x.type, block, GetParam()),
                    back = reorder_desc(there.outputs[0], 0, GetParam());
  ASSERT_TRUE(verify(there).ok() && verify(back).ok());
  EXPECT_EQ(run_halves(*library_, there, {x})[0].raw, x.raw);
  EXPECT_EQ(run_halves(*library_, back, {x})[0].raw, x.raw);
}

// Whole vectors, pairs of them and what remains; numbers below the normal ones among them, halves that are ties, and
// what is not a number.
TEST_P(Bf16, RoundsAsOneNumberIsRounded) {
  constexpr uint32_t bits[] = {0x00000001, 0x00008000, 0x00018000, 0x007fffff, 0x80408000, 0x00800000,
                               0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff, 0x7f800000, 0xff800000,
                               0x7f800001, 0xffc12345, 0x80000000, 0x3f800000, 0x42f6e979};
  for (const int64_t n : {1, 15, 16, 31, 32, 33, 63, 64, 95, 200}) {
    for (const bool small : {false, true}) {
      ComputeDesc desc;
      desc.op = Op::Cast;
      desc.attrs = {{"to", std::string("bf16")}};
      desc.inputs = {{DType::f32, {n}}};
      desc.outputs = {{DType::bf16, {n}}};
      desc = with_kernel(desc, KernelName::cast);
      std::vector<float> x;
      std::vector<uint16_t> want, got(static_cast<size_t>(n)), without(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) {
        const size_t first = small ? 0 : 5;
        x.push_back(std::bit_cast<float>(bits[first + static_cast<size_t>(i) % (std::size(bits) - first)]));
        want.push_back(bf16_bits(x.back()));
      }
      const void* inputs[] = {x.data()};
      for (const bool instruction : {true, false}) {
        library_->use_dot_product(instruction);
        void* outputs[] = {instruction ? got.data() : without.data()};
        (**library_->find(desc.kernel)).run({&desc, inputs, outputs, nullptr, {}});
      }
      EXPECT_EQ(got, want) << n;
      EXPECT_EQ(without, want) << n;
    }
  }
}

// Against float32 of the same operands: a result is rounded once, and before it each exponential, all by half a unit.
TEST_P(Bf16, AttentionOfPairs) {
  uint64_t seed = 0;
  for (const int64_t queries : {1, 15, 57}) {
    for (const int64_t keys : {1, 33, 256, 515}) {
      for (const bool causal : {false, true}) {
        if (causal && keys < queries) continue;
        const int64_t size = seed % 2 == 0 ? 64 : 10, heads = 4, kv_heads = seed % 3 == 0 ? 2 : 4;
        ComputeDesc desc;
        desc.op = Op::Attention;
        desc.attrs = {{"causal", int64_t{causal}}, {"scale", 0.21}};
        desc.inputs = {{DType::bf16, {2, heads, queries, size}},
                       {DType::bf16, {2, kv_heads, keys, size}},
                       {DType::bf16, {2, kv_heads, keys, 20}}};
        desc.outputs = infer(desc.op, desc.inputs, desc.attrs).value();
        desc = with_kernel(desc, KernelName::attention);
        SCOPED_TRACE(signature(desc));
        EXPECT_EQ(choose_kernel(desc, GetParam()).value(), desc.kernel);
        const std::vector<Tensor> halves = halves_for(desc, ++seed);
        std::vector<Tensor> wide;
        for (const Tensor& half : halves) wide.push_back(widened_from(half));
        const Tensor got = run_halves(*library_, desc, halves)[0];
        expect_close(widened_from(got), run_reference(of_type(desc, DType::f32), pointers(wide))[0], {0x1p-8, 2e-2});
        EXPECT_EQ(run_halves(*library_, desc, halves, 3)[0].raw, got.raw) << "on three threads";
        library_->use_dot_product(false);
        EXPECT_EQ(run_halves(*library_, desc, halves)[0].raw, got.raw) << "without the instruction";
        library_->use_dot_product(true);
        for (const size_t axis : {0, 1, 2}) {
          const int64_t extent = desc.outputs[0].shape[axis];
          EXPECT_NE(info_of(desc.kernel.name).exact_axes & exact_axis(desc.op, axis, 4), 0);
          const auto piece = piece_of(desc, axis, extent / 2, extent);
          if (!piece) continue;
          ComputeDesc part = piece->desc;
          part.kernel = desc.kernel;
          EXPECT_EQ(run_halves(*library_, part, parts(*piece, halves))[0].raw,
                    part_of(got, {axis, extent / 2, extent}).raw);
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Bf16, TransposesMovePairs) {
  const auto desc_of = [&](Shape shape, const std::vector<int64_t>& perm) {
    ComputeDesc desc;
    desc.op = Op::Transpose;
    desc.attrs = {{"perm", perm}};
    desc.inputs = {{DType::bf16, std::move(shape)}};
    desc.outputs = infer(desc.op, desc.inputs, desc.attrs).value();
    return desc;
  };
  uint64_t seed = 0;
  for (const auto& [shape, perm] : {std::pair<Shape, std::vector<int64_t>>{{2, 3, 5, 8}, {0, 2, 1, 3}},
                                    {{7, 3, 2}, {1, 0, 2}},
                                    {{4, 66}, {0, 1}},
                                    {{2, 3, 4, 40}, {2, 1, 0, 3}}}) {
    const ComputeDesc desc = with_kernel(desc_of(shape, perm), KernelName::transpose);
    EXPECT_EQ(choose_kernel(desc, GetParam()).value(), desc.kernel);
    ComputeDesc by_floats = desc;
    by_floats.kernel.name = KernelName::widened;
    const std::vector<Tensor> x = halves_for(desc, ++seed);
    const Tensor got = run_halves(*library_, desc, x)[0];
    EXPECT_EQ(got.raw, run_halves(*library_, by_floats, x)[0].raw) << signature(desc);
    EXPECT_EQ(run_halves(*library_, desc, x, 3)[0].raw, got.raw);
  }
  EXPECT_EQ(choose_kernel(desc_of({2, 4, 6}, {0, 2, 1}), GetParam()).value().name, KernelName::widened);
  EXPECT_EQ(choose_kernel(desc_of({2, 4, 5}, {1, 0, 2}), GetParam()).value().name, KernelName::widened);
}

// The instruction takes what is below float32's normal numbers for zero; so does what stands in for it, and neither
// leaves the thread so.
TEST_P(Bf16, SmallNumbersHaveTheSameBitsWithoutTheInstruction) {
  const ComputeDesc desc = with_kernel(product(Op::MatMul, 20, 33, 50, false, false), KernelName::matmul_bf16);
  std::vector<Tensor> halves = halves_for(desc, 8);
  for (Tensor& half : halves) {
    std::vector<double> values = reals_of(DType::bf16, half.raw);
    for (size_t i = 0; i < values.size(); ++i) values[i] *= i % 3 == 0 ? 0x1p-63 : i % 3 == 1 ? 0x1p-75 : 0x1p-130;
    half.raw = raw_of(DType::bf16, std::span<const double>(values));
  }
  const Tensor got = run_halves(*library_, desc, halves)[0];
  EXPECT_GT(deviation_of(widened_from(got)), 0);
  library_->use_dot_product(false);
  EXPECT_EQ(run_halves(*library_, desc, halves)[0].raw, got.raw);
  volatile float small = 0x1p-126f;
  small = small / 4;
  EXPECT_EQ(small * 4, 0x1p-126f);
}

// Sums are never below the normal numbers, but what is added behind them may be, and is not lost.
TEST_P(Bf16, KeepsSmallNumbersThatAreAdded) {
  const int block = static_cast<int>(vector_width(GetParam()));
  ComputeDesc conv;
  conv.op = Op::Conv;
  conv.weights = 0b10;
  conv.attrs = {{"dilations", std::vector<int64_t>{1, 1}},
                {"group", int64_t{1}},
                {"kernel_shape", std::vector<int64_t>{1, 1}},
                {"pads", std::vector<int64_t>(4)},
                {"strides", std::vector<int64_t>{1, 1}}};
  conv.inputs = {{DType::bf16, {1, 16, 3, 9}, block}, {DType::bf16, {40, 16, 1, 1}}};
  conv.outputs = {{DType::bf16, {1, 40, 3, 9}, block}};
  conv.kernel.name = KernelName::conv_bf16;
  ComputeDesc matmul = product(Op::MatMul, 27, 40, 16, false, false);
  matmul.kernel.name = KernelName::matmul_bf16;
  for (ComputeDesc desc : {conv, matmul}) {
    desc.epilogue.push_back({Op::Add, {}});
    desc.inputs.push_back(desc.outputs[0]);
    desc = with_kernel(desc, desc.kernel.name);
    std::vector<Tensor> halves;
    for (const TensorType& type : desc.inputs) {
      std::string& raw = halves.emplace_back(Tensor{with_block(type, 0), {}}).raw;
      for (int64_t i = 0; i < element_count(type.shape); ++i) {
        // All below the normal numbers in the first rows, then only here and there.
        const bool small = i < 200 || i % 37 == 0;
        const uint16_t bits = halves.size() < 3 ? 0 : small ? static_cast<uint16_t>(i % 0x7f + 1) : 0x3f80;
        raw.append(reinterpret_cast<const char*>(&bits), sizeof bits);
      }
    }
    for (const bool instruction : {true, false}) {
      library_->use_dot_product(instruction);
      EXPECT_EQ(run_halves(*library_, desc, halves)[0].raw, halves[2].raw) << signature(desc) << instruction;
    }
  }
}

TEST(Bf16Catalogue, SaysWhatProductsItLeavesToOthers) {
  const auto why = [](const ComputeDesc& desc, KernelName name) {
    const auto refused = refusal({name, Isa::v4}, desc);
    return refused ? refused->why : std::string();
  };
  ComputeDesc desc = product(Op::Gemm, 4, 5, 6, true, false);
  EXPECT_EQ(why(desc, KernelName::gemm_bf16), "");
  EXPECT_EQ(2 * packed_bytes_of(
                    [&] {
                      auto d = of_type(desc, DType::f32);
                      d.kernel = {KernelName::gemm_packed, Isa::v4};
                      return d;
                    }(),
                    1)
                    .value(),
            4 * packed_bytes_of(
                    [&] {
                      auto d = desc;
                      d.kernel = {KernelName::gemm_bf16, Isa::v4};
                      return d;
                    }(),
                    1)
                    .value());
  set_attr(desc.attrs, "alpha", 2.0);
  EXPECT_EQ(why(desc, KernelName::gemm_bf16), "the product is scaled");
  desc = product(Op::Gemm, 4, 5, 6, true, false);
  set_attr(desc.attrs, "beta", 0.5);
  EXPECT_EQ(why(desc, KernelName::gemm_bf16), "what is added is not a row");
  desc = product(Op::Gemm, 4, 5, 6, false, false);
  desc.weights = 0;
  EXPECT_EQ(why(desc, KernelName::gemm_bf16), "it packs its right operand at load, and this one is not constant");
  EXPECT_EQ(why(desc, KernelName::gemm_bf16_plain), "");
  set_attr(desc.attrs, "alpha", 2.0);
  EXPECT_EQ(why(desc, KernelName::gemm_bf16_plain), "the product is scaled");
  desc = of_type(product(Op::MatMul, 4, 5, 6, false, false), DType::f16);
  EXPECT_EQ(why(desc, KernelName::matmul_bf16), "f16[4,5] is not bf16");
  EXPECT_NE(why(of_type(desc, DType::f32), KernelName::matmul_bf16), "");
}

INSTANTIATE_TEST_SUITE_P(All, Bf16, ::testing::ValuesIn(all_levels()),
                         [](const auto& info) { return "on_" + std::string(name_of(info.param)); });

}  // namespace
}  // namespace nlsplit::testing

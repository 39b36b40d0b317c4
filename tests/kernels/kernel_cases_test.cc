// Kernels where drawn computations do not lead: large convolutions, nothing at all, moves, functions, empty attention.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "graph/elements.h"
#include "kernels/kernel_operands.h"
#include "kernels/kernel_tolerance.h"
#include "kernels/layout.h"
#include "kernels/random_desc.h"
#include "kernels/run_kernel.h"
#include "testing/tensors.h"

namespace nlsplit::testing {
namespace {

// Small enough for the reference, large enough for several chunks, tile blocks and samples at once, at every level.
TEST(BlockedConvolutions, AgreeWithTheReferenceWhereTheyAreCutInMany) {
  struct Case {
    Shape x, w;
    int64_t pad, stride;
  };
  const Case cases[] = {{{2, 40, 40, 37}, {70, 40, 3, 3}, 1, 1},     // Winograd: 200 tiles
                        {{1, 300, 14, 14}, {300, 300, 3, 3}, 1, 1},  // weights beyond a second-level cache
                        {{9, 33, 7, 7}, {65, 33, 1, 1}, 0, 1},       // all samples at once
                        {{7, 24, 7, 7}, {40, 24, 3, 3}, 1, 1},      {{2, 700, 30, 10}, {20, 700, 1, 1}, 0, 2},
                        {{1, 3, 61, 50}, {64, 3, 7, 7}, 3, 2}};
  for (const Case& c : cases) {
    const Tensor x = random_tensor({DType::f32, c.x}, 1), bias = random_tensor({DType::f32, {c.w[0]}}, 3);
    Tensor w = random_tensor({DType::f32, c.w}, 2);
    ComputeDesc desc;
    desc.op = Op::Conv;
    desc.attrs = {{"dilations", std::vector<int64_t>{1, 1}},
                  {"group", int64_t{1}},
                  {"kernel_shape", std::vector<int64_t>{c.w[2], c.w[3]}},
                  {"pads", std::vector<int64_t>(4, c.pad)},
                  {"strides", std::vector<int64_t>{c.stride, c.stride}}};
    desc.weights = 0b110;
    desc.inputs = {x.type, w.type, bias.type};
    desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
    const Tensor expected = run_reference(desc, {&x, &w, &bias})[0];
    for (Isa isa : supported_levels()) {
      const KernelLibrary library = KernelLibrary::load(isa).value();
      int ran = 0;
      for (ComputeDesc form : layouts_of(desc, static_cast<int>(vector_width(isa)))) {
        if (form.outputs[0].block == 0) continue;
        for (const KernelName kernel : kernels_of(isa)) {
          form.kernel = {kernel, isa};
          if (refusal(form.kernel, form)) continue;
          const Tensor actual = run_kernel(library, form, {&x, &w, &bias})[0];
          EXPECT_TRUE(compare(actual, expected, tolerance_of(form))) << signature(form);
          expect_same_bits(run_kernel(library, form, {&x, &w, &bias}, 2)[0], actual);
          ++ran;
        }
      }
      EXPECT_GE(ran, 2);
    }
  }
}

// Of a convolution whose weights change: forward, by x and by the weights, each large enough for several blocks of
// pixels, of k and of tiles, and for several samples at once.
TEST(TrainedConvolutions, AgreeWithTheReferenceWhereTheyAreCutInMany) {
  struct Case {
    Shape x, w;
    int64_t pad, stride;
  };
  const Case cases[] = {
      {{2, 20, 40, 37}, {35, 20, 3, 3}, 1, 1},                                         // 200 tiles
      {{3, 3, 45, 50}, {20, 3, 7, 7}, 3, 2},   {{9, 33, 7, 7}, {65, 33, 1, 1}, 0, 1},  // all samples at once
      {{7, 40, 6, 6}, {24, 40, 3, 3}, 1, 1},   {{2, 300, 15, 9}, {20, 300, 1, 1}, 0, 2},
      {{2, 16, 21, 30}, {16, 16, 3, 3}, 0, 1}};
  for (const Case& c : cases) {
    const Attrs attrs = {{"dilations", std::vector<int64_t>{1, 1}},
                         {"group", int64_t{1}},
                         {"kernel_shape", std::vector<int64_t>{c.w[2], c.w[3]}},
                         {"pads", std::vector<int64_t>(4, c.pad)},
                         {"strides", std::vector<int64_t>{c.stride, c.stride}}};
    const Tensor x = random_tensor({DType::f32, c.x}, 1), w = random_tensor({DType::f32, c.w}, 2);
    const std::vector<TensorType> operands{x.type, w.type};
    const TensorType y = info(Op::Conv).infer(operands, attrs).value()[0];
    const Tensor dy = random_tensor(y, 3);
    Attrs transposed = attrs;
    std::vector<int64_t> left;
    for (size_t axis : {2, 3}) left.push_back(c.x[axis] + 2 * c.pad - (y.shape[axis] - 1) * c.stride - c.w[axis]);
    set_attr(transposed, "output_padding", left);
    const std::tuple<Op, Attrs, std::vector<const Tensor*>> computations[] = {
        {Op::Conv, attrs, {&x, &w}},
        {Op::ConvTranspose, transposed, {&dy, &w}},
        {Op::ConvWeightGradient, attrs, {&x, &dy}}};
    for (const auto& [op, own_attrs, inputs] : computations) {
      ComputeDesc desc;
      desc.op = op;
      desc.attrs = own_attrs;
      for (const Tensor* input : inputs) desc.inputs.push_back(input->type);
      desc.outputs = info(op).infer(desc.inputs, desc.attrs).value();
      const Tensor expected = run_reference(desc, inputs)[0];
      for (Isa isa : supported_levels()) {
        const KernelLibrary library = KernelLibrary::load(isa).value();
        int ran = 0;
        for (const KernelName kernel : kernels_of(isa)) {
          desc.kernel = {kernel, isa};
          if (refusal(desc.kernel, desc)) continue;
          const Tensor actual = run_kernel(library, desc, inputs)[0];
          EXPECT_TRUE(compare(actual, expected, tolerance_of(desc))) << signature(desc);
          expect_same_bits(run_kernel(library, desc, inputs, 2)[0], actual);
          ++ran;
        }
        EXPECT_EQ(ran, c.w[2] == 3 ? 2 : 1) << signature(desc);
      }
    }
  }
}

ComputeDesc computation(Op op, Attrs attrs, std::vector<TensorType> inputs, uint64_t weights, KernelId kernel) {
  ComputeDesc desc;
  desc.kernel = kernel;
  desc.op = op;
  desc.attrs = std::move(attrs);
  desc.weights = weights;
  desc.inputs = std::move(inputs);
  desc.outputs = info(op).infer(desc.inputs, desc.attrs).value();
  EXPECT_TRUE(verify(desc).ok()) << verify(desc).error().message;
  return desc;
}

// Fewer rows take longer blocks of k; a piece of the rows has the workspace of all of them.
TEST(Products, PiecesOfTheRowsStayInTheirWorkspace) {
  const Attrs gemm = {{"alpha", 1.0}, {"beta", 1.0}, {"transA", int64_t{0}}, {"transB", int64_t{0}}};
  for (Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    for (const int64_t rows : {130, 193}) {  // the last piece of two workers has 10 rows of v2's, 13 of v3's tiles
      const Tensor a = random_tensor({DType::f32, {rows, 7000}}, 1), b = random_tensor({DType::f32, {7000, 16}}, 2);
      for (const uint64_t constant : {0b00, 0b10}) {
        const KernelName kernel = constant == 0 ? KernelName::gemm : KernelName::gemm_packed;
        const ComputeDesc desc = computation(Op::Gemm, gemm, {a.type, b.type}, constant, {kernel, isa});
        const Tensor alone = run_kernel(library, desc, {&a, &b})[0];
        for (const int workers : {2, 3}) expect_same_bits(run_kernel(library, desc, {&a, &b}, workers)[0], alone);
      }
    }
  }
}

TEST(ConvTranspose, TheLastFiltersStayInTheWorkspace) {
  const Attrs attrs = {{"dilations", std::vector<int64_t>{1, 1}},    {"group", int64_t{1}},
                       {"kernel_shape", std::vector<int64_t>{1, 1}}, {"output_padding", std::vector<int64_t>{0, 0}},
                       {"pads", std::vector<int64_t>{0, 0, 0, 0}},   {"strides", std::vector<int64_t>{1, 1}}};
  // 96 filters at once, then 14.
  const Tensor x = random_tensor({DType::f32, {1, 1800, 37, 37}}, 1),
               w = random_tensor({DType::f32, {1800, 110, 1, 1}}, 2);
  for (Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    const ComputeDesc plain =
        computation(Op::ConvTranspose, attrs, {x.type, w.type}, 0, {KernelName::conv_transpose, isa});
    const ComputeDesc packed =
        computation(Op::ConvTranspose, attrs, {x.type, w.type}, 0b10, {KernelName::conv_transpose_packed, isa});
    expect_same_bits(run_kernel(library, plain, {&x, &w})[0], run_kernel(library, packed, {&x, &w})[0]);
  }
}

TEST(Products, OfNothing) {
  const Attrs gemm = {{"alpha", 1.0}, {"beta", 1.0}, {"transA", int64_t{0}}, {"transB", int64_t{0}}};
  for (Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    for (const Shape& extents : {Shape{3, 4, 0}, Shape{0, 4, 3}, Shape{3, 0, 4}, Shape{200, 4, 0}}) {
      const Tensor a = random_tensor({DType::f32, {extents[0], extents[1]}}, 1),
                   b = random_tensor({DType::f32, {extents[1], extents[2]}}, 2);
      for (const KernelName kernel :
           {KernelName::gemm, KernelName::gemm_packed, KernelName::matmul, KernelName::matmul_packed}) {
        const bool is_gemm = info_of(kernel).ops[0] == Op::Gemm, packs = info_of(kernel).packed_bytes != nullptr;
        const ComputeDesc desc = computation(is_gemm ? Op::Gemm : Op::MatMul, is_gemm ? gemm : Attrs{},
                                             {a.type, b.type}, packs ? 0b10 : 0, {kernel, isa});
        for (const int workers : {1, 2}) {
          const std::vector<float> values = run_kernel(library, desc, {&a, &b}, workers)[0].values;
          EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return v == 0; })) << signature(desc);
        }
      }
    }
  }
}

TEST(BlockedConvolutions, OfNoChannels) {
  const Attrs attrs = {{"dilations", std::vector<int64_t>{1, 1}},
                       {"group", int64_t{1}},
                       {"kernel_shape", std::vector<int64_t>{3, 3}},
                       {"pads", std::vector<int64_t>{1, 1, 1, 1}},
                       {"strides", std::vector<int64_t>{1, 1}}};
  const Tensor x = random_tensor({DType::f32, {2, 0, 9, 9}}, 1), w = random_tensor({DType::f32, {20, 0, 3, 3}}, 2);
  for (Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    int ran = 0;
    const ComputeDesc plain =
        computation(Op::Conv, attrs, {x.type, w.type}, 0b10, KernelId(KernelName::conv_direct, isa));
    for (ComputeDesc form : layouts_of(plain, static_cast<int>(vector_width(isa)))) {
      for (const KernelName kernel : kernels_of(isa)) {
        form.kernel = {kernel, isa};
        if (refusal(form.kernel, form)) continue;
        const std::vector<float> values = run_kernel(library, form, {&x, &w}, 2)[0].values;
        EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return v == 0; })) << signature(form);
        ++ran;
      }
    }
    EXPECT_GE(ran, 4);
  }
}

// 1.2e-7 is two units in the last place of 1.
TEST(Erf, IsErf) {
  constexpr int64_t steps = 400001;
  Tensor x{{DType::f32, {steps}}, {}};
  for (int64_t i = 0; i < steps; ++i) x.values.push_back(static_cast<float>(i - steps / 2) * 3e-5f);  // -6 … 6
  const float inf = std::numeric_limits<float>::infinity();
  const float special[] = {inf, -inf, 1e30f, -1e30f, 1e-30f, 1e-42f, 0.0f, -0.0f, 1.0f, 0.99999994f, 4.0f, -4.0f};
  std::copy(std::begin(special), std::end(special), x.values.begin());
  x.values[20] = std::numeric_limits<float>::quiet_NaN();
  for (Isa isa : all_levels()) {
    if (!cpu_supports(isa)) continue;
    ComputeDesc desc;
    desc.op = Op::Erf;
    desc.inputs = desc.outputs = {x.type};
    desc.kernel = choose_kernel(desc, isa).value();
    const Tensor y = run_kernel(KernelLibrary::load(isa).value(), desc, {&x})[0];
    double worst = 0, worst_relative = 0;
    for (size_t i = 0; i < x.values.size(); ++i) {
      if (i == 20) continue;
      const double expected = std::erf(static_cast<double>(x.values[i])), error = std::abs(y.values[i] - expected);
      worst = std::max(worst, error);
      if (expected != 0 && std::isnormal(x.values[i]))
        worst_relative = std::max(worst_relative, error / std::abs(expected));
      EXPECT_EQ(std::signbit(y.values[i]), std::signbit(x.values[i])) << x.values[i];
    }
    EXPECT_TRUE(std::isnan(y.values[20]));
    EXPECT_LT(worst, 1.5e-7) << name_of(isa);
    EXPECT_LT(worst_relative, 4e-7) << name_of(isa);
    EXPECT_EQ(y.values[0], 1);
    EXPECT_EQ(y.values[1], -1);
  }
}

// Rows of tables of any type, by indices that may count from the end or lie outside.
TEST(Gather, IsTheReference) {
  using Case = std::tuple<DType, Shape, DType, Shape, int64_t>;
  for (const auto& [type, table, index_type, indices, axis] :
       {Case{DType::f32, {7, 5}, DType::i64, {2, 3}, 0}, Case{DType::f32, {7, 5}, DType::i32, {4}, 1},
        Case{DType::u8, {3, 4, 3}, DType::i64, {2}, -2}, Case{DType::i64, {9}, DType::i32, {}, 0},
        Case{DType::f16, {2, 3, 1, 2}, DType::i64, {3, 1}, 1}, Case{DType::f32, {600, 70}, DType::i64, {500}, 0},
        Case{DType::f32, {4, 2}, DType::i64, {0}, 0}}) {
    ComputeDesc desc;
    desc.op = Op::Gather;
    desc.attrs = {{"axis", axis}};
    desc.inputs = {{type, table}, {index_type, indices}};
    desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
    SCOPED_TRACE(signature(desc));
    Random random(7);
    std::vector<int64_t> numbers(static_cast<size_t>(element_count(table)));
    for (int64_t& number : numbers) number = static_cast<int64_t>(random.below(100));
    const std::vector<double> reals(numbers.begin(), numbers.end());
    const Tensor x = tensor_of(desc.inputs[0], is_real(type) ? raw_of(type, std::span<const double>(reals))
                                                             : raw_of(type, std::span<const int64_t>(numbers)));
    const int64_t extent = table[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(table.size()) : axis)];
    std::vector<int64_t> places(static_cast<size_t>(element_count(indices)));
    for (int64_t& place : places)
      place = static_cast<int64_t>(random.below(static_cast<uint64_t>(4 * extent))) - 2 * extent;
    const Tensor at = tensor_of(desc.inputs[1], raw_of(index_type, std::span<const int64_t>(places)));
    const Tensor want = run_reference(desc, {&x, &at})[0];
    for (const Isa isa : supported_levels()) {
      desc.kernel = choose_kernel(desc, isa).value();
      EXPECT_EQ(desc.kernel, KernelId(KernelName::gather, isa));
      ASSERT_TRUE(verify(desc).ok()) << verify(desc).error().to_string();
      const KernelLibrary library = KernelLibrary::load(isa).value();
      for (int workers : {1, 3}) {
        std::string made(bytes_of(want).size(), 'x');
        const void* inputs[] = {bytes_of(x).data(), bytes_of(at).data()};
        void* outputs[] = {made.data()};
        (**library.find(desc.kernel)).run({&desc, inputs, outputs, nullptr, {workers, run_on_threads, &workers}});
        EXPECT_EQ(made, bytes_of(want));
      }
    }
  }
}

// Boxes of any type, from blocks as well, large enough to be handed out in pieces.
TEST(Slice, IsTheReference) {
  using Ints = std::vector<int64_t>;
  struct Case {
    DType type;
    Shape shape;
    Ints axes, starts, ends;
  };
  for (const auto& [type, shape, axes, starts, ends] :
       {Case{DType::f32, {7, 5}, {0}, {2}, {6}}, Case{DType::u8, {3, 40, 3}, {-2, 0}, {-7, 1}, {1000, 3}},
        Case{DType::i64, {9}, {0}, {0}, {1}}, Case{DType::f16, {2, 3, 1, 2}, {3, 1}, {1, 1}, {2, 3}},
        Case{DType::f32, {60, 500}, {1}, {3}, {499}}, Case{DType::f32, {3, 40000}, {0}, {1}, {3}},
        Case{DType::boolean, {2, 3, 4, 5, 6, 2, 2, 3}, {1, 4, 7}, {1, 2, 1}, {3, 5, 3}},
        Case{DType::i32, {4, 5}, {0}, {3}, {3}}, Case{DType::f32, {2, 3}, {}, {}, {}}}) {
    ComputeDesc desc;
    desc.op = Op::Slice;
    desc.attrs = {{"axes", axes}, {"ends", ends}, {"starts", starts}, {"steps", Ints(axes.size(), 1)}};
    desc.inputs = {{type, shape}};
    desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
    SCOPED_TRACE(signature(desc));
    std::vector<int64_t> numbers(static_cast<size_t>(element_count(shape)));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i * 7919 % 101);
    const std::vector<double> reals(numbers.begin(), numbers.end());
    const Tensor x = tensor_of(desc.inputs[0], is_real(type) ? raw_of(type, std::span<const double>(reals))
                                                             : raw_of(type, std::span<const int64_t>(numbers)));
    const Tensor want = run_reference(desc, {&x})[0];
    for (const Isa isa : supported_levels()) {
      desc.kernel = choose_kernel(desc, isa).value();
      EXPECT_EQ(desc.kernel, KernelId(KernelName::slice, isa));
      ASSERT_TRUE(verify(desc).ok()) << verify(desc).error().to_string();
      const KernelLibrary library = KernelLibrary::load(isa).value();
      for (int workers : {1, 3}) {
        std::string made(bytes_of(want).size(), 'x');
        const void* inputs[] = {bytes_of(x).data()};
        void* outputs[] = {made.data()};
        (**library.find(desc.kernel)).run({&desc, inputs, outputs, nullptr, {workers, run_on_threads, &workers}});
        EXPECT_EQ(made, bytes_of(want));
      }
    }
  }
}

TEST(Slice, InStepsIsGenerated) {
  ComputeDesc desc;
  desc.op = Op::Slice;
  using Ints = std::vector<int64_t>;
  desc.attrs = {{"axes", Ints{0}}, {"ends", Ints{9}}, {"starts", Ints{0}}, {"steps", Ints{2}}};
  desc.inputs = {{DType::f32, {9}}};
  desc.outputs = {{DType::f32, {5}}};
  EXPECT_EQ(to_string(choose_kernel(desc, Isa::v3).value()), "generated_v3");
}

// Keys and values in several blocks, masks that hide whole rows, queries that are few or many.
TEST(Attention, QueriesThatSeeNoKeyGiveZeros) {
  constexpr float hidden = -std::numeric_limits<float>::infinity();
  const Tensor q = random_tensor({DType::f32, {1, 2, 70, 24}}, 1), k = random_tensor({DType::f32, {1, 1, 600, 24}}, 2),
               v = random_tensor({DType::f32, {1, 1, 600, 40}}, 3);
  Tensor mask = random_tensor({DType::f32, {70, 600}}, 4);
  for (int64_t i = 0; i < 70; ++i) {
    // None; the first block; the last; every second key.
    for (int64_t j = 0; j < 600; ++j) {
      const bool hides =
          i % 5 == 0 || (i % 5 == 1 && j < 256) || (i % 5 == 2 && j >= 512) || (i % 5 == 3 && j % 2 == 0);
      if (hides) mask.values[static_cast<size_t>(i * 600 + j)] = hidden;
    }
  }
  ComputeDesc desc;
  desc.op = Op::Attention;
  desc.attrs = {{"causal", int64_t{0}}, {"scale", 0.2}};
  desc.inputs = {q.type, k.type, v.type, mask.type};
  desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
  const Tensor want = run_reference(desc, {&q, &k, &v, &mask})[0];
  for (int64_t c = 0; c < 40; ++c) EXPECT_EQ(want.values[static_cast<size_t>(c)], 0);
  for (Isa isa : supported_levels()) {
    desc.kernel = choose_kernel(desc, isa).value();
    const KernelLibrary library = KernelLibrary::load(isa).value();
    const Tensor made = run_kernel(library, desc, {&q, &k, &v, &mask})[0];
    EXPECT_TRUE(compare(made, want, {1e-5, 1e-5})) << to_string(desc.kernel);
    expect_same_bits(run_kernel(library, desc, {&q, &k, &v, &mask}, 3)[0], made);
  }
}

// As erf or tanh times half of x, added to it.
TEST(Gelu, IsGelu) {
  constexpr int64_t steps = 200001;
  Tensor x{{DType::f32, {steps}}, {}};
  for (int64_t i = 0; i < steps; ++i) x.values.push_back(static_cast<float>(i - steps / 2) * 1e-4f);  // -10 … 10
  const double root = std::sqrt(2 / std::acos(-1.0));
  for (Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    for (const bool by_tanh : {false, true}) {
      ComputeDesc desc;
      desc.op = Op::Gelu;
      desc.attrs = {{"approximate", std::string(by_tanh ? "tanh" : "none")}};
      desc.inputs = desc.outputs = {x.type};
      desc.kernel = choose_kernel(desc, isa).value();
      const Tensor y = run_kernel(library, desc, {&x})[0];
      double worst = 0;  // of an error relative to x, or to 1 below it
      for (size_t i = 0; i < x.values.size(); ++i) {
        const double v = x.values[i];
        const double curve = by_tanh ? std::tanh(root * (v + 0.044715 * v * v * v)) : std::erf(v / std::sqrt(2.0));
        worst = std::max(worst, std::abs(y.values[i] - v / 2 * (1 + curve)) / std::max(1.0, std::abs(v)));
      }
      EXPECT_LT(worst, 3e-7) << to_string(desc.kernel) << (by_tanh ? " by tanh" : "");
    }
  }
}

TEST(Gelu, IsAStepOfEveryProductAndConvolution) {
  const Tensor x = random_tensor({DType::f32, {2, 16, 9, 10}}, 1), w = random_tensor({DType::f32, {32, 16, 3, 3}}, 2);
  const Tensor a = random_tensor({DType::f32, {7, 30}}, 3), b = random_tensor({DType::f32, {30, 20}}, 4);
  ComputeDesc conv, product;
  conv.op = Op::Conv;
  conv.attrs = {{"dilations", std::vector<int64_t>{1, 1}},
                {"group", int64_t{1}},
                {"kernel_shape", std::vector<int64_t>{3, 3}},
                {"pads", std::vector<int64_t>(4, 1)},
                {"strides", std::vector<int64_t>{1, 1}}};
  conv.inputs = {x.type, w.type};
  product.op = Op::MatMul;
  product.inputs = {a.type, b.type};
  for (ComputeDesc* desc : {&conv, &product}) {
    desc->weights = 0b10;
    desc->outputs = info(desc->op).infer(desc->inputs, desc->attrs).value();
    desc->epilogue = {{Op::Gelu, {{"approximate", std::string(desc == &conv ? "none" : "tanh")}}}};
    const std::vector<const Tensor*> inputs =
        desc == &conv ? std::vector<const Tensor*>{&x, &w} : std::vector<const Tensor*>{&a, &b};
    const Tensor expected = run_reference(*desc, inputs)[0];
    for (Isa isa : supported_levels()) {
      const KernelLibrary library = KernelLibrary::load(isa).value();
      int ran = 0;
      for (ComputeDesc form : layouts_of(*desc, static_cast<int>(vector_width(isa)))) {
        for (const KernelName kernel : kernels_of(isa)) {
          form.kernel = {kernel, isa};
          if (refusal(form.kernel, form)) continue;
          ASSERT_TRUE(verify(form).ok()) << verify(form).error().to_string();
          EXPECT_TRUE(compare(run_kernel(library, form, inputs)[0], expected, tolerance_of(form))) << signature(form);
          ++ran;
        }
      }
      EXPECT_GE(ran, desc == &conv ? 4 : 2);
    }
  }
}

TEST(Reorder, ThereAndBack) {
  for (const Shape& shape : {Shape{2, 3, 5, 7}, Shape{1, 16, 1, 1}, Shape{3, 37, 4, 5}}) {
    const Tensor x = random_tensor({DType::f32, shape}, 1);
    for (Isa isa : supported_levels()) {
      const KernelLibrary library = KernelLibrary::load(isa).value();
      const int block = static_cast<int>(vector_width(isa));
      for (const ComputeDesc& desc :
           {reorder_desc(x.type, block, isa), reorder_desc(with_block(x.type, block), 0, isa)}) {
        ASSERT_TRUE(verify(desc).ok()) << verify(desc).error().to_string();
        expect_same_bits(run_kernel(library, desc, {&x}, 2)[0], x);
      }
    }
  }
}

}  // namespace
}  // namespace nlsplit::testing

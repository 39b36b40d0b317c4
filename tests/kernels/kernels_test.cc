// Every kernel of every level this machine has, against the reference evaluator, and against itself at another batch.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "graph/elements.h"
#include "kernels/kernel_operands.h"
#include "kernels/layout.h"
#include "kernels/piece_of.h"
#include "kernels/random_desc.h"
#include "kernels/run_kernel.h"
#include "testing/tensors.h"

namespace nlsplit::testing {
namespace {

class Kernels : public ::testing::TestWithParam<LevelAndOp> {
 protected:
  void SetUp() override {
    if (!cpu_supports(GetParam().isa)) GTEST_SKIP() << "this CPU lacks " << full_name_of(GetParam().isa);
    auto loaded = KernelLibrary::load(GetParam().isa);
    ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
    library_.emplace(std::move(*loaded));
  }

  std::optional<KernelLibrary> library_;
};

// Errors of a sum grow with its terms' magnitude, about 1 each. Winograd's transforms multiply by up to 8 and cancel.
Tolerance tolerance_of(const ComputeDesc& desc) {
  double terms = 1;
  if (desc.op == Op::Conv)
    terms = static_cast<double>(element_count(desc.inputs[1].shape)) / static_cast<double>(desc.inputs[1].shape[0]);
  if (desc.op == Op::ConvTranspose)
    terms = static_cast<double>(element_count(desc.inputs[1].shape)) / static_cast<double>(desc.inputs[1].shape[1]);
  if (desc.op == Op::ConvWeightGradient)
    terms = static_cast<double>(element_count(desc.inputs[1].shape)) / static_cast<double>(desc.inputs[1].shape[1]);
  if (desc.op == Op::Gemm || desc.op == Op::MatMul || desc.op == Op::Linear) terms = 600;
  if (desc.op == Op::Experts) {  // three products in a row, of values up to some hundreds
    const auto inner = static_cast<double>(desc.inputs[3].shape[1] * desc.inputs[3].shape[2]);
    return {2e-5, 2e-6 * (1 + inner)};
  }
  if (desc.op == Op::Attention || desc.op == Op::CachedAttention || desc.op == Op::PagedAttention) return {1e-5, 1e-5};
  static const std::set<KernelName> by_winograd = {KernelName::conv_winograd, KernelName::conv_winograd_plain,
                                                   KernelName::conv_transpose_winograd,
                                                   KernelName::conv_weight_gradient_winograd};
  const double factor = by_winograd.contains(desc.kernel.name) ? 10 : 1;
  return {2e-5 * factor, 2e-6 * factor * (1 + std::sqrt(terms)) * std::max(1.0, std::sqrt(terms / 600))};
}

TEST_P(Kernels, AgreeWithTheReference) {
  Random random(static_cast<uint64_t>(GetParam().op) * 7919 + 1);
  const int wanted = GetParam().op == Op::Conv ? 150 : 50;
  std::set<std::string> used;
  for (int done = 0, tried = 0; done < wanted; ++tried) {
    ASSERT_LT(tried, wanted * 20);
    std::optional<ComputeDesc> desc = random_desc(GetParam().op, random);
    if (!desc) continue;
    ++done;
    // Not only the one that would be chosen: all that accept.
    auto chosen = choose_kernel(*desc, GetParam().isa);
    ASSERT_TRUE(chosen.ok()) << chosen.error().to_string();
    const std::vector<Tensor> inputs = kernel_operands(*desc, static_cast<uint64_t>(tried));
    const std::vector<Tensor> expected = run_reference(*desc, pointers(inputs));
    for (ComputeDesc form : layouts_of(*desc, static_cast<int>(vector_width(GetParam().isa)))) {
      for (const KernelName kernel : kernels_of(GetParam().isa)) {
        form.kernel = {kernel, GetParam().isa};
        if (refusal(form.kernel, form)) continue;
        ASSERT_TRUE(verify(form).ok()) << verify(form).error().to_string();
        const std::vector<Tensor> actual = run_kernel(*library_, form, pointers(inputs));
        for (size_t i = 0; i < expected.size(); ++i) {
          ASSERT_TRUE(compare(actual[i], expected[i], tolerance_of(form)))
              << "draw " << tried << ", result " << i << ": " << signature(form);
        }
        used.insert(to_string(form.kernel));
        // Others may help; that changes nothing.
        expect_same_bits(run_kernel(*library_, form, pointers(inputs), 3), actual);
        ASSERT_FALSE(HasFailure()) << signature(form);
      }
    }
  }
  // Every kernel of the operator had its turn.
  static const std::map<Op, size_t> kernels_of = {{Op::Conv, 9},
                                                  {Op::ConvTranspose, 4},
                                                  {Op::ConvWeightGradient, 3},
                                                  {Op::Gemm, 2},
                                                  {Op::MatMul, 2},
                                                  {Op::MaxPool, 2},
                                                  {Op::AveragePool, 2},
                                                  {Op::GlobalAveragePool, 2},
                                                  {Op::BatchNormalization, 2},
                                                  {Op::LRN, 2},
                                                  {Op::LSTM, 2},
                                                  {Op::GRU, 2},
                                                  {Op::RNN, 2},
                                                  {Op::Concat, 2},
                                                  {Op::Slice, 2}};
  EXPECT_EQ(used.size(), kernels_of.contains(GetParam().op) ? kernels_of.at(GetParam().op) : 1);
}

// What in_place_inputs promises: the same bits where the result is written on the operand's bytes.
TEST_P(Kernels, OverwriteTheirOperandsWhereTheCatalogueSaysSo) {
  static const std::set<Op> element_wise = {Op::Add,
                                            Op::Sub,
                                            Op::Mul,
                                            Op::Div,
                                            Op::Sum,
                                            Op::Relu,
                                            Op::Sigmoid,
                                            Op::Tanh,
                                            Op::HardSwish,
                                            Op::Exp,
                                            Op::Sqrt,
                                            Op::Neg,
                                            Op::Erf,
                                            Op::Gelu,
                                            Op::LeakyRelu,
                                            Op::HardSigmoid,
                                            Op::Clip,
                                            Op::BatchNormalization,
                                            Op::ReluGradient,
                                            Op::SigmoidGradient,
                                            Op::TanhGradient,
                                            Op::HardSwishGradient,
                                            Op::ErfGradient,
                                            Op::LeakyReluGradient,
                                            Op::HardSigmoidGradient,
                                            Op::ClipGradient,
                                            Op::GeluGradient};
  Random random(static_cast<uint64_t>(GetParam().op) * 15485863 + 3);
  int compared = 0;
  for (int tried = 0; tried < 60; ++tried) {
    const std::optional<ComputeDesc> desc = random_desc(GetParam().op, random);
    if (!desc) continue;
    const std::vector<Tensor> inputs = kernel_operands(*desc, static_cast<uint64_t>(tried));
    for (ComputeDesc form : layouts_of(*desc, static_cast<int>(vector_width(GetParam().isa)))) {
      for (const KernelName kernel : kernels_of(GetParam().isa)) {
        form.kernel = {kernel, GetParam().isa};
        if (refusal(form.kernel, form)) continue;
        const uint64_t allowed = in_place_inputs(form);
        for (size_t i = 0; i < form.inputs.size(); ++i) {
          if (i >= 64 || (allowed >> i & 1) == 0) continue;
          ASSERT_LT(i, form.own_inputs()) << "an epilogue reads its operands after the result is there";
          ASSERT_EQ(form.inputs[i], form.outputs[0]);
          const std::vector<Tensor> apart = run_kernel(*library_, form, pointers(inputs));
          for (const int workers : {1, 3})
            expect_same_bits(run_kernel(*library_, form, pointers(inputs), workers, static_cast<int>(i)), apart);
          ASSERT_FALSE(HasFailure()) << "input " << i << " of " << signature(form);
          ++compared;
        }
      }
    }
  }
  EXPECT_EQ(compared > 0, element_wise.contains(GetParam().op));
}

// Samples [begin, begin + count) of a batched tensor.
Tensor samples(const Tensor& whole, int64_t begin, int64_t count) {
  if (whole.type.dtype != DType::f32) return part_of(whole, {0, begin, begin + count});
  Tensor part{whole.type, {}};
  const int64_t each = static_cast<int64_t>(whole.values.size()) / whole.type.shape[0];
  part.type.shape[0] = count;
  part.values.assign(whole.values.begin() + begin * each, whole.values.begin() + (begin + count) * each);
  return part;
}

std::vector<Tensor> samples(const std::vector<Tensor>& wholes, int64_t begin, int64_t count) {
  std::vector<Tensor> parts;
  for (const Tensor& whole : wholes) parts.push_back(samples(whole, begin, count));
  return parts;
}

// What exact::batch promises: a sample's bits are the same alone, and anywhere in any batch.
TEST_P(Kernels, DoNotLetTheBatchTouchASamplesBits) {
  Random random(static_cast<uint64_t>(GetParam().op) * 104729 + 5);
  int compared = 0;
  for (int tried = 0; tried < 200 && compared < 40; ++tried) {
    std::optional<ComputeDesc> desc = random_desc(GetParam().op, random);
    if (!desc || desc->inputs[0].shape.empty()) continue;
    // Inputs that carry samples: the first, and operands and others that are no weights and have its batch.
    const int64_t drawn = desc->inputs[0].shape[0];
    if (desc->outputs[0].shape.empty() || desc->outputs[0].shape[0] != drawn) continue;
    uint64_t batched = 0;
    bool fits = true;
    for (size_t i = 0; i < desc->inputs.size(); ++i) {
      if (desc->is_weight(i)) continue;
      const Shape& shape = desc->inputs[i].shape;
      const bool samples_of_rank_three =
          is_recurrent(desc->op) && (i == 0 || i == 4 || (i == 5 && desc->op == Op::LSTM));
      const bool same_rank = samples_of_rank_three || shape.size() == desc->outputs[0].shape.size() ||
                             largest_scalar(*desc, i).has_value();
      if (same_rank && shape[0] == drawn) {
        batched |= uint64_t{1} << i;
      } else if (desc->op == Op::Concat || desc->op == Op::Sum) {
        fits = false;
      }
    }
    const Types own = Types(desc->inputs).first(desc->own_inputs());
    const uint64_t own_mask = (uint64_t{1} << own.size()) - 1;
    if (!fits || !info(desc->op).keeps_batch(own, batched & own_mask, desc->attrs)) continue;
    constexpr int64_t batch = 8;
    const auto at_batch = [&](int64_t n) {
      ComputeDesc other = *desc;
      for (size_t i = 0; i < other.inputs.size(); ++i) {
        if (batched >> i & 1) other.inputs[i].shape[0] = n;
      }
      auto types = info(other.op).infer(Types(other.inputs).first(other.own_inputs()), other.attrs);
      if (types.ok()) other.outputs = *types;
      return types.ok() ? std::optional(other) : std::nullopt;
    };
    const auto whole = at_batch(batch), three = at_batch(3), one = at_batch(1);
    if (!whole || !three || !one || one->outputs[0].shape[0] != 1) continue;
    ++compared;
    const int block = static_cast<int>(vector_width(GetParam().isa));
    const size_t forms = layouts_of(*whole, block).size();
    for (size_t i = 0; i < forms * kernels_of(GetParam().isa).size(); ++i) {
      const size_t form = i % forms;
      const KernelId id = {kernels_of(GetParam().isa)[i / forms], GetParam().isa};
      if (refusal(id, layouts_of(*whole, block)[form])) continue;
      ASSERT_NE(info_of(id.name).exact_axes & exact::batch, 0);
      const std::vector<Tensor> inputs = kernel_operands(*whole, static_cast<uint64_t>(tried));
      const auto run = [&](const ComputeDesc& rows, int64_t begin, int64_t count) {
        ComputeDesc part = layouts_of(rows, block)[form];
        part.kernel = id;
        EXPECT_FALSE(refusal(id, part)) << signature(part);
        std::vector<Tensor> parts;
        for (size_t i = 0; i < inputs.size(); ++i)
          parts.push_back(batched >> i & 1 ? samples(inputs[i], begin, count) : inputs[i]);
        return run_kernel(*library_, part, pointers(parts));
      };
      const std::vector<Tensor> all = run(*whole, 0, batch);
      SCOPED_TRACE(to_string(id) + " " + signature(*whole));
      expect_same_bits(run(*three, 5, 3), samples(all, 5, 3));
      for (int64_t s : {0, 3, 7}) expect_same_bits(run(*one, s, 1), samples(all, s, 1));
      if (HasFatalFailure()) return;
    }
  }
  if (compared == 0) GTEST_SKIP() << "no draw of this operator keeps samples apart";
}

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

INSTANTIATE_TEST_SUITE_P(All, Kernels, ::testing::ValuesIn(levels_and_ops()), [](const auto& info) {
  return std::string(name_of(info.param.op)) + "_" + std::string(name_of(info.param.isa));
});

}  // namespace
}  // namespace nlsplit::testing

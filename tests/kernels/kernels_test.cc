// Every kernel of every level this machine has, against the reference evaluator, and against itself at another batch.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "kernels/layout.h"
#include "kernels/random_desc.h"
#include "kernels/run_kernel.h"
#include "testing/tensors.h"

namespace nlsplit::testing {
namespace {

struct Param {
  Isa isa;
  Op op;
};

std::vector<Param> params() {
  std::vector<Param> all;
  for (Isa isa : all_levels()) {
    for (Op op : computed_ops()) all.push_back({isa, op});
  }
  return all;
}

class Kernels : public ::testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    if (!cpu_supports(GetParam().isa)) GTEST_SKIP() << "this CPU lacks " << full_name_of(GetParam().isa);
    auto loaded = KernelLibrary::load(GetParam().isa);
    ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
    library_.emplace(std::move(*loaded));
  }

  std::vector<Tensor> operands(const ComputeDesc& desc, uint64_t seed) const {
    std::vector<Tensor> tensors;
    for (const TensorType& type : desc.inputs) tensors.push_back(random_tensor(type, seed * 100 + tensors.size()));
    for (size_t i = 0; i < tensors.size(); ++i) {
      const bool divisor = desc.op == Op::Div && i == 1;
      const bool positive = desc.op == Op::Sqrt || (desc.op == Op::BatchNormalization && i == 4);
      for (float& v : tensors[i].values) {
        if (divisor || positive) v = std::abs(v) + 0.25f;
        // As a trained network's: the sums stay near 1, where the functions are not flat.
        if (recurrent(desc.op) && (i == 1 || i == 2)) v /= std::sqrt(static_cast<float>(desc.inputs[i].shape[2]));
      }
    }
    return tensors;
  }

  static bool recurrent(Op op) { return op == Op::LSTM || op == Op::GRU || op == Op::RNN; }

  std::optional<KernelLibrary> library_;
};

std::vector<const Tensor*> pointers(const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> all;
  for (const Tensor& tensor : tensors) all.push_back(&tensor);
  return all;
}

// Errors of a sum grow with its terms' magnitude, about 1 each. Winograd's transforms multiply by up to 8 and cancel.
Tolerance tolerance_of(const ComputeDesc& desc) {
  double terms = 1;
  if (desc.op == Op::Conv)
    terms = static_cast<double>(element_count(desc.inputs[1].shape)) / static_cast<double>(desc.inputs[1].shape[0]);
  if (desc.op == Op::ConvTranspose)
    terms = static_cast<double>(element_count(desc.inputs[1].shape)) / static_cast<double>(desc.inputs[1].shape[1]);
  if (desc.op == Op::Gemm || desc.op == Op::MatMul) terms = 600;
  const double factor = desc.kernel.starts_with("conv_winograd") ? 10 : 1;
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
    const std::vector<Tensor> inputs = operands(*desc, static_cast<uint64_t>(tried));
    const std::vector<Tensor> expected = run_reference(*desc, pointers(inputs));
    for (ComputeDesc form : layouts_of(*desc, static_cast<int>(vector_width(GetParam().isa)))) {
      for (const KernelInfo& kernel : all_kernels()) {
        if (!refusal(kernel, form, GetParam().isa).empty()) continue;
        form.kernel = full_id(kernel, GetParam().isa);
        ASSERT_TRUE(verify(form).ok()) << verify(form).error().to_string();
        const std::vector<Tensor> actual = run_kernel(*library_, form, pointers(inputs));
        for (size_t i = 0; i < expected.size(); ++i) {
          ASSERT_TRUE(compare(actual[i], expected[i], tolerance_of(form)))
              << "draw " << tried << ", result " << i << ": " << signature(form);
        }
        used.insert(form.kernel);
        // Others may help; that changes nothing.
        expect_same_bits(run_kernel(*library_, form, pointers(inputs), 3), actual);
        ASSERT_FALSE(HasFailure()) << signature(form);
      }
    }
  }
  // Every kernel of the operator had its turn.
  static const std::map<Op, size_t> kernels_of = {{Op::Conv, 8},
                                                  {Op::ConvTranspose, 2},
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
                                                  {Op::Concat, 2}};
  EXPECT_EQ(used.size(), kernels_of.contains(GetParam().op) ? kernels_of.at(GetParam().op) : 1);
}

// Samples [begin, begin + count) of a batched tensor.
Tensor samples(const Tensor& whole, int64_t begin, int64_t count) {
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

// What "exact_batch" promises: a sample's bits are the same alone, and anywhere in any batch.
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
      const bool samples_of_rank_three = recurrent(desc->op) && (i == 0 || i == 4 || (i == 5 && desc->op == Op::LSTM));
      const bool same_rank = samples_of_rank_three || shape.size() == desc->outputs[0].shape.size();
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
    for (size_t i = 0; i < forms * all_kernels().size(); ++i) {
      const size_t form = i % forms;
      const KernelInfo& kernel = all_kernels()[i / forms];
      if (!refusal(kernel, layouts_of(*whole, block)[form], GetParam().isa).empty()) continue;
      ASSERT_TRUE(kernel.exact_batch);
      const std::string id = full_id(kernel, GetParam().isa);
      const std::vector<Tensor> inputs = operands(*whole, static_cast<uint64_t>(tried));
      const auto run = [&](const ComputeDesc& rows, int64_t begin, int64_t count) {
        ComputeDesc part = layouts_of(rows, block)[form];
        part.kernel = id;
        EXPECT_EQ(refusal(kernel, part, GetParam().isa), "") << signature(part);
        std::vector<Tensor> parts;
        for (size_t i = 0; i < inputs.size(); ++i)
          parts.push_back(batched >> i & 1 ? samples(inputs[i], begin, count) : inputs[i]);
        return run_kernel(*library_, part, pointers(parts));
      };
      const std::vector<Tensor> all = run(*whole, 0, batch);
      SCOPED_TRACE(id + " " + signature(*whole));
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
        for (const KernelInfo& kernel : all_kernels()) {
          if (!refusal(kernel, form, isa).empty()) continue;
          form.kernel = full_id(kernel, isa);
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

INSTANTIATE_TEST_SUITE_P(All, Kernels, ::testing::ValuesIn(params()), [](const auto& info) {
  return std::string(name_of(info.param.op)) + "_" + std::string(name_of(info.param.isa));
});

}  // namespace
}  // namespace nlsplit::testing

// Every kernel of every level this machine has, against the reference evaluator, and against itself at another batch.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "graph/elements.h"
#include "kernels/kernel_operands.h"
#include "kernels/kernel_tolerance.h"
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

INSTANTIATE_TEST_SUITE_P(All, Kernels, ::testing::ValuesIn(levels_and_ops()), [](const auto& info) {
  return std::string(name_of(info.param.op)) + "_" + std::string(name_of(info.param.isa));
});

}  // namespace
}  // namespace nlsplit::testing

// Every kernel of every level this machine has, against the reference evaluator, and against itself at another batch.
#include <gtest/gtest.h>

#include <set>

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
  for (Isa isa : {Isa::v2, Isa::v3, Isa::v4}) {
    for (Op op : computed_ops()) all.push_back({isa, op});
  }
  return all;
}

class Kernels : public ::testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    if (!cpu_supports(GetParam().isa)) GTEST_SKIP() << "this CPU lacks x86-64-" << name_of(GetParam().isa);
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
      }
    }
    return tensors;
  }

  std::optional<KernelLibrary> library_;
};

std::vector<const Tensor*> pointers(const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> all;
  for (const Tensor& tensor : tensors) all.push_back(&tensor);
  return all;
}

// How much memory and rounding the sums of an operator have: error grows with the terms' magnitude, about 1 each.
Tolerance tolerance_of(const ComputeDesc& desc) {
  double terms = 1;
  if (desc.op == Op::Conv)
    terms = static_cast<double>(element_count(desc.inputs[1].shape)) / static_cast<double>(desc.inputs[1].shape[0]);
  if (desc.op == Op::Gemm || desc.op == Op::MatMul) terms = 600;
  return {2e-5, 2e-6 * (1 + std::sqrt(terms))};
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
    const Tensor expected = run_reference(*desc, pointers(inputs));
    for (const KernelInfo& kernel : all_kernels()) {
      if (!kernel.refuses(*desc).empty()) continue;
      desc->kernel = std::string(kernel.name) + "_" + std::string(name_of(GetParam().isa));
      ASSERT_TRUE(verify(*desc).ok()) << verify(*desc).error().to_string();
      const Tensor actual = run_kernel(*library_, *desc, pointers(inputs));
      ASSERT_TRUE(compare(actual, expected, tolerance_of(*desc))) << "draw " << tried << ": " << signature(*desc);
      used.insert(desc->kernel);
    }
  }
  EXPECT_FALSE(used.empty());
  if (GetParam().op == Op::Conv) {
    EXPECT_EQ(used.size(), 4u);
  }
  if (GetParam().op == Op::Gemm || GetParam().op == Op::MatMul) {
    EXPECT_EQ(used.size(), 2u);
  }
}

// Samples [begin, begin + count) of a batched tensor.
Tensor samples(const Tensor& whole, int64_t begin, int64_t count) {
  Tensor part{whole.type, {}};
  const int64_t each = static_cast<int64_t>(whole.values.size()) / whole.type.shape[0];
  part.type.shape[0] = count;
  part.values.assign(whole.values.begin() + begin * each, whole.values.begin() + (begin + count) * each);
  return part;
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
      const bool same_rank = shape.size() == desc->outputs[0].shape.size();
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
    for (const KernelInfo& kernel : all_kernels()) {
      if (!kernel.refuses(*whole).empty()) continue;
      ASSERT_TRUE(kernel.exact_batch);
      const std::string id = std::string(kernel.name) + "_" + std::string(name_of(GetParam().isa));
      const std::vector<Tensor> inputs = operands(*whole, static_cast<uint64_t>(tried));
      const auto run = [&](ComputeDesc part, int64_t begin, int64_t count) {
        part.kernel = id;
        EXPECT_EQ(kernel.refuses(part), "") << signature(part);
        std::vector<Tensor> parts;
        for (size_t i = 0; i < inputs.size(); ++i)
          parts.push_back(batched >> i & 1 ? samples(inputs[i], begin, count) : inputs[i]);
        return run_kernel(*library_, part, pointers(parts));
      };
      const Tensor all = run(*whole, 0, batch);
      SCOPED_TRACE(id + " " + signature(*whole));
      expect_same_bits(run(*three, 5, 3), samples(all, 5, 3));
      for (int64_t s : {0, 3, 7}) expect_same_bits(run(*one, s, 1), samples(all, s, 1));
      if (HasFatalFailure()) return;
    }
  }
  if (compared == 0) GTEST_SKIP() << "no draw of this operator keeps samples apart";
}

INSTANTIATE_TEST_SUITE_P(All, Kernels, ::testing::ValuesIn(params()), [](const auto& info) {
  return std::string(name_of(info.param.op)) + "_" + std::string(name_of(info.param.isa));
});

}  // namespace
}  // namespace nlsplit::testing

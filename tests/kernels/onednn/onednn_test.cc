// Three opinions on random computations of every operator that oneDNN has: the reference evaluator's, ours at this
// CPU's best level, and oneDNN's. An error that the evaluator and our kernels share would show here.
#include "onednn/onednn.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "kernels/layout.h"
#include "kernels/random_desc.h"
#include "kernels/run_kernel.h"
#include "testing/tensors.h"

namespace nlsplit::testing {
namespace {

using namespace onednn;

constexpr int wanted = 200;  // computations of each operator

std::vector<Tensor> operands(const ComputeDesc& desc, uint64_t seed) {
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

std::vector<const Tensor*> pointers(const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> all;
  for (const Tensor& tensor : tensors) all.push_back(&tensor);
  return all;
}

Result<OneDnnComputation> prepare(const ComputeDesc& desc, const std::vector<Tensor>& inputs,
                                  OneDnnVariant variant = OneDnnVariant::usual) {
  std::vector<std::span<const float>> values;
  for (const Tensor& input : inputs) values.emplace_back(input.values);
  return prepare_onednn(desc, values, variant);
}

Tensor result_of(OneDnnComputation& theirs, const ComputeDesc& desc) {
  theirs.run();
  return {with_block(desc.outputs[0], 0), theirs.result()};
}

// Terms of a sum are about 1, its rounding errors grow with their number: some units in the last place, 6e-8, for each
// that a random walk of so many steps is away. Winograd's transforms multiply by up to 8 and cancel.
Tolerance tolerance_of(const ComputeDesc& desc, bool winograd) {
  double terms = 1;
  if (desc.op == Op::Conv || desc.op == Op::ConvTranspose) {
    const int64_t filters = desc.inputs[1].shape[desc.op == Op::Conv ? 0 : 1];
    terms = static_cast<double>(element_count(desc.inputs[1].shape) / filters);
  }
  if (desc.op == Op::Gemm || desc.op == Op::MatMul) terms = static_cast<double>(product_of(desc).k);
  const double factor = winograd ? 10 : 1;
  return {2e-5 * factor, 2e-6 * factor * (1 + std::sqrt(terms)) * std::max(1.0, std::sqrt(terms / 600))};
}

Tolerance twice(Tolerance t) { return {2 * t.relative, 2 * t.absolute}; }

class OneDnn : public ::testing::TestWithParam<Op> {
 protected:
  KernelLibrary library_ = KernelLibrary::load(supported_levels().back()).value();
};

TEST_P(OneDnn, AgreesWithTheReferenceAndWithOurKernels) {
  static const std::set<Op> not_theirs = {Op::Erf,       Op::InstanceNormalization,
                                          Op::Concat,    Op::Transpose,
                                          Op::Pad,       Op::LSTM,
                                          Op::GRU,       Op::RNN,
                                          Op::Attention, Op::Slice};
  Random random(static_cast<uint64_t>(GetParam()) * 6151 + 3);
  int refused = 0, compared = 0;
  std::map<OneDnnVariant, int> by_variant;
  for (int done = 0, tried = 0; done < wanted; ++tried) {
    ASSERT_LT(tried, wanted * 20);
    std::optional<ComputeDesc> desc = random_desc(GetParam(), random);
    if (!desc) continue;
    ++done;
    const std::vector<Tensor> inputs = operands(*desc, static_cast<uint64_t>(tried));
    if (const std::string why = onednn_refusal(*desc); !why.empty()) {
      EXPECT_FALSE(prepare(*desc, inputs).ok());
      ++refused;
      continue;
    }
    const Tensor expected = run_reference(*desc, pointers(inputs))[0];
    for (ComputeDesc form : layouts_of(*desc, static_cast<int>(vector_width(library_.isa())))) {
      const auto kernel = choose_kernel(form, library_.isa());
      if (!kernel.ok()) continue;
      form.kernel = *kernel;
      const Tensor ours = run_kernel(library_, form, pointers(inputs))[0];
      for (OneDnnVariant variant : all_onednn_variants()) {
        Result<OneDnnComputation> theirs = prepare(form, inputs, variant);
        if (!theirs.ok() && variant != OneDnnVariant::usual) continue;
        SCOPED_TRACE(signature(form) + ", oneDNN's " + std::string(name_of(variant)));
        ASSERT_TRUE(theirs.ok()) << theirs.error().to_string();
        const Tensor actual = result_of(*theirs, form);
        SCOPED_TRACE(theirs->implementation());
        const Tolerance tolerance =
            tolerance_of(form, variant == OneDnnVariant::winograd || form.kernel.name == KernelName::conv_winograd);
        ASSERT_TRUE(compare(actual, expected, tolerance));
        ASSERT_TRUE(compare(actual, ours, twice(tolerance)));
        if (variant != OneDnnVariant::sum_in_place)
          expect_same_bits(result_of(*theirs, form), actual);  // a run leaves nothing behind for the next
        ++compared;
        ++by_variant[variant];
      }
    }
  }
  RecordProperty("compared", compared);
  if (not_theirs.contains(GetParam())) {
    EXPECT_EQ(refused, wanted);
    return;
  }
  EXPECT_GE(wanted - refused, wanted / 3) << refused << " refused";
  if (GetParam() == Op::Conv && cpu_supports(Isa::v4)) {
    EXPECT_GE(by_variant[OneDnnVariant::winograd], 5);
    EXPECT_GE(by_variant[OneDnnVariant::sum_in_place], 5);
  }
  if (GetParam() == Op::Gemm) {
    EXPECT_GE(by_variant[OneDnnVariant::inner_product], wanted / 3);
  }
}

INSTANTIATE_TEST_SUITE_P(All, OneDnn, ::testing::ValuesIn(computed_ops()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// That the comparison above can tell: one wrong weight of many is seen in the result, in both ways to compute it.
TEST(OneDnnConvolution, NoticesOneWrongWeight) {
  ComputeDesc desc;
  desc.op = Op::Conv;
  desc.attrs = {{"dilations", std::vector<int64_t>{1, 1}},
                {"group", int64_t{1}},
                {"kernel_shape", std::vector<int64_t>{3, 3}},
                {"pads", std::vector<int64_t>(4, 1)},
                {"strides", std::vector<int64_t>{1, 1}}};
  desc.inputs = {{DType::f32, {1, 32, 14, 14}}, {DType::f32, {64, 32, 3, 3}}};
  desc.weights = 0b10;
  desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
  std::vector<Tensor> inputs = operands(desc, 1);
  const Tensor expected = run_reference(desc, pointers(inputs))[0];
  inputs[1].values[1234] += 0.125f;
  for (OneDnnVariant variant : {OneDnnVariant::usual, OneDnnVariant::winograd}) {
    Result<OneDnnComputation> theirs = prepare(desc, inputs, variant);
    if (!theirs.ok() && variant == OneDnnVariant::winograd) continue;  // only with AVX-512
    ASSERT_TRUE(theirs.ok()) << theirs.error().to_string();
    EXPECT_FALSE(compare(result_of(*theirs, desc), expected, tolerance_of(desc, true)));
  }
}

TEST(OneDnnConvolution, SaysWhatItLacks) {
  ComputeDesc desc;
  desc.op = Op::Relu;
  desc.inputs = desc.outputs = {{DType::f32, {2, 0, 3}}};
  EXPECT_EQ(onednn_refusal(desc), "f32[2,0,3] is empty");
  desc.inputs = desc.outputs = {{DType::f32, {2, 3}}};
  const std::vector<Tensor> inputs = operands(desc, 1);
  EXPECT_TRUE(prepare(desc, inputs).ok());
  EXPECT_EQ(prepare(desc, inputs, OneDnnVariant::winograd).error().message, "Relu has no winograd");
  desc.op = Op::Erf;
  EXPECT_EQ(prepare(desc, inputs).error().message, "oneDNN has no such primitive");
}

}  // namespace
}  // namespace nlsplit::testing

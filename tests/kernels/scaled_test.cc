// Weights whose elements share scales in MatMul: read by the reference loops on every level, and refused by all other
// kernels. Linear and Gather have kernels for them: linear_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/elements.h"
#include "kernels/run_kernel.h"
#include "kernels/signature.h"
#include "testing/tensors.h"

namespace nlsplit::testing {
namespace {

using ::testing::HasSubstr;

ComputeDesc product(DType type) {
  ComputeDesc desc;
  desc.op = Op::MatMul;
  desc.weights = 0b10;
  desc.inputs = {{DType::f32, {3, 64}}, {type, {64, 32}}};
  desc.outputs = infer(desc.op, desc.inputs, desc.attrs).value();
  return desc;
}

TEST(ScaledWeights, OnlyTheReferenceLoopsReadThem) {
  for (const DType type : {DType::q8_0, DType::q4_0}) {
    ComputeDesc desc = product(type);
    EXPECT_EQ(refusal({KernelName::matmul_packed, Isa::v3}, desc)->why,
              "elements of " + to_string(desc.inputs[1]) + " share scales");
    for (const Isa isa : all_levels()) EXPECT_EQ(choose_kernel(desc, isa).value().name, KernelName::reference);
    EXPECT_EQ(choose_kernel(desc, Isa::cuda).value().name, KernelName::gpu_host);
    ComputeDesc gather;
    gather.op = Op::Gather;
    gather.attrs = {{"axis", int64_t{0}}};
    gather.weights = 0b1;
    gather.inputs = {{type, {64, 32}}, {DType::i64, {5}}};
    gather.outputs = infer(gather.op, gather.inputs, gather.attrs).value();
    EXPECT_EQ(gather.outputs[0], (TensorType{DType::f32, {5, 32}}));
    gather.kernel = choose_kernel(gather, Isa::v3).value();
    EXPECT_EQ(gather.kernel.name, KernelName::gather_blocks);
    EXPECT_TRUE(verify(gather).ok()) << verify(gather).error().to_string();
  }
}

TEST(ScaledWeights, WorkCountsTheirBytes) {
  EXPECT_EQ(work_of(product(DType::q8_0)).bytes_read.value(), 3 * 64 * 4 + 64 * 32 / 32 * 34);
  EXPECT_EQ(work_of(product(DType::q4_0)).bytes_read.value(), 3 * 64 * 4 + 64 * 32 / 32 * 18);
  EXPECT_EQ(parse_signature(signature(product(DType::q4_0))).value(), product(DType::q4_0));
}

TEST(ScaledWeights, ProductsAreThoseOfTheHeldValues) {
  const Tensor x = random_tensor({DType::f32, {3, 64}}, 1), values = random_tensor({DType::f32, {64, 32}}, 2);
  const std::vector<double> reals(values.values.begin(), values.values.end());
  for (const DType type : {DType::q8_0, DType::q4_0}) {
    const std::string raw = raw_of(type, std::span<const double>(reals));
    Tensor held{{DType::f32, {64, 32}}, {}};
    for (const double value : reals_of(type, raw)) held.values.push_back(static_cast<float>(value));
    ComputeDesc desc = product(type), wide = desc;
    wide.inputs[1] = held.type;
    const Tensor want = run_reference(wide, {&x, &held})[0];
    for (const Isa isa : supported_levels()) {
      const KernelLibrary library = KernelLibrary::load(isa).value();
      desc.kernel = choose_kernel(desc, isa).value();
      ASSERT_TRUE(verify(desc).ok()) << verify(desc).error().to_string();
      std::vector<float> got(want.values.size());
      const void* inputs[] = {x.values.data(), raw.data()};
      void* outputs[] = {got.data()};
      (**library.find(desc.kernel)).run({&desc, inputs, outputs, nullptr, {}});
      EXPECT_EQ(got, want.values) << signature(desc);
    }
  }
}

}  // namespace
}  // namespace nlsplit::testing

// Rows of a few elements, many of them: kernels take several at once, in pieces that workers share. Against the
// reference, whose every element is looked up by itself.
#include <gtest/gtest.h>

#include "kernels/cpu.h"
#include "kernels/run_kernel.h"
#include "kernels/signature.h"
#include "testing/tensors.h"

namespace nlsplit::testing {
namespace {

class ShortRows : public ::testing::TestWithParam<const char*> {};

TEST_P(ShortRows, AreTheReference) {
  ComputeDesc desc = parse_signature(GetParam()).value();
  std::vector<Tensor> operands;
  Random random(3);
  for (const TensorType& type : desc.inputs) {
    operands.push_back({type, {}, {}});
    for (int64_t i = 0; i < element_count(type.shape); ++i)
      operands.back().values.push_back(static_cast<float>(random.normal()));
  }
  std::vector<const Tensor*> inputs;
  for (const Tensor& operand : operands) inputs.push_back(&operand);
  const Tensor want = run_reference(desc, inputs)[0];
  for (const Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    desc.kernel = choose_kernel(desc, isa).value();
    EXPECT_NE(desc.kernel.name, KernelName::reference);
    for (const int workers : {1, 3})
      EXPECT_EQ(run_kernel(library, desc, inputs, workers)[0].values, want.values) << signature(desc);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ShortRows,
    ::testing::Values(
        // a number a channel, the channels last; a number a row; both; a matrix again and again
        "Sub(f32[5000,3], f32[3]) -> f32[5000,3]", "Div(f32[3], f32[2,2100,3]) -> f32[2,2100,3]",
        "Mul(f32[4500,2], f32[4500,1]) -> f32[4500,2]", "Add(f32[700,1], f32[1,15]) -> f32[700,15]",
        "Add(f32[70,1], f32[1,63]) -> f32[70,63]", "Add(f32[3,900,5], f32[900,5]) -> f32[3,900,5]",
        "Mul(f32[2,1,5], f32[1,3000,1]) + Relu -> f32[2,3000,5]", "Sub(f32[2,3,7,3], f32[2,1,7,1]) -> f32[2,3,7,3]",
        // of two, one, three and four elements
        "Slice(f32[3000,9]) {axes=[1], ends=[4], starts=[2], steps=[1]} -> f32[3000,2]",
        "Slice(f32[2,5000,9]) {axes=[2], ends=[9], starts=[8], steps=[1]} + Relu -> f32[2,5000,1]",
        "Slice(f32[3,70,3,9]) {axes=[0,3], ends=[3,5], starts=[1,2], steps=[1,1]} -> f32[2,70,3,3]",
        "Slice(f32[20000,5]) {axes=[1], ends=[4], starts=[0], steps=[1]} -> f32[20000,4]",
        "Concat(f32[3000,2], f32[3000,1], f32[3000,4]) {axis=1} -> f32[3000,7]",
        "Concat(f32[2,90,3], f32[2,90,130]) {axis=2} + Relu -> f32[2,90,133]",
        // pixels of channels to planes, and squares that leave something in both directions
        "Transpose(f32[3000,3]) {perm=[1,0]} -> f32[3,3000]", "Transpose(f32[5,77,2]) {perm=[2,0,1]} -> f32[2,5,77]",
        "Transpose(f32[2,900,4]) {perm=[0,2,1]} + Relu -> f32[2,4,900]",
        "Transpose(f32[67,133]) {perm=[1,0]} -> f32[133,67]",
        "Transpose(f32[3,4,40,41]) {perm=[3,0,2,1]} -> f32[41,3,40,4]",
        // along folds: squares of eight rows and what they leave
        "ReduceMax(f32[37,83]) {axes=[1], keepdims=0} -> f32[37]",
        "ReduceMin(f32[3,11,17]) {axes=[0,2], keepdims=0} -> f32[11]"));

}  // namespace
}  // namespace nlsplit::testing

// float16 and bfloat16 on the CPU: bit for bit what float32's kernel makes of the widened operands, rounded once, and
// near what the reference evaluator makes of the halves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "graph/elements.h"
#include "kernels/kernel_operands.h"
#include "kernels/piece_of.h"
#include "kernels/random_desc.h"
#include "kernels/run_halves.h"
#include "kernels/types/widened.h"
#include "testing/tensors.h"

namespace nlsplit::testing {
namespace {

using ::testing::HasSubstr;

class Halves : public ::testing::TestWithParam<Op> {};

TEST_P(Halves, AreFloat32RoundedOnce) {
  const Isa isa = supported_levels().back();
  const KernelLibrary library = KernelLibrary::load(isa).value();
  Random random(static_cast<uint64_t>(GetParam()) * 7919 + 5);
  int compared = 0;
  for (int tried = 0; tried < 10; ++tried) {
    const std::optional<ComputeDesc> plain = random_desc(GetParam(), random);
    if (!plain) continue;
    for (const DType type : {DType::f16, DType::bf16}) {
      ComputeDesc desc = of_type(*plain, type);
      desc.kernel = {KernelName::widened, isa};  // others may be chosen: bf16_test.cc
      SCOPED_TRACE(signature(desc));
      ASSERT_TRUE(verify(desc).ok()) << verify(desc).error().to_string();
      std::vector<Tensor> halves, wide;
      for (const Tensor& input : kernel_operands(*plain, static_cast<uint64_t>(tried))) {
        halves.push_back(rounded_to(input, type));
        wide.push_back(widened_from(halves.back()));
      }
      const std::vector<Tensor> got = run_halves(library, desc, halves);
      ComputeDesc by = widened(desc);
      by.kernel = {kernel_of_widened(desc).value(), isa};
      const std::vector<Tensor> want = run_kernel(library, by, pointers(wide));
      ASSERT_EQ(got.size(), want.size());
      for (size_t o = 0; o < got.size(); ++o) EXPECT_EQ(got[o].raw, rounded_to(want[o], type).raw) << "result " << o;
      EXPECT_EQ(run_halves(library, desc, halves, 3)[0].raw, got[0].raw) << "on three threads";
      const uint64_t allowed = in_place_inputs(desc);
      for (size_t i = 0; i < desc.own_inputs(); ++i) {
        if ((allowed >> i & 1) == 0) continue;
        EXPECT_EQ(run_halves(library, desc, halves, 1, static_cast<int>(i))[0].raw, got[0].raw) << "over input " << i;
      }
      // The reference rounds once more for each step; each is half a unit of a result of this size.
      const double unit = type == DType::f16 ? 0x1p-10 : 0x1p-7;
      const double steps = 1 + static_cast<double>(desc.epilogue.size());
      const std::vector<Tensor> reference = run_reference(desc, pointers(halves));
      for (size_t o = 0; o < got.size(); ++o)
        expect_close(widened_from(got[o]), widened_from(reference[o]), {unit * steps, unit * steps});
      ++compared;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(compared, 4);
}

// What reads scalars, indices, labels, or which experts rows choose, has an operand that cannot be widened with the
// others.
std::vector<Op> ops_of_halves() {
  std::vector<Op> ops = computed_ops();
  std::erase_if(ops, [](Op op) {
    return info(op).scalars != nullptr || op == Op::GatherGradient || op == Op::SoftmaxCrossEntropy ||
           op == Op::SoftmaxCrossEntropyGradient || op == Op::Experts;
  });
  return ops;
}

INSTANTIATE_TEST_SUITE_P(All, Halves, ::testing::ValuesIn(ops_of_halves()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(HalfCasts, RoundBetweenTheThree) {
  const Isa isa = supported_levels().back();
  const KernelLibrary library = KernelLibrary::load(isa).value();
  const Tensor x = random_tensor({DType::f32, {3, 1999}}, 4);
  for (const DType from : {DType::f32, DType::f16, DType::bf16}) {
    for (const DType to : {DType::f32, DType::f16, DType::bf16}) {
      ComputeDesc desc;
      desc.op = Op::Cast;
      desc.attrs = {{"to", std::string(name_of(to))}};
      desc.inputs = {{from, x.type.shape}};
      desc.outputs = {{to, x.type.shape}};
      desc.kernel = choose_kernel(desc, isa).value();
      EXPECT_EQ(desc.kernel, KernelId(KernelName::cast, isa));
      const std::vector<Tensor> in{from == DType::f32 ? x : rounded_to(x, from)};
      EXPECT_EQ(bytes_of(run_halves(library, desc, in)[0]), bytes_of(run_reference(desc, pointers(in))[0]))
          << name_of(from) << " to " << name_of(to);
    }
  }
}

TEST(HalfCatalogue, SaysWhatItLeavesToOthers) {
  ComputeDesc desc;
  desc.op = Op::Conv;  // along three axes: no kernel of float32 has it either
  desc.attrs = {{"dilations", std::vector<int64_t>(3, 1)},
                {"group", int64_t{1}},
                {"kernel_shape", std::vector<int64_t>(3, 3)},
                {"pads", std::vector<int64_t>(6, 1)},
                {"strides", std::vector<int64_t>(3, 1)}};
  desc.inputs = {{DType::f16, {1, 2, 9, 9, 9}}, {DType::f16, {4, 2, 3, 3, 3}}};
  desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
  EXPECT_EQ(to_string(choose_kernel(desc, Isa::v3).value()), "generated_v3");
  desc.kernel = {KernelName::widened, Isa::v3};
  EXPECT_THAT(verify(desc).error().message, HasSubstr("it works on one spatial axis or two"));
  desc.op = Op::Floor;  // nor this
  desc.attrs.clear();
  desc.inputs.pop_back();
  desc.outputs = desc.inputs;
  EXPECT_THAT(verify(desc).error().message, HasSubstr("no kernel computes it in f32"));
  desc.op = Op::Relu;
  EXPECT_TRUE(verify(desc).ok());
  EXPECT_THAT(refusal({KernelName::widened, Isa::v3}, widened(desc))->why, HasSubstr("is not a half"));
}

// A cut where float32's kernel has the bits of the whole has those of the halves.
TEST(HalfCatalogue, IsExactWhereFloat32sKernelIs) {
  Random random(11);
  int along_channels = 0;
  for (int tried = 0; tried < 50; ++tried) {
    const auto plain = random_desc(Op::Conv, random);
    if (!plain) continue;
    ComputeDesc desc = of_type(*plain, DType::f16);
    desc.kernel = {KernelName::widened, Isa::v3};
    ASSERT_FALSE(refusal(desc.kernel, desc));
    EXPECT_TRUE(is_exact(desc, 0, 0, 1));
    along_channels += is_exact(desc, 1, 0, 1) ? 1 : 0;
  }
  EXPECT_GT(along_channels, 20);
}

}  // namespace
}  // namespace nlsplit::testing

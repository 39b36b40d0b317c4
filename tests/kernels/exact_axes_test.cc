// KernelInfo::exact_axes: what a kernel computes as a whole and in pieces has the same bits, along every axis that the
// catalogue names, wherever it is cut.
#include <gtest/gtest.h>

#include <map>

#include "kernels/kernel_operands.h"
#include "kernels/layout.h"
#include "kernels/piece_of.h"
#include "kernels/random_desc.h"
#include "kernels/run_kernel.h"
#include "testing/tensors.h"

namespace nlsplit::testing {
namespace {

class ExactAxes : public ::testing::TestWithParam<LevelAndOp> {
 protected:
  void SetUp() override {
    if (!cpu_supports(isa())) GTEST_SKIP() << "this CPU lacks " << full_name_of(isa());
    auto loaded = KernelLibrary::load(isa());
    ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
    library_.emplace(std::move(*loaded));
  }
  static Isa isa() { return GetParam().isa; }
  static Op op() { return GetParam().op; }

  std::optional<KernelLibrary> library_;
};

// The piece with its tensors laid out as the whole's.
ComputeDesc laid_out(ComputeDesc piece, const ComputeDesc& whole) {
  for (size_t i = 0; i < piece.inputs.size(); ++i) piece.inputs[i].block = whole.inputs[i].block;
  for (size_t i = 0; i < piece.outputs.size(); ++i) piece.outputs[i].block = whole.outputs[i].block;
  piece.kernel = whole.kernel;
  return piece;
}

TEST_P(ExactAxes, PiecesHaveTheBitsOfTheWhole) {
  Random random(static_cast<uint64_t>(op()) * 6700417 + 11);
  std::map<KernelName, unsigned> cut;  // along which axes
  const int draws = op() == Op::Conv || op() == Op::ConvTranspose ? 250 : 120;
  for (int draw = 0; draw < draws; ++draw) {
    std::optional<ComputeDesc> desc = random_desc(op(), random);
    if (!desc || desc->outputs.size() != 1) continue;
    if (find_attr(desc->attrs, "ceil_mode") != nullptr) set_attr(desc->attrs, "ceil_mode", int64_t{0});
    auto types = info(op()).infer(Types(desc->inputs).first(desc->own_inputs()), desc->attrs);
    if (!types.ok() || (*types != desc->outputs && !desc->epilogue.empty())) continue;
    desc->outputs = *types;
    const std::vector<Tensor> inputs = kernel_operands(*desc, static_cast<uint64_t>(draw));
    const size_t rank = desc->outputs[0].shape.size();
    for (ComputeDesc form : layouts_of(*desc, static_cast<int>(vector_width(isa())))) {
      for (const KernelName kernel : kernels_of(isa())) {
        form.kernel = {kernel, isa()};
        if (refusal(form.kernel, form)) continue;
        const KernelInfo& row = info_of(kernel);
        const Tensor whole = run_kernel(*library_, form, pointers(inputs))[0];
        for (size_t axis = 0; axis < rank; ++axis) {
          const int64_t extent = desc->outputs[0].shape[axis];
          if (extent < 2 || (row.exact_axes & exact_axis(op(), axis, rank)) == 0) continue;
          // Both parts of it, one position alone, and, where a kernel has tiles, both parts of those.
          const auto at = static_cast<int64_t>(random.below(static_cast<uint64_t>(extent - 1))) + 1;
          const int64_t tile = at / row.exact_multiple * row.exact_multiple;
          const std::pair<int64_t, int64_t> pieces[] = {{0, at}, {at, extent}, {at - 1, at}, {0, tile}, {tile, extent}};
          for (const auto& [begin, end] : pieces) {
            if (begin == end || !is_exact(form, axis, begin, end)) continue;
            const auto piece = piece_of(*desc, axis, begin, end);
            if (!piece) continue;
            const ComputeDesc part = laid_out(piece->desc, form);
            if (refusal(part.kernel, part)) continue;
            SCOPED_TRACE(to_string(form.kernel) + " " + signature(*desc) +
                         fmt::format(": {} … {} of axis {}", begin, end, axis));
            const std::vector<Tensor> taken = parts(*piece, inputs);
            const Tensor made = run_kernel(*library_, part, pointers(taken))[0];
            expect_same_bits(made, part_of(whole, {axis, begin, end}));
            if (HasFatalFailure() || HasNonfatalFailure()) return;
            cut[kernel] |= exact_axis(op(), axis, rank);
          }
        }
      }
    }
  }
  // Nothing is claimed that was not tried. (Axis 0 of what has no pieces here is kernels_test's.)
  for (const auto& [kernel, axes] : cut) EXPECT_EQ(axes, info_of(kernel).exact_axes) << name_of(kernel);
  if (cut.empty()) GTEST_SKIP() << "no pieces of this operator but samples";
}

// Tiles begin with a piece, and what lies behind it is not there: cut within one, its pixels come from other sums.
TEST(WinogradIsExact, OnlyBetweenTiles) {
  const Tensor x = random_tensor({DType::f32, {1, 16, 24, 12}}, 1), w = random_tensor({DType::f32, {16, 16, 3, 3}}, 2);
  ComputeDesc desc;
  desc.op = Op::Conv;
  desc.attrs = {{"dilations", std::vector<int64_t>{1, 1}},
                {"group", int64_t{1}},
                {"kernel_shape", std::vector<int64_t>{3, 3}},
                {"pads", std::vector<int64_t>(4, 1)},
                {"strides", std::vector<int64_t>{1, 1}}};
  desc.weights = 0b10;
  desc.inputs = {x.type, w.type};
  desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
  const std::vector<Tensor> inputs{x, w};
  for (Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    EXPECT_EQ(info_of(KernelName::conv_winograd).exact_multiple, 4);
    ComputeDesc form = desc;
    form.inputs[0].block = form.outputs[0].block = static_cast<int>(vector_width(isa));
    form.kernel = {KernelName::conv_winograd, isa};
    const Tensor whole = run_kernel(library, form, pointers(inputs))[0];
    for (const auto& [begin, end] :
         std::vector<std::pair<int64_t, int64_t>>{{4, 20}, {8, 24}, {0, 4}, {6, 20}, {9, 24}, {4, 18}, {0, 21}}) {
      const auto piece = piece_of(desc, 2, begin, end);
      ASSERT_TRUE(piece.has_value());
      const std::vector<Tensor> taken = parts(*piece, inputs);
      const Tensor made = run_kernel(library, laid_out(piece->desc, form), pointers(taken))[0];
      EXPECT_EQ(made.values == part_of(whole, {2, begin, end}).values, is_exact(form, 2, begin, end))
          << begin << " … " << end;
    }
  }
}

TEST(ExactAxis, NamesTheAxesOfAResult) {
  for (const Op op : {Op::Conv, Op::Add}) {
    EXPECT_EQ(exact_axis(op, 1, 4), exact::channels);
    EXPECT_EQ(exact_axis(op, 2, 4), exact::height);
    EXPECT_EQ(exact_axis(op, 3, 4), exact::width);
    EXPECT_EQ(exact_axis(op, 1, 2), exact::channels);
    for (size_t rank = 1; rank < 7; ++rank) EXPECT_EQ(exact_axis(op, 0, rank), exact::batch);
    EXPECT_EQ(exact_axis(op, 1, 5), 0);
    EXPECT_EQ(exact_axis(op, 0, 0), 0);
    EXPECT_EQ(exact_axis(op, 2, 2), 0);
  }
  EXPECT_EQ(exact_axis(Op::Add, 1, 3), exact::tokens);
  EXPECT_EQ(exact_axis(Op::Add, 2, 3), exact::channels);
  for (const Op op : {Op::Conv, Op::MaxPool, Op::GlobalAveragePool, Op::BatchNormalization, Op::LRN}) {
    EXPECT_EQ(exact_axis(op, 1, 3), exact::channels);
    EXPECT_EQ(exact_axis(op, 2, 3), exact::width);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExactAxes, ::testing::ValuesIn(levels_and_ops()), [](const auto& info) {
  return std::string(name_of(info.param.op)) + "_" + std::string(name_of(info.param.isa));
});

}  // namespace
}  // namespace nlsplit::testing

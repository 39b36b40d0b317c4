// Generated code against the reference evaluator and against the interpreter of its loops: random computations of all
// operators it is for, at every level this machine has, with operands that end where memory does.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>

#include "graph/optimizer.h"
#include "graph/reference/evaluate.h"
#include "kernels/generated/lower.h"
#include "kernels/generated_bits.h"
#include "kernels/guarded_pages.h"
#include "kernels/module/kernel_library.h"
#include "kernels/random_generated.h"
#include "kernels/random_operands.h"
#include "kernels/run_kernel.h"

namespace nlsplit::testing {
namespace {

const KernelLibrary& library_of(Isa isa) {
  static std::map<Isa, KernelLibrary> loaded;
  auto found = loaded.find(isa);
  if (found == loaded.end()) found = loaded.emplace(isa, KernelLibrary::load(isa).value()).first;
  return found->second;
}

std::vector<Op> generated_ops() {
  std::vector<Op> ops;
  for (int i = 0; i < op_count; ++i) {
    const Op op = static_cast<Op>(i);
    ComputeDesc desc;
    desc.op = op;
    if (is_view(op) || is_update(op)) continue;
    Random random(1);
    for (int draw = 0; draw < 20; ++draw) {
      const auto drawn = random_generated(op, random);
      if (!drawn || !refuse_lowering(*drawn).empty()) continue;
      ops.push_back(op);
      break;
    }
  }
  return ops;
}

std::string run_at(Isa isa, ComputeDesc desc, const std::vector<std::string>& operands, size_t result_bytes,
                   int workers, GuardedPages::Side side) {
  desc.kernel = {KernelName::generated, isa};
  std::vector<std::unique_ptr<GuardedPages>> memory;
  std::vector<const void*> inputs;
  for (const std::string& operand : operands) {
    memory.push_back(std::make_unique<GuardedPages>(operand, side));
    inputs.push_back(memory.back()->data());
  }
  GuardedPages result(std::string(result_bytes, 'x'), side);
  void* outputs[] = {result.data()};
  library_of(isa)
      .find(desc.kernel)
      .value()
      ->run({&desc, inputs.data(), outputs, nullptr, {workers, run_on_threads, &workers}});
  for (size_t i = 0; i < operands.size(); ++i) EXPECT_EQ(memory[i]->bytes(), operands[i]) << "changes its input " << i;
  return std::string(result.bytes());
}

Tensor reference_of(const ComputeDesc& desc, const std::vector<std::string>& operands) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < operands.size(); ++i) tensors.push_back(tensor_of(desc.inputs[i], operands[i]));
  std::vector<const Tensor*> inputs;
  for (const Tensor& tensor : tensors) inputs.push_back(&tensor);
  return run_reference(desc, inputs)[0];
}

bool approximates(Op op) {
  switch (op) {
    case Op::Exp:
    case Op::Log:
    case Op::Sigmoid:
    case Op::Tanh:
    case Op::Erf:
    case Op::Softplus:
    case Op::Mish:
    case Op::Celu:
    case Op::Elu:
    case Op::Selu:
    case Op::Gelu:
    case Op::Pow:
    case Op::LpPool:
    case Op::ReduceLogSum:
    case Op::ReduceLogSumExp:
    case Op::Softmax:
    case Op::LogSoftmax:
      return true;
    default:
      return is_circular(op);
  }
}

// Units in the last place that functions may be off by, of what is rounded to the type.
double allowed_error(DType type) {
  return type == DType::f64 ? 1e-14 : type == DType::f32 ? 0x1p-23 : type == DType::f16 ? 0x1p-10 : 0x1p-7;
}

// "" or the first difference. Zeros of either sign are one number; what is no number is one too.
std::string difference(const ComputeDesc& desc, std::string_view made, const Tensor& expected) {
  const DType type = desc.outputs[0].dtype;
  if (!is_real(type)) return made == bytes_of(expected) ? "" : "other integers";
  bool near = approximates(desc.op);
  for (const DescStep& step : desc.epilogue) near = near || approximates(step.op);
  const std::vector<double> a = reals_of(type, made), b = reals_of(type, bytes_of(expected));
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    // Of a function near its zero, and of numbers below the normal ones, no digits count.
    const double least = type == DType::f64 ? 1e-1 : type == DType::f16 ? 6e-5 : 1e-37;
    const double limit = allowed_error(type) * std::max(std::abs(b[i]), least) * (desc.epilogue.empty() ? 1 : 4);
    if (near && std::abs(a[i] - b[i]) <= limit) continue;
    return fmt::format("element {} is {} instead of {}", i, a[i], b[i]);
  }
  return {};
}

class Generated : public ::testing::TestWithParam<Op> {};

TEST_P(Generated, IsTheReference) {
  Random random(static_cast<uint64_t>(GetParam()) * 7919 + 3);
  constexpr int wanted = 16;
  for (int done = 0, tried = 0; done < wanted; ++tried) {
    ASSERT_LT(tried, wanted * 40) << "too few valid draws: " << done;
    const std::optional<ComputeDesc> desc = random_generated(GetParam(), random);
    if (!desc || !refuse_lowering(*desc).empty()) continue;
    ++done;
    SCOPED_TRACE(fmt::format("draw {}: {}", tried, signature(*desc)));
    const Loops loops = lower(*desc);
    ASSERT_TRUE(verify(loops).ok()) << verify(loops).error().message << "\n" << to_text(loops);
    const std::vector<std::string> operands = random_operands(*desc, random, tried % 2 == 0);
    const Tensor expected = reference_of(*desc, operands);
    const std::string slow = interpreted(*desc, operands);
    ASSERT_EQ(difference(*desc, slow, expected), "") << to_text(loops);
    for (const Isa isa : supported_levels()) {
      for (const auto& [workers, side] : {std::pair(1, GuardedPages::at_end), std::pair(3, GuardedPages::at_begin)})
        ASSERT_EQ(other_bits(*desc, run_at(isa, *desc, operands, slow.size(), workers, side), slow), "")
            << "level " << name_of(isa) << " and the interpreter\n"
            << to_text(loops);
    }
  }
}

// Files decide how many operands and taps there are: what would take long to compile is left to the reference loops.
TEST(GeneratedLimits, RefuseManyOperandsAndTaps) {
  ComputeDesc most;
  most.op = Op::Max;
  most.inputs.assign(64, {DType::f32, {2}});
  most.outputs = {{DType::f32, {2}}};
  EXPECT_EQ(refuse_lowering(most), "");
  most.inputs.push_back(most.inputs[0]);
  EXPECT_EQ(refuse_lowering(most), "it has more than 64 operands or steps");

  ComputeDesc crop;
  crop.op = Op::Resize;
  crop.inputs = crop.outputs = {{DType::f32, {2, 2, 2, 2}}};
  crop.attrs = {{"antialias", int64_t{0}},
                {"coordinate_transformation_mode", std::string("tf_crop_and_resize")},
                {"cubic_coeff_a", -0.75},
                {"exclude_outside", int64_t{0}},
                {"extrapolation_value", 0.0},
                {"mode", std::string("cubic")},
                {"nearest_mode", std::string("floor")},
                {"roi", std::vector<double>{0.1, 0.1, 0.1, 0.1, 0.9, 0.9, 0.9, 0.9}},
                {"scales", std::vector<double>(4, 1.0)}};
  EXPECT_EQ(refuse_lowering(crop), "its taps are too many");
}

// What loops read back of the result lies inside, as operands do.
TEST(GeneratedLimits, RefuseToReadBesideTheResult) {
  const auto reading = [](int64_t beside) {
    LoopWriter w;
    w.loops.output = {DType::i64, 4};
    w.loops.extents = {1, 4};
    w.loops.axes = w.loops.rows = 1;
    const int at = w.axis(1);
    const Element x = w.written(w.add(at, w.integer(beside)));
    w.loops.folds = {{.first_axis = 1, .end_axis = 2, .stored = w.stored(x), .place = at}};
    return verify(w.loops);
  };
  EXPECT_TRUE(reading(0).ok());
  EXPECT_THAT(reading(1).error().message, ::testing::HasSubstr("the result is read from 1 to 4 of 4"));
  EXPECT_FALSE(reading(-1).ok());
}

INSTANTIATE_TEST_SUITE_P(All, Generated, ::testing::ValuesIn(generated_ops()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace nlsplit::testing

// Experts with weights of every type, against Linear's kernels, row by row, and against itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "graph/elements.h"
#include "kernels/cpu.h"
#include "kernels/kernel_operands.h"
#include "kernels/run_kernel.h"
#include "kernels/signature.h"
#include "testing/tensors.h"
#include "testing/value_of.h"

namespace nlsplit::testing {
namespace {

class ExpertsOf : public ::testing::TestWithParam<DType> {
 protected:
  // What this CPU has.
  static std::vector<KernelLibrary> libraries() {
    std::vector<KernelLibrary> all;
    for (const Isa isa : all_levels()) {
      if (cpu_supports(isa)) all.push_back(value_of(KernelLibrary::load(isa)));
    }
    return all;
  }
};

Tensor numbers_as(const TensorType& type, uint64_t seed) {
  const Tensor values = random_tensor({DType::f32, type.shape}, seed);
  const std::vector<double> reals(values.values.begin(), values.values.end());
  return tensor_of(type, raw_of(type.dtype, std::span<const double>(reals)));
}

// Parts [begin, begin + count) along the first axis.
Tensor parts_of(const Tensor& tensor, int64_t begin, int64_t count) {
  const auto cut = [&](const auto& all) {
    const auto each = std::ssize(all) / tensor.type.shape[0];
    return std::remove_cvref_t<decltype(all)>(all.begin() + begin * each, all.begin() + (begin + count) * each);
  };
  Tensor part{tensor.type, cut(tensor.values), cut(tensor.raw)};
  part.type.shape[0] = count;
  return part;
}
Tensor in_shape(Tensor tensor, Shape shape) {
  tensor.type.shape = std::move(shape);
  return tensor;
}

ComputeDesc experts_desc(const std::vector<Tensor>& inputs, int64_t all, int64_t first, Isa isa) {
  ComputeDesc desc;
  desc.op = Op::Experts;
  desc.attrs = {{"all", all}, {"first", first}};
  desc.weights = 0b111000;
  for (const Tensor& input : inputs) desc.inputs.push_back(input.type);
  desc.outputs = value_of(infer(desc.op, desc.inputs, desc.attrs));
  desc.kernel = value_of(choose_kernel(desc, isa));
  return desc;
}

// [rows, …] by one expert's matrix.
Tensor times(const KernelLibrary& library, const Tensor& rows, const Tensor& experts, int64_t expert) {
  const Shape& all = experts.type.shape;
  const Tensor w = in_shape(parts_of(experts, expert, 1), {all[1], all[2]});
  ComputeDesc desc;
  desc.op = Op::Linear;
  desc.weights = 0b10;
  desc.inputs = {rows.type, w.type};
  desc.outputs = value_of(infer(desc.op, desc.inputs, desc.attrs));
  desc.kernel = value_of(choose_kernel(desc, library.isa()));
  return run_kernel(library, desc, {&rows, &w})[0];
}

// Five rows take two of seven experts each, one of them the same one twice; five of the experts are here.
TEST_P(ExpertsOf, MakeWhatTheirProductsMake) {
  constexpr int64_t rows = 5, used = 2, all = 7, first = 1, here = 5, hidden = 512, width = 256;
  const Tensor x = random_tensor({DType::f32, {1, rows, hidden}}, 1),
               shares = random_tensor({DType::f32, {1, rows, used}}, 2);
  const std::vector<int64_t> chosen = {1, 5, 0, 3, 3, 3, 6, 0, 2, 1};
  const Tensor which = tensor_of({DType::i64, {1, rows, used}}, raw_of(DType::i64, std::span<const int64_t>(chosen)));
  const Tensor gate = numbers_as({GetParam(), {here, width, hidden}}, 3),
               up = numbers_as({GetParam(), {here, width, hidden}}, 4),
               down = numbers_as({GetParam(), {here, hidden, width}}, 5);
  const std::vector<Tensor> inputs = {x, which, shares, gate, up, down};
  for (const KernelLibrary& library : libraries()) {
    SCOPED_TRACE(name_of(library.isa()));
    const ComputeDesc desc = experts_desc(inputs, all, first, library.isa());
    EXPECT_EQ(desc.kernel.name, KernelName::experts);
    const Tensor made = run_kernel(library, desc, pointers(inputs))[0];
    double largest = 0;
    for (const float value : made.values) largest = std::max(largest, std::abs(static_cast<double>(value)));
    for (size_t row = 0; row < rows; ++row) {
      const Tensor own = parts_of(in_shape(x, {rows, hidden}), static_cast<int64_t>(row), 1);
      std::vector<double> expected(hidden, 0);
      for (size_t j = 0; j < used; ++j) {
        const int64_t expert = chosen[row * used + j] - first;
        if (expert < 0 || expert >= here) continue;
        const Tensor open = times(library, own, gate, expert);
        Tensor inner = times(library, own, up, expert);
        for (size_t i = 0; i < inner.values.size(); ++i)
          inner.values[i] *= open.values[i] / (1 + std::exp(-open.values[i]));
        const Tensor part = times(library, inner, down, expert);
        for (size_t i = 0; i < hidden; ++i)
          expected[i] += static_cast<double>(shares.values[row * used + j]) * static_cast<double>(part.values[i]);
      }
      // An exponential may differ in its last bits, and so a byte, or a bf16, that the row is rounded to.
      const double near = (is_scaled(GetParam()) || GetParam() == DType::bf16 ? 2e-3 : 1e-5) * largest;
      for (size_t i = 0; i < hidden; ++i)
        ASSERT_NEAR(made.values[row * hidden + i], expected[i], near) << row << " " << i;
    }
    // Alone a row has the same bits, and so it has with other workers.
    expect_same_bits(run_kernel(library, desc, pointers(inputs), 3), {made});
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<Tensor> alone = inputs;
      for (size_t i = 0; i < 3; ++i) {
        alone[i] = parts_of(in_shape(inputs[i], {rows, inputs[i].type.shape[2]}), row, 1);
      }
      const Tensor one = run_kernel(library, experts_desc(alone, all, first, library.isa()), pointers(alone))[0];
      for (size_t i = 0; i < hidden; ++i)
        ASSERT_EQ(one.values[i], made.values[static_cast<size_t>(row) * hidden + i]) << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ExpertsOf,
                         ::testing::Values(DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0, DType::q4_1,
                                           DType::q5_0, DType::q4_k, DType::q6_k),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace nlsplit::testing

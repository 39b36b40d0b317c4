// The kernel of optimizers' updates against the reference, apart from its operands and on them.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/operators/operator.h"
#include "graph/optimizer.h"
#include "kernels/cpu.h"
#include "kernels/run_kernel.h"
#include "testing/tensors.h"

namespace nlsplit::testing {
namespace {

// A computation's operands, and its results where `in_place` says: on the weight and the states, or apart.
std::vector<std::string> run(const KernelLibrary& library, const ComputeDesc& desc, std::vector<std::string> operands,
                             bool in_place, int workers) {
  std::vector<std::string> apart;
  for (const TensorType& type : desc.outputs) apart.emplace_back(static_cast<size_t>(size_of(type).value()), '\x7f');
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (std::string& operand : operands) inputs.push_back(operand.data());
  const auto operand_of = [](size_t output) { return output == 0 ? 0 : output + 1; };  // the gradient is in between
  for (size_t i = 0; i < apart.size(); ++i) outputs.push_back((in_place ? operands[operand_of(i)] : apart[i]).data());
  library.find(desc.kernel)
      .value()
      ->run({&desc, inputs.data(), outputs.data(), nullptr, {workers, run_on_threads, &workers}});
  if (in_place) {
    for (size_t i = 0; i < apart.size(); ++i) apart[i] = operands[operand_of(i)];
  }
  return apart;
}

TEST(UpdateKernel, IsTheReference) {
  for (const Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    for (const Optimizer optimizer : all_optimizers()) {
      for (const int64_t count : {1, 7, 1000, 50'000}) {
        const TensorType weight{DType::f32, {count}};
        ComputeDesc desc;
        desc.op = update_op(optimizer);
        desc.attrs = update_attrs(optimizer, 0.125);
        desc.inputs = {weight, weight};
        for (const TensorType& state : update_states(optimizer, weight)) desc.inputs.push_back(state);
        desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
        desc.kernel = choose_kernel(desc, isa).value();
        SCOPED_TRACE(signature(desc));
        ASSERT_EQ(desc.kernel.name, KernelName::update);
        // What the verifier lets a Program do: the weight and all states where they are.
        const uint64_t allowed = in_place_inputs(desc);
        for (size_t i = 0; i < desc.inputs.size(); ++i) EXPECT_TRUE(i == 1 || (allowed >> i & 1) != 0) << i;
        std::vector<Tensor> tensors;
        std::vector<const Tensor*> pointers;
        std::vector<std::string> operands;
        for (size_t i = 0; i < desc.inputs.size(); ++i) {
          if (desc.inputs[i].dtype == DType::i64) {
            const int64_t steps = 3;
            tensors.push_back(tensor_of(desc.inputs[i], std::string(reinterpret_cast<const char*>(&steps), 8)));
          } else {
            tensors.push_back(random_tensor(desc.inputs[i], 10 * static_cast<uint64_t>(count) + i));
            for (float& v : tensors.back().values) v = i == 3 ? std::abs(v) : v;  // a mean of squares
          }
          operands.emplace_back(bytes_of(tensors.back()));
        }
        for (const Tensor& tensor : tensors) pointers.push_back(&tensor);
        const std::vector<Tensor> expected = evaluate_op(desc.op, desc.attrs, pointers, desc.outputs);
        const std::vector<std::string> made = run(library, desc, operands, false, 1);
        for (size_t i = 0; i < made.size(); ++i) {
          if (desc.outputs[i].dtype == DType::i64)
            EXPECT_EQ(made[i], bytes_of(expected[i]));
          else
            expect_close(tensor_of(desc.outputs[i], made[i]), expected[i], {1e-6, 1e-6});
        }
        EXPECT_EQ(run(library, desc, operands, false, 3), made) << "on three threads";
        EXPECT_EQ(run(library, desc, operands, true, 1), made) << "in place";
        EXPECT_EQ(run(library, desc, operands, true, 3), made) << "in place, on three threads";
      }
    }
  }
}

// The same roundings as the sum in which a Program's `reduce` adds two operands (exec/sum.h).
TEST(UpdateKernel, AddsAPartWhereTheSumIs) {
  for (const Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    for (const int64_t count : {1, 30, 50'000}) {
      const TensorType sum{DType::f32, {count}}, part{DType::f32, {count, 1}};
      ComputeDesc desc;
      desc.op = Op::Accumulate;
      desc.inputs = {sum, part};
      desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
      desc.kernel = choose_kernel(desc, isa).value();
      SCOPED_TRACE(signature(desc));
      ASSERT_EQ(desc.kernel.name, KernelName::update);
      EXPECT_EQ(in_place_inputs(desc) & 1, 1u);
      const Tensor a = random_tensor(sum, 1), b = random_tensor(part, 2);
      Tensor both = a;
      for (size_t i = 0; i < both.values.size(); ++i) both.values[i] += b.values[i];
      const std::vector<std::string> operands = {std::string(bytes_of(a)), std::string(bytes_of(b))};
      for (const int workers : {1, 3}) {
        EXPECT_EQ(run(library, desc, operands, false, workers)[0], bytes_of(both));
        EXPECT_EQ(run(library, desc, operands, true, workers)[0], bytes_of(both)) << "in place";
      }
    }
  }
}

}  // namespace
}  // namespace nlsplit::testing

// The kernel of optimizers' updates against the reference, apart from its operands and on them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

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
  std::vector<double> workspace(static_cast<size_t>(workspace_of(desc, workers).value()) / sizeof(double) + 1);
  library.find(desc.kernel)
      .value()
      ->run({&desc, inputs.data(), outputs.data(), workspace.data(), {workers, run_on_threads, &workers}});
  if (in_place) {
    for (size_t i = 0; i < apart.size(); ++i) apart[i] = operands[operand_of(i)];
  }
  return apart;
}

// The operands of each optimizer's update, clipped or not.
struct DrawnUpdate {
  Optimizer optimizer;
  OptimizerSettings settings;
  bool clipped = false;
};
std::vector<DrawnUpdate> drawn_updates() {
  std::vector<DrawnUpdate> all;
  for (const Optimizer optimizer : all_optimizers()) {
    for (const bool more : {false, true}) {
      DrawnUpdate one{optimizer, {}, more};
      if (more) one.settings.decay = 0.25;
      one.settings.nesterov = more;
      all.push_back(one);
    }
  }
  return all;
}

TEST(UpdateKernel, IsTheReference) {
  for (const Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    for (const DrawnUpdate& drawn : drawn_updates()) {
      for (const int64_t count : {1, 7, 1000, 50'000}) {
        const TensorType weight{DType::f32, {count}};
        ComputeDesc desc;
        desc.op = update_op(drawn.optimizer);
        desc.attrs = update_attrs(drawn.optimizer, drawn.settings);
        desc.inputs = {weight, weight};
        for (const TensorType& state : update_states(drawn.optimizer, weight)) desc.inputs.push_back(state);
        const size_t tensors = desc.inputs.size();
        if (counts_steps(drawn.optimizer)) desc.inputs.push_back(steps_type());
        desc.inputs.push_back(rate_type());
        if (drawn.clipped) desc.inputs.push_back(rate_type());
        desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
        desc.kernel = choose_kernel(desc, isa).value();
        SCOPED_TRACE(signature(desc));
        ASSERT_EQ(desc.kernel.name, KernelName::update);
        // What the verifier lets a Program do: the weight and all states where they are.
        const uint64_t allowed = in_place_inputs(desc);
        for (size_t i = 0; i < tensors; ++i) EXPECT_TRUE(i == 1 || (allowed >> i & 1) != 0) << i;
        std::vector<Tensor> operands;
        for (size_t i = 0; i < desc.inputs.size(); ++i) {
          if (desc.inputs[i] == steps_type()) {
            const int64_t steps = 3;
            operands.push_back(tensor_of(desc.inputs[i], std::string(reinterpret_cast<const char*>(&steps), 8)));
            continue;
          }
          operands.push_back(random_tensor(desc.inputs[i], 10 * static_cast<uint64_t>(count) + i));
          for (float& v : operands.back().values) v = i == 3 ? std::abs(v) : v;  // a mean of squares
        }
        std::vector<std::string> bytes;
        std::vector<const Tensor*> pointers;
        for (const Tensor& tensor : operands) {
          bytes.emplace_back(bytes_of(tensor));
          pointers.push_back(&tensor);
        }
        const std::vector<Tensor> expected = evaluate_op(desc.op, desc.attrs, pointers, desc.outputs);
        const std::vector<std::string> made = run(library, desc, bytes, false, 1);
        for (size_t i = 0; i < made.size(); ++i)
          expect_close(tensor_of(desc.outputs[i], made[i]), expected[i], {1e-6, 1e-6});
        EXPECT_EQ(run(library, desc, bytes, false, 3), made) << "on three threads";
        EXPECT_EQ(run(library, desc, bytes, true, 1), made) << "in place";
        EXPECT_EQ(run(library, desc, bytes, true, 3), made) << "in place, on three threads";
      }
    }
  }
}

// Means that move: of running statistics.
TEST(UpdateKernel, MovesAMeanWhereItLies) {
  for (const Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    ComputeDesc desc;
    desc.op = Op::MovingAverage;
    desc.attrs = {{"momentum", 0.25}, {"scale", 2.0}};
    desc.inputs = {{DType::f32, {3}}, {DType::f32, {3}}};
    desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
    desc.kernel = choose_kernel(desc, isa).value();
    ASSERT_EQ(desc.kernel.name, KernelName::update);
    const Tensor mean{desc.inputs[0], {4, 8, -4}}, value{desc.inputs[1], {2, 0, 1}};
    const std::string wanted(bytes_of(Tensor{desc.inputs[0], {4, 6, -2.5F}}));
    const std::vector<std::string> operands{std::string(bytes_of(mean)), std::string(bytes_of(value))};
    EXPECT_EQ(run(library, desc, operands, true, 1), std::vector{wanted});
    EXPECT_EQ(bytes_of(evaluate_op(desc.op, desc.attrs, std::vector{&mean, &value}, desc.outputs)[0]), wanted);
  }
}

// Dropout reads the steps too.
TEST(DropoutKernel, IsTheReference) {
  for (const Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    for (const int64_t size : {1, 7, 40'000}) {
      ComputeDesc desc;
      desc.op = Op::DropoutTraining;
      desc.attrs = {{"ratio", 0.5}, {"seed", int64_t{1} << 40}, {"stream", int64_t{2}}};
      desc.inputs = {{DType::f32, {3, size}}, steps_type(), {DType::i64, {3}}};
      desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
      desc.kernel = choose_kernel(desc, isa).value();
      ASSERT_EQ(desc.kernel.name, KernelName::dropout);
      const int64_t steps = 11, samples[3] = {2, 5, 1};
      const Tensor x = random_tensor(desc.inputs[0], 1);
      const Tensor before = tensor_of(desc.inputs[1], std::string(reinterpret_cast<const char*>(&steps), 8));
      const Tensor numbers = tensor_of(desc.inputs[2], std::string(reinterpret_cast<const char*>(samples), 24));
      const auto wanted = evaluate_op(desc.op, desc.attrs, std::vector{&x, &before, &numbers}, desc.outputs);
      const std::vector<std::string> operands{std::string(bytes_of(x)), std::string(bytes_of(before)),
                                              std::string(bytes_of(numbers))};
      for (const int workers : {1, 3}) {
        EXPECT_EQ(run(library, desc, operands, false, workers)[0], bytes_of(wanted[0]));
        EXPECT_EQ(run(library, desc, operands, true, workers)[0], bytes_of(wanted[0])) << "in place";
      }
    }
  }
}

TEST(UpdateKernel, CountsSteps) {
  for (const Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    ComputeDesc desc;
    desc.op = Op::StepCount;
    desc.inputs = {steps_type()};
    desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
    desc.kernel = choose_kernel(desc, isa).value();
    ASSERT_EQ(desc.kernel.name, KernelName::update);
    EXPECT_EQ(in_place_inputs(desc), 1u);
    const int64_t before = int64_t{1} << 40, behind = before + 1;
    const auto text = [](int64_t value) { return std::string(reinterpret_cast<const char*>(&value), sizeof(value)); };
    EXPECT_EQ(run(library, desc, {text(before)}, true, 1), std::vector{text(behind)});
  }
}

// The same bits on every level and by any number of threads: norms of gradients are compared between plans.
TEST(UpdateKernel, AddsSquaresInOneOrder) {
  for (const int64_t count : {1, 15, 4096, 4097, 100'000}) {
    const TensorType gradient{DType::f32, {count}};
    const Tensor x = random_tensor(gradient, static_cast<uint64_t>(count));
    const std::vector<TensorType> sum{{DType::f64, {1}}};
    const std::vector<Tensor> expected = evaluate_op(Op::SumOfSquares, {}, std::vector{&x}, sum);
    double plain = 0;
    for (const float v : x.values) plain += static_cast<double>(v) * static_cast<double>(v);
    double found = 0;
    std::memcpy(&found, bytes_of(expected[0]).data(), sizeof(found));
    EXPECT_NEAR(found, plain, 1e-12 * plain);
    for (const Isa isa : supported_levels()) {
      const KernelLibrary library = KernelLibrary::load(isa).value();
      ComputeDesc desc;
      desc.op = Op::SumOfSquares;
      desc.inputs = {gradient};
      desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
      desc.kernel = choose_kernel(desc, isa).value();
      ASSERT_EQ(desc.kernel.name, KernelName::sum_of_squares);
      for (const int workers : {1, 3})
        EXPECT_EQ(run(library, desc, {std::string(bytes_of(x))}, false, workers)[0], bytes_of(expected[0]))
            << count << " of " << name_of(isa);
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

// Random computations of every operator, on fresh inputs, against the reference evaluator.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>

#include "base/random.h"
#include "gpu/gpu_check.h"
#include "graph/elements.h"
#include "graph/graph.h"
#include "graph/reference/evaluate.h"
#include "kernels/cuda/gpu.h"
#include "kernels/random_desc.h"

namespace nlsplit::testing {
namespace {

std::vector<Tensor> random_operands(const ComputeDesc& desc, Random& random) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    Tensor& tensor = tensors.emplace_back(
        Tensor{desc.inputs[i], std::vector<float>(static_cast<size_t>(element_count(desc.inputs[i].shape)))});
    const bool positive =
        (desc.op == Op::Div && i == 1) || desc.op == Op::Sqrt || (desc.op == Op::BatchNormalization && i == 4);
    for (float& value : tensor.values) {
      value = static_cast<float>(random.normal());
      if (positive) value = std::abs(value) + 0.25f;
    }
  }
  return tensors;
}

// The same computation on halves, and its operands rounded to them.
ComputeDesc of_type(ComputeDesc desc, DType type) {
  for (TensorType& input : desc.inputs) input.dtype = type;
  for (TensorType& output : desc.outputs) output.dtype = type;
  return desc;
}
std::vector<Tensor> of_type(const std::vector<Tensor>& tensors, DType type) {
  if (type == DType::f32) return tensors;
  std::vector<Tensor> rounded;
  for (const Tensor& tensor : tensors) {
    const std::vector<double> values(tensor.values.begin(), tensor.values.end());
    rounded.push_back(tensor_of({type, tensor.type.shape}, raw_of(type, std::span<const double>(values))));
  }
  return rounded;
}

// Terms of a sum are about 1, its rounding errors grow with their number as a random walk does. TF32 rounds each factor
// to 11 bits (2⁻¹¹ relative), float32 to 24. Products of halves are exact and summed in float32; a result is rounded
// (2⁻¹¹ or 2⁻⁸ relative) when it is stored: once or, before what stands behind it, twice, and by the reference behind
// each step.
double tolerance_of(const ComputeDesc& desc) {
  double terms = 1;
  if (desc.op == Op::Conv) {
    const Shape& w = desc.inputs[1].shape;
    terms = static_cast<double>(element_count(w) / w[0]);
  }
  if (desc.op == Op::Gemm || desc.op == Op::MatMul) {
    const Shape& a = desc.inputs[0].shape;
    const bool transposed = desc.op == Op::Gemm && attr_int(desc.attrs, "transA") != 0;
    terms = static_cast<double>(transposed ? a.front() : a.back());
  }
  if (desc.op == Op::Attention) terms = static_cast<double>(desc.inputs[0].shape.back());  // of a score
  const bool product = desc.op == Op::Conv || desc.op == Op::Gemm || desc.op == Op::MatMul || desc.op == Op::Attention;
  const bool tf32 = product && desc.kernel.level.precision == Precision::tf32;
  const DType type = desc.outputs[0].dtype;
  const double stored = type == DType::f16 ? 0x1p-11 : type == DType::bf16 ? 0x1p-8 : 0;
  const double roundings = 2 * (1 + static_cast<double>(desc.epilogue.size()));
  return ((tf32 && stored == 0 ? 4e-3 : 2e-5) + stored * roundings) * (1 + std::sqrt(terms));
}

// The worst difference in units of what is allowed.
double worst(const std::string& got, const Tensor& want, double tolerance) {
  const std::string_view wanted = bytes_of(want);
  if (got.size() != wanted.size()) return std::numeric_limits<double>::infinity();
  const DType type = want.type.dtype;
  const std::vector<double> values = reals_of(type, got), expected = reals_of(type, wanted);
  const auto element = static_cast<size_t>(size_of(type));
  double most = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double a = values[i], b = expected[i];
    if (got.compare(i * element, element, wanted.substr(i * element, element)) == 0) continue;
    const double difference = std::abs(a - b) / (tolerance * (1 + std::abs(b)));
    most = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(most, difference);
  }
  return most;
}

// Between the three types, bit for bit: each rounds once.
Result<int> check_casts(Bench& bench, uint64_t seed) {
  constexpr DType types[] = {DType::f32, DType::f16, DType::bf16};
  Random random(seed);
  ComputeDesc desc;
  desc.op = Op::Cast;
  Tensor plain{{DType::f32, {3, 1001}}, std::vector<float>(3003)};
  for (float& value : plain.values)
    value = static_cast<float>(std::ldexp(random.normal(), static_cast<int>(random.below(40)) - 26));
  int differing = 0;
  for (const DType from : types) {
    for (const DType to : types) {
      const Tensor operand = of_type({plain}, from)[0];
      desc.attrs = {{"to", std::string(name_of(to))}};
      desc.inputs = {operand.type};
      desc.outputs = {{to, operand.type.shape}};
      desc.kernel = {KernelName::gpu_cast, Isa::cuda};
      const std::vector<Tensor> want = evaluate_op(desc.op, desc.attrs, {&operand}, desc.outputs);
      ASSIGN_OR_RETURN(const std::vector<std::string> got, bench.run(desc, {std::string(bytes_of(operand))}));
      if (got[0] == bytes_of(want[0])) continue;
      ++differing;
      fmt::print("DIFFERS: {}\n", signature(desc));
    }
  }
  fmt::print("{:24} {:5} compared, bit for bit\n", name_of(desc.op), std::size(types) * std::size(types));
  return differing;
}

}  // namespace

Result<int> check_operators(Bench& bench, uint64_t seed, int cases) {
  static constexpr DType types[] = {DType::f32, DType::f16, DType::f32, DType::bf16};  // in turn
  fmt::print("seed {}\n", seed);
  ASSIGN_OR_RETURN(int differing, check_casts(bench, seed));
  for (const Op op : computed_ops()) {
    if (info(op).scalars != nullptr) continue;  // no run lets a GPU compute it
    Random random(seed * 1009 + static_cast<uint64_t>(op));
    int compared = 0, by_host = 0;
    double most = 0;
    for (int c = 0; c < cases; ++c) {
      const std::optional<ComputeDesc> drawn = random_desc(op, random);
      if (!drawn) continue;
      // No GPU computes what reads labels or which experts are chosen; gathers have a test of their own.
      const auto is_of_reals = [](const TensorType& input) { return is_real(input.dtype); };
      if (!std::ranges::all_of(drawn->inputs, is_of_reals)) continue;
      const DType type = types[static_cast<size_t>(c) % std::size(types)];
      ComputeDesc desc = of_type(*drawn, type);
      const std::vector<Tensor> operands = of_type(random_operands(*drawn, random), type);
      std::vector<const Tensor*> pointers;
      std::vector<std::string> raw;
      for (const Tensor& operand : operands) {
        pointers.push_back(&operand);
        raw.emplace_back(bytes_of(operand));
      }
      std::vector<EpilogueStep> steps;
      for (const DescStep& step : desc.epilogue)
        steps.push_back({step.op, has(step.op, traits::is_step_with_operand) ? ValueId(0) : ValueId(), step.attrs, {}});
      const std::vector<Tensor> want = evaluate_op(desc.op, desc.attrs, steps, pointers, desc.outputs);
      for (const Level level : gpu_levels()) {
        ASSIGN_OR_RETURN(const std::vector<KernelId> kernels, candidates(desc, level));
        for (const KernelId kernel : kernels) {
          desc.kernel = kernel;
          if (kernel.name == KernelName::gpu_host) {
            ++by_host;
            continue;
          }
          ASSIGN_OR_RETURN(const std::vector<std::string> got, bench.run(desc, raw));
          double here = 0;
          for (size_t o = 0; o < want.size(); ++o) here = std::max(here, worst(got[o], want[o], tolerance_of(desc)));
          ++compared;
          most = std::max(most, here);
          if (here <= 1) continue;
          ++differing;
          fmt::print("DIFFERS {:.3g} times what is allowed: {}\n", here, signature(desc));
        }
      }
    }
    fmt::print("{:24} {:5} compared, {:4} left to the host, worst {:.3f} of what is allowed\n", name_of(op), compared,
               by_host, most);
  }
  return differing;
}

// More scores than one pass takes, on a mask: neither heads nor queries may be mistaken from the second pass on.
Result<int> check_attention_passes(Bench& bench, uint64_t seed) {
  int differing = 0;
  for (const DType type : {DType::f32, DType::f16}) {
    ComputeDesc desc;
    desc.op = Op::Attention;
    desc.attrs = {{"causal", int64_t{1}}, {"scale", 0.5}};
    desc.inputs = {
        {type, {2, 10, 1024, 4}}, {type, {2, 5, 1024, 4}}, {type, {2, 5, 1024, 3}}, {type, {2, 1, 1024, 1024}}};
    ASSIGN_OR_RETURN(desc.outputs, info(desc.op).infer(desc.inputs, desc.attrs));
    ASSIGN_OR_RETURN(desc.kernel, choose_kernel(desc, Isa::cuda));
    Random random(seed);
    const std::vector<Tensor> operands = of_type(random_operands(desc, random), type);
    std::vector<const Tensor*> pointers;
    std::vector<std::string> raw;
    for (const Tensor& operand : operands) {
      pointers.push_back(&operand);
      raw.emplace_back(bytes_of(operand));
    }
    const std::vector<Tensor> want = evaluate_op(desc.op, desc.attrs, pointers, desc.outputs);
    ASSIGN_OR_RETURN(const std::vector<std::string> got, bench.run(desc, raw));
    const double most = worst(got[0], want[0], tolerance_of(desc));
    const AttentionPasses passes = attention_passes_of(desc);
    fmt::print("{} in {} passes of {} heads: worst {:.3f} of what is allowed\n", signature(desc), 10 / passes.heads,
               passes.heads, most);
    differing += most <= 1 ? 0 : 1;
  }
  return differing;
}

}  // namespace nlsplit::testing

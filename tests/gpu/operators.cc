// Random computations of every operator, on fresh inputs, against the reference evaluator.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <utility>
#include <vector>

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

std::vector<std::pair<DType, DType>> pairs_of(std::span<const DType> types) {
  std::vector<std::pair<DType, DType>> pairs;
  for (const DType from : types) {
    for (const DType to : types) pairs.emplace_back(from, to);
  }
  return pairs;
}

// Between the three types, bit for bit: each rounds once.
Result<int> check_casts(Bench& bench, uint64_t seed) {
  constexpr DType types[] = {DType::f32, DType::f16, DType::bf16};
  Random random(seed);
  ComputeDesc desc;
  desc.op = Op::Cast;
  int differing = 0;
  for (const int64_t columns : {1001, 1024}) {  // one by one, and by vectors
    Tensor plain{{DType::f32, {3, columns}}, std::vector<float>(static_cast<size_t>(3 * columns))};
    for (float& value : plain.values)
      value = static_cast<float>(std::ldexp(random.normal(), static_cast<int>(random.below(40)) - 26));
    for (const auto& [from, to] : pairs_of(types)) {
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
  fmt::print("{:24} {:5} compared, bit for bit\n", name_of(desc.op), 2 * std::size(types) * std::size(types));
  return differing;
}

}  // namespace

Result<int> check_operators(Bench& bench, uint64_t seed, int cases) {
  static constexpr DType types[] = {DType::f32, DType::f16, DType::f32, DType::bf16};  // in turn
  fmt::print("seed {}\n", seed);
  ASSIGN_OR_RETURN(int differing, check_casts(bench, seed));
  ASSIGN_OR_RETURN(const int of_shapes, check_shapes(bench, seed));
  differing += of_shapes;
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
          if (kernel.name == KernelName::gpu_generated) continue;  // check_generated's
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

namespace {

// How far the kernel that the desc names is from the reference, in units of what is allowed.
Result<double> difference(Bench& bench, const ComputeDesc& desc, uint64_t seed) {
  Random random(seed);
  const std::vector<Tensor> operands = of_type(random_operands(desc, random), desc.outputs[0].dtype);
  std::vector<const Tensor*> pointers;
  std::vector<std::string> raw;
  for (const Tensor& operand : operands) {
    pointers.push_back(&operand);
    raw.emplace_back(bytes_of(operand));
  }
  const std::vector<Tensor> want = evaluate_op(desc.op, desc.attrs, pointers, desc.outputs);
  ASSIGN_OR_RETURN(const std::vector<std::string> got, bench.run(desc, raw));
  return worst(got[0], want[0], tolerance_of(desc));
}

Result<ComputeDesc> desc_of(Op op, Attrs attrs, DType type, const std::vector<Shape>& shapes) {
  ComputeDesc desc;
  desc.op = op;
  desc.attrs = std::move(attrs);
  for (const Shape& shape : shapes) desc.inputs.push_back({type, shape});
  ASSIGN_OR_RETURN(desc.outputs, info(op).infer(desc.inputs, desc.attrs));
  ASSIGN_OR_RETURN(desc.kernel, choose_kernel(desc, Isa::cuda));
  return desc;
}

}  // namespace

// What random computations are too small or too plain for: rows that take a block, moves that go backwards or by 16
// bytes.
Result<int> check_shapes(Bench& bench, uint64_t seed) {
  using Ints = std::vector<int64_t>;
  int differing = 0, compared = 0;
  for (const DType type : {DType::f32, DType::f16}) {
    std::vector<Result<ComputeDesc>> cases;
    cases.push_back(desc_of(Op::Softmax, {{"axis", int64_t{-1}}}, type, {{3, 1000}}));
    cases.push_back(desc_of(Op::Softmax, {{"axis", int64_t{1}}}, type, {{2, 700, 3}}));
    cases.push_back(desc_of(Op::InstanceNormalization, {{"epsilon", 1e-5}}, type, {{2, 3, 30, 30}, {3}, {3}}));
    cases.push_back(desc_of(Op::GlobalAveragePool, {}, type, {{2, 3, 30, 30}}));
    cases.push_back(desc_of(Op::Attention, {{"causal", int64_t{1}}, {"scale", 0.5}}, type,
                            {{1, 4, 600, 8}, {1, 2, 600, 8}, {1, 2, 600, 8}}));
    cases.push_back(desc_of(
        Op::Slice, {{"axes", Ints{1, 2}}, {"ends", Ints{-100, 16}}, {"starts", Ints{-1, 0}}, {"steps", Ints{-1, 1}}},
        type, {{4, 9, 32}}));
    cases.push_back(desc_of(
        Op::Slice, {{"axes", Ints{0, 1}}, {"ends", Ints{-100, -100}}, {"starts", Ints{3, 8}}, {"steps", Ints{-2, -3}}},
        type, {{4, 9, 32}}));
    cases.push_back(desc_of(Op::Slice,
                            {{"axes", Ints{2}}, {"ends", Ints{-100}}, {"starts", Ints{31}}, {"steps", Ints{-2}}}, type,
                            {{4, 9, 32}}));
    cases.push_back(desc_of(Op::Transpose, {{"perm", Ints{1, 0, 2}}}, type, {{6, 5, 24}}));
    cases.push_back(desc_of(Op::Transpose, {{"perm", Ints{1, 0, 2}}}, type, {{6, 5, 7}}));
    for (const Result<ComputeDesc>& desc : cases) {
      if (!desc) return desc.error();
      ASSIGN_OR_RETURN(const double most, difference(bench, *desc, seed));
      ++compared;
      if (most <= 1) continue;
      ++differing;
      fmt::print("DIFFERS {:.3g} times what is allowed: {}\n", most, signature(*desc));
    }
  }
  fmt::print("{:24} {:5} compared\n", "other shapes", compared);
  return differing;
}

// More scores than one pass takes, on a mask: neither heads nor queries may be mistaken from the second pass on.
Result<int> check_attention_passes(Bench& bench, uint64_t seed) {
  int differing = 0;
  for (const DType type : {DType::f32, DType::f16}) {
    ASSIGN_OR_RETURN(const ComputeDesc desc,
                     desc_of(Op::Attention, {{"causal", int64_t{1}}, {"scale", 0.5}}, type,
                             {{2, 10, 1024, 4}, {2, 5, 1024, 4}, {2, 5, 1024, 3}, {2, 1, 1024, 1024}}));
    ASSIGN_OR_RETURN(const double most, difference(bench, desc, seed));
    const AttentionPasses passes = attention_passes_of(desc);
    fmt::print("{} in {} passes of {} heads: worst {:.3f} of what is allowed\n", signature(desc), 10 / passes.heads,
               passes.heads, most);
    differing += most <= 1 ? 0 : 1;
  }
  return differing;
}

}  // namespace nlsplit::testing

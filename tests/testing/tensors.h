// Tensors for tests: made from a seed, compared with the place of the worst difference.
//
//   Tensor x = random_tensor({DType::f32, {1, 3, 8, 8}}, 7);
//   expect_close(actual, expected, {.relative = 1e-5, .absolute = 1e-6});
//   expect_same_bits(split, unsplit);
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "graph/elements.h"
#include "graph/operators/operator.h"
#include "graph/reference/evaluate.h"

namespace nlsplit {

// Near-normal values, mean 0 and deviation 1.
inline Tensor random_tensor(const TensorType& type, uint64_t seed) {
  Tensor tensor{type, std::vector<float>(static_cast<size_t>(element_count(type.shape)))};
  fill_normal(seed, tensor.values.data(), static_cast<int64_t>(tensor.values.size()));
  return tensor;
}

inline Tensor random_indices(const TensorType& type, int64_t bound, uint64_t seed) {
  Random random(seed);
  std::vector<int64_t> values(static_cast<size_t>(element_count(type.shape)));
  for (int64_t& value : values) value = static_cast<int64_t>(random.below(static_cast<uint64_t>(bound)));
  return tensor_of(type, raw_of(type.dtype, std::span<const int64_t>(values)));
}

// The smallest table that is gathered by this value.
inline int64_t extent_indexed_by(const Graph& graph, ValueId value) {
  int64_t bound = 2;
  bool first = true;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::Gather || node.inputs[1] != value) continue;
    const int64_t extent =
        graph.value(node.inputs[0]).type.shape[static_cast<size_t>(attr_int(node.attrs, "axis"))];  // not negative
    bound = first ? extent : std::min(bound, extent);
    first = false;
  }
  return bound;
}

// One for every input of the graph, each from a seed of its own: normal floats, or integers that are valid indices.
inline std::vector<Tensor> random_inputs(const Graph& graph, uint64_t seed) {
  std::vector<Tensor> inputs;
  for (ValueId id : graph.inputs) {
    const TensorType& type = graph.value(id).type;
    const uint64_t own = seed + 1000003 * inputs.size();
    inputs.push_back(type.dtype == DType::f32 ? random_tensor(type, own)
                                              : random_indices(type, extent_indexed_by(graph, id), own));
  }
  return inputs;
}

inline Tensor tensor(Shape shape, std::vector<float> values) {
  return {{DType::f32, std::move(shape)}, std::move(values)};
}

// What the reference evaluator makes of one operator.
inline std::vector<Tensor> run_op(Op op, const Attrs& attrs, const std::vector<Tensor>& inputs) {
  std::vector<TensorType> types;
  std::vector<const Tensor*> pointers;
  for (const Tensor& input : inputs) {
    types.push_back(input.type);
    pointers.push_back(&input);
  }
  return evaluate_op(op, attrs, pointers, info(op).infer(types, attrs).value());
}

// Within |actual - expected| <= absolute + relative * |expected|, as numpy.allclose; NaN is close to nothing.
struct Tolerance {
  double relative = 1e-5;
  double absolute = 1e-6;
};

inline ::testing::AssertionResult compare(const Tensor& actual, const Tensor& expected, Tolerance tolerance) {
  if (actual.type != expected.type || actual.values.size() != expected.values.size()) {
    return ::testing::AssertionFailure() << to_string(actual.type) << " with " << actual.values.size()
                                         << " values, expected " << to_string(expected.type) << " with "
                                         << expected.values.size();
  }
  size_t wrong = 0, worst = 0;
  double worst_excess = 0;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const double a = actual.values[i], e = expected.values[i];
    if (a == e) continue;  // also equal infinities
    const double allowed = tolerance.absolute + tolerance.relative * std::abs(e);
    if (std::abs(a - e) <= allowed && std::isfinite(e)) continue;
    const double excess = std::isfinite(a) && std::isfinite(e) ? std::abs(a - e) - allowed : HUGE_VAL;
    if (wrong++ == 0 || excess > worst_excess) {
      worst = i;
      worst_excess = excess;
    }
  }
  if (wrong == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << fmt::format(
             "{} of {} values of {} differ; worst at {}: {} instead of {} (relative {}, absolute {} allowed)", wrong,
             expected.values.size(), to_string(expected.type), worst, actual.values[worst], expected.values[worst],
             tolerance.relative, tolerance.absolute);
}

inline void expect_close(const Tensor& actual, const Tensor& expected, Tolerance tolerance = {}) {
  EXPECT_TRUE(compare(actual, expected, tolerance));
}

inline void expect_close(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected,
                         Tolerance tolerance = {}) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(compare(actual[i], expected[i], tolerance)) << "output " << i;
}

// Bit for bit: -0 and 0 differ, a NaN equals itself.
inline void expect_same_bits(const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(actual.type, expected.type);
  ASSERT_EQ(actual.values.size(), expected.values.size());
  for (size_t i = 0; i < expected.values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(actual.values[i]), std::bit_cast<uint32_t>(expected.values[i]))
        << "at " << i << ": " << actual.values[i] << " instead of " << expected.values[i];
  }
}

inline void expect_same_bits(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) expect_same_bits(actual[i], expected[i]);
}

// For "the output can tell right from wrong": not flat, not vanished, not exploded.
inline double deviation_of(const Tensor& tensor) {
  double mean = 0, squares = 0;
  for (float v : tensor.values) mean += v;
  mean /= static_cast<double>(tensor.values.size());
  for (float v : tensor.values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / static_cast<double>(tensor.values.size()));
}

}  // namespace nlsplit

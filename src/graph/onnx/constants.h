// Values known at import: initializers and what follows from them. Small integers (shapes, axes) are computed; large
// floats stay recipes in the WeightStore.
#pragma once

#include <optional>
#include <vector>

#include "graph/onnx/onnx_file.h"
#include "graph/weights.h"

namespace nlsplit::inline graph {

struct Constant {
  TensorType type;
  ContentId content;
};

// A constant's elements as integers or floats; only for small ones. Error: too many elements, or another type.
Result<std::vector<int64_t>> integers_of(const Constant& constant, const WeightStore& weights);
Result<std::vector<double>> numbers_of(const Constant& constant, const WeightStore& weights);
// Error: larger than the weights of any network. What a file says of extents must not become as much memory.
Status check_constant(const TensorType& type);
Constant integer_constant(const std::vector<int64_t>& values, Shape shape, DType dtype, WeightStore& weights);

// The node's result if all its inputs are constants and it is one of the operators exporters compute shapes and weights
// with. nullopt: not foldable. `inputs` are in the node's order; left-out ones are nullptr.
Result<std::optional<Constant>> fold_constant(const OnnxNode& node, int64_t opset,
                                              const std::vector<const Constant*>& inputs, WeightStore& weights);

// Attributes, with a default.
int64_t int_attr(const OnnxNode& node, const std::string& name, int64_t otherwise);
double float_attr(const OnnxNode& node, const std::string& name, double otherwise);
std::string string_attr(const OnnxNode& node, const std::string& name, const std::string& otherwise);
std::optional<std::vector<int64_t>> ints_attr(const OnnxNode& node, const std::string& name);
std::optional<std::vector<std::string>> strings_attr(const OnnxNode& node, const std::string& name);

}  // namespace nlsplit::inline graph

// Types of tensors for tests: f32({1, 3, 8, 8}).
#pragma once

#include <utility>

#include "graph/graph.h"

namespace nlsplit {

inline TensorType f32(Shape shape) { return {DType::f32, std::move(shape)}; }

}  // namespace nlsplit

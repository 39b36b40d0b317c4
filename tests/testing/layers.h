// The network of tests of training.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "graph/builder.h"

namespace nlsplit::testing {

// y_i = relu(y_{i-1} w_i), two nodes each: `samples` of `width` numbers, square matrices.
inline Graph layers(int count, int64_t samples, int64_t width) {
  GraphBuilder builder("layers");
  ValueId value = builder.input("x", {DType::f32, {samples, width}});
  for (int i = 0; i < count; ++i) {
    const ValueId w =
        builder.weight(fmt::format("w{}", i), {DType::f32, {width, width}}, {static_cast<uint64_t>(i + 1)});
    value = builder.add(Op::MatMul, fmt::format("fc{}", i), {value, w}, {}).value();
    value = builder.add(Op::Relu, fmt::format("relu{}", i), {value}, {}).value();
  }
  builder.output(value);
  return std::move(builder).finish();
}

}  // namespace nlsplit::testing

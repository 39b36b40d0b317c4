// sum[i] = terms[0][i] + terms[1][i] + …, in this order and in float32: the same bits on every machine. The sum may be
// one of the terms. Of f32, f16 and bf16.
#pragma once

#include <cstdint>

#include "graph/graph.h"
#include "graph/half.h"

namespace nlsplit::inline exec {

template <class T, class Value, class Stored>
void add_elements(void* sum, const void* const* terms, size_t count, int64_t elements, Value value, Stored stored) {
  auto* to = static_cast<T*>(sum);
  for (int64_t i = 0; i < elements; ++i) {
    float total = value(static_cast<const T*>(terms[0])[i]);
    for (size_t t = 1; t < count; ++t) total += value(static_cast<const T*>(terms[t])[i]);
    to[i] = stored(total);
  }
}

inline void add_terms(DType type, void* sum, const void* const* terms, size_t count, int64_t elements) {
  const auto same = [](float value) { return value; };
  switch (type) {
    case DType::f16:
      return add_elements<uint16_t>(sum, terms, count, elements, f16_value, f16_bits);
    case DType::bf16:
      return add_elements<uint16_t>(sum, terms, count, elements, bf16_value, bf16_bits);
    default:
      return add_elements<float>(sum, terms, count, elements, same, same);  // verified: nothing else comes here
  }
}

}  // namespace nlsplit::inline exec

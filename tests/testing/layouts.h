// A tensor's elements in the layout its type says (graph/graph.h, TensorType), and back: the definition written out.
#pragma once

#include <limits>
#include <vector>

#include "graph/graph.h"

namespace nlsplit::testing {

// Of [N, C, H, W] or [N, C, L].
inline int64_t pixels_of(const TensorType& type) {
  int64_t pixels = 1;
  for (size_t axis = 2; axis < type.shape.size(); ++axis) pixels *= type.shape[axis];
  return pixels;
}

// Where element (n, c, p) of a blocked tensor lies; p counts pixels.
inline int64_t place_in_blocks(const TensorType& type, int64_t n, int64_t c, int64_t p) {
  const int64_t block = type.block, pixels = pixels_of(type);
  const int64_t blocks = (type.shape[1] + block - 1) / block;
  return ((n * blocks + c / block) * pixels + p) * block + c % block;
}

// Row-major elements as stored. Lanes without meaning are NaN: who reads them is found out.
inline std::vector<float> stored(const TensorType& type, const std::vector<float>& row_major) {
  if (type.block == 0) return row_major;
  std::vector<float> result(static_cast<size_t>(stored_elements(type)), std::numeric_limits<float>::quiet_NaN());
  size_t i = 0;
  for (int64_t n = 0; n < type.shape[0]; ++n) {
    for (int64_t c = 0; c < type.shape[1]; ++c) {
      for (int64_t p = 0; p < pixels_of(type); ++p)
        result[static_cast<size_t>(place_in_blocks(type, n, c, p))] = row_major[i++];
    }
  }
  return result;
}

inline std::vector<float> row_major(const TensorType& type, const std::vector<float>& as_stored) {
  if (type.block == 0) return as_stored;
  std::vector<float> result;
  result.reserve(static_cast<size_t>(element_count(type.shape)));
  for (int64_t n = 0; n < type.shape[0]; ++n) {
    for (int64_t c = 0; c < type.shape[1]; ++c) {
      for (int64_t p = 0; p < pixels_of(type); ++p)
        result.push_back(as_stored[static_cast<size_t>(place_in_blocks(type, n, c, p))]);
    }
  }
  return result;
}

}  // namespace nlsplit::testing

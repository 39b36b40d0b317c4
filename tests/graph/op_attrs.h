// Attributes of operators for tests.
#pragma once

#include <utility>
#include <vector>

#include "graph/graph.h"

namespace nlsplit {

inline Attrs conv(std::vector<int64_t> kernel, std::vector<int64_t> strides, std::vector<int64_t> pads,
                  int64_t group = 1) {
  return {{"dilations", std::vector<int64_t>{1, 1}},
          {"group", group},
          {"kernel_shape", std::move(kernel)},
          {"pads", std::move(pads)},
          {"strides", std::move(strides)}};
}

}  // namespace nlsplit

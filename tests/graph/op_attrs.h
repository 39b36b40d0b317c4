// Attributes of operators for tests.
#pragma once

#include <string>
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

inline Attrs windows_of(std::vector<int64_t> kernel, std::vector<int64_t> strides, std::vector<int64_t> pads,
                        std::vector<int64_t> dilations) {
  return {{"dilations", std::move(dilations)},
          {"kernel_shape", std::move(kernel)},
          {"pads", std::move(pads)},
          {"strides", std::move(strides)}};
}
inline Attrs with_attr(Attrs attrs, const std::string& name, AttrValue value) {
  set_attr(attrs, name, std::move(value));
  return attrs;
}
inline Attrs reduction_attrs(std::vector<int64_t> axes, int64_t keepdims) {
  return {{"axes", std::move(axes)}, {"keepdims", keepdims}};
}

}  // namespace nlsplit

// Ops that move values and compute none.
#include <algorithm>

#include "graph/reference/loops.h"

namespace nlsplit::reference {

void concat(const Attrs& attrs, const Inputs& inputs, Tensor& out) {
  const Shape& shape = out.type.shape;
  const int64_t written = attr_int(attrs, "axis");
  const size_t axis = static_cast<size_t>(written < 0 ? written + static_cast<int64_t>(shape.size()) : written);
  const std::vector<int64_t> to = strides_of(shape);
  int64_t start = 0;
  for (const Tensor* input : inputs) {
    size_t from = 0;
    for_each_index(input->type.shape, [&](const Shape& index) {
      out.values[start * to[axis] + offset_of(index, to)] = input->values[from++];
    });
    start += input->type.shape[axis];
  }
}

void transpose(const Attrs& attrs, const Inputs& inputs, Tensor& out) {
  const std::vector<int64_t>& perm = attr_ints(attrs, "perm");
  const std::vector<int64_t> strides = strides_of(inputs[0]->type.shape);
  std::vector<int64_t> from;  // along the output's axes
  for (int64_t axis : perm) from.push_back(strides[axis]);
  size_t at = 0;
  for_each_index(out.type.shape,
                 [&](const Shape& index) { out.values[at++] = inputs[0]->values[offset_of(index, from)]; });
}

void pad(const Attrs& attrs, const Inputs& inputs, Tensor& out) {
  const std::vector<int64_t>& pads = attr_ints(attrs, "pads");
  const float value = static_cast<float>(attr_float(attrs, "value"));
  const Shape& shape = inputs[0]->type.shape;
  const std::vector<int64_t> strides = strides_of(shape);
  size_t at = 0;
  for_each_index(out.type.shape, [&](const Shape& index) {
    bool inside = true;
    int64_t from = 0;
    for (size_t i = 0; i < index.size(); ++i) {
      const int64_t position = index[i] - pads[i];  // a negative pad crops
      inside = inside && position >= 0 && position < shape[i];
      from += position * strides[i];
    }
    out.values[at++] = inside ? inputs[0]->values[from] : value;
  });
}

void copy(const Inputs& inputs, Tensor& out) { out.values = inputs[0]->values; }

}  // namespace nlsplit::reference

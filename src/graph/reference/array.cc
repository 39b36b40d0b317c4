#include "graph/reference/array.h"

#include <cmath>
#include <cstring>

namespace nlsplit::inline graph::reference {

void Array::set(int64_t i, double value) {
  const auto at = static_cast<size_t>(i);
  if (real()) {
    reals[at] = is_scaled(type.dtype) ? value : rounded(type.dtype, value);  // to_tensor() makes whole blocks
    return;
  }
  if (type.dtype == DType::boolean) {
    wholes[at] = value != 0 ? 1 : 0;
    return;
  }
  // What no 64-bit integer is: the nearest one, and 0 for what is no number.
  constexpr double limit = 0x1p63;
  const double cut = std::trunc(value);
  int64_t whole = 0;
  if (type.dtype == DType::u64 && cut >= limit)
    whole = cut >= 2 * limit ? -1 : static_cast<int64_t>(static_cast<uint64_t>(cut));
  else if (cut >= limit)
    whole = INT64_MAX;
  else if (cut <= -limit)
    whole = INT64_MIN;
  else if (!std::isnan(cut))
    whole = static_cast<int64_t>(cut);
  wholes[at] = wrapped(type.dtype, whole);
}

Array zeros(const TensorType& type) {
  Array array{type, {}, {}};
  const auto count = static_cast<size_t>(array.count());
  if (array.real())
    array.reals.assign(count, 0);
  else
    array.wholes.assign(count, 0);
  return array;
}

Array to_array(const Tensor& tensor) {
  Array array{tensor.type, {}, {}};
  if (tensor.type.dtype == DType::f32)
    array.reals.assign(tensor.values.begin(), tensor.values.end());
  else if (array.real())
    array.reals = reals_of(tensor.type.dtype, tensor.raw);
  else
    array.wholes = wholes_of(tensor.type.dtype, tensor.raw);
  return array;
}

Tensor to_tensor(const Array& array) {
  Tensor tensor{array.type, {}};
  const DType type = array.type.dtype;
  if (type == DType::f32) {
    tensor.values.reserve(array.reals.size());
    for (const double value : array.reals) tensor.values.push_back(static_cast<float>(rounded(type, value)));
  } else {
    tensor.raw = array.real() ? raw_of(type, std::span<const double>(array.reals))
                              : raw_of(type, std::span<const int64_t>(array.wholes));
  }
  return tensor;
}

Lines lines_of(const Shape& shape, int64_t axis) {
  Lines lines;
  const auto rank = static_cast<int64_t>(shape.size());
  if (axis < 0) axis += rank;
  for (int64_t i = 0; i < rank; ++i) {
    int64_t& part = i < axis ? lines.outer : i == axis ? lines.extent : lines.inner;
    part *= shape[static_cast<size_t>(i)];
  }
  return lines;
}

void walk(const Shape& shape, const std::vector<int64_t>& strides,
          const std::function<void(int64_t at, int64_t offset)>& visit) {
  int64_t at = 0;
  for_each_index(shape, [&](const Shape& index) { visit(at++, offset_of(index, strides)); });
}

}  // namespace nlsplit::inline graph::reference

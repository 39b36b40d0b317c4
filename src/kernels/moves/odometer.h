// Walks over the indices of some axes, the last one fastest, and keeps the offsets into two tensors that lie with
// strides of their own over them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace nlsplit::inline kernels {

struct Axes {
  static constexpr size_t most = 8;
  size_t count = 0;
  std::array<int64_t, most> extent{}, a{}, b{};  // strides

  void push(int64_t extents, int64_t stride_a, int64_t stride_b) {
    extent[count] = extents, a[count] = stride_a, b[count] = stride_b;
    ++count;
  }
  int64_t size() const {
    int64_t product = 1;
    for (size_t i = 0; i < count; ++i) product *= extent[i];
    return product;
  }
};

class Odometer {
 public:
  Odometer(const Axes& axes, int64_t index) : axes_(axes) {
    for (size_t i = axes.count; i-- > 0; index /= axes.extent[i]) {
      at_[i] = index % axes.extent[i];
      a += at_[i] * axes.a[i], b += at_[i] * axes.b[i];
    }
  }
  void next() {
    for (size_t i = axes_.count; i-- > 0;) {
      a += axes_.a[i], b += axes_.b[i];
      if (++at_[i] < axes_.extent[i]) return;
      a -= axes_.a[i] * axes_.extent[i], b -= axes_.b[i] * axes_.extent[i];
      at_[i] = 0;
    }
  }

  int64_t a = 0, b = 0;  // offsets

 private:
  const Axes& axes_;
  std::array<int64_t, Axes::most> at_{};
};

}  // namespace nlsplit::inline kernels

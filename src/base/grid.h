// Rows of one length in one allocation.
//
//   Grid<double> ends(stages, micro_batches, 0);
//   ends[stage][m] = 1;
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace nlsplit::inline base {

template <class T>  // not bool: std::vector<bool> has no span
class Grid {
 public:
  Grid() = default;
  Grid(size_t rows, size_t columns, T value) : columns_(columns), cells_(rows * columns, value) {}

  std::span<T> operator[](size_t row) { return std::span<T>(cells_).subspan(row * columns_, columns_); }
  std::span<const T> operator[](size_t row) const {
    return std::span<const T>(cells_).subspan(row * columns_, columns_);
  }

 private:
  size_t columns_ = 0;
  std::vector<T> cells_;
};

}  // namespace nlsplit::inline base

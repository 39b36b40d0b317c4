// The tiles of Linear with weights that share no scales: rows of weights by rows of x, a vector of products at a time.
//
//   struct Full {                                    // what differs from type to type
//     static constexpr int64_t step = width;         // elements of a row that are met at once
//     using Stored = float;                          // of weights
//     using X = float;
//     struct Surroundings {};                        // lives while sums are added up
//     static Packet read(const Stored* from);        // a step of weights
//     static Packet read_x(const X* from);
//     static Packet read_x_part(const X* from, int64_t count);     // the last of a row: zeros behind it
//     static void add(Packet& sum, const Packet& w, const Packet& x);
//   };
//   constexpr LinearTiles four_by_two = row_tiles<Full, 4, 2>;
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/products/linear.h"

namespace nlsplit::inline kernels {

template <class Type, int rows, int x_rows>
void run_row_tile(const LinearTile& tile) {
  using Stored = typename Type::Stored;
  using X = typename Type::X;
  constexpr int64_t step = Type::step;
  const int64_t whole = tile.k / step * step, rest = tile.k - whole;
  Packet sum[rows * x_rows];
#pragma GCC unroll 32
  for (int i = 0; i < rows * x_rows; ++i) sum[i] = zeros();
  const auto weights_of = [&](int row) {
    return reinterpret_cast<const Stored*>(tile.weights + row * tile.weights_stride);
  };
  const auto x_of = [&](int i) { return reinterpret_cast<const X*>(tile.x + i * tile.x_stride); };
  // Inlined wherever it is called, else sums lie in memory.
  const auto add = [&](const auto& w_of, const auto& read_x) __attribute__((always_inline)) {
    Packet x[x_rows];
#pragma GCC unroll 32
    for (int i = 0; i < x_rows; ++i) x[i] = read_x(i);
#pragma GCC unroll 32
    for (int row = 0; row < rows; ++row) {
      const Packet w = Type::read(w_of(row));
#pragma GCC unroll 32
      for (int i = 0; i < x_rows; ++i) Type::add(sum[row * x_rows + i], w, x[i]);
    }
  };
  const auto add_at = [&](int64_t at) __attribute__((always_inline)) {
    add([&](int row) { return weights_of(row) + at; }, [&](int i) { return Type::read_x(x_of(i) + at); });
  };
  {
    [[maybe_unused]] const typename Type::Surroundings surroundings;
    // A line of each row at a time, and one that is fetched.
    constexpr int64_t line = std::max<int64_t>(step, 64 / int64_t{sizeof(Stored)});
    int64_t at = 0;
    for (; at + line <= whole; at += line) {
#pragma GCC unroll 32
      for (int row = 0; row < rows; ++row)
        fetch(reinterpret_cast<const float*>(reinterpret_cast<const char*>(weights_of(row) + at) + tile.ahead));
#pragma GCC unroll 32
      for (int64_t more = 0; more < line; more += step) add_at(at + more);
    }
    for (; at < whole; at += step) add_at(at);
    if (rest > 0) {
      Stored last[rows][step] = {};
      for (int row = 0; row < rows; ++row)
        std::memcpy(last[row], weights_of(row) + whole, static_cast<size_t>(rest) * sizeof(Stored));
      add([&](int row) { return last[row]; }, [&](int i) { return Type::read_x_part(x_of(i) + whole, rest); });
    }
  }
#pragma GCC unroll 32
  for (int row = 0; row < rows; ++row) {
    const float bias = tile.bias == nullptr ? 0 : tile.bias[row];
#pragma GCC unroll 32
    for (int i = 0; i < x_rows; ++i)
      tile.out[i * tile.out_stride + row] = Eigen::internal::predux(sum[row * x_rows + i]) + bias;
  }
}

template <class Type, int rows, int x_rows>
constexpr LinearTiles row_tiles = {rows, x_rows, run_row_tile<Type, rows, x_rows>, run_row_tile<Type, 1, x_rows>};

}  // namespace nlsplit::inline kernels

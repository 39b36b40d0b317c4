// Linear with weights of bf16, as they are stored. Rows of x are rounded to bf16, as llama.cpp does it, and meet rows
// of weights pair by pair (kernels/module/bf16_pairs.h), a vector of pairs at a time.
#include <array>
#include <cstring>
#include <span>

#include "kernels/module/bf16_pairs.h"
#include "kernels/products/linear.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t step = 2 * width;  // elements of a vector of pairs

// Halves begin at even addresses, which need not be a float's.
Packet load_pairs(const uint16_t* from) {
  Packet pairs;
  std::memcpy(&pairs, from, sizeof pairs);
  return pairs;
}

template <class How, int rows, int x_rows>
void run_pairs_tile(const LinearTile& tile) {
  const int64_t whole = tile.k / step * step, rest = tile.k - whole;
  Packet sum[rows * x_rows];
#pragma GCC unroll 32
  for (int i = 0; i < rows * x_rows; ++i) sum[i] = zeros();
  const auto weights_of = [&](int row) {
    return reinterpret_cast<const uint16_t*>(tile.weights + row * tile.weights_stride);
  };
  const auto x_of = [&](int i) { return reinterpret_cast<const uint16_t*>(tile.x + i * tile.x_stride); };
  // place(row): the step's part of a row of weights; at: of x. Inlined wherever it is called, else sums lie in memory.
  const auto add = [&](const auto& place, int64_t at) __attribute__((always_inline)) {
    Packet x[x_rows];
#pragma GCC unroll 32
    for (int i = 0; i < x_rows; ++i) x[i] = load_pairs(x_of(i) + at);
#pragma GCC unroll 32
    for (int row = 0; row < rows; ++row) {
      const Packet w = load_pairs(place(row));
#pragma GCC unroll 32
      for (int i = 0; i < x_rows; ++i) How::add(sum[row * x_rows + i], w, x[i]);
    }
  };
  {
    [[maybe_unused]] const typename How::Surroundings surroundings;
    // A line of each row at a time, and one that is fetched.
    constexpr int64_t line = std::max<int64_t>(step, 64 / int64_t{sizeof(uint16_t)});
    int64_t at = 0;
    for (; at + line <= whole; at += line) {
#pragma GCC unroll 32
      for (int row = 0; row < rows; ++row)
        fetch(reinterpret_cast<const float*>(reinterpret_cast<const char*>(weights_of(row) + at) + tile.ahead));
#pragma GCC unroll 32
      for (int64_t more = 0; more < line; more += step)
        add([&](int row) { return weights_of(row) + at + more; }, at + more);
    }
    for (; at < whole; at += step) add([&](int row) { return weights_of(row) + at; }, at);
    if (rest > 0) {
      uint16_t last[rows][step] = {};
      for (int row = 0; row < rows; ++row)
        std::memcpy(last[row], weights_of(row) + whole, static_cast<size_t>(rest) * sizeof(uint16_t));
      add([&](int row) { return last[row]; }, whole);
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

template <class How, int rows, int x_rows>
constexpr LinearTiles tiles = {rows, x_rows, run_pairs_tile<How, rows, x_rows>, run_pairs_tile<How, 1, x_rows>};

// Registers hold the sums, x and a row of weights. The instruction is so fast that tiles wait for the second-level
// cache, less so the more sums an element of theirs goes into.
template <class How>
constexpr auto tiles_of_pairs = [] {
  if constexpr (How::halves_in_place)
    return std::array{tiles<How, 6, 4>, tiles<How, 4, 2>, tiles<How, 4, 1>};
  else if constexpr (level == Isa::v4 || level == Isa::neon)
    return std::array{tiles<How, 4, 4>, tiles<How, 4, 2>, tiles<How, 4, 1>};
  else
    return std::array{tiles<How, 4, 2>, tiles<How, 4, 1>};
}();

std::span<const LinearTiles> tiles_here() {
#if defined(__AVX512BW__)
  if (has_pair_instruction()) return tiles_of_pairs<PairsByInstruction>;
#endif
  return tiles_of_pairs<PairsByFloats>;
}

// A row of x, with zeros up to the next whole step.
void round_row(const float* x, int64_t k, uint16_t* to) {
  int64_t at = 0;
  for (; at + width <= k; at += width) store_bf16(to + at, load(x + at), width);
  if (at < k) store_bf16(to + at, load_part(x + at, k - at), k - at);
  std::fill(to + k, to + round_up(k, step), uint16_t{0});
}

void run_linear_bf16(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Linear linear = linear_of(desc);
  auto* rows = static_cast<char*>(call.workspace);
  const int64_t stride = linear.pair_bytes();
  parallel_for(call, linear.m, [&](int64_t row) {
    round_row(input(call, 0) + row * linear.k, linear.k, reinterpret_cast<uint16_t*>(rows + row * stride));
  });
  const LinearTile whole{.weights = static_cast<const char*>(call.inputs[1]),
                         .weights_stride = size_of(DType::bf16, linear.k),
                         .x = rows,
                         .x_stride = stride,
                         .k = linear.k,
                         .out = output(call),
                         .out_stride = linear.n,
                         .bias = desc.own_inputs() > 2 ? input(call, 2) : nullptr,
                         .ahead = 0};
  run_tiles(call, tiles_here(), whole, linear.m, linear.n);
}

}  // namespace

const KernelCode code::linear_bf16 = {run_linear_bf16};

}  // namespace nlsplit::inline kernels

// Linear with weights of f32 or f16, as they are stored: rows by rows, a vector of products at a time.
#include "kernels/products/linear.h"

#include <array>
#include <cstring>

#include "kernels/module/half_packets.h"

namespace nlsplit::inline kernels {
namespace {

// `width` weights as floats.
struct Full {
  static constexpr DType type = DType::f32;
  using Stored = float;
  static Packet read(const float* from) { return load(from); }
};

struct F16 {
  static constexpr DType type = DType::f16;
  using Stored = uint16_t;
  static Packet read(const uint16_t* from) { return load_f16(from); }
};

template <class Type, int rows, int x_rows>
void run_floats_tile(const LinearTile& tile) {
  using Stored = typename Type::Stored;
  const int64_t whole = tile.k / width * width, rest = tile.k - whole;
  Packet sum[rows * x_rows];
#pragma GCC unroll 16
  for (int i = 0; i < rows * x_rows; ++i) sum[i] = zeros();
  const auto weights_of = [&](int row) {
    return reinterpret_cast<const Stored*>(tile.weights + row * tile.weights_stride);
  };
  const auto x_of = [&](int i) { return reinterpret_cast<const float*>(tile.x + i * tile.x_stride); };
  const auto add = [&](int64_t at) {
    Packet x[x_rows];
#pragma GCC unroll 16
    for (int i = 0; i < x_rows; ++i) x[i] = load(x_of(i) + at);
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) {
      const Packet w = Type::read(weights_of(row) + at);
#pragma GCC unroll 16
      for (int i = 0; i < x_rows; ++i) sum[row * x_rows + i] = multiply_add(w, x[i], sum[row * x_rows + i]);
    }
  };
  // A line of each row at a time, and one that is fetched.
  constexpr int64_t line = std::max<int64_t>(width, 64 / int64_t{sizeof(Stored)});
  int64_t at = 0;
  for (; at + line <= whole; at += line) {
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row)
      fetch(reinterpret_cast<const float*>(reinterpret_cast<const char*>(weights_of(row) + at) + tile.ahead));
#pragma GCC unroll 16
    for (int64_t more = 0; more < line; more += width) add(at + more);
  }
  for (; at < whole; at += width) add(at);
  if (rest > 0) {
    for (int row = 0; row < rows; ++row) {
      Stored last[width] = {};
      std::memcpy(last, weights_of(row) + whole, static_cast<size_t>(rest) * sizeof(Stored));
      const Packet w = Type::read(last);
      for (int i = 0; i < x_rows; ++i)
        sum[row * x_rows + i] = multiply_add(w, load_part(x_of(i) + whole, rest), sum[row * x_rows + i]);
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < rows; ++row) {
    const float bias = tile.bias == nullptr ? 0 : tile.bias[row];
#pragma GCC unroll 16
    for (int i = 0; i < x_rows; ++i)
      tile.out[i * tile.out_stride + row] = Eigen::internal::predux(sum[row * x_rows + i]) + bias;
  }
}

template <class Type, int rows, int x_rows>
constexpr LinearTiles tiles = {rows, x_rows, run_floats_tile<Type, rows, x_rows>, run_floats_tile<Type, 1, x_rows>};

// Registers hold the sums, x and a row of weights.
template <class Type>
constexpr auto tiles_of_floats = [] {
  if constexpr (level == Isa::v4 || level == Isa::neon)
    return std::array{tiles<Type, 4, 4>, tiles<Type, 4, 2>, tiles<Type, 4, 1>};
  else
    return std::array{tiles<Type, 4, 2>, tiles<Type, 4, 1>};
}();

template <class Type>
void run_floats(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Linear linear = linear_of(desc);
  const LinearTile whole{.weights = static_cast<const char*>(call.inputs[1]),
                         .weights_stride = size_of(Type::type, linear.k),
                         .x = static_cast<const char*>(call.inputs[0]),
                         .x_stride = size_of(DType::f32, linear.k),
                         .k = linear.k,
                         .out = output(call),
                         .out_stride = linear.n,
                         .bias = desc.own_inputs() > 2 ? input(call, 2) : nullptr,
                         .ahead = 0};
  run_tiles(call, tiles_of_floats<Type>, whole, linear.m, linear.n);
}

void run_linear(const KernelCall& call) {
  call.desc->inputs[1].dtype == DType::f16 ? run_floats<F16>(call) : run_floats<Full>(call);
}

}  // namespace

const KernelCode code::linear = {run_linear};

}  // namespace nlsplit::inline kernels

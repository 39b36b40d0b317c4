// Linear with weights whose elements share scales, as they are stored. Rows of x become blocks of 32 signed bytes with
// a scale of f32 each, as llama.cpp does it (quantize_row_q8_0 of ggml-quants.c), so that products are sums of products
// of bytes, which are exact.
#include <atomic>
#include <cmath>
#include <limits>

#include "kernels/products/block_types.h"
#include "kernels/products/linear.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t block = linear_block;
constexpr int64_t at_once = blocks_at_once;
constexpr float largest_step = 127;

std::atomic<bool> dot_product = false;

// ---- rows of x, `at_once` blocks after `at_once` blocks: the first halves' bytes, the second halves', and for each
// sum of a lane (four bytes of either half) three numbers.

constexpr int64_t halves_bytes = at_once * lane_bytes, numbers_bytes = width * int64_t{sizeof(float)};
constexpr int64_t second_at = halves_bytes, scales_at = 2 * halves_bytes, sums_at = scales_at + numbers_bytes,
                  second_sums_at = sums_at + numbers_bytes;
static_assert(linear_step_bytes(level, false) == sums_at + numbers_bytes);
static_assert(linear_step_bytes(level, true) == second_sums_at + numbers_bytes);

// One block of x: a scale and whole steps of it. What is not finite makes a scale that is no number.
float steps_of(const float* x, int8_t* steps) {
  uint32_t largest_bits = 0;
  for (int64_t i = 0; i < block; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, x + i, sizeof bits);
    largest_bits = std::max(largest_bits, bits & 0x7fffffffu);
  }
  float largest = 0;
  std::memcpy(&largest, &largest_bits, sizeof largest);
  // Below it the inverse of a step would be infinite.
  const bool vanishes = largest < largest_step * std::numeric_limits<float>::min();
  if (vanishes) return 0;
  if (!std::isfinite(largest)) return std::numeric_limits<float>::quiet_NaN();
  const float inverse = largest_step / largest;
  for (int64_t i = 0; i < block; ++i)
    steps[i] = static_cast<int8_t>(static_cast<int32_t>(std::nearbyint(x[i] * inverse)));
  return largest / largest_step;
}

// What a type's products need of the sums of x: its zero taken off, or the offset's factor.
struct SumsWanted {
  int zero;
  bool offsets, two_scales;
};

void quantize_row(const float* x, int64_t k, const SumsWanted& wanted, char* to) {
  const int64_t bytes = linear_step_bytes(level, wanted.two_scales);
  const int64_t blocks = k / block, steps = (blocks + at_once - 1) / at_once;
  for (int64_t step = 0; step < steps; ++step, to += bytes) {
    auto *first = reinterpret_cast<int8_t*>(to), *second = first + second_at;
    auto* scales = reinterpret_cast<float*>(to + scales_at);
    for (int64_t lane = 0; lane < at_once; ++lane) {
      int8_t own[block] = {};
      const int64_t at = step * at_once + lane;
      const float scale = at < blocks ? steps_of(x + at * block, own) : 0;
      std::memcpy(first + lane * lane_bytes, own, lane_bytes);
      std::memcpy(second + lane * lane_bytes, own + lane_bytes, lane_bytes);
      for (int64_t i = 0; i < 4; ++i) {
        int32_t sums[2] = {};
        for (int64_t j = 0; j < 4; ++j) {
          sums[0] += own[i * 4 + j];
          sums[1] += own[lane_bytes + i * 4 + j];
        }
        const int64_t place = (lane * 4 + i) * int64_t{sizeof(float)};
        scales[lane * 4 + i] = scale;
        const int32_t apart = -wanted.zero * sums[1],
                      all = -wanted.zero * (sums[0] + (wanted.two_scales ? 0 : sums[1]));
        const float offset = scale * static_cast<float>(sums[0] + sums[1]);
        if (wanted.offsets)
          std::memcpy(to + sums_at + place, &offset, sizeof offset);
        else
          std::memcpy(to + sums_at + place, &all, sizeof all);
        if (wanted.two_scales) std::memcpy(to + second_sums_at + place, &apart, sizeof apart);
      }
    }
  }
}

// ---- products

template <bool dot>
inline Sums sums_with(const Sums& begin, const Steps& weights, const Steps& x) {
  if constexpr (dot) return add_products(begin, weights, x);
  return add_sums(begin, products(weights, x));
}

template <class Type, bool dot>
inline Packet add_step(const Decoded& w, const char* x, Packet sum) {
  const auto* steps = reinterpret_cast<const int8_t*>(x);
  const Steps first = load_steps(steps), second = load_steps(steps + second_at);
  const Packet scale = load(reinterpret_cast<const float*>(x + scales_at));
  if constexpr (Type::two_scales) {
    const Sums a = sums_with<dot>(load_sums(reinterpret_cast<const int32_t*>(x + sums_at)), w.first, first);
    const Sums b = sums_with<dot>(load_sums(reinterpret_cast<const int32_t*>(x + second_sums_at)), w.second, second);
    sum = multiply_add(to_floats(a), multiply(w.scale, scale), sum);
    return multiply_add(to_floats(b), multiply(w.second_scale, scale), sum);
  } else {
    Sums all{};
    if constexpr (Type::type == DType::q8_0 && !dot) {
      all = add_sums(signed_products(w.first, first), signed_products(w.second, second));
    } else {
      if constexpr (!Type::offsets) all = load_sums(reinterpret_cast<const int32_t*>(x + sums_at));
      all = sums_with<dot>(sums_with<dot>(all, w.first, first), w.second, second);
    }
    sum = multiply_add(to_floats(all), multiply(w.scale, scale), sum);
    if constexpr (Type::offsets) {
      // A quarter of the block's sum in each of its four floats.
      sum = multiply_add(w.offset, load(reinterpret_cast<const float*>(x + sums_at)), sum);
    }
    return sum;
  }
}

template <class Type, bool dot>
inline void decode(const char* from, int64_t at, Decoded& out) {
  if constexpr (Type::type == DType::q8_0 && !dot)
    Type::decode_signed(from, out);
  else
    Type::decode(from, at, out);
}

template <class Type, bool dot, int rows, int x_rows>
void run_blocks_tile(const LinearTile& tile) {
  constexpr int64_t bytes = Type::bytes;
  const int64_t blocks = tile.k / block, steps = blocks / at_once, left = blocks % at_once;
  const int64_t each = linear_step_bytes(level, Type::two_scales);
  Packet sum[rows * x_rows];
#pragma GCC unroll 16
  for (int i = 0; i < rows * x_rows; ++i) sum[i] = zeros();
  const char* x = tile.x;
  const auto add = [&](int row, const char* from, int64_t at) {
    Decoded w;
    decode<Type, dot>(from, at, w);
#pragma GCC unroll 16
    for (int i = 0; i < x_rows; ++i)
      sum[row * x_rows + i] = add_step<Type, dot>(w, x + i * tile.x_stride, sum[row * x_rows + i]);
  };
  if constexpr (Type::elements == block) {
    constexpr int64_t step_bytes = at_once * bytes;
    for (int64_t step = 0; step < steps; ++step, x += each) {
#pragma GCC unroll 16
      for (int row = 0; row < rows; ++row) {
        const char* from = tile.weights + row * tile.weights_stride + step * step_bytes;
        for (int64_t line = 0; line < step_bytes; line += 64)
          fetch(reinterpret_cast<const float*>(from + tile.ahead + line));
        add(row, from, 0);
      }
    }
    if (left > 0) {
      for (int row = 0; row < rows; ++row) {
        char rest[step_bytes] = {};
        std::memcpy(rest, tile.weights + row * tile.weights_stride + steps * step_bytes,
                    static_cast<size_t>(left * bytes));
        add(row, rest, 0);
      }
    }
  } else {
    constexpr int64_t groups = Type::elements / block;
    for (int64_t step = 0; step < steps; ++step, x += each) {
#pragma GCC unroll 16
      for (int row = 0; row < rows; ++row) {
        const char* from = tile.weights + row * tile.weights_stride + step * at_once / groups * bytes;
        for (int64_t line = 0; line * groups < bytes * at_once; line += 64) {
          fetch(reinterpret_cast<const float*>(from + tile.ahead + step * at_once % groups * (bytes / groups) + line));
        }
        add(row, from, step * at_once % groups);
      }
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

template <class Type, bool dot>
constexpr LinearTiles tiles_of_type = linear_tiles([]<int rows, int x_rows>() -> LinearTileFunction {
  return run_blocks_tile<Type, dot, rows, x_rows>;
});

template <class Type>
void run_type(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Linear linear = linear_of(desc);
  const bool dot = dot_product.load(std::memory_order_relaxed);
  auto* rows = static_cast<char*>(call.workspace);
  const int64_t stride = linear.x_bytes(level, Type::two_scales);
  const SumsWanted wanted{Type::zero, Type::offsets, Type::two_scales};
  parallel_for(call, linear.m, [&](int64_t row) {
    quantize_row(input(call, 0) + row * linear.k, linear.k, wanted, rows + row * stride);
  });
  const LinearTile whole{.weights = static_cast<const char*>(call.inputs[1]),
                         .weights_stride = size_of(Type::type, linear.k),
                         .x = rows,
                         .x_stride = stride,
                         .k = linear.k,
                         .out = output(call),
                         .out_stride = linear.n,
                         .bias = desc.own_inputs() > 2 ? input(call, 2) : nullptr,
                         .ahead = 0};
  run_tiles(call, dot ? tiles_of_type<Type, true> : tiles_of_type<Type, false>, whole, linear.m, linear.n);
}

void run_linear_blocks(const KernelCall& call) {
  switch (call.desc->inputs[1].dtype) {
    case DType::q8_0:
      return run_type<BlocksQ8_0>(call);
    case DType::q4_0:
      return run_type<BlocksQ4_0>(call);
    case DType::q4_1:
      return run_type<BlocksQ4_1>(call);
    case DType::q5_0:
      return run_type<BlocksQ5_0>(call);
    case DType::q4_k:
      return run_type<BlocksQ4_K>(call);
    case DType::q6_k:
      return run_type<BlocksQ6_K>(call);
    default:
      CHECK(false, "no type with scales");
  }
}

}  // namespace

void use_dot_product(bool use) { dot_product.store(use, std::memory_order_relaxed); }

const KernelCode code::linear_blocks = {run_linear_blocks};

}  // namespace nlsplit::inline kernels

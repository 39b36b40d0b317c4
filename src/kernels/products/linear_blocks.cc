// Linear with weights whose elements share scales, as they are stored. Rows of x become blocks of 32 signed bytes with
// a scale of f32 each, as llama.cpp does it (quantize_row_q8_0 of ggml-quants.c), so that products are sums of products
// of bytes, which are exact.
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <span>

#include "kernels/products/block_panels.h"
#include "kernels/products/block_types.h"
#include "kernels/products/linear.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t block = linear_block;
constexpr int64_t at_once = blocks_at_once;
constexpr float largest_step = 127;

std::atomic<bool> dot_product = false;

// ---- rows of x, `at_once` blocks after `at_once` blocks: the first halves' bytes, the second halves', and for each
// block two numbers, or three, four times each.

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
    float scales[width], offsets[width];
    // The last step of a row that does not end with a whole one begins so many blocks earlier, and leaves them out.
    const int64_t back = step > 0 && step + 1 == steps ? steps * at_once - blocks : 0;
    for (int64_t lane = 0; lane < at_once; ++lane) {
      int8_t own[block] = {};
      const int64_t at = step * at_once - back + lane;
      const float scale = at < blocks && lane >= back ? steps_of(x + at * block, own) : 0;
      std::memcpy(first + lane * lane_bytes, own, lane_bytes);
      std::memcpy(second + lane * lane_bytes, own + lane_bytes, lane_bytes);
      std::fill_n(scales + lane * 4, 4, scale);
    }
    const Sums of_first = sums_of_lanes_of(products(every(1), load_steps(first))),
               of_second = sums_of_lanes_of(products(every(1), load_steps(second)));
    int32_t sums[width], second_sums[width];
    std::memcpy(second_sums, &of_second, sizeof second_sums);
    const Sums all = wanted.two_scales ? of_first : add_sums(of_first, of_second);
    std::memcpy(sums, &all, sizeof sums);
    for (int i = 0; i < width; ++i) {
      offsets[i] = scales[i] * static_cast<float>(sums[i]);
      sums[i] *= -wanted.zero;
      second_sums[i] *= -wanted.zero;
    }
    std::memcpy(to + scales_at, scales, sizeof scales);
    std::memcpy(to + sums_at, wanted.offsets ? static_cast<const void*>(offsets) : sums, sizeof sums);
    if (wanted.two_scales) std::memcpy(to + second_sums_at, second_sums, sizeof second_sums);
  }
}

// ---- products

template <bool dot>
inline Sums sums_with(const Sums& begin, const Steps& weights, const Steps& x) {
  if constexpr (dot) return add_products(begin, weights, x);
  return add_sums(begin, products(weights, x));
}

// What a step needs of a row of x.
struct StepOfX {
  Steps first, second;
  Packet scale;
  const char* from;

  explicit StepOfX(const char* at)
      : first(load_steps(reinterpret_cast<const int8_t*>(at))),
        second(load_steps(reinterpret_cast<const int8_t*>(at + second_at))),
        scale(load(reinterpret_cast<const float*>(at + scales_at))),
        from(at) {}
  Sums whole_sums(int64_t at) const { return load_sums(reinterpret_cast<const int32_t*>(from + at)); }
  Packet offsets() const { return load(reinterpret_cast<const float*>(from + sums_at)); }
};

template <class Type, bool dot>
inline void decode(const char* from, int64_t at, Decoded& out) {
  if constexpr (Type::type == DType::q8_0 && !dot)
    Type::decode_signed(from, out);
  else
    Type::decode(from, at, out);
}

// Numbers of four rows of weights, for each block one behind the other; of one row: that one, four times.
template <int rows, class F>
inline Packet numbers_of_rows(const F& of) {
  if constexpr (rows == 1) return of(0);
  return one_of_each(of(0), of(1), of(2), of(3));
}

// Sums over whole blocks, which are exact: a block's four are those of the four rows.
template <int rows, class F>
inline Sums sums_of_rows(const F& of) {
  if constexpr (rows == 1) return sums_of_lanes_of(of(0));
  return sums_of_lanes_of(of(0), of(1), of(2), of(3));
}

// Each element of the result is as many chains of sums as a step has blocks: of every so manieth block.
template <class Type, bool dot, int rows>
inline Packet add_step(const Decoded* w, const Packet& scale, const Packet& second, const StepOfX& x, Packet sum) {
  if constexpr (Type::two_scales) {
    const auto half_of = [&](auto steps, const Steps& of_x) {
      return sums_of_rows<rows>([&](int row) { return sums_with<dot>(Sums{}, steps(w[row]), of_x); });
    };
    const Sums a = half_of([](const Decoded& of) { return of.first; }, x.first);
    const Sums b = half_of([](const Decoded& of) { return of.second; }, x.second);
    sum = multiply_add(to_floats(add_sums(a, x.whole_sums(sums_at))), multiply(scale, x.scale), sum);
    return multiply_add(to_floats(add_sums(b, x.whole_sums(second_sums_at))), multiply(second, x.scale), sum);
  } else {
    constexpr bool is_signed = Type::type == DType::q8_0 && !dot;
    Sums all = sums_of_rows<rows>([&](int row) {
      if constexpr (is_signed)
        return add_sums(signed_products(w[row].first, x.first), signed_products(w[row].second, x.second));
      else
        return sums_with<dot>(sums_with<dot>(Sums{}, w[row].first, x.first), w[row].second, x.second);
    });
    if constexpr (!Type::offsets && !is_signed) all = add_sums(all, x.whole_sums(sums_at));
    sum = multiply_add(to_floats(all), multiply(scale, x.scale), sum);
    if constexpr (Type::offsets) sum = multiply_add(second, x.offsets(), sum);
    return sum;
  }
}

template <class Type, bool dot, int rows, int x_rows>
void run_blocks_tile(const LinearTile& tile) {
  constexpr int64_t bytes = Type::bytes;
  const int64_t blocks = tile.k / block, steps = blocks / at_once, left = blocks % at_once;
  const int64_t each = linear_step_bytes(level, Type::two_scales);
  Packet sum[x_rows];
#pragma GCC unroll 16
  for (int i = 0; i < x_rows; ++i) sum[i] = zeros();
  const char* x = tile.x;
  // place(row): where the step's blocks of a row of weights are; at: which of a block's groups.
  const auto add = [&](const auto& place, int64_t at) {
    Decoded w[rows];
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) decode<Type, dot>(place(row), at, w[row]);
    Packet scale, second;
    if constexpr (rows == 4 && requires { Type::numbers_of_four(place, at, scale, second); }) {
      Type::numbers_of_four(place, at, scale, second);
    } else {
      scale = numbers_of_rows<rows>([&](int row) { return w[row].scale; });
      if constexpr (Type::two_scales) second = numbers_of_rows<rows>([&](int row) { return w[row].second_scale; });
      if constexpr (Type::offsets) second = numbers_of_rows<rows>([&](int row) { return w[row].offset; });
    }
#pragma GCC unroll 16
    for (int i = 0; i < x_rows; ++i)
      sum[i] = add_step<Type, dot, rows>(w, scale, second, StepOfX(x + i * tile.x_stride), sum[i]);
  };
  // Blocks of 256 elements are several steps each; of others a step has several.
  constexpr int64_t groups = Type::elements / block, step_bytes = at_once * bytes / groups;
  constexpr int64_t unit_bytes = std::max(bytes, step_bytes);
  const char* from = tile.weights;
  for (int64_t step = 0; step < steps; from += unit_bytes) {
#pragma GCC unroll 8
    for (int64_t at = 0; at < groups; at += at_once, ++step, x += each) {
#pragma GCC unroll 16
      for (int row = 0; row < rows; ++row) {
        const char* behind = from + row * tile.weights_stride + at * bytes / groups + tile.ahead;
        for (int64_t line = 0; line < step_bytes; line += 64) fetch(reinterpret_cast<const float*>(behind + line));
      }
      add([&](int row) { return from + row * tile.weights_stride; }, at);
    }
  }
  // Fewer blocks are left: the row's last ones once more, with a scale of 0 in x where they have been met.
  if constexpr (groups == 1) {
    if (left > 0 && steps > 0) {
      const int64_t offset = (blocks - at_once) * bytes;
      add([&](int row) { return tile.weights + row * tile.weights_stride + offset; }, 0);
    } else if (left > 0) {
      char rest[rows][at_once * bytes] = {};
      for (int row = 0; row < rows; ++row)
        std::memcpy(rest[row], tile.weights + row * tile.weights_stride, static_cast<size_t>(left * bytes));
      add([&](int row) { return rest[row]; }, 0);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < x_rows; ++i) {
    float all[width];
    store(all, sum[i]);
    for (int row = 0; row < rows; ++row) {
      float whole = all[row];
      for (int64_t lane = 1; lane < at_once; ++lane) whole += all[lane * 4 + row];
      tile.out[i * tile.out_stride + row] = whole + (tile.bias == nullptr ? 0 : tile.bias[row]);
    }
  }
}

template <class Type, bool dot, int x_rows>
constexpr LinearTiles tiles_of_blocks = {4, x_rows, run_blocks_tile<Type, dot, 4, x_rows>,
                                         run_blocks_tile<Type, dot, 1, x_rows>};

// Four rows of weights share a vector of sums. Registers hold the decoded weights, and the sums.
template <class Type, bool dot>
constexpr auto tiles_of_type =
    std::array{tiles_of_blocks<Type, dot, 4>, tiles_of_blocks<Type, dot, 2>, tiles_of_blocks<Type, dot, 1>};

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
  const LinearTile whole = whole_tile(call, linear, rows, stride);
#if defined(__AVX512BW__)
  if (dot && linear.has_panels(level)) {
    const PlacesOfX places{second_at, scales_at, sums_at, second_sums_at, linear_step_bytes(level, Type::two_scales)};
    return run_panels<Type>(call, places, whole, linear.m, linear.n, rows + linear.m * stride);
  }
#endif
  run_tiles(call, dot ? std::span<const LinearTiles>(tiles_of_type<Type, true>) : tiles_of_type<Type, false>, whole,
            linear.m, linear.n);
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

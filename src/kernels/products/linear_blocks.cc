// Linear with weights whose elements share scales, as they are stored. Rows of x become blocks of 32 signed bytes with
// a scale of f32 each, as llama.cpp does it (quantize_row_q8_0 of ggml-quants.c), so that products are sums of products
// of bytes, which are exact.
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <span>

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
    const Sums of_first = products(every(1), load_steps(first)), of_second = products(every(1), load_steps(second));
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
  const char* sums;

  explicit StepOfX(const char* from)
      : first(load_steps(reinterpret_cast<const int8_t*>(from))),
        second(load_steps(reinterpret_cast<const int8_t*>(from + second_at))),
        scale(load(reinterpret_cast<const float*>(from + scales_at))),
        sums(from) {}
  Sums whole_sums(int64_t at) const { return load_sums(reinterpret_cast<const int32_t*>(sums + at)); }
  Packet offsets() const { return load(reinterpret_cast<const float*>(sums + sums_at)); }
};

template <class Type, bool dot>
inline Packet add_step(const Decoded& w, const StepOfX& x, Packet sum) {
  if constexpr (Type::two_scales) {
    const Sums a = sums_with<dot>(x.whole_sums(sums_at), w.first, x.first);
    const Sums b = sums_with<dot>(x.whole_sums(second_sums_at), w.second, x.second);
    sum = multiply_add(to_floats(a), multiply(w.scale, x.scale), sum);
    return multiply_add(to_floats(b), multiply(w.second_scale, x.scale), sum);
  } else {
    Sums all{};
    if constexpr (Type::type == DType::q8_0 && !dot) {
      all = add_sums(signed_products(w.first, x.first), signed_products(w.second, x.second));
    } else {
      if constexpr (!Type::offsets) all = x.whole_sums(sums_at);
      all = sums_with<dot>(sums_with<dot>(all, w.first, x.first), w.second, x.second);
    }
    sum = multiply_add(to_floats(all), multiply(w.scale, x.scale), sum);
    // A quarter of the block's sum in each of its four floats.
    if constexpr (Type::offsets) sum = multiply_add(w.offset, x.offsets(), sum);
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
  // place(row): where the step's blocks of a row of weights are; at: which of a block's groups.
  const auto add = [&](const auto& place, int64_t at) {
    Decoded w[rows];
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) decode<Type, dot>(place(row), at, w[row]);
#pragma GCC unroll 16
    for (int i = 0; i < x_rows; ++i) {
      const StepOfX step(x + i * tile.x_stride);
#pragma GCC unroll 16
      for (int row = 0; row < rows; ++row)
        sum[row * x_rows + i] = add_step<Type, dot>(w[row], step, sum[row * x_rows + i]);
    }
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
  for (int row = 0; row < rows; ++row) {
    const float bias = tile.bias == nullptr ? 0 : tile.bias[row];
#pragma GCC unroll 16
    for (int i = 0; i < x_rows; ++i)
      tile.out[i * tile.out_stride + row] = Eigen::internal::predux(sum[row * x_rows + i]) + bias;
  }
}

template <class Type, bool dot, int rows, int x_rows>
constexpr LinearTiles tiles_of_blocks = {rows, x_rows, run_blocks_tile<Type, dot, rows, x_rows>,
                                         run_blocks_tile<Type, dot, 1, x_rows>};

// Registers hold the sums, the decoded weights and a row of x.
template <class Type, bool dot>
constexpr auto tiles_of_type = [] {
  if constexpr (level == Isa::v4)
    return std::array{tiles_of_blocks<Type, dot, 2, 8>, tiles_of_blocks<Type, dot, 2, 4>,
                      tiles_of_blocks<Type, dot, 4, 2>, tiles_of_blocks<Type, dot, 4, 1>};
  else if constexpr (level == Isa::v3)
    return std::array{tiles_of_blocks<Type, dot, 1, 8>, tiles_of_blocks<Type, dot, 1, 4>,
                      tiles_of_blocks<Type, dot, 2, 2>, tiles_of_blocks<Type, dot, 2, 1>};
  else
    return std::array{tiles_of_blocks<Type, dot, 1, 4>, tiles_of_blocks<Type, dot, 1, 1>};
}();

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

// Many rows of x, a prompt: rows of weights are decoded once, into panels in which a vector has the same four elements
// of sixteen rows, so that four elements of x meet them at once and a block's sums need no rearranging. What is added
// in which order is what linear_blocks.cc does with few rows, so the bits are the same.
#pragma once

#include "kernels/products/block_types.h"
#include "kernels/products/linear.h"

#if defined(__AVX512BW__)

namespace nlsplit::inline kernels {

inline constexpr int panel_vectors = linear_panel_rows / width;
inline constexpr int64_t vector_bytes = 64;
// Of a block of 32 elements: eight fours, scales, and offsets or the scales of the second halves.
inline constexpr int64_t fours_bytes = 8 * panel_vectors * vector_bytes;
inline constexpr int64_t panel_block_bytes = fours_bytes + 2 * panel_vectors * vector_bytes;
static_assert(linear_panel_bytes(linear_block) == blocks_at_once * panel_block_bytes);

using SixteenRows = Eigen::internal::PacketBlock<Packet, 16>;

// One step of sixteen rows; weights_of(row): where its blocks are. `to`: the first block's vector of these rows, the
// other blocks' are `chain_bytes` apart.
template <class Type, class F>
inline void fill_panel_step(const F& weights_of, int64_t at, char* to, int64_t chain_bytes) {
  SixteenRows first, second;
  Packet numbers[2][16];
  for (int row = 0; row < 16; ++row) {
    Decoded w;
    Type::decode(weights_of(row), at, w);
    first.packet[row] = _mm512_castsi512_ps(w.first);
    second.packet[row] = _mm512_castsi512_ps(w.second);
    numbers[0][row] = w.scale;
    if constexpr (Type::two_scales) numbers[1][row] = w.second_scale;
    if constexpr (Type::offsets) numbers[1][row] = w.offset;
  }
  Eigen::internal::ptranspose(first);
  Eigen::internal::ptranspose(second);
  const auto place = [&](int block, int64_t vector) {
    return reinterpret_cast<float*>(to + block * chain_bytes + vector * panel_vectors * vector_bytes);
  };
  for (int i = 0; i < 16; ++i) {
    store(place(i / 4, i % 4), first.packet[i]);
    store(place(i / 4, 4 + i % 4), second.packet[i]);
  }
  constexpr int kinds = Type::two_scales || Type::offsets ? 2 : 1;
  for (int kind = 0; kind < kinds; ++kind) {
    for (int row = 0; row < 16; row += 4) {
      const Packet* of = numbers[kind] + row;
      float fours[width];
      store(fours, one_of_each(of[0], of[1], of[2], of[3]));
      for (int block = 0; block < blocks_at_once; ++block)
        std::memcpy(place(block, 8 + kind) + row, fours + 4 * block, 4 * sizeof(float));
    }
  }
}

// `rows` rows of weights, at most linear_panel_rows; what is missing is the last one again. Chain after chain, a chain
// being every so manieth block, as a step has.
template <class Type>
void fill_panel(const char* weights, int64_t stride, int64_t rows, int64_t k, char* panel) {
  constexpr int64_t groups = Type::elements / linear_block;
  const int64_t blocks = k / linear_block, steps = (blocks + blocks_at_once - 1) / blocks_at_once;
  const int64_t chain_bytes = steps * panel_block_bytes;
  for (int vector = 0; vector < panel_vectors; ++vector) {
    const auto row_at = [&](int64_t row) { return weights + std::min(vector * width + row, rows - 1) * stride; };
    for (int64_t step = 0; step < steps; ++step) {
      char* to = panel + step * panel_block_bytes + vector * vector_bytes;
      if constexpr (groups > 1) {
        const int64_t block = step * blocks_at_once / groups * Type::bytes;
        fill_panel_step<Type>([&](int64_t row) { return row_at(row) + block; }, step * blocks_at_once % groups, to,
                              chain_bytes);
      } else if (blocks >= blocks_at_once) {
        // The last step of a row that does not end with a whole one begins earlier, as that of x.
        const int64_t block = std::min(step * blocks_at_once, blocks - blocks_at_once) * Type::bytes;
        fill_panel_step<Type>([&](int64_t row) { return row_at(row) + block; }, 0, to, chain_bytes);
      } else {
        char rest[16][blocks_at_once * Type::bytes] = {};
        for (int row = 0; row < 16; ++row)
          std::memcpy(rest[row], row_at(row), static_cast<size_t>(blocks * Type::bytes));
        fill_panel_step<Type>([&](int64_t row) { return rest[row]; }, 0, to, chain_bytes);
      }
    }
  }
}

// Where things are in a step of a row of x.
struct PlacesOfX {
  int64_t second, scales, sums, second_sums, step_bytes;
};

inline Steps four_everywhere(const char* from) {
  int32_t four = 0;
  std::memcpy(&four, from, sizeof four);
  return _mm512_set1_epi32(four);
}
inline Packet float_everywhere(const char* from) {
  float value = 0;
  std::memcpy(&value, from, sizeof value);
  return broadcast(value);
}

// A panel by a few rows of x.
template <class Type, int x_rows>
void run_panel_tile(const char* panel, const PlacesOfX& places, const LinearTile& tile, int64_t rows) {
  const int64_t blocks = tile.k / linear_block, steps = (blocks + blocks_at_once - 1) / blocks_at_once;
  Packet total[panel_vectors * x_rows];
  for (int chain = 0; chain < blocks_at_once; ++chain) {
    Packet sum[panel_vectors * x_rows];
#pragma GCC unroll 16
    for (int i = 0; i < panel_vectors * x_rows; ++i) sum[i] = zeros();
    const char* x = tile.x + chain * lane_bytes;
    for (int64_t step = 0; step < steps; ++step, x += places.step_bytes, panel += panel_block_bytes) {
      const auto number = [&](int64_t vector, int v) {
        return load(reinterpret_cast<const float*>(panel + (vector * panel_vectors + v) * vector_bytes));
      };
      Sums all[panel_vectors * x_rows];
      const auto begin = [&](int64_t sums_at) {
#pragma GCC unroll 16
        for (int i = 0; i < x_rows; ++i) {
          const Sums first = Type::offsets ? Sums{} : four_everywhere(x + i * tile.x_stride + sums_at);
          for (int v = 0; v < panel_vectors; ++v) all[v * x_rows + i] = first;
        }
      };
      const auto add_half = [&](int half) {
#pragma GCC unroll 4
        for (int four = 0; four < 4; ++four) {
          Steps w[panel_vectors];
#pragma GCC unroll 4
          for (int v = 0; v < panel_vectors; ++v)
            w[v] = load_steps(reinterpret_cast<const int8_t*>(panel) +
                              ((half * 4 + four) * panel_vectors + v) * vector_bytes);
#pragma GCC unroll 16
          for (int i = 0; i < x_rows; ++i) {
            const Steps of_x = four_everywhere(x + i * tile.x_stride + half * places.second + four * 4);
#pragma GCC unroll 4
            for (int v = 0; v < panel_vectors; ++v) all[v * x_rows + i] = add_products(all[v * x_rows + i], w[v], of_x);
          }
        }
      };
      const auto add_to_sums = [&](int64_t scales) {
#pragma GCC unroll 16
        for (int i = 0; i < x_rows; ++i) {
          const Packet of_x = float_everywhere(x + i * tile.x_stride + places.scales);
#pragma GCC unroll 4
          for (int v = 0; v < panel_vectors; ++v) {
            Packet& own = sum[v * x_rows + i];
            own = multiply_add(to_floats(all[v * x_rows + i]), multiply(number(scales, v), of_x), own);
            if constexpr (Type::offsets)
              own = multiply_add(number(9, v), float_everywhere(x + i * tile.x_stride + places.sums), own);
          }
        }
      };
      begin(places.sums);
      add_half(0);
      if constexpr (Type::two_scales) {
        add_to_sums(8);
        begin(places.second_sums);
      }
      add_half(1);
      add_to_sums(Type::two_scales ? 9 : 8);
    }
#pragma GCC unroll 16
    for (int i = 0; i < panel_vectors * x_rows; ++i) total[i] = chain == 0 ? sum[i] : add(total[i], sum[i]);
  }
  for (int v = 0; v < panel_vectors; ++v) {
    const int64_t count = std::min<int64_t>(width, rows - v * width);
    if (count <= 0) return;
    const Packet bias = tile.bias == nullptr ? zeros() : load_part(tile.bias + v * width, count);
    for (int i = 0; i < x_rows; ++i)
      store_part(tile.out + i * tile.out_stride + v * width, add(total[v * x_rows + i], bias), count);
  }
}

// `whole`: all rows of x and of weights, m and n of them.
template <class Type>
void run_panels(const KernelCall& call, const PlacesOfX& places, const LinearTile& whole, int64_t m, int64_t n,
                char* panels) {
  const int64_t panel_bytes = linear_panel_bytes(whole.k);
  const Epilogue epilogue(call);
  parallel_for_workers(call, (n + linear_panel_rows - 1) / linear_panel_rows, [&](int64_t i, int worker) {
    const int64_t row = i * linear_panel_rows, rows = std::min(linear_panel_rows, n - row);
    char* panel = panels + worker * panel_bytes;
    fill_panel<Type>(whole.weights + row * whole.weights_stride, whole.weights_stride, rows, whole.k, panel);
    LinearTile tile = whole;
    tile.out += row;
    if (tile.bias != nullptr) tile.bias += row;
    int64_t left = m;
    const auto take = [&](int64_t x_rows, auto run) {
      run(panel, places, tile, rows);
      for (int64_t x_row = 0; x_row < x_rows && !epilogue.empty(); ++x_row)
        epilogue.apply(output(call), tile.out - output(call) + x_row * whole.out_stride, rows);
      tile.x += x_rows * whole.x_stride;
      tile.out += x_rows * whole.out_stride;
      left -= x_rows;
    };
    while (left >= 6 && left != 8) take(6, run_panel_tile<Type, 6>);
    while (left >= 4) take(4, run_panel_tile<Type, 4>);
    while (left >= 2) take(2, run_panel_tile<Type, 2>);
    while (left >= 1) take(1, run_panel_tile<Type, 1>);
  });
}

}  // namespace nlsplit::inline kernels

#endif

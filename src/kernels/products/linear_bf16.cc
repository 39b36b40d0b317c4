// Linear with weights of bf16, as they are stored. Rows of x are rounded to bf16, as llama.cpp does it, and meet rows
// of weights pair by pair (kernels/module/bf16_pairs.h), a vector of pairs at a time.
#include <array>
#include <span>

#include "kernels/module/bf16_pairs.h"
#include "kernels/products/row_tiles.h"

namespace nlsplit::inline kernels {
namespace {

template <class How>
struct Pairs {
  static constexpr int64_t step = 2 * width;
  using Stored = uint16_t;
  using X = uint16_t;
  using Surroundings = typename How::Surroundings;
  // Halves begin at even addresses, which need not be a float's.
  static Packet read(const uint16_t* from) {
    Packet pairs;
    std::memcpy(&pairs, from, sizeof pairs);
    return pairs;
  }
  static Packet read_x(const uint16_t* from) { return read(from); }
  static Packet read_x_part(const uint16_t* from, int64_t) { return read(from); }  // round_row has put zeros there
  static void add(Packet& sum, const Packet& w, const Packet& x) { How::add(sum, w, x); }
};

// Registers hold the sums, x and a row of weights; without the instruction, both halves of x. A larger tile reads less
// for each sum.
template <class How>
constexpr auto tiles_of_pairs = [] {
  using Type = Pairs<How>;
  if constexpr (How::halves_in_place)
    return std::array{row_tiles<Type, 6, 4>, row_tiles<Type, 4, 2>, row_tiles<Type, 4, 1>};
  else if constexpr (level == Isa::v4 || level == Isa::neon)
    return std::array{row_tiles<Type, 4, 4>, row_tiles<Type, 4, 2>, row_tiles<Type, 4, 1>};
  else
    return std::array{row_tiles<Type, 4, 2>, row_tiles<Type, 4, 1>};
}();

std::span<const LinearTiles> tiles_here() {
#if defined(__AVX512BW__)
  if (has_pair_instruction()) return tiles_of_pairs<PairsByInstruction>;
#endif
  return tiles_of_pairs<PairsByFloats>;
}

// A row of x, with zeros up to the next whole step.
void round_row(const float* x, int64_t k, uint16_t* to) {
  round_to_bf16(x, k, to);
  std::fill(to + k, to + round_up(k, 2 * width), uint16_t{0});
}

void run_linear_bf16(const KernelCall& call) {
  const Linear linear = linear_of(*call.desc);
  auto* rows = static_cast<char*>(call.workspace);
  const int64_t stride = linear.pair_bytes();
  parallel_for(call, linear.m, [&](int64_t row) {
    round_row(input(call, 0) + row * linear.k, linear.k, reinterpret_cast<uint16_t*>(rows + row * stride));
  });
  run_tiles(call, tiles_here(), whole_tile(call, linear, rows, stride), linear.m, linear.n);
}

}  // namespace

const KernelCode code::linear_bf16 = {run_linear_bf16};

}  // namespace nlsplit::inline kernels

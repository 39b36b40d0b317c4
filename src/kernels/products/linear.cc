// Linear with weights of f32 or f16, as they are stored, and x in f32.
#include <array>

#include "kernels/module/half_packets.h"
#include "kernels/products/row_tiles.h"

namespace nlsplit::inline kernels {
namespace {

// `width` weights as floats meet as many of x.
struct Floats {
  static constexpr int64_t step = width;
  using X = float;
  struct Surroundings {};
  static Packet read_x(const float* from) { return load(from); }
  static Packet read_x_part(const float* from, int64_t count) { return load_part(from, count); }
  static void add(Packet& sum, const Packet& w, const Packet& x) { sum = multiply_add(w, x, sum); }
};

struct Full : Floats {
  using Stored = float;
  static Packet read(const float* from) { return load(from); }
};

struct F16 : Floats {
  using Stored = uint16_t;
  static Packet read(const uint16_t* from) { return load_f16(from); }
};

// Registers hold the sums, x and a row of weights.
template <class Type>
constexpr auto tiles_of_floats = [] {
  if constexpr (level == Isa::v4)
    return std::array{row_tiles<Type, 6, 4>, row_tiles<Type, 4, 2>, row_tiles<Type, 4, 1>};
  else if constexpr (level == Isa::neon)
    return std::array{row_tiles<Type, 4, 4>, row_tiles<Type, 4, 2>, row_tiles<Type, 4, 1>};
  else
    return std::array{row_tiles<Type, 4, 2>, row_tiles<Type, 4, 1>};
}();

template <class Type>
void run_floats(const KernelCall& call) {
  const Linear linear = linear_of(*call.desc);
  const LinearTile whole = whole_tile(call, linear, call.inputs[0], size_of(DType::f32, linear.k));
  run_tiles(call, tiles_of_floats<Type>, whole, linear.m, linear.n);
}

void run_linear(const KernelCall& call) {
  call.desc->inputs[1].dtype == DType::f16 ? run_floats<F16>(call) : run_floats<Full>(call);
}

}  // namespace

const KernelCode code::linear = {run_linear};

}  // namespace nlsplit::inline kernels

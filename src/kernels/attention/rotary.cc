// Rotary positions: the two halves of a row turned by the row of the tables that its position has.
#include "kernels/functions/epilogue.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"

namespace nlsplit::inline kernels {
namespace {

void run_rotary(const KernelCall& call) {
  const Shape& x = call.desc->inputs[0].shape;
  const int64_t heads = x[1], steps = x[2], half = x[3] / 2, last = call.desc->inputs[1].shape[0] - steps;
  const Epilogue epilogue(call);
  parallel_for(call, x[0] * heads, [&](int64_t head) {
    const int64_t begin = whole_at(call, 3, head / heads, last);
    for (int64_t s = 0; s < steps; ++s) {
      const float* const a = input(call, 0) + (head * steps + s) * 2 * half;
      float* const to = output(call) + (head * steps + s) * 2 * half;
      const float* const cosine = input(call, 1) + (begin + s) * half;
      const float* const sine = input(call, 2) + (begin + s) * half;
      map_row(
          to, half,
          [](const Packet& low, const Packet& high, const Packet& c, const Packet& s) {
            return subtract(multiply(low, c), multiply(high, s));
          },
          a, a + half, cosine, sine);
      map_row(
          to + half, half,
          [](const Packet& low, const Packet& high, const Packet& c, const Packet& s) {
            return add(multiply(high, c), multiply(low, s));
          },
          a, a + half, cosine, sine);
      epilogue.apply(output(call), to - output(call), 2 * half);
    }
  });
}

}  // namespace

const KernelCode code::rotary = {run_rotary};

}  // namespace nlsplit::inline kernels

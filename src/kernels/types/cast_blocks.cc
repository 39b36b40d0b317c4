// Casts between float32 and blocks of q8_0: on every level the bits that graph/q8_0.h says.
#include <algorithm>
#include <cstring>

#include "graph/q8_0.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t block = 32, scale_bytes = 2, block_bytes = scale_bytes + block;
static_assert(block % width == 0);

// As integers they are in the order of their magnitudes, and what is no number is the largest.
float largest_magnitude(const float* from) {
  int32_t largest = 0;
  for (int64_t i = 0; i < block; ++i) {
    int32_t bits = 0;
    std::memcpy(&bits, from + i, sizeof bits);
    largest = std::max(largest, bits & 0x7fffffff);
  }
  float value = 0;
  std::memcpy(&value, &largest, sizeof value);
  return value;
}

void make_block(const float* from, char* to) {
  const uint16_t scale = q8_0_scale(largest_magnitude(from));
  std::memcpy(to, &scale, sizeof scale);
  to += scale_bytes;
  const float step = f16_value(scale);
  if (!(step > 0)) {
    std::memset(to, 0, block);
    return;
  }
  // The sum of a small number and this one is a whole number, the nearest, ties to even, in the lowest bits.
  const Packet whole = broadcast(0x1.8p23f), steps = broadcast(step);
  const Packet least = broadcast(-q8_0_most_steps), most = broadcast(q8_0_most_steps);
  alignas(64) float sums[block];
  for (int64_t i = 0; i < block; i += width)
    store(sums + i, add(at_most(at_least(divide(load(from + i), steps), least), most), whole));
  int32_t bits[block];
  std::memcpy(bits, sums, sizeof bits);
  for (int64_t i = 0; i < block; ++i) to[i] = static_cast<char>(bits[i]);
}

void read_block(const char* from, float* to) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  const float scale = f16_value(bits);
  int8_t steps[block];
  std::memcpy(steps, from + scale_bytes, sizeof steps);
  for (int64_t i = 0; i < block; ++i) to[i] = scale * static_cast<float>(steps[i]);
}

void run_cast_blocks(const KernelCall& call) {
  constexpr int64_t piece = 512;  // blocks that are worth handing out
  const int64_t blocks = element_count(call.desc->outputs[0].shape) / block;
  const bool makes = call.desc->outputs[0].dtype == DType::q8_0;
  parallel_for(call, (blocks + piece - 1) / piece, [&](int64_t p) {
    for (int64_t b = p * piece; b < std::min(blocks, (p + 1) * piece); ++b) {
      if (makes)
        make_block(input(call, 0) + b * block, static_cast<char*>(call.outputs[0]) + b * block_bytes);
      else
        read_block(static_cast<const char*>(call.inputs[0]) + b * block_bytes, output(call) + b * block);
    }
  });
}

}  // namespace

const KernelCode code::cast_blocks = {run_cast_blocks};

}  // namespace nlsplit::inline kernels

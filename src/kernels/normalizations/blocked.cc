// BatchNormalization and LRN on blocks of channels.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/functions/epilogue.h"
#include "kernels/module/block_extents.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"
#include "kernels/normalizations/lrn.h"

namespace nlsplit::inline kernels {
namespace {

void run_batch_norm(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Epilogue epilogue(call);
  const BlockExtents e = block_extents_of(desc.inputs[0]);
  const double epsilon = attr_float(desc.attrs, "epsilon");
  parallel_for(call, e.batch * e.blocks, [&](int64_t i) {
    const int64_t b = i % e.blocks, lanes = e.lanes_of(b), at = i * e.pixels * width;
    alignas(64) float scales[width] = {}, biases[width] = {}, means[width] = {};
    for (int64_t c = 0; c < lanes; ++c) {
      const int64_t channel = b * width + c;
      scales[c] = static_cast<float>(input(call, 1)[channel] / std::sqrt(input(call, 4)[channel] + epsilon));
      biases[c] = input(call, 2)[channel], means[c] = input(call, 3)[channel];
    }
    const Packet scale = load(scales), bias = load(biases), mean = load(means);
    for (int64_t p = at; p < at + e.pixels * width; p += width) {
      store(output(call) + p, multiply_add(subtract(load(input(call, 0) + p), mean), scale, bias));
    }
    epilogue.apply(output(call), at, e.pixels * width);
  });
}

// The squares of a pixel's channels lie side by side between zeros, so a window over channels is a few loads anywhere.
void run_lrn(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Epilogue epilogue(call);
  const BlockExtents e = block_extents_of(desc.inputs[0]);
  const LrnFunction normalize(desc.attrs);
  const int64_t size = attr_int(desc.attrs, "size"), before = (size - 1) / 2;
  constexpr int64_t pixels_at_once = 64;
  const int64_t pieces = (e.pixels + pixels_at_once - 1) / pixels_at_once;
  parallel_for(call, e.batch * pieces, [&](int64_t i) {
    std::vector<float> squares(static_cast<size_t>(size + e.blocks * width), 0.0f);
    const int64_t sample = i / pieces * e.blocks * e.pixels * width;
    const int64_t first = i % pieces * pixels_at_once, last = std::min(first + pixels_at_once, e.pixels);
    for (int64_t p = first; p < last; ++p) {
      const int64_t at = sample + p * width;
      for (int64_t b = 0; b < e.blocks; ++b) {
        const float* from = input(call, 0) + at + b * e.pixels * width;
        float* to = squares.data() + before + b * width;
        if (const int64_t lanes = e.lanes_of(b); lanes < width) {  // what lies beyond the last channel has no meaning
          const Packet x = load_part(from, lanes);
          store(to, multiply(x, x));
        } else {
          store(to, multiply(load(from), load(from)));
        }
      }
      for (int64_t b = 0; b < e.blocks; ++b) {
        Packet sum = zeros();
        for (int64_t o = 0; o < size; ++o) sum = add(sum, load(squares.data() + b * width + o));
        const int64_t to = at + b * e.pixels * width;
        store(output(call) + to, normalize(load(input(call, 0) + to), sum));
      }
    }
    for (int64_t b = 0; b < e.blocks && !epilogue.empty(); ++b) {
      epilogue.apply(output(call), sample + (b * e.pixels + first) * width, (last - first) * width);
    }
  });
}

}  // namespace

const KernelCode code::batch_norm_blocked = {run_batch_norm};
const KernelCode code::lrn_blocked = {run_lrn};

}  // namespace nlsplit::inline kernels

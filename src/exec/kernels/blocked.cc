// What else works on blocks of channels: BatchNormalization, LRN, and the way between layouts.
#include <algorithm>
#include <cmath>
#include <vector>

#include "exec/kernels/epilogue.h"
#include "exec/kernels/lrn.h"
#include "exec/kernels/packets.h"
#include "exec/kernels/run.h"

namespace nlsplit::inline exec {
namespace {

struct Extents {
  int64_t batch, channels, pixels, blocks;
  int64_t lanes_of(int64_t block) const { return std::min<int64_t>(width, channels - block * width); }
};
Extents extents_of(const TensorType& type) {
  const Shape& shape = type.shape;
  return {shape[0], shape[1], shape[2] * shape[3], (shape[1] + width - 1) / width};
}

void run_batch_norm(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Epilogue epilogue(call);
  const Extents e = extents_of(desc.inputs[0]);
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
  const Extents e = extents_of(desc.inputs[0]);
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

// A block of channels of one sample: `lanes` planes to or from pixels of one vector each.
void planes_to_block(const float* planes, int64_t lanes, int64_t pixels, float* block) {
  constexpr int64_t together = 16;  // pixels: a cache line of each plane
  for (int64_t p0 = 0; p0 < pixels; p0 += together) {
    const int64_t p1 = std::min(p0 + together, pixels);
    for (int64_t c = 0; c < lanes; ++c) {
      for (int64_t p = p0; p < p1; ++p) block[p * width + c] = planes[c * pixels + p];
    }
    for (int64_t p = p0; p < p1; ++p) std::fill(block + p * width + lanes, block + (p + 1) * width, 0.0f);
  }
}

void block_to_planes(const float* block, int64_t lanes, int64_t pixels, float* planes) {
  constexpr int64_t together = 16;
  for (int64_t p0 = 0; p0 < pixels; p0 += together) {
    const int64_t p1 = std::min(p0 + together, pixels);
    for (int64_t c = 0; c < lanes; ++c) {
      for (int64_t p = p0; p < p1; ++p) planes[c * pixels + p] = block[p * width + c];
    }
  }
}

void run_reorder(const KernelCall& call) {
  const Extents e = extents_of(call.desc->inputs[0]);
  const bool to_blocks = call.desc->outputs[0].block > 0;
  parallel_for(call, e.batch * e.blocks, [&](int64_t i) {
    const int64_t b = i % e.blocks, lanes = e.lanes_of(b);
    const int64_t planes = (i / e.blocks * e.channels + b * width) * e.pixels, block = i * e.pixels * width;
    if (to_blocks)
      planes_to_block(input(call, 0) + planes, lanes, e.pixels, output(call) + block);
    else
      block_to_planes(input(call, 0) + block, lanes, e.pixels, output(call) + planes);
  });
}

}  // namespace

const KernelEntry batch_norm_blocked = {"batch_norm_blocked", run_batch_norm, nullptr};
const KernelEntry lrn_blocked = {"lrn_blocked", run_lrn, nullptr};
const KernelEntry reorder = {"reorder", run_reorder, nullptr};

}  // namespace nlsplit::inline exec

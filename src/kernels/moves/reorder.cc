// The way between row-major tensors and blocks of channels.
#include <algorithm>

#include "kernels/module/block_extents.h"
#include "kernels/module/run.h"

namespace nlsplit::inline kernels {
namespace {

// A block of channels of one sample: `lanes` planes to or from pixels of one vector each.
template <class T>
void planes_to_block(const T* planes, int64_t lanes, int64_t pixels, T* block) {
  constexpr int64_t together = 16;  // pixels: a cache line of each plane
  for (int64_t p0 = 0; p0 < pixels; p0 += together) {
    const int64_t p1 = std::min(p0 + together, pixels);
    for (int64_t c = 0; c < lanes; ++c) {
      for (int64_t p = p0; p < p1; ++p) block[p * width + c] = planes[c * pixels + p];
    }
    for (int64_t p = p0; p < p1; ++p) std::fill(block + p * width + lanes, block + (p + 1) * width, T{0});
  }
}

template <class T>
void block_to_planes(const T* block, int64_t lanes, int64_t pixels, T* planes) {
  constexpr int64_t together = 16;
  for (int64_t p0 = 0; p0 < pixels; p0 += together) {
    const int64_t p1 = std::min(p0 + together, pixels);
    for (int64_t c = 0; c < lanes; ++c) {
      for (int64_t p = p0; p < p1; ++p) planes[c * pixels + p] = block[p * width + c];
    }
  }
}

template <class T>
void reorder(const KernelCall& call) {
  const BlockExtents e = block_extents_of(call.desc->inputs[0]);
  const bool to_blocks = call.desc->outputs[0].block > 0;
  const auto* from = static_cast<const T*>(call.inputs[0]);
  auto* to = static_cast<T*>(call.outputs[0]);
  parallel_for(call, e.batch * e.blocks, [&](int64_t i) {
    const int64_t b = i % e.blocks, lanes = e.lanes_of(b);
    const int64_t planes = (i / e.blocks * e.channels + b * width) * e.pixels, block = i * e.pixels * width;
    to_blocks ? planes_to_block(from + planes, lanes, e.pixels, to + block)
              : block_to_planes(from + block, lanes, e.pixels, to + planes);
  });
}

void run_reorder(const KernelCall& call) {
  is_half(call.desc->outputs[0].dtype) ? reorder<uint16_t>(call) : reorder<float>(call);
}

}  // namespace

const KernelCode code::reorder = {run_reorder};

}  // namespace nlsplit::inline kernels

// A transposed convolution by weights that are packed at load: products of the weights, turned over, with the sample's
// planes; an output row then gathers the rows of that product whose windows cross it. With a stride a tap meets every
// stride_w-th column, so a row is gathered phase by phase, in vectors, and the phases are interleaved at the end.
#include <algorithm>

#include "kernels/layout.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"
#include "kernels/products/product.h"

namespace nlsplit::inline kernels {
namespace {

// Rows (filter, tap) of the product, from `filter` on, of group g; the weights lie as [channel][filter][tap].
Left turned_over(const ConvTranspose& t, const float* weights, int64_t g, int64_t filter) {
  return {weights + (g * t.channels * t.filters + filter) * t.taps(), 1, t.filters * t.taps()};
}

// Row y of a plane. columns: [tap][input pixel] of its filter; phases: stride_w runs of phase_floats.
void gather_row(const ConvTranspose& t, const float* columns, int64_t y, float bias, float* phases, float* to) {
  const int64_t phase_floats = t.phase_floats();
  std::fill(phases, phases + t.stride_w * phase_floats, bias);
  for (int64_t i = 0; i < t.kernel_h; ++i) {
    const int64_t above = y + t.pad_top - i * t.dilation_h;  // stride_h times the input's row
    if (above < 0 || above % t.stride_h != 0 || above / t.stride_h >= t.h) continue;
    for (int64_t j = 0; j < t.kernel_w; ++j) {
      const float* from = columns + (i * t.kernel_w + j) * t.pixels() + above / t.stride_h * t.w;
      const int64_t left = j * t.dilation_w;
      float* phase = phases + left % t.stride_w * phase_floats + left / t.stride_w;
      map_row(phase, t.w, add, phase, from);
    }
  }
  // Column x stands in phase (x + pad_left) mod stride_w.
  if (t.stride_w == 1) {
    std::memcpy(to, phases + t.pad_left, static_cast<size_t>(t.out_w) * sizeof(float));
    return;
  }
  for (int64_t first = 0; first < std::min(t.stride_w, t.out_w); ++first) {
    const float* from = phases + (first + t.pad_left) % t.stride_w * phase_floats + (first + t.pad_left) / t.stride_w;
    for (int64_t x = first; x < t.out_w; x += t.stride_w) to[x] = *from++;
  }
}

void run_packed(const KernelCall& call) {
  const ConvTranspose t = conv_transpose_of(*call.desc);
  const Epilogue epilogue(call);
  const float* biases = call.desc->own_inputs() > 2 ? input(call, 2) : nullptr;
  const int64_t plane = t.out_h * t.out_w;
  parallel_for_workers(call, t.batch * t.groups * t.chunks(), [&](int64_t piece, int worker) {
    const int64_t filter = piece % t.chunks() * t.filters_at_once, g = piece / t.chunks() % t.groups,
                  sample = piece / t.chunks() / t.groups;
    const int64_t filters = std::min(t.filters_at_once, t.filters - filter);
    float* columns = workspace(call) + worker * t.worker_floats();
    float* phases = columns + t.columns_floats();
    float* scratch = phases + t.stride_w * t.phase_floats();
    const float* planes = input(call, 0) + (sample * t.groups + g) * t.channels * t.pixels();
    const Left left = {input(call, 1) + (g * t.filters + filter) * t.channels * t.taps(), 0, 0, true};
    product(filters * t.taps(), t.pixels(), t.channels, left, {planes, t.pixels(), 1}, columns, {}, scratch,
            t.filters_at_once * t.taps());
    for (int64_t f = 0; f < filters; ++f) {
      const int64_t channel = g * t.filters + filter + f;
      const int64_t at = (sample * t.groups * t.filters + channel) * plane;
      const float bias = biases == nullptr ? 0.0f : biases[channel];
      for (int64_t y = 0; y < t.out_h; ++y) {
        gather_row(t, columns + f * t.taps() * t.pixels(), y, bias, phases, output(call) + at + y * t.out_w);
      }
      epilogue.apply(output(call), at, plane);
    }
  });
}

// What is multiplied at once lies together.
void pack(const ComputeDesc& desc, size_t, const void* raw, void* packed) {
  const ConvTranspose t = conv_transpose_of(desc);
  auto* to = static_cast<float*>(packed);
  for (int64_t g = 0; g < t.groups; ++g) {
    for (int64_t filter = 0; filter < t.filters; filter += t.filters_at_once) {
      const int64_t rows = std::min(t.filters_at_once, t.filters - filter) * t.taps();
      pack_left(turned_over(t, static_cast<const float*>(raw), g, filter), rows, t.channels, to);
      to += rows * t.channels;
    }
  }
}

}  // namespace

const KernelCode code::conv_transpose_packed = {run_packed, pack};

}  // namespace nlsplit::inline kernels

// Depthwise convolution and pooling: one plane at a time, vectors of output pixels sliding over the plane's image. A
// pass runs over the columns between the rows as well (their results are dropped), so that rows shorter than a vector
// cost nothing extra.
#include <limits>
#include <vector>

#include "kernels/functions/epilogue.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"
#include "kernels/windows/depthwise_blocks.h"
#include "kernels/windows/image.h"

namespace nlsplit::inline kernels {
namespace {

std::vector<int64_t> taps_of(const Window& w) {
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < w.kernel_h; ++i) {
    for (int64_t j = 0; j < w.kernel_w; ++j) offsets.push_back(w.tap_offset(i, j));
  }
  return offsets;
}

// flat[p] = the taps of pixel p folded by step(sum, tap's number, its packet), from `start`, in the order of the taps.
template <int packets, class Step>
inline void slide(const float* image, const std::vector<int64_t>& taps, const Packet& start, float* flat, Step step) {
  Packet sums[packets];
#pragma GCC unroll 16
  for (int i = 0; i < packets; ++i) sums[i] = start;
  for (size_t t = 0; t < taps.size(); ++t) {
    const float* from = image + taps[t];
#pragma GCC unroll 16
    for (int i = 0; i < packets; ++i) sums[i] = step(sums[i], t, load(from + i * width));
  }
#pragma GCC unroll 16
  for (int i = 0; i < packets; ++i) store(flat + i * width, sums[i]);
}

template <class Step>
inline void slide_plane(const Window& w, const float* image, const std::vector<int64_t>& taps, const Packet& start,
                        float* flat, Step step) {
  const int64_t n = w.flat_pixels();
  int64_t p = 0;
  for (; p + 4 * width <= n; p += 4 * width) slide<4>(image + p, taps, start, flat + p, step);
  for (; p < n; p += width) slide<1>(image + p, taps, start, flat + p, step);
}

// The two parts of the workspace, as the catalogue sizes them.
struct Scratch {
  float* image;
  float* flat;
};
Scratch scratch_of(const KernelCall& call, const Window& w) {
  return {workspace(call), workspace(call) + round_up(w.image_floats() + widest_vector, widest_vector)};
}

// Even where the plane could serve in place it is copied: the last vector reads past its end.
void image_of(const Window& w, const float* plane, float fill, float* image) {
  if (w.in_place) {
    std::memcpy(image, plane, static_cast<size_t>(w.h * w.w) * sizeof(float));
  } else {
    make_image(w, plane, fill, image);
  }
}

template <class F>
void copy_rows(const Window& w, const float* flat, float* out, F f) {
  for (int64_t y = 0; y < w.out_h; ++y) f(out + y * w.out_w, flat + y * w.image_w, y);
}

void run_depthwise(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  if (const DepthwiseBlocks blocks = depthwise_blocks_of(desc); blocks.pays())
    return run_depthwise_blocks(call, blocks);
  const Window w = window_of(desc);
  const Scratch scratch = scratch_of(call, w);
  const std::vector<int64_t> taps = taps_of(w);
  const Epilogue epilogue(call);
  const float* bias = desc.own_inputs() > 2 ? input(call, 2) : nullptr;
  const int64_t filters = w.out_channels / w.channels;  // of each channel
  for (int64_t plane = 0; plane < w.batch * w.channels; ++plane) {
    image_of(w, input(call, 0) + plane * w.h * w.w, 0, scratch.image);
    for (int64_t f = 0; f < filters; ++f) {
      const int64_t channel = plane % w.channels * filters + f;
      const float* weights = input(call, 1) + channel * w.taps();
      const int64_t at = (plane * filters + f) * w.out_pixels();
      slide_plane(w, scratch.image, taps, zeros(), scratch.flat,
                  [&](const Packet& sum, size_t tap, const Packet& value) {
                    return multiply_add(broadcast(weights[tap]), value, sum);
                  });
      const Packet shift = broadcast(bias == nullptr ? 0.0f : bias[channel]);
      copy_rows(w, scratch.flat, output(call) + at, [&](float* to, const float* from, int64_t) {
        map_row(
            to, w.out_w, [&](const Packet& x) { return add(x, shift); }, from);
      });
      if (!epilogue.empty()) epilogue.apply(output(call), at, w.out_pixels());
    }
  }
}

void run_max_pool(const KernelCall& call) {
  const Window w = window_of(*call.desc);
  const Scratch scratch = scratch_of(call, w);
  const std::vector<int64_t> taps = taps_of(w);
  const Epilogue epilogue(call);
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  for (int64_t plane = 0; plane < w.batch * w.channels; ++plane) {
    image_of(w, input(call, 0) + plane * w.h * w.w, lowest, scratch.image);
    slide_plane(w, scratch.image, taps, broadcast(lowest), scratch.flat,
                [](const Packet& sum, size_t, const Packet& value) { return at_least(value, sum); });
    const int64_t at = plane * w.out_pixels();
    copy_rows(w, scratch.flat, output(call) + at, [&](float* to, const float* from, int64_t) {
      std::memcpy(to, from, static_cast<size_t>(w.out_w) * sizeof(float));
    });
    if (!epilogue.empty()) epilogue.apply(output(call), at, w.out_pixels());
  }
}

void run_average_pool(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Window w = window_of(desc);
  const Scratch scratch = scratch_of(call, w);
  const std::vector<int64_t> taps = taps_of(w);
  const Epilogue epilogue(call);
  const bool with_pads = attr_int(desc.attrs, "count_include_pad") != 0;
  const auto rows = counts_of(w.out_h, w.kernel_h, w.stride_h, w.h, w.pad_top, w.pad_bottom, with_pads);
  const auto columns = counts_of(w.out_w, w.kernel_w, w.stride_w, w.w, w.pad_left, w.pad_right, with_pads);
  for (int64_t plane = 0; plane < w.batch * w.channels; ++plane) {
    image_of(w, input(call, 0) + plane * w.h * w.w, 0, scratch.image);
    slide_plane(w, scratch.image, taps, zeros(), scratch.flat,
                [](const Packet& sum, size_t, const Packet& value) { return add(sum, value); });
    const int64_t at = plane * w.out_pixels();
    copy_rows(w, scratch.flat, output(call) + at, [&](float* to, const float* from, int64_t y) {
      const Packet in_column = broadcast(rows[static_cast<size_t>(y)]);
      map_row(
          to, w.out_w, [&](const Packet& x, const Packet& in_row) { return divide(x, multiply(in_row, in_column)); },
          from, columns.data());
    });
    if (!epilogue.empty()) epilogue.apply(output(call), at, w.out_pixels());
  }
}

void run_global_average_pool(const KernelCall& call) {
  const Shape& shape = call.desc->inputs[0].shape;
  const int64_t planes = shape[0] * shape[1];
  int64_t pixels = 1;
  for (size_t axis = 2; axis < shape.size(); ++axis) pixels *= shape[axis];
  for (int64_t plane = 0; plane < planes; ++plane) {
    output(call)[plane] = sum_of_row(input(call, 0) + plane * pixels, pixels) / static_cast<float>(pixels);
  }
  Epilogue(call).apply(output(call), 0, planes);
}

}  // namespace

const KernelCode code::conv_depthwise = {run_depthwise};
const KernelCode code::max_pool = {run_max_pool};
const KernelCode code::average_pool = {run_average_pool};
const KernelCode code::global_average_pool = {run_global_average_pool};

}  // namespace nlsplit::inline kernels

// Gradients of depthwise convolutions and of pools, one plane at a time. An output plane is laid out flat, as the image
// of the input plane wants it (kernels/layout.h, Window): a row every image_w floats, zeros between them. Then the
// element q of a phase of the image gets what tap t of that phase gives from flat[q - t's offset], so vectors of
// neighbouring elements are summed in registers, tap after tap.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/functions/epilogue.h"
#include "kernels/layout.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"
#include "kernels/windows/blocked_image.h"
#include "kernels/windows/depthwise_blocks.h"
#include "kernels/windows/image.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int at_once = 4;  // vectors

// The parts of a worker's scratch.
struct Planes {
  float* image;  // all phases of a plane's image
  float* phase;  // one phase of a result's
  float* flat;   // its first element; margin floats of zeros in front of it
  float* more;   // a second one, with its margin; or lanes of sums
};
Planes planes_of(const KernelCall& call, const WindowGradient& g, int worker) {
  float* at = workspace(call) + worker * g.worker_floats();
  const auto take = [&](int64_t count) { return std::exchange(at, at + round_up(count, widest_vector)); };
  Planes p{};
  p.image = take(g.image_floats());
  p.phase = take(g.phase_floats());
  p.flat = take(g.flats * g.flat_floats()) + g.margin();
  p.more = take(g.more_floats);
  return p;
}

// What is between the rows of flat planes, in front of them and behind, and what an image has too much: zeros, once for
// all planes. `more`: what the rest of the scratch begins with.
void clear(const KernelCall& call, const WindowGradient& g, float more) {
  for (int worker = 0; worker < std::max(call.crew.workers, 1); ++worker) {
    const Planes p = planes_of(call, g, worker);
    std::fill_n(p.image, g.image_floats(), 0.0f);
    std::fill_n(p.flat - g.margin(), g.flats * g.flat_floats(), 0.0f);
    std::fill_n(p.more, g.more_floats, more);
  }
}

// f(row, y): `row` begins row y of a flat plane.
template <class F>
void fill_flat(const WindowGradient& g, float* flat, F f) {
  for (int64_t y = 0; y < g.w.out_h; ++y) f(flat + y * g.w.image_w, y);
}

struct Step {
  int64_t offset;  // to be added to q
  int64_t tap;
};

// Rows and columns of the operand that are equal modulo the strides, and the taps that reach them.
struct Reached {
  int64_t y, x;
  std::vector<Step> steps;
};

// Those that any tap reaches. Of several flat planes one behind another, each has taps of its own.
std::vector<Reached> phases_of(const WindowGradient& g) {
  const Window& w = g.w;
  std::vector<Reached> phases;
  for (int64_t y = 0; y < w.stride_h; ++y) {
    if (!reads_phase(w.kernel_h, w.dilation_h, w.stride_h, y)) continue;
    for (int64_t x = 0; x < w.stride_w; ++x) {
      if (!reads_phase(w.kernel_w, w.dilation_w, w.stride_w, x)) continue;
      Reached& phase = phases.emplace_back(Reached{y, x, {}});
      for (int64_t c = 0; c < g.flats; ++c) {
        for (int64_t i = 0; i < w.kernel_h; ++i) {
          for (int64_t j = 0; j < w.kernel_w; ++j) {
            const int64_t down = i * w.dilation_h, right = j * w.dilation_w;
            if (down % w.stride_h != y || right % w.stride_w != x) continue;
            phase.steps.push_back({c * g.flat_floats() - down / w.stride_h * w.image_w - right / w.stride_w,
                                   (c * w.kernel_h + i) * w.kernel_w + j});
          }
        }
      }
    }
  }
  return phases;
}

// image[q] = start folded by step(sum, tap, flat + where it reads).
template <int packets, class F>
inline void fold(const std::vector<Step>& steps, int64_t q, const Packet& start, float* phase, F f) {
  Packet sums[packets];
#pragma GCC unroll 16
  for (int i = 0; i < packets; ++i) sums[i] = start;
  for (const Step& step : steps) {
#pragma GCC unroll 16
    for (int i = 0; i < packets; ++i) sums[i] = f(sums[i], step.tap, q + step.offset + i * width);
  }
#pragma GCC unroll 16
  for (int i = 0; i < packets; ++i) store(phase + q + i * width, sums[i]);
}

// The whole plane of a result.
template <class F>
void gather_plane(const WindowGradient& g, const std::vector<Reached>& phases, const Planes& planes,
                  const Packet& start, float* to, F f) {
  const Window& w = g.w;
  const int64_t pixels = w.image_h * w.image_w;
  alignas(64) float fill[width];
  Eigen::internal::pstore(fill, start);
  std::fill_n(to, w.h * w.w, fill[0]);  // where no window reaches
  for (const Reached& phase : phases) {
    int64_t q = 0;
    for (; q + at_once * width <= pixels; q += at_once * width) fold<at_once>(phase.steps, q, start, planes.phase, f);
    for (; q < pixels; q += width) fold<1>(phase.steps, q, start, planes.phase, f);
    // To rows and columns of the plane.
    const int64_t reach = w.w - 1 + w.pad_left - phase.x;  // of the last column
    const int64_t first = phase.x >= w.pad_left ? 0 : (w.pad_left - phase.x + w.stride_w - 1) / w.stride_w,
                  last = reach < 0 ? 0 : std::min(w.image_w, reach / w.stride_w + 1);
    for (int64_t y = 0; y < w.image_h; ++y) {
      const int64_t row = y * w.stride_h + phase.y - w.pad_top;
      if (row < 0 || row >= w.h) continue;
      const float* from = planes.phase + y * w.image_w;
      float* out = to + row * w.w + phase.x - w.pad_left;
      if (w.stride_w == 1) {
        if (first < last) std::memcpy(out + first, from + first, static_cast<size_t>(last - first) * sizeof(float));
      } else if (w.stride_w == 2) {
        for (int64_t x = first; x < last; ++x) out[2 * x] = from[x];
      } else {
        for (int64_t x = first; x < last; ++x) out[x * w.stride_w] = from[x];
      }
    }
  }
}

void copy_row(const float* from, int64_t count, float* to) {
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

void finish_plane(const Epilogue& epilogue, const KernelCall& call, int64_t plane, const Window& w) {
  if (!epilogue.empty()) epilogue.apply(output(call), plane * w.h * w.w, w.h * w.w);
}

// The gradient of a depthwise convolution by its operand: a transposed one, whose groups have one filter each.
void run_transpose(const KernelCall& call) {
  const DepthwiseBlocks blocks = depthwise_blocks_of(*call.desc);
  if (blocks.pays()) return run_depthwise_transpose_blocks(call, blocks);
  const WindowGradient g = window_gradient_of(*call.desc);
  const Window& w = g.w;
  const Epilogue epilogue(call);
  const float* bias = call.desc->own_inputs() > 2 ? input(call, 2) : nullptr;
  const int64_t channels = g.flats, planes = w.batch * w.channels;  // w's are those of the result
  const std::vector<Reached> phases = phases_of(g);
  clear(call, g, 0);
  parallel_for_workers(call, planes, [&](int64_t plane, int worker) {
    const Planes p = planes_of(call, g, worker);
    const float* dy = input(call, 0) + plane * channels * w.out_pixels();
    for (int64_t c = 0; c < channels; ++c) {
      fill_flat(g, p.flat + c * g.flat_floats(),
                [&](float* row, int64_t y) { copy_row(dy + c * w.out_pixels() + y * w.out_w, w.out_w, row); });
    }
    const int64_t channel = plane % w.channels;
    const float* weights = input(call, 1) + channel * channels * w.taps();
    gather_plane(g, phases, p, broadcast(bias == nullptr ? 0.0f : bias[channel]), output(call) + plane * w.h * w.w,
                 [&](const Packet& sum, int64_t tap, int64_t at) {
                   return multiply_add(broadcast(weights[tap]), load(p.flat + at), sum);
                 });
    finish_plane(epilogue, call, plane, w);
  });
}

void run_average_pool_gradient(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const WindowGradient g = window_gradient_of(desc);
  const Window& w = g.w;
  const Epilogue epilogue(call);
  const bool with_pads = attr_int(desc.attrs, "count_include_pad") != 0;
  const auto rows = counts_of(w.out_h, w.kernel_h, w.stride_h, w.h, w.pad_top, w.pad_bottom, with_pads);
  const auto columns = counts_of(w.out_w, w.kernel_w, w.stride_w, w.w, w.pad_left, w.pad_right, with_pads);
  const std::vector<Reached> phases = phases_of(g);
  clear(call, g, 0);
  parallel_for_workers(call, w.batch * w.channels, [&](int64_t plane, int worker) {
    const Planes p = planes_of(call, g, worker);
    const float* dy = input(call, 0) + plane * w.out_pixels();
    fill_flat(g, p.flat, [&](float* row, int64_t y) {
      const Packet in_column = broadcast(rows[static_cast<size_t>(y)]);
      map_row(
          row, w.out_w, [&](const Packet& x, const Packet& in_row) { return divide(x, multiply(in_row, in_column)); },
          dy + y * w.out_w, columns.data());
    });
    gather_plane(g, phases, p, zeros(), output(call) + plane * w.h * w.w,
                 [&](const Packet& sum, int64_t, int64_t at) { return add(sum, load(p.flat + at)); });
    finish_plane(epilogue, call, plane, w);
  });
}

// Which tap has the first of the largest of each window, as numbers, flat; padding, which is NaN in the image, never.
void find_largest(const WindowGradient& g, const float* image, const std::vector<int64_t>& taps, float* chosen) {
  using namespace Eigen::internal;
  const Window& w = g.w;
  const int64_t n = w.flat_pixels();
  for (int64_t p = 0; p < n; p += width) {
    Packet best = broadcast(-std::numeric_limits<float>::infinity()), which = broadcast(-1.0f);
    for (size_t t = 0; t < taps.size(); ++t) {
      const Packet value = load(image + taps[t] + p);
      const Packet none = pand(pcmp_lt(which, zeros()), pcmp_eq(value, value));
      const Packet wins = por(pcmp_lt(best, value), none);
      best = pselect(wins, value, best);
      which = pselect(wins, broadcast(static_cast<float>(t)), which);
    }
    store(chosen + p, which);
  }
}

void run_max_pool_gradient(const KernelCall& call) {
  const WindowGradient g = window_gradient_of(*call.desc);
  const Window& w = g.w;
  const Epilogue epilogue(call);
  constexpr float outside = std::numeric_limits<float>::quiet_NaN();
  std::vector<int64_t> taps;
  for (int64_t i = 0; i < w.kernel_h; ++i) {
    for (int64_t j = 0; j < w.kernel_w; ++j) taps.push_back(w.tap_offset(i, j));
  }
  const std::vector<Reached> phases = phases_of(g);
  clear(call, g, -1);  // no tap
  parallel_for_workers(call, w.batch * w.channels, [&](int64_t plane, int worker) {
    const Planes p = planes_of(call, g, worker);
    const float* dy = input(call, 0) + plane * w.out_pixels();
    const float* x = input(call, 1) + plane * w.h * w.w;
    if (w.in_place) {
      copy_row(x, w.h * w.w, p.image);
    } else {
      make_image(w, x, outside, p.image);
    }
    fill_flat(g, p.flat, [&](float* row, int64_t y) { copy_row(dy + y * w.out_w, w.out_w, row); });
    float* chosen = p.more + g.margin();
    find_largest(g, p.image, taps, chosen);
    gather_plane(g, phases, p, zeros(), output(call) + plane * w.h * w.w,
                 [&](const Packet& sum, int64_t tap, int64_t at) {
                   const Packet is_it = Eigen::internal::pcmp_eq(load(chosen + at), broadcast(static_cast<float>(tap)));
                   return add(sum, Eigen::internal::pand(load(p.flat + at), is_it));
                 });
    finish_plane(epilogue, call, plane, w);
  });
}

// Lanes of the sums of some taps of a plane, added to those of the planes before.
template <int taps>
inline void add_taps(const float* image, const int64_t* offsets, const float* flat, int64_t n, float* lanes) {
  Packet sums[taps];
#pragma GCC unroll 16
  for (int t = 0; t < taps; ++t) sums[t] = load(lanes + t * width);
  for (int64_t p = 0; p < n; p += width) {
    const Packet dy = load(flat + p);
#pragma GCC unroll 16
    for (int t = 0; t < taps; ++t) sums[t] = multiply_add(load(image + offsets[t] + p), dy, sums[t]);
  }
#pragma GCC unroll 16
  for (int t = 0; t < taps; ++t) store(lanes + t * width, sums[t]);
}

// The gradient of a depthwise convolution by its weights: each a sum over flat planes, sample after sample, whose
// element i belongs to lane i mod width; the lanes are then taken one after another.
void run_weight_gradient(const KernelCall& call) {
  const DepthwiseBlocks blocks = depthwise_blocks_of(*call.desc);
  if (blocks.pays()) return run_depthwise_weight_gradient_blocks(call, blocks);
  const WindowGradient g = window_gradient_of(*call.desc);
  const Window& w = g.w;
  const int64_t filters = w.out_channels / w.channels;  // of each channel
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < w.kernel_h; ++i) {
    for (int64_t j = 0; j < w.kernel_w; ++j) offsets.push_back(w.tap_offset(i, j));
  }
  const int64_t taps = w.taps(), n = w.flat_pixels();
  clear(call, g, 0);  // what runs over is multiplied by zeros, so it must be numbers
  parallel_for_workers(call, w.out_channels, [&](int64_t filter, int worker) {
    const Planes p = planes_of(call, g, worker);
    std::fill_n(p.more, taps * width, 0.0f);
    for (int64_t sample = 0; sample < w.batch; ++sample) {
      const float* x = input(call, 0) + (sample * w.channels + filter / filters) * w.h * w.w;
      const float* dy = input(call, 1) + (sample * w.out_channels + filter) * w.out_pixels();
      if (w.in_place) {
        copy_row(x, w.h * w.w, p.image);
      } else {
        make_image(w, x, 0, p.image);
      }
      fill_flat(g, p.flat, [&](float* row, int64_t y) { copy_row(dy + y * w.out_w, w.out_w, row); });
      int64_t t = 0;
      for (; t + 9 <= taps; t += 9) add_taps<9>(p.image, offsets.data() + t, p.flat, n, p.more + t * width);
      for (; t + 3 <= taps; t += 3) add_taps<3>(p.image, offsets.data() + t, p.flat, n, p.more + t * width);
      for (; t < taps; ++t) add_taps<1>(p.image, offsets.data() + t, p.flat, n, p.more + t * width);
    }
    for (int64_t t = 0; t < taps; ++t) output(call)[filter * taps + t] = sum_of_lanes(load(p.more + t * width));
  });
  Epilogue(call).apply(output(call), 0, w.out_channels * taps);
}

}  // namespace

const KernelCode code::conv_transpose_depthwise = {run_transpose};
const KernelCode code::average_pool_gradient = {run_average_pool_gradient};
const KernelCode code::max_pool_gradient = {run_max_pool_gradient};
const KernelCode code::conv_weight_gradient_depthwise = {run_weight_gradient};

}  // namespace nlsplit::inline kernels

// Convolutions and transposed convolutions with weights that become known only at run time, as products: filters,
// packed as scalar panels, times the columns of all pixels (kernels/windows/pixel_columns.h). A transposed convolution
// with strides is one product for each phase of its result: the rows and columns that are equal modulo the strides see
// the same taps. An element is one chain over channels, then taps.
#include <algorithm>
#include <vector>

#include "kernels/layout.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"
#include "kernels/products/product.h"
#include "kernels/windows/image.h"
#include "kernels/windows/pixel_columns.h"
#include "kernels/windows/rows_to_pixels.h"

namespace nlsplit::inline kernels {
namespace {

// Results at every step-th row and column from (y, x) on, which see the same taps.
struct Phase {
  int64_t y = 0, x = 0, step_y = 1, step_x = 1;
  int64_t rows = 0, row = 0;     // how many
  int64_t start = 0;             // of the first one's pixel in the image
  std::vector<int64_t> taps;     // by their numbers
  std::vector<int64_t> offsets;  // channel by channel, of each tap
  int64_t packed = 0;            // of a group's packed weights, where this phase's begin

  int64_t pixels() const { return rows * row; }
};

void add_channels(const ConvProduct& c, const std::vector<int64_t>& of_taps, Phase& phase) {
  for (int64_t channel = 0; channel < c.channels; ++channel) {
    for (const int64_t at : of_taps) phase.offsets.push_back(channel * c.image.image_stride() + at);
  }
}

std::vector<Phase> phases_of_conv(const ConvProduct& c) {
  const Window& w = c.image;
  Phase all;
  all.rows = w.out_h, all.row = w.out_w;
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < w.kernel_h; ++i) {
    for (int64_t j = 0; j < w.kernel_w; ++j) {
      all.taps.push_back(i * w.kernel_w + j);
      offsets.push_back(w.tap_offset(i, j));
    }
  }
  if (w.taps() == 1 && w.image_w == w.out_w) all.rows = 1, all.row = w.out_pixels();  // then the rows are one
  add_channels(c, offsets, all);
  return {all};
}

std::vector<Phase> phases_of_transpose(const ConvProduct& c, const ConvTranspose& t) {
  std::vector<Phase> phases;
  int64_t packed = 0;
  for (int64_t y = 0; y < std::min(t.stride_h, t.out_h); ++y) {
    for (int64_t x = 0; x < std::min(t.stride_w, t.out_w); ++x) {
      Phase phase;
      phase.y = y, phase.x = x, phase.step_y = t.stride_h, phase.step_x = t.stride_w;
      phase.rows = (t.out_h - 1 - y) / t.stride_h + 1, phase.row = (t.out_w - 1 - x) / t.stride_w + 1;
      const int64_t top = y + t.pad_top, left = x + t.pad_left;
      phase.start = (top / t.stride_h + c.image.pad_top) * c.image.image_w + left / t.stride_w + c.image.pad_left;
      std::vector<int64_t> offsets;
      for (int64_t i = 0; i < t.kernel_h; ++i) {
        for (int64_t j = 0; j < t.kernel_w; ++j) {
          const int64_t down = i * t.dilation_h, right = j * t.dilation_w;
          if (down % t.stride_h != top % t.stride_h || right % t.stride_w != left % t.stride_w) continue;
          phase.taps.push_back(i * t.kernel_w + j);
          offsets.push_back(-(down / t.stride_h) * c.image.image_w - right / t.stride_w);
        }
      }
      add_channels(c, offsets, phase);
      phase.packed = packed;
      packed += c.filters * c.channels * static_cast<int64_t>(phase.taps.size());
      phases.push_back(std::move(phase));
    }
  }
  return phases;
}

// The weights of a transposed convolution lie as [channel][filter][tap]: panel p of a group's, for every phase of its
// taps.
void pack_turned_over(const ConvProduct& c, const std::vector<Phase>& phases, int64_t p, const float* weights,
                      float* to) {
  const ScalarPanels panels = scalar_panels(c.filters, tile_rows(level));
  const int64_t count = panels.rows_of(p), taps = c.taps, first = panels.begin(p);
  std::vector<float> turned(static_cast<size_t>(taps * count));
  for (int64_t channel = 0; channel < c.channels; ++channel) {
    const float* rows[tile_rows(level)];
    for (int64_t r = 0; r < count; ++r) rows[r] = weights + (channel * c.filters + first + r) * taps;
    if (static_cast<int64_t>(phases[0].taps.size()) == taps) {  // it is the only one
      rows_to_pixels(rows, count, taps, to + (first * c.channels + channel * count) * taps, count);
      continue;
    }
    rows_to_pixels(rows, count, taps, turned.data(), count);
    for (const Phase& phase : phases) {
      const auto own = static_cast<int64_t>(phase.taps.size());
      float* at = to + phase.packed + (first * c.channels + channel * count) * own;
      for (const int64_t tap : phase.taps) at = std::copy_n(turned.data() + tap * count, count, at);
    }
  }
}

// Rows of small images are too short for a call.
inline void copy_row_of(const float* from, int64_t count, float* to) {
  constexpr int64_t some = 4;
  int64_t i = 0;
  for (; i + line_floats <= count; i += line_floats) std::memcpy(to + i, from + i, line_floats * sizeof(float));
  for (; i + some <= count; i += some) std::memcpy(to + i, from + i, some * sizeof(float));
  for (; i < count; ++i) to[i] = from[i];
}

// One row of a phase to where it belongs.
void put_row(const Phase& phase, const float* from, float* to) {
  if (phase.step_x == 1) {
    copy_row_of(from, phase.row, to);
  } else if (phase.step_x == 2) {
    for (int64_t x = 0; x < phase.row; ++x) to[2 * x] = from[x];
  } else {
    for (int64_t x = 0; x < phase.row; ++x) to[x * phase.step_x] = from[x];
  }
}

void run(const KernelCall& call, const ConvProduct& c, const std::vector<Phase>& phases, const float* packed) {
  Epilogue epilogue(call);
  const EpilogueHead head = c.direct ? epilogue.take_head() : EpilogueHead{};
  const float* bias = call.desc->own_inputs() > 2 ? input(call, 2) : nullptr;
  float* images = workspace(call) + round_up(c.packed_floats(), widest_vector);
  float* result = images + round_up(c.images_floats(), widest_vector);
  float* panels = result + round_up(c.result_floats(), widest_vector);
  const int64_t out_pixels = c.out_h * c.out_w, channels = c.groups * c.channels, filters = c.groups * c.filters;
  for (int64_t sample = 0; sample < c.batch; sample += c.samples) {
    const int64_t count = std::min(c.samples, c.batch - sample);
    const float* planes = input(call, 0) + sample * channels * c.image.h * c.image.w;
    if (!c.image.in_place) {
      parallel_for(call, count * channels, [&](int64_t i) {
        make_image(c.image, planes + i * c.image.h * c.image.w, 0, images + i * c.image.image_stride());
      });
      planes = images;
    }
    float* out = output(call) + sample * filters * out_pixels;
    for (int64_t g = 0; g < c.groups; ++g) {
      for (const Phase& phase : phases) {
        const int64_t k = static_cast<int64_t>(phase.offsets.size()), n = count * phase.pixels();
        const float* weights = packed + g * c.filters * c.channels * c.taps + phase.packed;
        PixelColumns columns;
        columns.image = planes + g * c.channels * c.image.image_stride() + phase.start;
        columns.offsets = phase.offsets.data();
        columns.rows = phase.rows, columns.row = phase.row, columns.pitch = c.image.image_w;
        columns.sample = channels * c.image.image_stride();
        columns.exact = c.image.in_place;
        Finish finish;
        finish.row_bias = bias == nullptr ? nullptr : bias + g * c.filters;
        finish.head = head;
        float* to = c.direct ? out + g * c.filters * out_pixels : result;
        if (head.operand != nullptr) finish.head.operand += to - output(call);
        const Right right = {nullptr, 0, 0, false, &columns};
        const int64_t step = call.crew.workers <= 1
                                 ? n
                                 : std::max<int64_t>(round_up(n / (4 * call.crew.workers), product_columns_step),
                                                     2 * product_columns_step);
        parallel_for_workers(call, (n + step - 1) / step, [&](int64_t piece, int worker) {
          product_columns(piece * step, std::min(n, (piece + 1) * step), c.filters, n, k, {weights, 0, 0, true}, right,
                          to, finish, panels + worker * c.worker_floats());
        });
        if (c.direct) continue;
        parallel_for(call, c.filters, [&](int64_t f) {
          const float* from = result + f * n;
          for (int64_t s = 0; s < count; ++s) {
            float* plane = out + (s * filters + g * c.filters + f) * out_pixels + phase.y * c.out_w + phase.x;
            for (int64_t y = 0; y < phase.rows; ++y, from += phase.row)
              put_row(phase, from, plane + y * phase.step_y * c.out_w);
          }
        });
      }
    }
    if (!epilogue.empty()) {
      const int64_t first = out - output(call);
      parallel_for(call, count * filters,
                   [&](int64_t i) { epilogue.apply(output(call), first + i * out_pixels, out_pixels); });
    }
  }
}

void run_conv(const KernelCall& call) {
  const ConvProduct c = conv_product_of(*call.desc);
  const int64_t k = c.channels * c.taps;
  float* packed = workspace(call);
  parallel_for(call, c.groups, [&](int64_t g) {
    pack_left({input(call, 1) + g * c.filters * k, k, 1}, c.filters, k, packed + g * c.filters * k);
  });
  run(call, c, phases_of_conv(c), packed);
}

void run_transpose(const KernelCall& call) {
  const ConvProduct c = conv_product_of(*call.desc);
  const std::vector<Phase> phases = phases_of_transpose(c, conv_transpose_of(*call.desc));
  const int64_t group_floats = c.filters * c.channels * c.taps;
  float* packed = workspace(call);
  const int64_t panels = c.taps == 1 ? 0 : scalar_panels(c.filters, tile_rows(level)).count;
  const auto reached = std::ranges::find_if(phases, [](const Phase& phase) { return !phase.taps.empty(); });
  for (int64_t g = 0; c.taps == 1 && reached != phases.end() && g < c.groups; ++g) {  // a transposed matrix
    pack_left({input(call, 1) + g * group_floats, 1, c.filters}, c.filters, c.channels,
              packed + g * group_floats + reached->packed);
  }
  parallel_for(call, c.groups * panels, [&](int64_t i) {
    const int64_t g = i / panels;
    pack_turned_over(c, phases, i % panels, input(call, 1) + g * group_floats, packed + g * group_floats);
  });
  run(call, c, phases, packed);
}

}  // namespace

const KernelCode code::conv = {run_conv};
const KernelCode code::conv_transpose = {run_transpose};

}  // namespace nlsplit::inline kernels

// Direct convolutions with a result in blocks of channels: tiles of pixels times two blocks of output channels, summed
// over k in registers. What they read is the operand itself, or a padded image of it, sorted by phase of the stride so
// that neighbouring output pixels read neighbouring pixels (kernels/layout.h, Window).
#include <algorithm>
#include <vector>

#include "kernels/layout.h"
#include "kernels/module/run.h"
#include "kernels/products/microkernel.h"
#include "kernels/products/product.h"
#include "kernels/windows/blocked_image.h"
#include "kernels/windows/blocked_spots.h"
#include "kernels/windows/blocked_tile.h"
#include "kernels/windows/image.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t panel_width = tile_vectors * width;

// Everything about a call that does not depend on which samples and channels a piece of it works on.
struct Convolution {
  Window w;
  bool planar = false;
  int64_t group_channels = 0, group_filters = 0;
  int64_t image_group = 0;  // floats from a group's first channel to the next group's
  Steps steps;
  int64_t k = 0;
  const float* bias = nullptr;
};

Convolution convolution_of(const KernelCall& call, bool planar, int64_t block_stride) {
  Convolution c;
  c.w = window_of(*call.desc);
  c.planar = planar;
  c.group_channels = c.w.channels / c.w.groups;
  c.group_filters = c.w.out_channels / c.w.groups;
  c.k = c.group_channels * c.w.taps();
  c.bias = call.desc->own_inputs() > 2 ? input(call, 2) : nullptr;
  const int64_t lanes = planar ? 1 : width;
  c.image_group = (c.group_channels + lanes - 1) / lanes * block_stride;
  c.steps = steps_of(c.w, c.group_channels, lanes, block_stride);
  return c;
}

// The tiles [begin, end) of one panel of filters of one group. `out` and `operand` begin with the samples' first
// channel.
void run_panel(const Convolution& c, const KernelCall& call, const std::vector<Spot>& spots, size_t begin, size_t end,
               int64_t group, int64_t panel, const float* image, float* out, const EpilogueHead& head,
               const Epilogue& rest) {
  const int64_t filter = panel * panel_width;  // of the group
  const int64_t channel = group * c.group_filters + filter;
  const int64_t channels = std::min(panel_width, c.group_filters - filter);
  alignas(64) float bias[panel_width] = {};
  if (c.bias != nullptr) std::copy_n(c.bias + channel, channels, bias);
  TileShared shared{};
  shared.offsets = c.steps.offsets.data();
  shared.steps = static_cast<int64_t>(c.steps.offsets.size());
  shared.full_steps = c.steps.full_steps;
  shared.last_lanes = c.steps.last_lanes;
  shared.pitch = c.w.image_w * (c.planar ? 1 : width);
  shared.vectors = channels > width ? 2 : 1;
  shared.panel = input(call, 1) + group * c.k * round_up(c.group_filters, width) + filter * c.k;
  shared.bias = bias;
  shared.out_stride = c.w.out_pixels() * width;
  shared.low = head.low;
  shared.high = head.high;
  const bool is_last = filter + channels == c.group_filters;
  const float* next_panel = is_last ? shared.panel : shared.panel + c.k * panel_width;
  const bool reads_once = c.w.taps() == 1 && panel == 0;  // else the image is in a near cache already
  const int64_t first = channel * c.w.out_pixels();       // the panel's place in a sample
  int rows = 0, pixels = 0;
  TileFunction run = nullptr;
  for (size_t s = begin; s < end; ++s) {
    const Spot& spot = spots[s];
    if (spot.rows != rows || spot.pixels != pixels) {
      rows = spot.rows, pixels = spot.pixels;
      run = c.planar ? planar_tile(rows, pixels, shared.vectors) : blocked_tile(rows, pixels, shared.vectors);
    }
    const int64_t at = first + spot.out;
    shared.next_panel = s == begin ? shared.panel : next_panel;  // the first tile fetches its own
    shared.ahead = reads_once && s + 1 < end ? spots[s + 1].image - spot.image : 0;
    run(shared, {image + group * c.image_group + spot.image, out + at,
                 head.operand == nullptr ? nullptr : head.operand + (out - output(call)) + at, rows, pixels});
    if (rest.empty()) continue;
    for (int v = 0; v < shared.vectors; ++v) {
      rest.apply(output(call), out - output(call) + at + v * shared.out_stride,
                 static_cast<int64_t>(rows) * pixels * width);
    }
  }
}

// Tiles in blocks whose part of the image stays in a second-level cache while all filters pass over it.
void run_samples(const Convolution& c, const KernelCall& call, int64_t samples, const float* image,
                 int64_t image_sample, float* out, const EpilogueHead& head, const Epilogue& rest) {
  constexpr int64_t near_floats = 64 * 1024;
  const std::vector<Spot> spots = spots_of(c.w, samples, image_sample, c.planar ? 1 : width);
  const int64_t pixels = std::max<int64_t>(near_floats / std::max<int64_t>(c.group_channels, 1), 4 * most_tile_rows);
  const int64_t count = static_cast<int64_t>(spots.size());
  const int64_t all_pixels = samples * c.w.out_pixels();
  const int64_t blocks = std::max<int64_t>(1, std::min(count, all_pixels / pixels));
  const int64_t panels = (c.group_filters + panel_width - 1) / panel_width;
  parallel_for(call, blocks * c.w.groups * panels, [&](int64_t i) {
    const int64_t panel = i % panels, group = i / panels % c.w.groups, block = i / panels / c.w.groups;
    run_panel(c, call, spots, static_cast<size_t>(block * count / blocks),
              static_cast<size_t>((block + 1) * count / blocks), group, panel, image, out, head, rest);
  });
}

void run_blocked(const KernelCall& call) {
  const Window w = window_of(*call.desc);
  const int64_t blocks = (w.channels + width - 1) / width;
  const int64_t image_block = (w.in_place ? w.h * w.w : w.image_floats()) * width;
  const Convolution c = convolution_of(call, false, image_block);
  Epilogue epilogue(call);
  const EpilogueHead head = epilogue.take_head();
  const int64_t at_once = samples_at_once(w);
  const int64_t in_sample = blocks * w.h * w.w * width, out_sample = round_up(w.out_channels, width) * w.out_pixels();
  for (int64_t s = 0; s < w.batch; s += at_once) {
    const int64_t samples = std::min(at_once, w.batch - s);
    const float* from = input(call, 0) + s * in_sample;
    const float* image = from;
    if (!w.in_place) {
      image = workspace(call);
      parallel_for(call, samples * blocks, [&](int64_t i) {
        make_blocked_image(w, from + i * w.h * w.w * width, workspace(call) + i * image_block);
      });
    }
    run_samples(c, call, samples, image, blocks * image_block, output(call) + s * out_sample, head, epilogue);
  }
}

void run_stem(const KernelCall& call) {
  const Window w = window_of(*call.desc);
  const Convolution c = convolution_of(call, true, w.image_stride());
  Epilogue epilogue(call);
  const EpilogueHead head = epilogue.take_head();
  const int64_t out_sample = round_up(w.out_channels, width) * w.out_pixels();
  for (int64_t s = 0; s < w.batch; ++s) {
    const float* planes = input(call, 0) + s * w.channels * w.h * w.w;
    const float* image = planes;
    if (!w.in_place) {
      image = workspace(call);
      parallel_for(call, w.channels, [&](int64_t i) {
        make_image(w, planes + i * w.h * w.w, 0, workspace(call) + i * w.image_stride());
      });
    }
    run_samples(c, call, 1, image, 0, output(call) + s * out_sample, head, epilogue);
  }
}

// Vector panels over k in the order of the steps: block of channels, row and column of the filter, channel.
void pack_blocked(const ComputeDesc& desc, size_t, const void* raw, void* packed) {
  const Window w = window_of(desc);
  const int64_t channels = w.channels / w.groups, filters = w.out_channels / w.groups, taps = w.taps();
  const auto* weights = static_cast<const float*>(raw);
  auto* to = static_cast<float*>(packed);
  for (int64_t g = 0; g < w.groups; ++g) {
    for (int64_t f0 = 0; f0 < filters; f0 += panel_width) {
      const int64_t lanes = filters - f0 > width ? panel_width : width;
      for (int64_t c0 = 0; c0 < channels; c0 += width) {
        for (int64_t t = 0; t < taps; ++t) {
          for (int64_t c = c0; c < std::min<int64_t>(c0 + width, channels); ++c) {
            for (int64_t f = f0; f < f0 + lanes; ++f) {
              *to++ = f < filters ? weights[((g * filters + f) * channels + c) * taps + t] : 0.0f;
            }
          }
        }
      }
    }
  }
}

void pack_stem(const ComputeDesc& desc, size_t, const void* raw, void* packed) {
  const Window w = window_of(desc);
  const int64_t k = w.channels * w.taps();
  pack_right({static_cast<const float*>(raw), 1, k}, k, w.out_channels, static_cast<float*>(packed));
}

}  // namespace

const KernelCode code::conv_blocked = {run_blocked, pack_blocked};
const KernelCode code::conv_stem = {run_stem, pack_stem};

}  // namespace nlsplit::inline kernels

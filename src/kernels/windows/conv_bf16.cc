// Direct convolutions of bfloat16 with a result in blocks of channels: conv_blocked.cc's tiles, where a scalar is a
// pair of neighbouring channels (kernels/module/bf16_pairs.h) and a pixel of the image half as many floats. An element
// is one chain over k that starts from its bias; what it becomes is rounded once, behind the epilogue.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "kernels/functions/bf16_epilogue.h"
#include "kernels/layout.h"
#include "kernels/module/run.h"
#include "kernels/products/microkernel.h"
#include "kernels/windows/blocked_image.h"
#include "kernels/windows/blocked_spots.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t pair_panel_width = tile_vectors * width;

// What many tiles share.
struct PairedShared {
  const int64_t* offsets;
  int64_t steps, full_steps, lanes, last_lanes;
  int64_t pitch;  // floats from one row of the image to the next
  const float* panel;
  const float* bias;  // a whole vector for each block
  const float* next_panel;
  int64_t ahead;  // floats, as kernels/windows/blocked_tile.h has both
  // What becomes of the sums; nullopt: they are stored as they are.
  std::optional<Bf16Head> head;
  int64_t out_block;  // elements from one block of channels to the next
};

struct PairedAt {
  const float* image;
  float* sums;  // block after block of channels
  uint16_t* out;
  const uint16_t* added;  // or null
};
using PairedTile = void (*)(const PairedShared& shared, const PairedAt& at);

// Some of them would not be rounded rightly in registers.
__attribute__((noinline)) void store_doubtful(const PairedShared& shared, const PairedAt& at, int64_t pixels,
                                              int64_t vectors) {
  for (int64_t v = 0; v < vectors; ++v) {
    for (int64_t p = 0; p < pixels; ++p)
      store_bf16(at.out + v * shared.out_block + p * width, load(at.sums + (v * pixels + p) * width), width);
  }
}

template <int all, int vectors>
inline void store_sums(const Packet (&sum)[all * vectors], float* to) {
#pragma GCC unroll 2
  for (int v = 0; v < vectors; ++v) {
#pragma GCC unroll 16
    for (int p = 0; p < all; ++p) store(to + (v * all + p) * width, sum[p * vectors + v]);
  }
}

// The sums go through the head and are rounded in registers.
template <class Rounds, bool adds, int all, int vectors>
inline void store_rounded(const PairedShared& shared, const PairedAt& at, Packet (&sum)[all * vectors]) {
  const Packet low = broadcast(shared.head->low), high = broadcast(shared.head->high);
  int doubt = 0;
#pragma GCC unroll 2
  for (int v = 0; v < vectors; ++v) {
#pragma GCC unroll 16
    for (int p = 0; p < all; ++p) {
      Packet& x = sum[p * vectors + v];
      if constexpr (adds) x = add(x, load_bf16(at.added + v * shared.out_block + p * width));
      x = at_most(at_least(x, low), high);
      doubt |= Rounds::doubt(x);
    }
  }
  if (doubt != 0) {
    store_sums<all, vectors>(sum, at.sums);
    return store_doubtful(shared, at, all, vectors);
  }
#pragma GCC unroll 2
  for (int v = 0; v < vectors; ++v) {
    uint16_t* const to = at.out + v * shared.out_block;
#pragma GCC unroll 16
    for (int p = 0; p + 1 < all; p += 2)
      Rounds::store_two(to + p * width, sum[p * vectors + v], sum[(p + 1) * vectors + v]);
    if constexpr (all % 2 == 1) Rounds::store_one(to + (all - 1) * width, sum[(all - 1) * vectors + v]);
  }
}

// `pixel`: floats of one; 0: as many as there are lanes.
template <class How, int64_t pixel, int rows, int pixels, int vectors>
void run_paired_tile(const PairedShared& shared, const PairedAt& at) {
  constexpr int all = rows * pixels;
  const int64_t pixel_floats = pixel == 0 ? shared.lanes : pixel;
  Packet sum[all * vectors];
#pragma GCC unroll 2
  for (int v = 0; v < vectors; ++v) {
    const Packet start = load(shared.bias + v * width);
#pragma GCC unroll 16
    for (int p = 0; p < all; ++p) sum[p * vectors + v] = start;
  }
  const float* panel = shared.panel;
  const float* next_panel = shared.next_panel;
  {
    [[maybe_unused]] const typename How::Surroundings surroundings;
    for (int64_t i = 0; i < shared.steps; ++i) {
      const float* from = at.image + shared.offsets[i];
      const int64_t lanes = i < shared.full_steps ? shared.lanes : shared.last_lanes;
      const float* next_image = from + shared.ahead;
      for (const float* end = from + lanes; from != end; ++from) {
        fetch_near(next_image);
        next_image += pixel_floats;
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) fetch(next_panel + v * width);
        next_panel += vectors * width;
        Packet column[vectors];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) column[v] = load(panel + v * width);
        const float* row = from;
#pragma GCC unroll 2
        for (int y = 0; y < rows; ++y) {
#pragma GCC unroll 16
          for (int x = 0; x < pixels; ++x) {
            const Packet scalar = broadcast_pair(row + x * pixel_floats);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v) How::add(sum[(y * pixels + x) * vectors + v], scalar, column[v]);
          }
          row += shared.pitch;
        }
        panel += vectors * width;
      }
    }
  }
  if (!shared.head) return store_sums<all, vectors>(sum, at.sums);
  if (at.added != nullptr) return store_rounded<typename How::Rounds, true, all, vectors>(shared, at, sum);
  store_rounded<typename How::Rounds, false, all, vectors>(shared, at, sum);
}

template <class How, int64_t pixel, int rows, int vectors, int... p>
constexpr auto paired_functions_of(std::integer_sequence<int, p...>) {
  return std::array<PairedTile, sizeof...(p)>{run_paired_tile<How, pixel, rows, p + 1, vectors>...};
}

template <class How, int64_t pixel>
PairedTile paired_tile_of(int rows, int pixels, int64_t vectors) {
  using OneRow = std::make_integer_sequence<int, most_tile_rows>;
  using TwoRows = std::make_integer_sequence<int, most_tile_rows / 2>;
  static constexpr std::array one_row = {paired_functions_of<How, pixel, 1, 1>(OneRow{}),
                                         paired_functions_of<How, pixel, 1, 2>(OneRow{})};
  static constexpr std::array two_rows = {paired_functions_of<How, pixel, 2, 1>(TwoRows{}),
                                          paired_functions_of<How, pixel, 2, 2>(TwoRows{})};
  const auto v = static_cast<size_t>(vectors - 1), p = static_cast<size_t>(pixels - 1);
  return rows == 1 ? one_row[v][p] : two_rows[v][p];
}

PairedTile paired_tile(bool planar, int rows, int pixels, int64_t vectors) {
#if defined(__AVX512BW__)
  if (has_pair_instruction())
    return planar ? paired_tile_of<PairsByInstruction, 0>(rows, pixels, vectors)
                  : paired_tile_of<PairsByInstruction, width / 2>(rows, pixels, vectors);
#endif
  return planar ? paired_tile_of<PairsByFloats, 0>(rows, pixels, vectors)
                : paired_tile_of<PairsByFloats, width / 2>(rows, pixels, vectors);
}

struct PairedConvolution {
  Window w;
  bool planar = false;
  int64_t lanes = 0;  // floats of a pixel in the image
  int64_t group_filters = 0, k = 0;
  int64_t image_group = 0;
  Steps steps;
  const uint16_t* bias = nullptr;
};

PairedConvolution paired_convolution_of(const KernelCall& call, bool planar, int64_t block_stride) {
  PairedConvolution c;
  c.w = window_of(*call.desc);
  c.planar = planar;
  const int64_t pairs = pairs_of(c.w.channels / c.w.groups);
  c.lanes = planar ? pairs : width / 2;
  c.group_filters = c.w.out_channels / c.w.groups;
  c.k = pairs * c.w.taps();
  c.image_group = (pairs + c.lanes - 1) / c.lanes * block_stride;
  c.steps = steps_of(c.w, pairs, c.lanes, block_stride);
  c.bias = call.desc->own_inputs() > 2 ? static_cast<const uint16_t*>(call.inputs[2]) : nullptr;
  return c;
}

// The tiles [begin, end) of one panel of filters of one group. `out`: where the samples begin in the result.
void run_paired_panel(const PairedConvolution& c, const KernelCall& call, const std::vector<Spot>& spots, size_t begin,
                      size_t end, int64_t group, int64_t panel, const float* image, int64_t out,
                      const Bf16Epilogue& epilogue) {
  const int64_t filter = panel * pair_panel_width, channel = group * c.group_filters + filter;
  const int64_t channels = std::min(pair_panel_width, c.group_filters - filter);
  const int64_t vectors = channels > width ? 2 : 1;
  alignas(64) float bias[pair_panel_width] = {};
  for (int64_t i = 0; c.bias != nullptr && i < channels; ++i) bias[i] = bf16_value(c.bias[channel + i]);
  PairedShared shared{};
  shared.offsets = c.steps.offsets.data();
  shared.steps = static_cast<int64_t>(c.steps.offsets.size());
  shared.full_steps = c.steps.full_steps;
  shared.lanes = c.lanes;
  shared.last_lanes = c.steps.last_lanes;
  shared.pitch = c.w.image_w * c.lanes;
  shared.panel = input(call, 1) + group * c.k * round_up(c.group_filters, width) + filter * c.k;
  shared.bias = bias;
  shared.head = epilogue.as_head();
  shared.out_block = c.w.out_pixels() * width;
  const bool is_last = filter + channels == c.group_filters;
  const float* next_panel = is_last ? shared.panel : shared.panel + c.k * pair_panel_width;
  const bool reads_once = c.w.taps() == 1 && panel == 0;  // else the image is in a near cache already
  const int64_t first = out + channel * c.w.out_pixels();
  alignas(64) float sums[most_tile_rows * pair_panel_width];
  int rows = 0, pixels = 0;
  PairedTile run = nullptr;
  for (size_t s = begin; s < end; ++s) {
    const Spot& spot = spots[s];
    if (spot.rows != rows || spot.pixels != pixels) {
      rows = spot.rows, pixels = spot.pixels;
      run = paired_tile(c.planar, rows, pixels, vectors);
    }
    shared.next_panel = s == begin ? shared.panel : next_panel;  // the first tile fetches its own
    shared.ahead = reads_once && s + 1 < end ? spots[s + 1].image - spot.image : 0;
    const int64_t count = int64_t{rows} * pixels * width;
    const Bf16Tile tile{sums, vectors, count, count, first + spot.out, shared.out_block};
    epilogue.fetch_ahead(tile);
    run(shared, {image + group * c.image_group + spot.image, sums, epilogue.output() + tile.offset,
                 shared.head && shared.head->added != nullptr ? shared.head->added + tile.offset : nullptr});
    if (!shared.head) epilogue.apply(tile);
  }
}

// Tiles in blocks whose part of the image stays in a second-level cache while all filters pass over it.
void run_paired_samples(const PairedConvolution& c, const KernelCall& call, int64_t samples, const float* image,
                        int64_t image_sample, int64_t out, const Bf16Epilogue& epilogue) {
  constexpr int64_t near_floats = 64 * 1024;
  const std::vector<Spot> spots = spots_of(c.w, samples, image_sample, c.lanes);
  const int64_t pixels = std::max<int64_t>(near_floats / std::max<int64_t>(c.k / c.w.taps(), 1), 4 * most_tile_rows);
  const int64_t count = static_cast<int64_t>(spots.size());
  const int64_t blocks = std::max<int64_t>(1, std::min(count, samples * c.w.out_pixels() / pixels));
  const int64_t panels = (c.group_filters + pair_panel_width - 1) / pair_panel_width;
  parallel_for(call, blocks * c.w.groups * panels, [&](int64_t i) {
    const int64_t panel = i % panels, group = i / panels % c.w.groups, block = i / panels / c.w.groups;
    run_paired_panel(c, call, spots, static_cast<size_t>(block * count / blocks),
                     static_cast<size_t>((block + 1) * count / blocks), group, panel, image, out, epilogue);
  });
}

void run_conv_bf16(const KernelCall& call) {
  const Window w = window_of(*call.desc);
  constexpr int64_t pixel = width / 2;
  const int64_t blocks = (w.channels + width - 1) / width;
  const int64_t image_block = (w.in_place ? w.h * w.w : w.image_floats()) * pixel;
  const PairedConvolution c = paired_convolution_of(call, false, image_block);
  const Bf16Epilogue epilogue(call);
  const int64_t at_once = samples_at_once(w);
  const int64_t in_sample = blocks * w.h * w.w * pixel, out_sample = round_up(w.out_channels, width) * w.out_pixels();
  for (int64_t s = 0; s < w.batch; s += at_once) {
    const int64_t samples = std::min(at_once, w.batch - s);
    const float* from = input(call, 0) + s * in_sample;
    const float* image = from;
    if (!w.in_place) {
      image = workspace(call);
      parallel_for(call, samples * blocks, [&](int64_t i) {
        make_paired_image(w, from + i * w.h * w.w * pixel, workspace(call) + i * image_block);
      });
    }
    run_paired_samples(c, call, samples, image, blocks * image_block, s * out_sample, epilogue);
  }
}

// Row y of phase (phase_y, phase_x) of the image of planes of halves: pixels of all channels, pair by pair.
void make_row_of_pairs(const Window& w, const uint16_t* planes, int64_t phase_y, int64_t phase_x, int64_t y,
                       float* to) {
  const int64_t pairs = pairs_of(w.channels), start = phase_x - w.pad_left;
  const IndexRange columns = inside(start, w.stride_w, w.w, w.image_w);
  const int64_t source = y * w.stride_h + phase_y - w.pad_top;
  std::fill(to, to + w.image_w * pairs, 0.0f);
  if (source < 0 || source >= w.h) return;
  for (int64_t p = 0; p < pairs; ++p) {
    const uint16_t* first = planes + (2 * p * w.h + source) * w.w + start;
    const uint16_t* second = 2 * p + 1 < w.channels ? first + w.h * w.w : nullptr;
    for (int64_t x = columns.begin; x < columns.end; ++x) {
      const int64_t at = x * w.stride_w;
      to[x * pairs + p] = pair_of(first[at], second == nullptr ? uint16_t{0} : second[at]);
    }
  }
}

void run_conv_stem_bf16(const KernelCall& call) {
  const Window w = window_of(*call.desc);
  const PairedConvolution c = paired_convolution_of(call, true, 0);
  const Bf16Epilogue epilogue(call);
  const int64_t rows = w.stride_h * w.stride_w * w.image_h, row_floats = w.image_w * c.lanes;
  const int64_t out_sample = round_up(w.out_channels, width) * w.out_pixels();
  for (int64_t s = 0; s < w.batch; ++s) {
    const auto* planes = static_cast<const uint16_t*>(call.inputs[0]) + s * w.channels * w.h * w.w;
    parallel_for(call, rows, [&](int64_t i) {
      const int64_t phase = i / w.image_h;
      make_row_of_pairs(w, planes, phase / w.stride_w, phase % w.stride_w, i % w.image_h,
                        workspace(call) + i * row_floats);
    });
    run_paired_samples(c, call, 1, workspace(call), 0, s * out_sample, epilogue);
  }
}

// Vector panels over k in the order of the steps: block of `lanes` pairs of channels, row and column of the filter,
// pair.
void pack_pairs_of_channels(const ComputeDesc& desc, int64_t lanes, const void* raw, void* packed) {
  const Window w = window_of(desc);
  const int64_t channels = w.channels / w.groups, filters = w.out_channels / w.groups, taps = w.taps();
  const int64_t pairs = pairs_of(channels);
  const auto* weights = static_cast<const uint16_t*>(raw);
  auto* to = static_cast<float*>(packed);
  for (int64_t g = 0; g < w.groups; ++g) {
    for (int64_t f0 = 0; f0 < filters; f0 += pair_panel_width) {
      const int64_t wide = filters - f0 > width ? pair_panel_width : width;
      for (int64_t p0 = 0; p0 < pairs; p0 += lanes) {
        for (int64_t t = 0; t < taps; ++t) {
          for (int64_t p = p0; p < std::min(p0 + lanes, pairs); ++p) {
            for (int64_t f = f0; f < f0 + wide; ++f) {
              const uint16_t* at = weights + ((g * filters + f) * channels + 2 * p) * taps + t;
              *to++ = f >= filters ? 0.0f : pair_of(at[0], 2 * p + 1 < channels ? at[taps] : uint16_t{0});
            }
          }
        }
      }
    }
  }
}

void pack_conv_bf16(const ComputeDesc& desc, size_t, const void* raw, void* packed) {
  pack_pairs_of_channels(desc, width / 2, raw, packed);
}

void pack_conv_stem_bf16(const ComputeDesc& desc, size_t, const void* raw, void* packed) {
  pack_pairs_of_channels(desc, pairs_of(window_of(desc).channels), raw, packed);
}

}  // namespace

const KernelCode code::conv_bf16 = {run_conv_bf16, pack_conv_bf16};
const KernelCode code::conv_stem_bf16 = {run_conv_stem_bf16, pack_conv_stem_bf16};

}  // namespace nlsplit::inline kernels

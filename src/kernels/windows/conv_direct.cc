// Convolution by vectors of output channels: a register tile is up to most_tile_rows neighbouring output pixels times
// two packets of channels; the pixels' inputs are broadcast straight from the padded image, the weights stream from
// packed panels. No im2col, any stride and dilation (the image is sorted by phase), and small images fill the vectors
// as well as large ones. Georganas et al., "Anatomy of high-performance deep learning convolutions on SIMD
// architectures", SC 2018, is the model.
#include <algorithm>
#include <array>
#include <vector>

#include "kernels/module/run.h"
#include "kernels/products/microkernel.h"
#include "kernels/products/product.h"
#include "kernels/windows/image.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t panel_width = tile_vectors * width;
// Tiles that share a block of weights before the next block is fetched; their partial sums (28 KiB at most) wait on the
// stack.
constexpr int64_t block_tiles = 16;
constexpr int64_t block_floats = block_tiles * most_tile_rows * panel_width;

struct TileAt {
  int64_t image = 0;  // of its first pixel's first tap
  int64_t pixel = 0;  // its first in the output; the others follow
  int rows = 1;       // of the image
  int pixels = 1;     // of each row
};

struct TileWork {
  const float* image;
  int64_t pitch;
  const int64_t* offsets;
  const float* panel;
  int64_t k;
  float* partial;  // sums between blocks of k
  bool first, last;
  float* out;            // channel 0 of the panel, pixel 0 of the tile
  int64_t out_stride;    // from channel to channel
  int64_t channels;      // how many of the panel's are real
  const float* bias;     // of channel 0 of the panel, or null
  const float* operand;  // likewise, where out is
  const EpilogueHead* head;
};

// Channels by pixels → pixels by channels, and out: `pixels` of the tile's, at most a vector of them.
template <int first, int pixels, int all, int vectors>
void finish_pixels(const TileWork& work, const Tile<all, vectors>& tile) {
  for (int v = 0; v < vectors; ++v) {
    Eigen::internal::PacketBlock<Packet, width> block;
#pragma GCC unroll 16
    for (int i = 0; i < width; ++i) block.packet[i] = i < pixels ? tile.at[(first + i) * vectors + v] : zeros();
    Eigen::internal::ptranspose(block);
    const int64_t channels = std::min<int64_t>(width, work.channels - v * width);
    const float* bias = work.bias == nullptr ? nullptr : work.bias + v * width;
    const float* operand = work.operand == nullptr ? nullptr : work.operand + first + v * width * work.out_stride;
    float* to = work.out + first + v * width * work.out_stride;
    const Packet low = broadcast(work.head->low), high = broadcast(work.head->high);
#pragma GCC unroll 16
    for (int c = 0; c < width; ++c) {
      if (c >= channels) break;
      Packet sum = block.packet[c];
      if (bias != nullptr) sum = add(sum, broadcast(bias[c]));
      if (operand != nullptr) sum = add(sum, load_first<pixels>(operand + c * work.out_stride));
      if (work.head->clamps) sum = at_most(at_least(sum, low), high);
      store_first<pixels>(to + c * work.out_stride, sum);
    }
  }
}

// neon's tiles are three vectors long, the others' not even one.
template <int pixels, int vectors>
void finish_tile(const TileWork& work, const Tile<pixels, vectors>& tile) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (finish_pixels<i * width, std::min(width, pixels - i * width)>(work, tile), ...);
  }
  (std::make_integer_sequence<int, (pixels + width - 1) / width>{});
}

template <int rows, int pixels, int vectors>
void run_tile(const TileWork& work) {
  constexpr int all = rows * pixels;
  Tile<all, vectors> tile;
  if (work.first) {
    tile.clear();
  } else {
    for (int i = 0; i < all * vectors; ++i) tile.at[i] = load(work.partial + i * width);
  }
  accumulate_image<rows, pixels, vectors>(tile, work.image, work.pitch, work.offsets, work.panel, work.k);
  if (work.last) {
    finish_tile<all, vectors>(work, tile);
  } else {
    for (int i = 0; i < all * vectors; ++i) store(work.partial + i * width, tile.at[i]);
  }
}

using TileFunction = void (*)(const TileWork&);

template <int rows, int vectors, int... p>
constexpr auto functions_of(std::integer_sequence<int, p...>) {
  return std::array<TileFunction, sizeof...(p)>{run_tile<rows, p + 1, vectors>...};
}
// [vectors - 1][pixels - 1]
using OneRow = std::make_integer_sequence<int, most_tile_rows>;
using TwoRows = std::make_integer_sequence<int, most_tile_rows / 2>;
constexpr std::array one_row = {functions_of<1, 1>(OneRow{}), functions_of<1, 2>(OneRow{})};
constexpr std::array two_rows = {functions_of<2, 1>(TwoRows{}), functions_of<2, 2>(TwoRows{})};
static_assert(tile_vectors == 2);

// The output's pixels as tiles, in order. Two whole rows share a tile where both fit.
std::vector<TileAt> tiles_of(const Window& w) {
  std::vector<TileAt> tiles;
  const bool flat = w.taps() == 1 && w.image_w == w.out_w;  // then the rows are one
  const int64_t out_h = flat ? 1 : w.out_h, out_w = flat ? w.out_pixels() : w.out_w;
  const ScalarPanels cut = scalar_panels(out_w, most_tile_rows);
  for (int64_t y = 0; y < out_h; ++y) {
    if (2 * out_w <= most_tile_rows && y + 1 < out_h) {
      tiles.push_back({y * w.image_w, y * out_w, 2, static_cast<int>(out_w)});
      ++y;
      continue;
    }
    for (int64_t i = 0; i < cut.count; ++i) {
      tiles.push_back({y * w.image_w + cut.begin(i), y * out_w + cut.begin(i), 1, static_cast<int>(cut.rows_of(i))});
    }
  }
  return tiles;
}

struct Filters {
  const float* packed;
  const float* bias;  // of the group's first channel, or null
  int64_t channels;   // of the group
  int64_t k;
};

// One group of one sample. `out` is its first channel.
void convolve(const Window& w, const std::vector<TileAt>& tiles, const std::vector<int64_t>& offsets,
              const float* image, const Filters& filters, float* out, const EpilogueHead& head, const float* operand,
              const Epilogue& rest, float* whole_output) {
  alignas(64) float partial[block_floats];
  const int64_t pixels = w.out_pixels();
  const int64_t k = filters.k;
  for (size_t t0 = 0; t0 < tiles.size(); t0 += block_tiles) {
    const size_t t1 = std::min(tiles.size(), t0 + block_tiles);
    const int64_t p0 = tiles[t0].pixel, p1 = t1 == tiles.size() ? pixels : tiles[t1].pixel;
    for (int64_t channel = 0; channel < filters.channels; channel += panel_width) {
      TileWork work{};
      work.pitch = w.image_w;
      work.out_stride = pixels;
      work.channels = std::min(panel_width, filters.channels - channel);
      work.bias = filters.bias == nullptr ? nullptr : filters.bias + channel;
      work.head = &head;
      const int64_t vectors = work.channels > width ? 2 : 1;
      for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += k_block) {
        work.k = std::min(k_block, k - k0);
        work.first = k0 == 0;
        work.last = k0 + work.k >= k;
        work.offsets = offsets.data() + k0;
        work.panel = filters.packed + channel * k + k0 * vectors * width;
        for (size_t t = t0; t < t1; ++t) {
          const TileAt& tile = tiles[t];
          work.image = image + tile.image;
          work.partial = partial + static_cast<int64_t>(t - t0) * most_tile_rows * panel_width;
          const int64_t at = channel * pixels + tile.pixel;
          work.out = out + at;
          work.operand = operand == nullptr ? nullptr : operand + at;
          const auto& functions = tile.rows == 1 ? one_row[static_cast<size_t>(vectors - 1)].data()
                                                 : two_rows[static_cast<size_t>(vectors - 1)].data();
          functions[tile.pixels - 1](work);
        }
      }
      if (rest.empty()) continue;
      for (int64_t c = channel; c < channel + work.channels; ++c) {
        rest.apply(whole_output, out - whole_output + c * pixels + p0, p1 - p0);
      }
    }
  }
}

void pack_filters(const Window& w, const float* raw, float* packed) {
  const int64_t k = w.channels / w.groups * w.taps();
  const int64_t channels = w.out_channels / w.groups;
  for (int64_t g = 0; g < w.groups; ++g) {
    pack_right({raw + g * channels * k, 1, k}, k, channels, packed);
    packed += k * round_up(channels, width);
  }
}

// scratch: conv_image_floats.
void run(const KernelCall& call, const float* packed, float* scratch) {
  const ComputeDesc& desc = *call.desc;
  const Window w = window_of(desc);
  const int64_t group_channels = w.channels / w.groups, group_filters = w.out_channels / w.groups;
  const int64_t k = group_channels * w.taps();
  const std::vector<TileAt> tiles = tiles_of(w);
  std::vector<int64_t> offsets;  // of each step of k: channel, then row and column of the filter, as the weights lie
  offsets.reserve(static_cast<size_t>(k));
  for (int64_t c = 0; c < group_channels; ++c) {
    for (int64_t i = 0; i < w.kernel_h; ++i) {
      for (int64_t j = 0; j < w.kernel_w; ++j) offsets.push_back(c * w.image_stride() + w.tap_offset(i, j));
    }
  }
  Epilogue epilogue(call);
  const EpilogueHead head = epilogue.take_head();
  const float* bias = desc.own_inputs() > 2 ? input(call, 2) : nullptr;
  for (int64_t sample = 0; sample < w.batch; ++sample) {
    const float* planes = input(call, 0) + sample * w.channels * w.h * w.w;
    const float* images = planes;
    if (!w.in_place) {
      for (int64_t c = 0; c < w.channels; ++c) make_image(w, planes + c * w.h * w.w, 0, scratch + c * w.image_stride());
      images = scratch;
    }
    for (int64_t g = 0; g < w.groups; ++g) {
      const int64_t first = g * group_filters;
      const int64_t at = (sample * w.out_channels + first) * w.out_pixels();
      const Filters filters = {packed + g * k * round_up(group_filters, width),
                               bias == nullptr ? nullptr : bias + first, group_filters, k};
      convolve(w, tiles, offsets, images + g * group_channels * w.image_stride(), filters, output(call) + at, head,
               head.operand == nullptr ? nullptr : head.operand + at, epilogue, output(call));
    }
  }
}

void run_packed(const KernelCall& call) { run(call, input(call, 1), workspace(call)); }

void pack(const ComputeDesc& desc, size_t, const void* raw, void* packed) {
  pack_filters(window_of(desc), static_cast<const float*>(raw), static_cast<float*>(packed));
}

}  // namespace

const KernelCode code::conv_direct = {run_packed, pack};

}  // namespace nlsplit::inline kernels

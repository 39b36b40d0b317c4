#include "kernels/windows/depthwise_blocks.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "kernels/functions/epilogue.h"
#include "kernels/module/packets.h"
#include "kernels/windows/rows_to_pixels.h"

namespace nlsplit::inline kernels {
namespace {

// The parts of a worker's scratch.
struct Parts {
  float *image, *pixels, *taps;
};
Parts parts_of(const KernelCall& call, const DepthwiseBlocks& d, int worker) {
  float* image = workspace(call) + worker * d.worker_floats();
  float* pixels = image + d.image_pixels() * width;
  return {image, pixels, pixels + d.pixels * width};
}

// Padding is zero for all blocks.
void clear_images(const KernelCall& call, const DepthwiseBlocks& d) {
  for (int worker = 0; worker < std::max(call.crew.workers, 1); ++worker)
    std::fill_n(parts_of(call, d, worker).image, d.image_pixels() * width, 0.0f);
}

// Of each pixel of a plane: where it is in the image, in floats.
std::vector<int64_t> places_of(const DepthwiseBlocks& d) {
  std::vector<int64_t> places;
  for (int64_t y = d.pad_top; y < d.pad_top + d.h; ++y) {
    for (int64_t x = d.pad_left; x < d.pad_left + d.w; ++x) {
      const bool seen = y >= 0 && x >= 0 && y < d.image_h && x < d.image_w;
      places.push_back((seen ? y * d.image_w + x : d.image_h * d.image_w) * width);
    }
  }
  return places;
}

// Planes of `count` channels as pixels: pixel p at to + places[p].
void put_pixels(const float* const* planes, int64_t count, const std::vector<int64_t>& places, float* to) {
  const auto pixels = static_cast<int64_t>(places.size());
  for (int64_t p = 0; p < pixels; p += width) {
    const int64_t part = std::min<int64_t>(width, pixels - p);
    Eigen::internal::PacketBlock<Packet, width> block;
#pragma GCC unroll 16
    for (int r = 0; r < width; ++r) {
      const float* from = r < count ? planes[r] + p : nullptr;
      block.packet[r] = from == nullptr ? zeros() : part == width ? load(from) : load_part(from, part);
    }
    Eigen::internal::ptranspose(block);
    const int64_t* place = places.data() + p;
#pragma GCC unroll 16
    for (int c = 0; c < width; ++c) {
      if (c >= part) break;
      store(to + place[c], block.packet[c]);
    }
  }
}

// Rows of `row` floats of a block's channels, one behind another, as vectors of channels; and back.
void to_vectors(const float* from, int64_t channels, int64_t row, float* to) {
  const float* rows[width];
  for (int64_t c = 0; c < channels; ++c) rows[c] = from + c * row;
  rows_to_pixels(rows, channels, row, to, width);
}
void from_vectors(const float* from, int64_t channels, int64_t row, float* to) {
  float* rows[width];
  for (int64_t c = 0; c < channels; ++c) rows[c] = to + c * row;
  pixels_to_rows(from, row, channels, rows);
}

// Results that see the same taps: rows of them, each result one vector. All distances are in floats.
struct Grid {
  int64_t rows = 0, row = 0;
  int64_t from = 0, from_down = 0, from_right = 0;  // in the image
  int64_t to = 0, to_down = 0, to_right = 0;
  std::vector<int64_t> taps, offsets;  // of each tap: where its weights are, and what it reads
};

Grid grid_of_conv(const Window& w, const DepthwiseBlocks& d) {
  Grid g;
  g.rows = w.out_h, g.row = w.out_w;
  g.from_down = w.stride_h * d.image_w * width, g.from_right = w.stride_w * width;
  g.to_down = w.out_w * width, g.to_right = width;
  for (int64_t i = 0; i < w.kernel_h; ++i) {
    for (int64_t j = 0; j < w.kernel_w; ++j) {
      g.taps.push_back((i * w.kernel_w + j) * width);
      g.offsets.push_back((i * w.dilation_h * d.image_w + j * w.dilation_w) * width);
    }
  }
  return g;
}

// One for each phase of the strides.
std::vector<Grid> grids_of_transpose(const ConvTranspose& t, const DepthwiseBlocks& d) {
  std::vector<Grid> grids;
  for (int64_t y = 0; y < std::min(t.stride_h, t.out_h); ++y) {
    for (int64_t x = 0; x < std::min(t.stride_w, t.out_w); ++x) {
      Grid g;
      g.rows = (t.out_h - 1 - y) / t.stride_h + 1, g.row = (t.out_w - 1 - x) / t.stride_w + 1;
      const int64_t top = y + t.pad_top, left = x + t.pad_left;
      g.from = ((top / t.stride_h + d.pad_top) * d.image_w + left / t.stride_w + d.pad_left) * width;
      g.from_down = d.image_w * width, g.from_right = width;
      g.to = (y * t.out_w + x) * width, g.to_down = t.stride_h * t.out_w * width, g.to_right = t.stride_w * width;
      for (int64_t i = 0; i < t.kernel_h; ++i) {
        for (int64_t j = 0; j < t.kernel_w; ++j) {
          const int64_t down = i * t.dilation_h, right = j * t.dilation_w;
          if (down % t.stride_h != top % t.stride_h || right % t.stride_w != left % t.stride_w) continue;
          g.taps.push_back((i * t.kernel_w + j) * width);
          g.offsets.push_back(-(down / t.stride_h * d.image_w + right / t.stride_w) * width);
        }
      }
      grids.push_back(std::move(g));
    }
  }
  return grids;
}

// What a chain begins with, and what is added to it in the end. Adding a negative zero changes no bits.
struct Ends {
  Packet first = zeros(), last = broadcast(-0.0f);
};

// Neighbours in a row.
template <int results>
inline void add_up(const Grid& g, const float* from, const float* weights, const Ends& ends, float* to) {
  Packet sum[results];
#pragma GCC unroll 8
  for (int i = 0; i < results; ++i) sum[i] = ends.first;
  for (size_t t = 0; t < g.taps.size(); ++t) {
    const Packet weight = load(weights + g.taps[t]);
    const float* at = from + g.offsets[t];
#pragma GCC unroll 8
    for (int i = 0; i < results; ++i) sum[i] = multiply_add(weight, load(at + i * g.from_right), sum[i]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < results; ++i) store(to + i * g.to_right, add(sum[i], ends.last));
}

void run_grid(const Grid& g, const float* image, const float* weights, const Ends& ends, float* pixels) {
  for (int64_t y = 0; y < g.rows; ++y) {
    const float* from = image + g.from + y * g.from_down;
    float* to = pixels + g.to + y * g.to_down;
    int64_t x = 0;
    const auto at_once = [&]<int results>(std::integral_constant<int, results>) {
      for (; x + results <= g.row; x += results)
        add_up<results>(g, from + x * g.from_right, weights, ends, to + x * g.to_right);
    };
    at_once(std::integral_constant<int, 8>());
    at_once(std::integral_constant<int, 4>());
    at_once(std::integral_constant<int, 2>());
    at_once(std::integral_constant<int, 1>());
  }
}

// Of a Conv a bias is added in the end, of a ConvTranspose chains begin with it.
void run_grids(const KernelCall& call, const DepthwiseBlocks& d, const std::vector<Grid>& grids, bool bias_first) {
  const Epilogue epilogue(call);
  const float* bias = call.desc->own_inputs() > 2 ? input(call, 2) : nullptr;
  const int64_t blocks = blocks_of(d.channels, level), in_pixels = d.h * d.w;
  const std::vector<int64_t> places = places_of(d);
  clear_images(call, d);
  parallel_for_workers(call, d.batch * blocks, [&](int64_t i, int worker) {
    const Parts p = parts_of(call, d, worker);
    const int64_t sample = i / blocks, c = i % blocks * width, count = std::min<int64_t>(width, d.channels - c);
    const int64_t first = (sample * d.channels + c) * d.pixels;
    // Written in as many runs as there are channels, which stores alone would wait for.
    for (int64_t at = 0; at < count * d.pixels; at += line_floats) fetch(output(call) + first + at);
    const float* planes[width];
    for (int64_t r = 0; r < count; ++r) planes[r] = input(call, 0) + (sample * d.channels + c + r) * in_pixels;
    put_pixels(planes, count, places, p.image);
    to_vectors(input(call, 1) + c * d.taps, count, d.taps, p.taps);
    Ends ends;
    (bias_first ? ends.first : ends.last) = bias == nullptr ? zeros() : load_part(bias + c, count);
    for (const Grid& grid : grids) run_grid(grid, p.image, p.taps, ends, p.pixels);
    from_vectors(p.pixels, count, d.pixels, output(call) + first);
    if (!epilogue.empty()) epilogue.apply(output(call), first, count * d.pixels);
  });
}

// What a sample's pixels give to some taps is added to `totals`.
struct TapWork {
  const Grid& grid;  // of the convolution
  const int64_t* offsets;
  const float *image, *dy;
  float* totals;
};
template <int taps>
void add_taps_of_sample(const TapWork& work) {
  const Grid& g = work.grid;
  Packet sum[taps];
#pragma GCC unroll 16
  for (int t = 0; t < taps; ++t) sum[t] = zeros();
  const float* dy = work.dy;
  for (int64_t y = 0; y < g.rows; ++y) {
    const float* from = work.image + y * g.from_down;
    for (int64_t x = 0; x < g.row; ++x, from += g.from_right, dy += width) {
      const Packet one = load(dy);
#pragma GCC unroll 16
      for (int t = 0; t < taps; ++t) sum[t] = multiply_add(load(from + work.offsets[t]), one, sum[t]);
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < taps; ++t) store(work.totals + t * width, add(load(work.totals + t * width), sum[t]));
}

constexpr int64_t taps_at_once = 9;
constexpr auto tap_functions = []<int... t>(std::integer_sequence<int, t...>) {
  return std::array<void (*)(const TapWork&), sizeof...(t)>{add_taps_of_sample<t + 1>...};
}
(std::make_integer_sequence<int, taps_at_once>{});

}  // namespace

void run_depthwise_blocks(const KernelCall& call, const DepthwiseBlocks& blocks) {
  run_grids(call, blocks, {grid_of_conv(window_of(*call.desc), blocks)}, false);
}

void run_depthwise_transpose_blocks(const KernelCall& call, const DepthwiseBlocks& blocks) {
  run_grids(call, blocks, grids_of_transpose(conv_transpose_of(*call.desc), blocks), true);
}

void run_depthwise_weight_gradient_blocks(const KernelCall& call, const DepthwiseBlocks& d) {
  const ComputeDesc& desc = *call.desc;
  const Grid grid = grid_of_conv(window_of(desc.attrs, desc.inputs[0].shape, desc.inputs[1].shape), d);
  const std::vector<int64_t> places = places_of(d);
  const int64_t all = desc.inputs[1].shape[1], each = all / d.channels;  // filters, and of each channel
  clear_images(call, d);
  parallel_for_workers(call, blocks_of(all, level), [&](int64_t block, int worker) {
    const Parts p = parts_of(call, d, worker);
    const int64_t first = block * width, count = std::min<int64_t>(width, all - first);
    std::fill_n(p.taps, d.taps * width, 0.0f);
    for (int64_t sample = 0; sample < d.batch; ++sample) {
      const float* planes[width];
      for (int64_t r = 0; r < count; ++r)
        planes[r] = input(call, 0) + (sample * d.channels + (first + r) / each) * d.h * d.w;
      put_pixels(planes, count, places, p.image);
      to_vectors(input(call, 1) + (sample * all + first) * d.pixels, count, d.pixels, p.pixels);
      for (int64_t t = 0; t < d.taps; t += taps_at_once) {
        const auto some = static_cast<size_t>(std::min(taps_at_once, d.taps - t));
        tap_functions[some - 1]({grid, grid.offsets.data() + t, p.image, p.pixels, p.taps + t * width});
      }
    }
    from_vectors(p.taps, count, d.taps, output(call) + first * d.taps);
  });
  Epilogue(call).apply(output(call), 0, all * d.taps);
}

}  // namespace nlsplit::inline kernels

// The gradient of a convolution by its weights: products of dy (m = filters) and the pixels that its windows see
// (n = channels and taps) over all pixels of all samples (k), in this order: an element is one chain. dy is packed as
// scalar panels. The other operand is an image of pixels of channels, in which every tap sees the same vectors at
// another place; where a group has few channels, its columns (channel, tap) are written out for the pixels at hand.
#include <algorithm>
#include <array>
#include <vector>

#include "kernels/functions/epilogue.h"
#include "kernels/layout.h"
#include "kernels/module/run.h"
#include "kernels/products/microkernel.h"
#include "kernels/windows/image.h"
#include "kernels/windows/rows_to_pixels.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t panel_width = tile_vectors * width;

struct TileWork {
  const float* scalars;  // k groups of rows
  const float* image;
  const int64_t* places;  // of each step of k, in pixels of `vectors` vectors
  int64_t k;
  float* out;
  int64_t out_stride;
  int64_t columns;  // how many of the tile's are real
  bool first;       // nothing was summed before
};

template <int rows, int vectors>
void run_tile(const TileWork& work) {
  Packet sum[rows * vectors];
  const int64_t part = work.columns - (vectors - 1) * width;  // of the last vector
  const auto get = [&](const float* from, int v) {
    return v + 1 < vectors || part == width ? load(from + v * width) : load_part(from + v * width, part);
  };
  if (work.first) {
#pragma GCC unroll 32
    for (int i = 0; i < rows * vectors; ++i) sum[i] = zeros();
  } else {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) sum[r * vectors + v] = get(work.out + r * work.out_stride, v);
    }
  }
  const float* scalars = work.scalars;
  const int64_t* places = work.places;
  const float* image = work.image;
  for (int64_t k = work.k; k > 0; --k) {
    const float* pixel = image + *places++ * (vectors * width);
    Packet column[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) column[v] = load(pixel + v * width);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Packet scalar = broadcast(scalars[r]);
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) sum[r * vectors + v] = multiply_add(scalar, column[v], sum[r * vectors + v]);
    }
    scalars += rows;
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    float* to = work.out + r * work.out_stride;
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) {
      if (v + 1 < vectors || part == width) {
        store(to + v * width, sum[r * vectors + v]);
      } else {
        store_part(to + v * width, sum[r * vectors + v], part);
      }
    }
  }
}

using TileFunction = void (*)(const TileWork&);

// [vectors - 1][rows - 1]
constexpr auto tile_functions = []<int... r>(std::integer_sequence<int, r...>) {
  return std::array{std::array<TileFunction, sizeof...(r)>{run_tile<r + 1, 1>...},
                    std::array<TileFunction, sizeof...(r)>{run_tile<r + 1, 2>...}};
}
(std::make_integer_sequence<int, most_tile_rows>{});
static_assert(tile_vectors == 2);

// Neighbours in every plane of dy, and in a row of the image.
struct Stretch {
  int64_t sample, pixel, at, count;  // at: the first one's place in the chunk
};

// Steps k0 … k0 + k of all pixels of some samples.
std::vector<Stretch> stretches_of(const Window& w, int64_t row, int64_t k0, int64_t k) {
  std::vector<Stretch> stretches;
  for (int64_t done = 0; done < k;) {
    const int64_t at = k0 + done, pixel = at % w.out_pixels();
    const int64_t more = std::min(row - pixel % row, k - done);
    stretches.push_back({at / w.out_pixels(), pixel, done, more});
    done += more;
  }
  return stretches;
}

class WeightGradient {
 public:
  explicit WeightGradient(const KernelCall& call)
      : call_(call),
        g_(conv_weight_gradient_of(*call.desc)),
        w_(g_.w),
        panels_(scalar_panels(g_.filters, most_tile_rows)),
        dy_(workspace(call)),
        image_(dy_ + round_up(g_.dy_floats(), widest_vector)),
        columns_(image_ + round_up(g_.image_floats(level), widest_vector)),
        sums_(columns_ + round_up(g_.columns_floats(level), widest_vector)) {}

  void run() {
    const bool padded = w_.pad_top > 0 || w_.pad_left > 0 || g_.image_h > w_.h || g_.image_w > w_.w;
    if (g_.by_channel && padded) std::fill_n(image_, g_.image_floats(level), 0.0f);  // what is padding stays so
    const int64_t result = g_.filters * g_.channels * w_.taps();
    for (int64_t group = 0; group < w_.groups; ++group) {
      float* out = output(call_) + group * result;
      first_ = true;
      for (int64_t sample = 0; sample < w_.batch; sample += g_.samples) {
        const int64_t count = std::min(g_.samples, w_.batch - sample), steps = count * w_.out_pixels();
        const float* planes = input(call_, 0) + (sample * w_.groups + group) * g_.channels * w_.h * w_.w;
        make_images(planes, count);
        for (int64_t k0 = 0; k0 < steps; k0 += g_.steps_at_once()) {
          const int64_t k = std::min(g_.steps_at_once(), steps - k0);
          pack_dy(input(call_, 1) + (sample * w_.groups + group) * g_.filters * w_.out_pixels(), k0, k);
          multiply(planes, k0, k, out);
          first_ = false;
        }
      }
      if (first_) {
        std::fill_n(out, result, 0.0f);  // of no pixels
      } else if (g_.by_channel) {
        parallel_for(call_, g_.filters, [&](int64_t f) { put_filter(f, out + f * g_.channels * w_.taps()); });
      }
    }
  }

 private:
  // Of the group's channels of `count` samples.
  void make_images(const float* planes, int64_t count) {
    if (!g_.by_channel) {
      if (w_.in_place) return;
      return parallel_for(call_, count * g_.channels, [&](int64_t i) {
        const int64_t sample = i / g_.channels, c = i % g_.channels;
        make_image(w_, planes + (sample * w_.channels + c) * w_.h * w_.w, 0, image_ + i * w_.image_stride());
      });
    }
    const int64_t blocks = (g_.channels + panel_width - 1) / panel_width;
    parallel_for(call_, count * blocks, [&](int64_t i) {
      const int64_t sample = i / blocks, c = i % blocks * panel_width;
      const int64_t channels = std::min(panel_width, g_.channels - c), lanes = round_up(channels, width);
      float* to = image_ + (c * g_.samples + sample * lanes) * g_.image_h * g_.image_w;
      const float* rows[panel_width];
      const int64_t last = std::min(w_.h, g_.image_h - w_.pad_top), row = std::min(w_.w, g_.image_w - w_.pad_left);
      const bool flat = row == w_.w && g_.image_w == w_.w;
      for (int64_t y = 0; y < last; y += flat ? last : 1) {
        for (int64_t r = 0; r < channels; ++r) rows[r] = planes + ((sample * w_.channels + c + r) * w_.h + y) * w_.w;
        rows_to_pixels(rows, channels, flat ? last * row : row,
                       to + ((y + w_.pad_top) * g_.image_w + w_.pad_left) * lanes, lanes);
      }
    });
  }

  // dy: the group's planes of the first sample.
  void pack_dy(const float* dy, int64_t k0, int64_t k) {
    const std::vector<Stretch> stretches = stretches_of(w_, w_.out_pixels(), k0, k);
    parallel_for(call_, panels_.count, [&](int64_t p) {
      const int64_t rows = panels_.rows_of(p), first = panels_.begin(p);
      const float* from[most_tile_rows];
      for (const Stretch& s : stretches) {
        for (int64_t r = 0; r < rows; ++r)
          from[r] = dy + (s.sample * w_.out_channels + first + r) * w_.out_pixels() + s.pixel;
        rows_to_pixels(from, rows, s.count, dy_ + first * k + s.at * rows, rows);
      }
    });
  }

  void multiply(const float* planes, int64_t k0, int64_t k, float* out) {
    std::vector<int64_t> places(static_cast<size_t>(k));
    const std::vector<Stretch> stretches = stretches_of(w_, is_flat() ? w_.out_pixels() : w_.out_w, k0, k);
    for (const Stretch& s : stretches) {
      const int64_t y = s.pixel / w_.out_w, x = s.pixel % w_.out_w;
      for (int64_t i = 0; i < s.count; ++i) {
        places[static_cast<size_t>(s.at + i)] =
            g_.by_channel ? (s.sample * g_.image_h + y * w_.stride_h) * g_.image_w + (x + i) * w_.stride_w : s.at + i;
      }
    }
    const int64_t columns = g_.columns();
    parallel_for(call_, (columns + panel_width - 1) / panel_width, [&](int64_t panel) {
      const int64_t column = panel * panel_width, real = std::min(panel_width, columns - column);
      const int64_t lanes = round_up(real, width);
      TileWork work{};
      work.places = places.data();
      work.k = k;
      work.first = first_;
      if (!g_.by_channel) {
        work.image = columns_ + column * k;
        write_columns(planes, stretches, column, real, columns_ + column * k);
        work.columns = real;
        work.out_stride = columns;
        return multiply_panel(work, lanes, out + column);
      }
      work.columns = lanes;
      work.out_stride = w_.taps() * round_up(columns, width);
      const float* image = image_ + column * g_.samples * g_.image_h * g_.image_w;
      for (int64_t i = 0; i < w_.kernel_h; ++i) {
        for (int64_t j = 0; j < w_.kernel_w; ++j) {
          work.image = image + (i * w_.dilation_h * g_.image_w + j * w_.dilation_w) * lanes;
          multiply_panel(work, lanes, sums_ + (i * w_.kernel_w + j) * round_up(columns, width) + column);
        }
      }
    });
  }

  void multiply_panel(TileWork& work, int64_t lanes, float* out) const {
    const auto& functions = tile_functions[static_cast<size_t>(lanes / width - 1)];
    for (int64_t p = 0; p < panels_.count; ++p) {
      work.scalars = dy_ + panels_.begin(p) * work.k;
      work.out = out + panels_.begin(p) * work.out_stride;
      functions[static_cast<size_t>(panels_.rows_of(p) - 1)](work);
    }
  }

  // A row of the result's windows is one with the next.
  bool is_flat() const { return !g_.by_channel && w_.taps() == 1 && w_.image_w == w_.out_w; }

  // Columns (channel, tap) from `column` on for some pixels.
  void write_columns(const float* planes, const std::vector<Stretch>& stretches, int64_t column, int64_t count,
                     float* to) const {
    const int64_t lanes = round_up(count, width);
    const float* images = w_.in_place ? planes : image_;
    const int64_t sample_stride = (w_.in_place ? w_.channels : g_.channels) * w_.image_stride();
    const float *first[panel_width], *rows[panel_width];
    for (int64_t r = 0; r < count; ++r) {
      const int64_t c = (column + r) / w_.taps(), tap = (column + r) % w_.taps();
      first[r] = images + c * w_.image_stride() + w_.tap_offset(tap / w_.kernel_w, tap % w_.kernel_w);
    }
    for (const Stretch& s : stretches) {
      const int64_t at = is_flat() ? s.pixel : s.pixel / w_.out_w * w_.image_w + s.pixel % w_.out_w;
      for (int64_t r = 0; r < count; ++r) rows[r] = first[r] + s.sample * sample_stride + at;
      rows_to_pixels(rows, count, s.count, to + s.at * lanes, lanes);
    }
  }

  // [tap][channel] → [channel][tap]
  void put_filter(int64_t filter, float* to) const {
    const int64_t stride = round_up(g_.channels, width), taps = w_.taps();
    const float* from = sums_ + filter * taps * stride;
    for (int64_t c = 0; c < g_.channels; c += width) {
      for (int64_t t = 0; t < taps; t += width) {
        const int64_t part = std::min<int64_t>(width, taps - t);
        Eigen::internal::PacketBlock<Packet, width> block;
#pragma GCC unroll 16
        for (int i = 0; i < width; ++i) block.packet[i] = i < part ? load(from + (t + i) * stride + c) : zeros();
        Eigen::internal::ptranspose(block);
#pragma GCC unroll 16
        for (int i = 0; i < width; ++i) {
          if (c + i < g_.channels) store_part(to + (c + i) * taps + t, block.packet[i], part);
        }
      }
    }
  }

  const KernelCall& call_;
  const ConvWeightGradient g_;
  const Window& w_;
  const ScalarPanels panels_;
  float *dy_, *image_, *columns_, *sums_;
  bool first_ = true;
};

void run(const KernelCall& call) {
  WeightGradient(call).run();
  Epilogue(call).apply(output(call), 0, element_count(call.desc->outputs[0].shape));
}

}  // namespace

const KernelCode code::conv_weight_gradient = {run};

}  // namespace nlsplit::inline kernels

// Depthwise convolution and pooling of tensors in blocks of channels: a pixel is a vector. Where the window hangs over
// the border, only the taps inside are taken.
#include <algorithm>
#include <limits>

#include "kernels/functions/epilogue.h"
#include "kernels/layout.h"
#include "kernels/module/bf16_pairs.h"
#include "kernels/module/block_extents.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"

namespace nlsplit::inline kernels {
namespace {

Packet read(const float* from) { return load(from); }
Packet read(const uint16_t* from) { return load_bf16(from); }

// The taps i in [begin, end) whose position start + i * dilation lies in [0, extent).
struct Taps {
  int64_t begin, end;
};
Taps taps_inside(int64_t start, int64_t dilation, int64_t extent, int64_t kernel) {
  const int64_t begin = start >= 0 ? 0 : (-start + dilation - 1) / dilation;
  const int64_t end = extent <= start ? 0 : (extent - start + dilation - 1) / dilation;
  return {std::min(begin, kernel), std::clamp(end, std::min(begin, kernel), kernel)};
}

// The output columns whose windows lie wholly inside the rows.
Taps inner_columns(const Window& w) {
  const int64_t reach = (w.kernel_w - 1) * w.dilation_w;
  const int64_t begin = std::min((w.pad_left + w.stride_w - 1) / w.stride_w, w.out_w);
  const int64_t last_start = w.w - 1 - reach + w.pad_left;  // of the window, counted from the padding's edge
  const int64_t end = last_start < 0 ? begin : std::clamp(last_start / w.stride_w + 1, begin, w.out_w);
  return {begin, end};
}

// Output row y of one block: `pixels` neighbouring results from `start` folded by step(sum, value, tap), finished by
// finish(sum, row taps, column taps), in the order of the taps.
template <int pixels, class T, class Step>
inline void fold(const Window& w, const T* block, int64_t y, int64_t x, Taps rows, Taps columns, const Packet& start,
                 const Step& step, Packet (&sums)[pixels]) {
#pragma GCC unroll 8
  for (int p = 0; p < pixels; ++p) sums[p] = start;
  const int64_t y0 = y * w.stride_h - w.pad_top, x0 = x * w.stride_w - w.pad_left;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* row = block + ((y0 + i * w.dilation_h) * w.w + x0) * width;
    for (int64_t j = columns.begin; j < columns.end; ++j) {
      const T* from = row + j * w.dilation_w * width;
      const int64_t tap = i * w.kernel_w + j;
#pragma GCC unroll 8
      for (int p = 0; p < pixels; ++p) sums[p] = step(sums[p], read(from + p * w.stride_w * width), tap);
    }
  }
}

// T: float, or bfloat16.
template <class T, class Step, class Finish>
void slide_block(const Window& w, const T* block, T* out, const Packet& start, const Step& step, const Finish& finish) {
  constexpr int together = 6;
  const Taps inner = inner_columns(w);
  const int64_t reach = (w.kernel_h - 1) * w.dilation_h;
  const Taps all = {0, w.kernel_w};
  for (int64_t y = 0; y < w.out_h; ++y) {
    const Taps rows = taps_inside(y * w.stride_h - w.pad_top, w.dilation_h, w.h, w.kernel_h);
    for (int64_t x = 0; x < w.out_w;) {
      T* to = out + (y * w.out_w + x) * width;
      if (x >= inner.begin && x + together <= inner.end) {
        // What the next row of the output will read for the first time.
        const T* next =
            block + (((y + 1) * w.stride_h + reach - w.pad_top) * w.w + x * w.stride_w - w.pad_left) * width;
        for (int64_t i = 0; i < w.stride_h; ++i) {
          for (int64_t p = 0; p < together * w.stride_w; ++p)
            fetch_near(reinterpret_cast<const float*>(next - (i * w.w - p) * width));
        }
        Packet sums[together];
        fold(w, block, y, x, rows, all, start, step, sums);
#pragma GCC unroll 8
        for (int p = 0; p < together; ++p) finish(to + p * width, sums[p], y, x + p);
        x += together;
        continue;
      }
      const Taps columns = taps_inside(x * w.stride_w - w.pad_left, w.dilation_w, w.w, w.kernel_w);
      Packet sums[1];
      fold(w, block, y, x, rows, columns, start, step, sums);
      finish(to, sums[0], y, x);
      ++x;
    }
  }
}

int64_t blocks_of_sample(const Window& w) { return (w.channels + width - 1) / width; }

void run_depthwise(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Window w = window_of(desc);
  Epilogue epilogue(call);
  const EpilogueHead head = epilogue.take_head();
  const float* bias = desc.own_inputs() > 2 ? input(call, 2) : nullptr;
  const int64_t blocks = blocks_of_sample(w);
  parallel_for(call, w.batch * blocks, [&](int64_t i) {
    const int64_t b = i % blocks;
    const float* weights = input(call, 1) + b * w.taps() * width;
    alignas(64) float of_block[width] = {};
    if (bias != nullptr) std::copy_n(bias + b * width, std::min<int64_t>(width, w.channels - b * width), of_block);
    const Packet start = load(of_block), low = broadcast(head.low), high = broadcast(head.high);
    float* out = output(call) + i * w.out_pixels() * width;
    const float* operand = head.operand == nullptr ? nullptr : head.operand + i * w.out_pixels() * width;
    slide_block(
        w, input(call, 0) + i * w.h * w.w * width, out, start,
        [&](const Packet& sum, const Packet& value, int64_t tap) {
          return multiply_add(load(weights + tap * width), value, sum);
        },
        [&](float* to, const Packet& sum, int64_t, int64_t) {
          const Packet result = operand == nullptr ? sum : add(sum, load(operand + (to - out)));
          store(to, at_most(at_least(result, low), high));
        });
    if (!epilogue.empty()) epilogue.apply(output(call), i * w.out_pixels() * width, w.out_pixels() * width);
  });
}

// [block][tap][lane]
void pack_depthwise(const ComputeDesc& desc, size_t, const void* raw, void* packed) {
  const Window w = window_of(desc);
  const auto* weights = static_cast<const float*>(raw);
  auto* to = static_cast<float*>(packed);
  for (int64_t c0 = 0; c0 < w.channels; c0 += width) {
    for (int64_t t = 0; t < w.taps(); ++t) {
      for (int64_t c = c0; c < c0 + width; ++c) *to++ = c < w.channels ? weights[c * w.taps() + t] : 0.0f;
    }
  }
}

template <class T, class Step, class Finish>
void pool(const KernelCall& call, const Window& w, float start, const Step& step, const Finish& finish) {
  const Epilogue epilogue(call);
  const auto* from = static_cast<const T*>(call.inputs[0]);
  auto* to = static_cast<T*>(call.outputs[0]);
  parallel_for(call, w.batch * blocks_of_sample(w), [&](int64_t i) {
    const int64_t at = i * w.out_pixels() * width;
    slide_block(w, from + i * w.h * w.w * width, to + at, broadcast(start), step, finish);
    if (!epilogue.empty()) epilogue.apply(output(call), at, w.out_pixels() * width);
  });
}

void run_max_pool(const KernelCall& call) {
  const Window w = window_of(*call.desc);
  constexpr float start = -std::numeric_limits<float>::infinity();
  const auto step = [](const Packet& sum, const Packet& value, int64_t) { return at_least(value, sum); };
  if (call.desc->outputs[0].dtype == DType::bf16)
    pool<uint16_t>(call, w, start, step,
                   [](uint16_t* to, const Packet& sum, int64_t, int64_t) { store_bf16(to, sum, width); });
  else
    pool<float>(call, w, start, step, [](float* to, const Packet& sum, int64_t, int64_t) { store(to, sum); });
}

// How many positions of a window are counted along an axis: those in the plane, or, with count_include_pad, in the
// padded one.
int64_t counted(int64_t start, int64_t kernel, int64_t low, int64_t high) {
  return std::max<int64_t>(std::min(start + kernel, high) - std::max(start, low), 0);
}

void run_average_pool(const KernelCall& call) {
  const Window w = window_of(*call.desc);
  const bool with_pads = attr_int(call.desc->attrs, "count_include_pad") != 0;
  const int64_t top = with_pads ? w.pad_top : 0, left = with_pads ? w.pad_left : 0;
  const int64_t bottom = w.h + (with_pads ? w.pad_bottom : 0), right = w.w + (with_pads ? w.pad_right : 0);
  pool<float>(
      call, w, 0, [](const Packet& sum, const Packet& value, int64_t) { return add(sum, value); },
      [&](float* to, const Packet& sum, int64_t y, int64_t x) {
        const int64_t rows = counted(y * w.stride_h - w.pad_top, w.kernel_h, -top, bottom);
        const int64_t columns = counted(x * w.stride_w - w.pad_left, w.kernel_w, -left, right);
        store(to, divide(sum, broadcast(static_cast<float>(rows * columns))));
      });
}

// Row-major results: the lanes of a block are neighbouring channels.
void run_global_average_pool(const KernelCall& call) {
  const BlockExtents e = block_extents_of(call.desc->inputs[0]);
  parallel_for(call, e.batch * e.blocks, [&](int64_t i) {
    const float* from = input(call, 0) + i * e.pixels * width;
    constexpr int chains = 4;  // a single one would wait for each addition
    Packet sums[chains] = {zeros(), zeros(), zeros(), zeros()};
    for (int64_t p = 0; p < e.pixels; ++p) sums[p % chains] = add(sums[p % chains], load(from + p * width));
    const Packet sum = add(add(sums[0], sums[1]), add(sums[2], sums[3]));
    const Packet mean = divide(sum, broadcast(static_cast<float>(e.pixels)));
    const int64_t b = i % e.blocks, lanes = e.lanes_of(b);
    float* to = output(call) + i / e.blocks * e.channels + b * width;
    lanes == width ? store(to, mean) : store_part(to, mean, lanes);
  });
  Epilogue(call).apply(output(call), 0, e.batch * e.channels);
}

}  // namespace

const KernelCode code::conv_depthwise_blocked = {run_depthwise, pack_depthwise};
const KernelCode code::max_pool_blocked = {run_max_pool};
const KernelCode code::average_pool_blocked = {run_average_pool};
const KernelCode code::global_average_pool_blocked = {run_global_average_pool};

}  // namespace nlsplit::inline kernels

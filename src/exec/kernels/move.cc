// Concat, Transpose, Pad, Gather: they only move elements, all but Gather floats.
#include <algorithm>
#include <array>
#include <cstring>

#include "exec/kernels/epilogue.h"
#include "exec/kernels/odometer.h"
#include "exec/kernels/run.h"

namespace nlsplit {
namespace {

using Extents = std::array<int64_t, Axes::most>;

void copy_floats(float* to, const float* from, int64_t n) {
  std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

void run_concat(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Shape& out = desc.outputs[0].shape;
  int64_t axis = attr_int(desc.attrs, "axis");
  if (axis < 0) axis += static_cast<int64_t>(out.size());
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
    const int64_t extent = out[static_cast<size_t>(i)];
    if (i < axis) outer *= extent;
    if (i > axis) inner *= extent;
  }
  const int64_t out_row = out[static_cast<size_t>(axis)] * inner;
  int64_t begin = 0;
  for (size_t i = 0; i < desc.own_inputs(); ++i) {
    const int64_t row = desc.inputs[i].shape[static_cast<size_t>(axis)] * inner;
    for (int64_t o = 0; row > 0 && o < outer; ++o) {
      copy_floats(output(call) + o * out_row + begin, input(call, i) + o * row, row);
    }
    begin += row;
  }
  Epilogue(call).apply(output(call), 0, outer * out_row);
}

// The output is walked in its order with the input's strides. Where the input's last axis lies elsewhere, that axis and
// the output's last one form a matrix that is transposed tile by tile, so that both sides stay in cache lines.
void run_transpose(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Shape& out = desc.outputs[0].shape;
  const Shape& in = desc.inputs[0].shape;
  const auto& perm = attr_ints(desc.attrs, "perm");
  const size_t axes = out.size();
  const int64_t total = element_count(out);
  if (total == 0) return;
  const float* from = input(call, 0);
  float* to = output(call);
  if (axes == 0) {
    *to = *from;
    return Epilogue(call).apply(to, 0, 1);
  }
  Extents in_stride{}, from_stride{}, to_stride{};
  int64_t next = 1;
  for (size_t axis = axes; axis-- > 0; next *= in[axis]) in_stride[axis] = next;
  next = 1;
  for (size_t axis = axes; axis-- > 0; next *= out[axis]) to_stride[axis] = next;
  for (size_t axis = 0; axis < axes; ++axis) from_stride[axis] = in_stride[static_cast<size_t>(perm[axis])];
  const size_t last = axes - 1;
  size_t fast = last;  // the output's axis along which the input is contiguous
  for (size_t axis = 0; axis < axes; ++axis) {
    if (perm[axis] == static_cast<int64_t>(last)) fast = axis;
  }
  // What is moved at once: a row of the output, or, where it is transposed, a strip of `tile` rows of the matrix.
  constexpr int64_t tile = 16, piece_floats = 8192;
  const int64_t n = out[last], m = fast == last ? 1 : out[fast];
  const int64_t strips = (m + tile - 1) / tile;
  Axes others;
  for (size_t axis = 0; axis < axes; ++axis) {
    if (axis != last && axis != fast) others.push(out[axis], from_stride[axis], to_stride[axis]);
  }
  others.push(strips, tile, fast == last ? 0 : tile * to_stride[fast]);
  const int64_t units = others.size();
  const int64_t at_once = std::max<int64_t>(1, piece_floats / (n * std::min(m, tile)));
  parallel_for(call, (units + at_once - 1) / at_once, [&](int64_t piece) {
    Odometer at(others, piece * at_once);
    for (int64_t unit = piece * at_once; unit < std::min(units, (piece + 1) * at_once); ++unit, at.next()) {
      if (fast == last) {
        copy_floats(to + at.b, from + at.a, n);
        continue;
      }
      const int64_t rows = std::min(tile, m - unit % strips * tile);
      for (int64_t x = 0; x < n; x += tile) {
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t i = x; i < std::min(n, x + tile); ++i) {
            to[at.b + row * to_stride[fast] + i] = from[at.a + i * from_stride[last] + row];
          }
        }
      }
    }
  });
  Epilogue(call).apply(output(call), 0, total);
}

// A negative pad crops.
void run_pad(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Shape& out = desc.outputs[0].shape;
  const Shape& in = desc.inputs[0].shape;
  const auto& pads = attr_ints(desc.attrs, "pads");
  const float value = static_cast<float>(attr_float(desc.attrs, "value"));
  const size_t axes = out.size();
  const int64_t total = element_count(out);
  float* to = output(call);
  if (axes == 0) {
    *to = *input(call, 0);
    return Epilogue(call).apply(to, 0, 1);
  }
  Extents in_stride{}, at{};
  int64_t next = 1;
  for (size_t axis = axes; axis-- > 0; next *= in[axis]) in_stride[axis] = next;
  const size_t last = axes - 1;
  const int64_t n = out[last];
  const int64_t begin = std::clamp<int64_t>(pads[last], 0, n);
  const int64_t end = std::clamp<int64_t>(in[last] + pads[last], begin, n);
  for (int64_t row = 0; n > 0 && row < total / n; ++row, to += n) {
    int64_t from = begin - pads[last];
    bool inside = true;
    for (size_t axis = 0; axis < last; ++axis) {
      const int64_t i = at[axis] - pads[axis];
      inside = inside && i >= 0 && i < in[axis];
      from += i * in_stride[axis];
    }
    if (inside && end > begin) {
      std::fill(to, to + begin, value);
      copy_floats(to + begin, input(call, 0) + from, end - begin);
      std::fill(to + end, to + n, value);
    } else {
      std::fill(to, to + n, value);
    }
    for (size_t axis = last; axis-- > 0;) {
      if (++at[axis] < out[axis]) break;
      at[axis] = 0;
    }
  }
  Epilogue(call).apply(output(call), 0, total);
}

// What lies behind one index is one piece of memory. An index outside counts as the nearest inside.
void run_gather(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Shape& table = desc.inputs[0].shape;
  const auto axes = static_cast<int64_t>(table.size());
  int64_t axis = attr_int(desc.attrs, "axis");
  if (axis < 0) axis += axes;
  int64_t piece = size_of(desc.inputs[0].dtype);
  for (int64_t i = axis + 1; i < axes; ++i) piece *= table[static_cast<size_t>(i)];
  const int64_t extent = table[static_cast<size_t>(axis)], count = element_count(desc.inputs[1].shape);
  const int64_t total = element_count(desc.outputs[0].shape);
  if (total == 0) return;
  const bool wide = desc.inputs[1].dtype == DType::i64;
  const auto* from = static_cast<const char*>(call.inputs[0]);
  auto* to = static_cast<char*>(call.outputs[0]);
  const int64_t units = total * size_of(desc.inputs[0].dtype) / piece;
  const int64_t at_once = std::max<int64_t>(1, 32768 / piece);
  parallel_for(call, (units + at_once - 1) / at_once, [&](int64_t part) {
    for (int64_t unit = part * at_once; unit < std::min(units, (part + 1) * at_once); ++unit) {
      const int64_t i = unit % count, outer = unit / count;
      int64_t index = wide ? static_cast<const int64_t*>(call.inputs[1])[i]
                           : int64_t{static_cast<const int32_t*>(call.inputs[1])[i]};
      index = std::clamp<int64_t>(index < 0 ? index + extent : index, 0, extent - 1);
      std::memcpy(to + unit * piece, from + (outer * extent + index) * piece, static_cast<size_t>(piece));
    }
  });
  if (!desc.epilogue.empty()) Epilogue(call).apply(output(call), 0, total);
}

}  // namespace

const KernelEntry concat = {"concat", run_concat, nullptr};
const KernelEntry transpose = {"transpose", run_transpose, nullptr};
const KernelEntry pad = {"pad", run_pad, nullptr};
const KernelEntry gather = {"gather", run_gather, nullptr};

}  // namespace nlsplit

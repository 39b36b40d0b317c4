// Concat, Slice, Transpose, Pad, Gather: they only move elements, all but Slice and Gather floats.
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <vector>

#include "graph/ggml.h"
#include "graph/operators/shapes.h"
#include "kernels/functions/epilogue.h"
#include "kernels/layout.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"
#include "kernels/moves/odometer.h"

namespace nlsplit::inline kernels {
namespace {

using Extents = std::array<int64_t, Axes::most>;

void copy_floats(float* to, const float* from, int64_t n) {
  std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

// f(begin, end) for pieces of [0, count) that are worth handing out.
template <class F>
void in_pieces(const KernelCall& call, int64_t count, const F& f) {
  constexpr int64_t piece = 8192;
  parallel_for(call, (count + piece - 1) / piece, [&](int64_t i) { f(i * piece, std::min(count, (i + 1) * piece)); });
}

// f(bytes), where the few sizes that are copied often are constants: a copy of those is an instruction or two.
template <class F>
void with_size(int64_t size, const F& f) {
  switch (size) {
    case 4:
      return f(std::integral_constant<size_t, 4>());
    case 8:
      return f(std::integral_constant<size_t, 8>());
    case 16:
      return f(std::integral_constant<size_t, 16>());
    default:
      return f(static_cast<size_t>(size));
  }
}

// All by value: what is stored might be anything else that is looked at by address.
template <class Bytes>
void copy_runs(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t count, Bytes bytes) {
  for (int64_t i = 0; i < count; ++i, from += from_step, to += to_step) std::memcpy(to, from, bytes);
}

// Rows of a few elements of each operand: one operand after the other, into all rows of a piece.
void concat_short_rows(const KernelCall& call, const std::vector<int64_t>& ends, int64_t total,
                       const Epilogue& epilogue) {
  const int64_t row = ends.back();
  if (total == 0) return;
  const int64_t at_once = 4096 / row, rows = total / row;
  parallel_for(call, (rows + at_once - 1) / at_once, [&](int64_t piece) {
    const int64_t begin = piece * at_once, end = std::min(rows, begin + at_once);
    for (size_t i = 0; i < ends.size(); ++i) {
      const int64_t first = i == 0 ? 0 : ends[i - 1], count = ends[i] - first;
      with_size(count * int64_t{sizeof(float)}, [&](auto bytes) {
        const auto* from = reinterpret_cast<const char*>(input(call, i) + begin * count);
        auto* to = reinterpret_cast<char*>(output(call) + begin * row + first);
        copy_runs(from, count * int64_t{sizeof(float)}, to, row * int64_t{sizeof(float)}, end - begin, bytes);
      });
    }
    epilogue.apply(output(call), begin * row, (end - begin) * row);
  });
}

// Row-major or in blocks (stored_shape): what is joined along an axis are runs of memory, one of each operand in turn.
void run_concat(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const auto axis = axis_of(attr_int(desc.attrs, "axis"), desc.outputs[0].shape.size()).value();
  const Shape out = stored_shape(desc.outputs[0]);
  int64_t inner = 1;
  for (size_t i = axis + 1; i < out.size(); ++i) inner *= out[i];
  std::vector<int64_t> ends;  // of each operand's run within a row of the result
  int64_t row = 0;
  for (size_t i = 0; i < desc.own_inputs(); ++i) {
    row += stored_shape(desc.inputs[i])[axis] * inner;
    ends.push_back(row);
  }
  const Epilogue epilogue(call);
  constexpr int64_t short_row = 256;
  if (row < short_row) return concat_short_rows(call, ends, element_count(out), epilogue);
  in_pieces(call, element_count(out), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end;) {
      const int64_t within = at % row;
      const auto i = static_cast<size_t>(std::ranges::upper_bound(ends, within) - ends.begin());
      const int64_t first = i == 0 ? 0 : ends[i - 1];
      const int64_t count = std::min(ends[i] - within, end - at);
      copy_floats(output(call) + at, input(call, i) + at / row * (ends[i] - first) + within - first, count);
      at += count;
    }
    epilogue.apply(output(call), begin, end - begin);
  });
}

// Runs of so many bytes, one behind the other along the last of the axes.
void slice_short_runs(const KernelCall& call, Axes axes, const char* from, int64_t run) {
  const size_t last = --axes.count;
  const int64_t element = size_of(call.desc->inputs[0].dtype), count = axes.extent[last];
  const int64_t step = axes.a[last] * element, rows = axes.size();
  const int64_t at_once = std::max<int64_t>(1, 8192 / count);
  parallel_for(call, (rows + at_once - 1) / at_once, [&](int64_t piece) {
    const int64_t begin = piece * at_once, end = std::min(rows, begin + at_once);
    Odometer place(axes, begin);
    char* to = static_cast<char*>(call.outputs[0]) + begin * count * run;
    for (int64_t row = begin; row < end; ++row, place.next(), to += count * run)
      with_size(run, [&](auto bytes) { copy_runs(from + place.a * element, step, to, run, count, bytes); });
  });
}

// The box that is taken out, in steps of one: runs of memory as long as they come.
void run_slice(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const TensorType& in = desc.inputs[0];
  const std::vector<SlicedAxis> sliced = sliced_axes(in.shape, desc.attrs).value();
  const Shape whole = stored_shape(in), taken = stored_shape(desc.outputs[0]);
  const int64_t total = element_count(taken);
  if (total == 0) return;
  int64_t first = 0, run = 1, stride = 1;
  bool in_run = true;  // until an axis that is not taken as a whole
  Extents strides{};
  size_t outer = 0;  // so many axes are in front of the run
  for (size_t axis = whole.size(); axis-- > 0; stride *= whole[axis]) {
    strides[axis] = stride;
    // The last of an image in blocks is the block itself.
    const int64_t start = axis >= sliced.size() ? 0 : sliced[axis].start;
    first += (axis == 1 && in.block > 0 ? start / in.block : start) * stride;
    if (!in_run) continue;
    run *= taken[axis];
    outer = axis;
    in_run = taken[axis] == whole[axis];
  }
  Axes others;
  for (size_t axis = 0; axis < outer; ++axis) others.push(taken[axis], strides[axis], 0);
  const int64_t element = size_of(in.dtype);
  const char* from = static_cast<const char*>(call.inputs[0]) + first * element;
  char* to = static_cast<char*>(call.outputs[0]);
  const Epilogue epilogue(call);
  constexpr int64_t short_run = 16;
  if (run < short_run && outer > 0) {
    slice_short_runs(call, others, from, run * element);
    if (!epilogue.empty()) epilogue.apply(output(call), 0, total);
    return;
  }
  in_pieces(call, total, [&](int64_t begin, int64_t end) {
    Odometer place(others, begin / run);
    for (int64_t at = begin, within = begin % run; at < end; within = 0, place.next()) {
      const int64_t count = std::min(run - within, end - at);
      std::memcpy(to + at * element, from + (place.a + within) * element, static_cast<size_t>(count * element));
      at += count;
    }
    if (!epilogue.empty()) epilogue.apply(output(call), begin, end - begin);
  });
}

// to[row][i] = from[i][row]. Few rows that lie close together, an image's channels say: the compiler knows how many.
template <int rows>
void deinterleave(const float* from, float* to, int64_t to_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 4
    for (int row = 0; row < rows; ++row) to[row * to_stride + i] = from[i * rows + row];
  }
}

void transpose_strip(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows, int64_t n) {
  if (rows == from_stride && rows <= 4) {
    if (rows == 2) return deinterleave<2>(from, to, to_stride, n);
    if (rows == 3) return deinterleave<3>(from, to, to_stride, n);
    if (rows == 4) return deinterleave<4>(from, to, to_stride, n);
  }
  // In squares of registers: both sides are whole vectors.
  for (int64_t i = 0; i < n; i += width) {
    const int64_t columns = std::min<int64_t>(width, n - i);
    for (int64_t row = 0; row < rows; row += width) {
      const int64_t lines = std::min<int64_t>(width, rows - row);
      const float* square = from + i * from_stride + row;
      float* there = to + row * to_stride + i;
      if (columns < width || lines < width) {
        for (int64_t r = 0; r < lines; ++r) {
          for (int64_t c = 0; c < columns; ++c) there[r * to_stride + c] = square[c * from_stride + r];
        }
        continue;
      }
      Eigen::internal::PacketBlock<Packet, width> block;
#pragma GCC unroll 16
      for (int c = 0; c < width; ++c) block.packet[c] = load(square + c * from_stride);
      Eigen::internal::ptranspose(block);
#pragma GCC unroll 16
      for (int r = 0; r < width; ++r) store(there + r * to_stride, block.packet[r]);
    }
  }
}

// The output is walked in its order with the input's strides. Where the input's last axis lies elsewhere, that axis and
// the output's last one form a matrix that is transposed tile by tile, so that both sides stay in cache lines.
void run_transpose(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  Shape out = desc.outputs[0].shape, in = desc.inputs[0].shape;
  if (is_half(desc.outputs[0].dtype)) out.back() /= 2, in.back() /= 2;  // a pair of neighbours is a float
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
      transpose_strip(from + at.a, from_stride[last], to + at.b, to_stride[fast], rows, n);
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

template <class Index, class Bytes>
void gather_units(const Index* indices, int64_t count, const char* from, int64_t extent, Bytes bytes, char* to,
                  int64_t begin, int64_t end) {
  const auto piece = static_cast<int64_t>(static_cast<size_t>(bytes));
  int64_t i = begin % count;
  from += begin / count * extent * piece;
  to += begin * piece;
  for (int64_t unit = begin; unit < end; ++unit, to += piece) {
    int64_t index = indices[i];
    index = std::clamp<int64_t>(index < 0 ? index + extent : index, 0, extent - 1);
    std::memcpy(to, from + index * piece, bytes);
    if (++i == count) i = 0, from += extent * piece;
  }
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
  const auto* from = static_cast<const char*>(call.inputs[0]);
  auto* to = static_cast<char*>(call.outputs[0]);
  const int64_t units = total * size_of(desc.inputs[0].dtype) / piece;
  const int64_t at_once = std::max<int64_t>(1, 32768 / piece);
  parallel_for(call, (units + at_once - 1) / at_once, [&](int64_t part) {
    const int64_t begin = part * at_once, end = std::min(units, begin + at_once);
    with_size(piece, [&](auto bytes) {
      if (desc.inputs[1].dtype == DType::i32)
        gather_units(static_cast<const int32_t*>(call.inputs[1]), count, from, extent, bytes, to, begin, end);
      else
        gather_units(static_cast<const int64_t*>(call.inputs[1]), count, from, extent, bytes, to, begin, end);
    });
  });
  if (!desc.epilogue.empty()) Epilogue(call).apply(output(call), 0, total);
}

// Rows of blocks, each read as the reference reads it.
void run_gather_blocks(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const TensorType& table = desc.inputs[0];
  const auto axes = static_cast<int64_t>(table.shape.size());
  int64_t axis = attr_int(desc.attrs, "axis");
  if (axis < 0) axis += axes;
  int64_t piece = 1;  // elements behind one index
  for (int64_t i = axis + 1; i < axes; ++i) piece *= table.shape[static_cast<size_t>(i)];
  const int64_t extent = table.shape[static_cast<size_t>(axis)], count = element_count(desc.inputs[1].shape);
  const int64_t total = element_count(desc.outputs[0].shape);
  if (total == 0) return;
  const GgmlType type = ggml_type_of(table.dtype).value();
  const int64_t bytes = size_of(table.dtype, piece);
  const auto* from = static_cast<const char*>(call.inputs[0]);
  parallel_for(call, total / piece, [&](int64_t unit) {
    int64_t index = whole_at(call, 1, unit % count);
    index = std::clamp<int64_t>(index < 0 ? index + extent : index, 0, extent - 1);
    const char* row = from + (unit / count * extent + index) * bytes;
    dequantize(type, {row, static_cast<size_t>(bytes)}, output(call) + unit * piece);
  });
  if (!desc.epilogue.empty()) Epilogue(call).apply(output(call), 0, total);
}

}  // namespace

const KernelCode code::concat = {run_concat};
const KernelCode code::concat_blocked = {run_concat};
const KernelCode code::slice = {run_slice};
const KernelCode code::slice_blocked = {run_slice};
const KernelCode code::transpose = {run_transpose};
const KernelCode code::pad = {run_pad};
const KernelCode code::gather = {run_gather};
const KernelCode code::gather_blocks = {run_gather_blocks};

}  // namespace nlsplit::inline kernels

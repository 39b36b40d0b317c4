// Expand, and the gradient of Gather: a sum where several indices are equal.
#include <algorithm>
#include <cstring>

#include "kernels/functions/epilogue.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"
#include "kernels/moves/odometer.h"

namespace nlsplit::inline kernels {
namespace {

// Numpy's broadcasting: rows of the result are rows of the operand, or one element again and again.
void run_expand(const KernelCall& call) {
  const Shape &in = call.desc->inputs[0].shape, &out = call.desc->outputs[0].shape;
  const int64_t total = element_count(out);
  if (total == 0) return;
  // From the last axis on, joined as long as all of them are copied, or all repeated.
  Axes axes;
  int64_t row = 1, stride = 1;
  bool repeats = false, in_row = true;
  for (size_t back = 0; back < out.size(); ++back) {
    const int64_t extent = out[out.size() - 1 - back];
    const int64_t own = back < in.size() ? in[in.size() - 1 - back] : 1;
    if (extent == 1) continue;
    if (in_row && row == 1) repeats = own == 1;
    in_row = in_row && (own == 1) == repeats;
    if (in_row) {
      row *= extent;
    } else {
      axes.push(extent, own == 1 ? 0 : stride, 0);
    }
    stride *= own;
  }
  std::reverse(axes.extent.begin(), axes.extent.begin() + axes.count);
  std::reverse(axes.a.begin(), axes.a.begin() + axes.count);
  const float* from = input(call, 0);
  float* to = output(call);
  constexpr int64_t piece_floats = 8192;
  const int64_t rows = total / row, at_once = std::max<int64_t>(1, piece_floats / row);
  const Epilogue epilogue(call);
  parallel_for(call, (rows + at_once - 1) / at_once, [&](int64_t piece) {
    const int64_t begin = piece * at_once, end = std::min(rows, begin + at_once);
    Odometer at(axes, begin);
    for (int64_t r = begin; r < end; ++r, at.next()) {
      if (repeats) {
        std::fill_n(to + r * row, row, from[at.a]);
      } else {
        std::memcpy(to + r * row, from + at.a, static_cast<size_t>(row) * sizeof(float));
      }
    }
    epilogue.apply(to, begin * row, (end - begin) * row);
  });
}

// Rows of dy are added in their order to those that they were read from; workers take columns of all rows.
void run_gather_gradient(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Shape& table = desc.outputs[0].shape;
  const auto axis = static_cast<size_t>(attr_int(desc.attrs, "axis"));
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < table.size(); ++i) {
    if (i < axis) outer *= table[i];
    if (i > axis) inner *= table[i];
  }
  const int64_t extent = table[axis], count = element_count(desc.inputs[1].shape), total = outer * extent * inner;
  float* out = output(call);
  const int64_t workers = std::max(call.crew.workers, 1);
  const int64_t columns = std::max<int64_t>((inner + workers - 1) / workers, 64);
  parallel_for(call, (inner + columns - 1) / columns, [&](int64_t piece) {
    const int64_t begin = piece * columns, n = std::min(inner - begin, columns);
    for (int64_t row = 0; row < outer * extent; ++row) std::fill_n(out + row * inner + begin, n, 0.0f);
    for (int64_t row = 0; row < outer * count; ++row) {
      int64_t index = whole_at(call, 1, row % count);
      index = std::clamp<int64_t>(index < 0 ? index + extent : index, 0, extent - 1);
      float* to = out + (row / count * extent + index) * inner + begin;
      map_row(to, n, add, to, input(call, 0) + row * inner + begin);
    }
  });
  Epilogue(call).apply(out, 0, total);
}

}  // namespace

const KernelCode code::expand = {run_expand};
const KernelCode code::gather_gradient = {run_gather_gradient};

}  // namespace nlsplit::inline kernels

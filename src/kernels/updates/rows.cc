// Sums of gradients, updates by optimizers and of caches: what their kernels accept.
#include "kernels/rows.h"

#include <fmt/format.h>

#include "graph/sum_of_squares.h"

namespace nlsplit::inline kernels {
namespace {

std::string refuse_update(const ComputeDesc& desc) {
  if (!desc.epilogue.empty()) return "there are steps after it";
  if (desc.op == Op::StepCount) return "";
  return desc.inputs[0].dtype == DType::f32 ? "" : fmt::format("{} is not f32", to_string(desc.inputs[0]));
}

Bytes workspace_of_squares(const ComputeDesc& desc, Isa, int) {
  return bytes(square_blocks(element_count(desc.inputs[0].shape)) * int64_t{sizeof(double)});
}

std::string refuse_scatter(const ComputeDesc& desc) { return desc.epilogue.empty() ? "" : "there are steps after it"; }

// Only what is written is moved.
Work work_of_scatter(const ComputeDesc& desc, ScalarValues values) {
  const CacheUpdate u = cache_update_of(desc);
  const size_t counts = desc.op == Op::PagedScatter ? 4 : 3;
  int64_t rows = u.samples * u.steps;
  if (counts < values.size() && !values[counts].empty()) {
    rows = 0;
    for (const int64_t count : values[counts]) rows += count;
  }
  Work work{flops(0), bytes(rows * u.heads * u.row_bytes), bytes(rows * u.heads * u.row_bytes)};
  for (size_t i = 2; i < desc.inputs.size(); ++i) work.bytes_read += size_of(desc.inputs[i]);
  return work;
}

}  // namespace

const KernelInfo rows::scatter_in_place = {
    .what = "new positions copied into a cache where it lies, elements of any type",
    .ops = computes<Op::TensorScatter, Op::PagedScatter>,
    .refuses = refuse_scatter,
    .any_type = true,
    .in_place = over_first,
    .only_in_place = true,
    .work = work_of_scatter};

const KernelInfo rows::update = {
    .what = "of a sum by a part, of a weight by an optimizer; element by element, where they are",
    .ops = computes<Op::Accumulate, Op::MovingAverage, Op::SgdUpdate, Op::MomentumUpdate, Op::AdamUpdate,
                    Op::AdamWUpdate, Op::StepCount>,
    .refuses = refuse_update,
    .any_type = true,
    .in_place = over_any};

const KernelInfo rows::sum_of_squares = {.what = "of gradients, in f64, block by block",
                                         .ops = computes<Op::SumOfSquares>,
                                         .refuses = refuse_update,
                                         .workspace = workspace_of_squares,
                                         .any_type = true};

}  // namespace nlsplit::inline kernels

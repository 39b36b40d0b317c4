// Gemm and MatMul, with the right operand packed at load or plain.
#include <algorithm>

#include "kernels/layout.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"
#include "kernels/products/microkernel.h"
#include "kernels/products/product.h"

namespace nlsplit::inline kernels {
namespace {

Left gemm_left(const ComputeDesc& desc, const float* a, const Product& p) {
  return attr_int(desc.attrs, "transA") != 0 ? Left{a, 1, p.m} : Left{a, p.k, 1};
}

Right gemm_right(const ComputeDesc& desc, const float* b, const Product& p) {
  return attr_int(desc.attrs, "transB") != 0 ? Right{b, 1, p.k} : Right{b, p.n, 1};
}

// How c of shape [], [n], [1, n], [m, 1] or [m, n] lies over the result.
struct Addend {
  const float* data = nullptr;
  int64_t row_stride = 0, column_stride = 0;
};

Addend addend_of(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  if (desc.own_inputs() < 3) return {};
  const Shape& shape = desc.inputs[2].shape;
  const int64_t columns = shape.empty() ? 1 : shape.back();
  const int64_t rows = shape.size() < 2 ? 1 : shape[0];
  return {input(call, 2), rows == 1 ? 0 : columns, columns == 1 ? 0 : 1};
}

// out = alpha * out + beta * c, where the product's own store cannot do it.
void scale_and_add(float* out, const Product& p, float alpha, float beta, const Addend& c) {
  const Packet pa = broadcast(alpha), pb = broadcast(beta);
  for (int64_t row = 0; row < p.m; ++row, out += p.n) {
    const float* addend = c.data == nullptr ? nullptr : c.data + row * c.row_stride;
    if (addend == nullptr) {
      map_row(
          out, p.n, [&](const Packet& x) { return multiply(x, pa); }, out);
    } else if (c.column_stride == 0) {
      const Packet one = multiply(broadcast(*addend), pb);
      map_row(
          out, p.n, [&](const Packet& x) { return add(multiply(x, pa), one); }, out);
    } else {
      map_row(
          out, p.n, [&](const Packet& x, const Packet& y) { return add(multiply(x, pa), multiply(y, pb)); }, out,
          addend);
    }
  }
}

// A product by all workers: cut by rows if there are enough, else by columns. A worker's scratch is that of the whole.
void shared_product(const KernelCall& call, const Product& p, const Left& left, const Right& right, float* out,
                    const Finish& finish) {
  const int64_t scratch = product_scratch_floats(p, right.packed);
  // Pieces of equal length, a few for each worker, but no shorter than what makes packing the left rows worth it.
  const int64_t wanted = call.crew.workers <= 1 ? 1 : 4 * call.crew.workers;
  const bool by_rows = p.m >= 4 * most_tile_rows * wanted;
  const int64_t extent = by_rows ? p.m : p.n;
  const int64_t unit = by_rows ? most_tile_rows : 2 * product_columns_step;
  const int64_t all = std::max<int64_t>(extent, 1);
  const int64_t step = wanted == 1 ? all : round_up((all + wanted - 1) / wanted, unit);
  parallel_for_workers(call, (extent + step - 1) / step, [&](int64_t piece, int worker) {
    const int64_t begin = piece * step, end = std::min(extent, begin + step);
    float* own = workspace(call) + worker * scratch;
    if (!by_rows) return product_columns(begin, end, p.m, p.n, p.k, left, right, out, finish, own);
    Left rows = left;
    rows.data += begin * left.row_stride;
    Finish part = finish;
    if (part.head.operand != nullptr) part.head.operand += begin * p.n;
    product(end - begin, p.n, p.k, rows, right, out + begin * p.n, part, own, p.m);
  });
}

void run_gemm(const KernelCall& call, const Right& right) {
  const ComputeDesc& desc = *call.desc;
  const Product p = product_of(desc);
  const float alpha = static_cast<float>(attr_float(desc.attrs, "alpha"));
  const float beta = static_cast<float>(attr_float(desc.attrs, "beta"));
  const Addend c = addend_of(call);
  // A row of biases, as fully connected layers have it, is added in registers. (n == 1 would make it a scalar.)
  const bool plain =
      alpha == 1.0f && (c.data == nullptr || (beta == 1.0f && c.row_stride == 0 && c.column_stride == 1));
  Epilogue epilogue(call);
  Finish finish;
  if (plain) {
    finish.column_bias = c.data;
    finish.head = epilogue.take_head();
  }
  float* out = output(call);
  shared_product(call, p, gemm_left(desc, input(call, 0), p), right, out, finish);
  if (!plain) scale_and_add(out, p, alpha, beta, c);
  if (!epilogue.empty()) epilogue.apply(out, 0, p.m * p.n);
}

void run_gemm_packed(const KernelCall& call) { run_gemm(call, {input(call, 1), 0, 0, true}); }

void run_gemm_plain(const KernelCall& call) {
  run_gemm(call, gemm_right(*call.desc, input(call, 1), product_of(*call.desc)));
}

void pack_gemm(const ComputeDesc& desc, size_t, const void* raw, void* packed) {
  const Product p = product_of(desc);
  pack_right(gemm_right(desc, static_cast<const float*>(raw), p), p.k, p.n, static_cast<float*>(packed));
}

void run_matmul(const KernelCall& call, bool packed) {
  const ComputeDesc& desc = *call.desc;
  const Product p = product_of(desc);
  const Shape &a = desc.inputs[0].shape, &b = desc.inputs[1].shape, &result = desc.outputs[0].shape;
  Epilogue epilogue(call);
  Finish finish;
  if (desc.own_inputs() > 2) finish.column_bias = input(call, 2);
  finish.head = epilogue.take_head();
  const float* operand = finish.head.operand;
  // A vector times a stack of matrices has no axis for its one row.
  const size_t batch_axes = b.size() <= 2 ? 0 : result.size() - (a.size() == 1 ? 1 : 2);
  const auto right_of = [&](const float* data) { return packed ? Right{data, 0, 0, true} : Right{data, p.n, 1}; };
  if (p.batch == 1) {
    shared_product(call, p, {input(call, 0), p.k, 1}, right_of(input(call, 1)), output(call), finish);
    if (!epilogue.empty()) epilogue.apply(output(call), 0, p.m * p.n);
    return;
  }
  const int64_t scratch = product_scratch_floats(p, packed);
  parallel_for_workers(call, p.batch, [&](int64_t i, int worker) {
    const int64_t at = i * p.m * p.n;
    Finish own = finish;
    if (operand != nullptr) own.head.operand = operand + at;
    product(p.m, p.n, p.k, {input(call, 0) + matrix_offset(a, result, batch_axes, 2, i), p.k, 1},
            right_of(input(call, 1) + matrix_offset(b, result, batch_axes, 2, i)), output(call) + at, own,
            workspace(call) + worker * scratch);
    if (!epilogue.empty()) epilogue.apply(output(call), at, p.m * p.n);
  });
}

void run_matmul_packed(const KernelCall& call) { run_matmul(call, true); }
void run_matmul_plain(const KernelCall& call) { run_matmul(call, false); }

void pack_matmul(const ComputeDesc& desc, size_t, const void* raw, void* packed) {
  const Product p = product_of(desc);
  pack_right({static_cast<const float*>(raw), p.n, 1}, p.k, p.n, static_cast<float*>(packed));
}

}  // namespace

const KernelCode code::gemm_packed = {run_gemm_packed, pack_gemm};
const KernelCode code::gemm = {run_gemm_plain};
const KernelCode code::matmul_packed = {run_matmul_packed, pack_matmul};
const KernelCode code::matmul = {run_matmul_plain};

}  // namespace nlsplit::inline kernels

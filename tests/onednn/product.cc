// Gemm and MatMul, both as oneDNN's matmul or, by a constant matrix, as its inner_product.
#include <algorithm>

#include "kernels/layout.h"
#include "onednn/chain.h"

namespace nlsplit::onednn {
namespace {

using dnnl::memory;

constexpr auto f32 = memory::data_type::f32;

// A matrix [rows, columns] that the input holds as it is or transposed.
memory matrix(const Chain& chain, size_t input, int64_t rows, int64_t columns, bool transposed) {
  return chain.operand(input,
                       memory::desc({rows, columns}, f32, transposed ? Dims{1, rows} : Dims{columns, int64_t{1}}));
}

bool flag(const Chain& chain, std::string_view name) {
  return chain.desc.op == Op::Gemm && attr_int(chain.desc.attrs, name) != 0;
}

// What is done beyond the product.
struct Extras {
  float alpha = 1;
  std::optional<memory> bias;  // one a column, added before the scaling
  std::vector<Step> steps;     // any other addend, after it
};

Extras extras_of(const Chain& chain, int64_t n, const Dims& bias_dims) {
  Extras extras;
  const bool gemm = chain.desc.op == Op::Gemm;
  if (gemm) extras.alpha = static_cast<float>(attr_float(chain.desc.attrs, "alpha"));
  if (chain.desc.own_inputs() < 3) return extras;
  Dims dims = chain.shape(2);
  dims.insert(dims.begin(), 2 - dims.size(), 1);
  const auto beta = gemm ? static_cast<float>(attr_float(chain.desc.attrs, "beta")) : 1.0f;
  if (extras.alpha == 1 && dims == Dims{1, n})
    extras.bias = chain.operand(2, bias_dims, beta);
  else
    extras.steps.push_back({.algorithm = dnnl::algorithm::binary_add, .operand = chain.operand(2, dims, beta)});
  return extras;
}

memory::desc layout_of(const std::optional<memory>& bias) { return bias ? bias->get_desc() : memory::desc(); }

Dims with_axes(Shape shape, size_t axes) {
  shape.insert(shape.begin(), axes - shape.size(), 1);
  return shape;
}

void add_matmul(Chain& chain, const memory& left, const memory& right, const Dims& out, const Extras& extras) {
  const auto right_layout = chain.desc.is_weight(1) ? any_layout(right.get_desc().dims()) : right.get_desc();
  std::vector<Chain::Source> sources{{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}};
  if (extras.bias) sources.push_back({DNNL_ARG_BIAS, *extras.bias});
  const auto make = [&](const dnnl::primitive_attr& attr, const memory::desc& dst) {
    const dnnl::matmul::desc what(left.get_desc(), right_layout, layout_of(extras.bias), dst);
    return dnnl::matmul::primitive_desc(what, attr, chain.engine());
  };
  chain.compute(make, row_major(out), sources, extras.steps, extras.alpha);
}

}  // namespace

bool product_by_constant_matrix(const ComputeDesc& desc) {
  return (desc.op == Op::Gemm || desc.op == Op::MatMul) && desc.is_weight(1) && desc.inputs[1].shape.size() == 2;
}

void add_product(Chain& chain) {
  const Product p = product_of(chain.desc);
  if (chain.desc.op == Op::Gemm || chain.shape(1).size() <= 2) {
    add_matmul(chain, matrix(chain, 0, p.m, p.k, flag(chain, "transA")),
               matrix(chain, 1, p.k, p.n, flag(chain, "transB")), {p.m, p.n}, extras_of(chain, p.n, {1, p.n}));
    return;
  }
  // Batched: axes of extent 1 are broadcast, here as in oneDNN. The right operand has more than two axes, so only the
  // left one can be a vector: a row.
  const size_t axes = std::max(chain.shape(0).size(), chain.shape(1).size());
  const Dims a = with_axes(chain.shape(0), axes), b = with_axes(chain.shape(1), axes);
  Dims out = a;
  for (size_t axis = 0; axis + 2 < axes; ++axis) out[axis] = std::max(a[axis], b[axis]);
  out.back() = b.back();
  add_matmul(chain, chain.operand(0, a), chain.operand(1, b), out, extras_of(chain, p.n, with_axes({p.n}, axes)));
}

void add_inner_product(Chain& chain) {
  const Product p = product_of(chain.desc);
  const Extras extras = extras_of(chain, p.n, {p.n});
  const memory left = matrix(chain, 0, p.m, p.k, flag(chain, "transA"));
  // oneDNN's weights are [n, k].
  const memory right = matrix(chain, 1, p.n, p.k, !flag(chain, "transB"));
  std::vector<Chain::Source> sources{{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}};
  if (extras.bias) sources.push_back({DNNL_ARG_BIAS, *extras.bias});
  const auto make = [&](const dnnl::primitive_attr& attr, const memory::desc& dst) {
    const dnnl::inner_product_forward::desc what(dnnl::prop_kind::forward_inference, left.get_desc(),
                                                 any_layout({p.n, p.k}), layout_of(extras.bias), dst);
    return dnnl::inner_product_forward::primitive_desc(what, attr, chain.engine());
  };
  chain.compute(make, row_major({p.m, p.n}), sources, extras.steps, extras.alpha);
}

}  // namespace nlsplit::onednn

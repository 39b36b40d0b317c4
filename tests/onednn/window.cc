// Convolutions and pools. oneDNN counts dilations from 0, and its padding behind the image only has to fit the result's
// extents.
#include <algorithm>

#include "onednn/chain.h"

namespace nlsplit::onednn {
namespace {

constexpr auto inference = dnnl::prop_kind::forward_inference;

struct Geometry {
  Dims kernel, strides, dilations, before, after;
};

Geometry geometry_of(const ComputeDesc& desc) {
  Geometry g;
  const auto& pads = attr_ints(desc.attrs, "pads");
  g.kernel = attr_ints(desc.attrs, "kernel_shape");
  g.strides = attr_ints(desc.attrs, "strides");
  g.dilations = desc.op == Op::AveragePool ? Dims{1, 1} : attr_ints(desc.attrs, "dilations");
  g.before = {pads[0], pads[1]};
  g.after = {pads[2], pads[3]};
  for (int64_t& dilation : g.dilations) --dilation;
  return g;
}

int64_t reach(const Geometry& g, size_t axis) { return (g.kernel[axis] - 1) * (g.dilations[axis] + 1) + 1; }

// The padding behind the image that the last window of a pool needs.
int64_t needed_after(const ComputeDesc& desc, const Geometry& g, size_t axis) {
  const int64_t last = (desc.outputs[0].shape[axis + 2] - 1) * g.strides[axis];
  return last + reach(g, axis) - g.before[axis] - desc.inputs[0].shape[axis + 2];
}

// The filters [M, C / group, h, w], or [C, M / group, h, w] transposed, with the groups as an axis of their own and M
// before C as oneDNN names them.
dnnl::memory filters(const Chain& chain, int64_t group, bool transposed) {
  const Shape& w = chain.shape(1);
  Dims dims{group, w[0] / group, w[1], w[2], w[3]};
  Dims strides{dims[1] * dims[2] * dims[3] * dims[4], dims[2] * dims[3] * dims[4], dims[3] * dims[4], dims[4], 1};
  if (transposed) {
    std::swap(dims[1], dims[2]);
    std::swap(strides[1], strides[2]);
  }
  if (group == 1) {
    dims.erase(dims.begin());
    strides.erase(strides.begin());
  }
  return chain.operand(1, dnnl::memory::desc(dims, dnnl::memory::data_type::f32, strides));
}

template <class Primitive>
void add_any_conv(Chain& chain, dnnl::algorithm algorithm, const Geometry& g, bool transposed) {
  const dnnl::memory w = filters(chain, attr_int(chain.desc.attrs, "group"), transposed);
  std::vector<Chain::Source> sources{{DNNL_ARG_SRC, chain.operand(0, chain.shape(0))}, {DNNL_ARG_WEIGHTS, w}};
  dnnl::memory::desc bias;  // none
  if (chain.desc.own_inputs() > 2) {
    sources.push_back({DNNL_ARG_BIAS, chain.operand(2, chain.shape(2))});
    bias = sources.back().memory.get_desc();
  }
  const auto make = [&](const dnnl::primitive_attr& attr, const dnnl::memory::desc& dst) {
    const typename Primitive::desc what(inference, algorithm, any_layout(chain.shape(0)),
                                        any_layout(w.get_desc().dims()), bias, dst, g.strides, g.dilations, g.before,
                                        g.after);
    return typename Primitive::primitive_desc(what, attr, chain.engine());
  };
  chain.compute(make, any_layout(chain.out_shape()), sources);
}

}  // namespace

void add_conv(Chain& chain, bool winograd) {
  using dnnl::algorithm;
  add_any_conv<dnnl::convolution_forward>(chain,
                                          winograd ? algorithm::convolution_winograd : algorithm::convolution_direct,
                                          geometry_of(chain.desc), false);
}

void add_conv_transpose(Chain& chain) {
  Geometry g = geometry_of(chain.desc);
  const auto& more = attr_ints(chain.desc.attrs, "output_padding");
  for (size_t axis = 0; axis < 2; ++axis) g.after[axis] -= more[axis];
  add_any_conv<dnnl::deconvolution_forward>(chain, dnnl::algorithm::deconvolution_direct, g, true);
}

bool pool_overhangs(const ComputeDesc& desc) {
  const Geometry g = geometry_of(desc);
  return needed_after(desc, g, 0) > g.after[0] || needed_after(desc, g, 1) > g.after[1];
}

void add_pool(Chain& chain) {
  using dnnl::algorithm;
  const ComputeDesc& desc = chain.desc;
  Geometry g;
  algorithm algorithm = algorithm::pooling_avg_exclude_padding;
  if (desc.op == Op::GlobalAveragePool) {
    const size_t axes = chain.shape(0).size() - 2;
    g = {Dims(chain.shape(0).begin() + 2, chain.shape(0).end()), Dims(axes, 1), Dims(axes, 0), Dims(axes, 0),
         Dims(axes, 0)};
  } else {
    g = geometry_of(desc);
    for (size_t axis = 0; axis < 2; ++axis) {
      const int64_t windows =
          (chain.shape(0)[axis + 2] + g.before[axis] + g.after[axis] - reach(g, axis)) / g.strides[axis] + 1;
      if (windows != chain.out_shape()[axis + 2]) g.after[axis] = needed_after(desc, g, axis);
    }
    if (desc.op == Op::MaxPool)
      algorithm = algorithm::pooling_max;
    else if (attr_int(desc.attrs, "count_include_pad") != 0)
      algorithm = algorithm::pooling_avg_include_padding;
  }
  const auto src = in_blocks(chain.shape(0), desc.inputs[0].block);
  const auto make = [&](const dnnl::primitive_attr& attr, const dnnl::memory::desc& dst) {
    const dnnl::pooling_v2_forward::desc what(inference, algorithm, src, dst, g.strides, g.kernel, g.dilations,
                                              g.before, g.after);
    return dnnl::pooling_v2_forward::primitive_desc(what, attr, chain.engine());
  };
  chain.compute(make, any_layout(chain.out_shape()), {{DNNL_ARG_SRC, chain.operand(0, chain.shape(0))}});
}

}  // namespace nlsplit::onednn

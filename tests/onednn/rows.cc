// Along rows and over channels: softmax, normalizations, means; and what is element by element.
#include <algorithm>

#include "onednn/chain.h"

namespace nlsplit::onednn {
namespace {

using dnnl::algorithm;

constexpr auto inference = dnnl::prop_kind::forward_inference;

// oneDNN has no tensors without axes.
Dims dims_of(const Shape& shape) { return shape.empty() ? Dims{1} : shape; }

int64_t axis_of(const ComputeDesc& desc, std::string_view name) {
  const int64_t axis = attr_int(desc.attrs, name);
  return axis < 0 ? axis + static_cast<int64_t>(desc.inputs[0].shape.size()) : axis;
}

float number(const Chain& chain, std::string_view name) {
  return static_cast<float>(attr_float(chain.desc.attrs, name));
}

// For primitives whose result lies as `what` says.
template <class Primitive>
Chain::Make make(const Chain& chain, const typename Primitive::desc& what) {
  return [&chain, what](const dnnl::primitive_attr& attr, const dnnl::memory::desc&) {
    return typename Primitive::primitive_desc(what, attr, chain.engine());
  };
}

// Input 0 where the primitive takes the layout it is given: the desc's.
dnnl::memory as_laid_out(const Chain& chain) {
  const Dims dims = dims_of(chain.shape(0));
  return chain.prepared.with_layout(chain.operand(0, dims), in_blocks(dims, chain.desc.inputs[0].block));
}

}  // namespace

void add_softmax(Chain& chain) {
  const dnnl::memory x = chain.operand(0, chain.shape(0));
  const dnnl::softmax_forward::desc what(inference, x.get_desc(), static_cast<int>(axis_of(chain.desc, "axis")));
  chain.compute(make<dnnl::softmax_forward>(chain, what), x.get_desc(), {{DNNL_ARG_SRC, x}});
}

// oneDNN normalizes over the last axis alone, so all that are normalized become one.
void add_layer_norm(Chain& chain) {
  const int64_t size = element_count(chain.shape(1));
  const dnnl::memory x = chain.operand(0, Dims{element_count(chain.shape(0)) / size, size});
  std::vector<Chain::Source> sources{{DNNL_ARG_SRC, x}, {DNNL_ARG_SCALE, chain.operand(1, Dims{size})}};
  auto flags = dnnl::normalization_flags::use_scale;
  if (chain.desc.own_inputs() > 2) {
    sources.push_back({DNNL_ARG_SHIFT, chain.operand(2, Dims{size})});
    flags = flags | dnnl::normalization_flags::use_shift;
  }
  const dnnl::layer_normalization_forward::desc what(inference, x.get_desc(), number(chain, "epsilon"), flags);
  chain.compute(make<dnnl::layer_normalization_forward>(chain, what), x.get_desc(), sources);
}

void add_batch_norm(Chain& chain) {
  using dnnl::normalization_flags;
  const dnnl::memory x = as_laid_out(chain);
  const auto flags =
      normalization_flags::use_global_stats | normalization_flags::use_scale | normalization_flags::use_shift;
  const dnnl::batch_normalization_forward::desc what(inference, x.get_desc(), number(chain, "epsilon"), flags);
  std::vector<Chain::Source> sources{{DNNL_ARG_SRC, x}};
  const int parameters[] = {DNNL_ARG_SCALE, DNNL_ARG_SHIFT, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE};
  for (size_t i = 0; i < 4; ++i) sources.push_back({parameters[i], chain.operand(i + 1, chain.shape(i + 1))});
  chain.compute(make<dnnl::batch_normalization_forward>(chain, what), x.get_desc(), sources);
}

void add_lrn(Chain& chain) {
  const dnnl::memory x = as_laid_out(chain);
  const dnnl::lrn_forward::desc what(inference, algorithm::lrn_across_channels, x.get_desc(),
                                     attr_int(chain.desc.attrs, "size"), number(chain, "alpha"), number(chain, "beta"),
                                     number(chain, "bias"));
  chain.compute(make<dnnl::lrn_forward>(chain, what), x.get_desc(), {{DNNL_ARG_SRC, x}});
}

void add_reduce_mean(Chain& chain) {
  const dnnl::memory x = as_laid_out(chain);
  Dims out = chain.shape(0);
  for (int64_t axis : attr_ints(chain.desc.attrs, "axes"))
    out[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(out.size()) : axis)] = 1;
  const dnnl::reduction::desc what(algorithm::reduction_mean, x.get_desc(), row_major(out), 0, 0);
  chain.compute(make<dnnl::reduction>(chain, what), row_major(out), {{DNNL_ARG_SRC, x}});
}

void add_unary(Chain& chain) {
  const dnnl::memory x = as_laid_out(chain);
  std::vector<Step> steps = unary_steps(chain.desc.op, chain.desc.attrs);
  const dnnl::eltwise_forward::desc what(inference, steps[0].algorithm, x.get_desc(), steps[0].alpha, steps[0].beta);
  steps.erase(steps.begin());
  chain.compute(make<dnnl::eltwise_forward>(chain, what), x.get_desc(), {{DNNL_ARG_SRC, x}}, steps);
}

void add_binary(Chain& chain) {
  const auto algorithm = chain.desc.op == Op::Add   ? algorithm::binary_add
                         : chain.desc.op == Op::Sub ? algorithm::binary_sub
                         : chain.desc.op == Op::Mul ? algorithm::binary_mul
                                                    : algorithm::binary_div;
  const Dims out = dims_of(chain.out_shape());
  std::vector<dnnl::memory> operands;
  for (size_t i = 0; i < 2; ++i) {
    Dims dims = chain.shape(i);
    dims.insert(dims.begin(), out.size() - dims.size(), 1);
    const int block = dims == out ? chain.desc.inputs[i].block : 0;
    operands.push_back(chain.prepared.with_layout(chain.operand(i, dims), in_blocks(dims, block)));
  }
  const dnnl::binary::desc what(algorithm, operands[0].get_desc(), operands[1].get_desc(),
                                in_blocks(out, chain.desc.outputs[0].block));
  chain.compute(make<dnnl::binary>(chain, what), in_blocks(out, chain.desc.outputs[0].block),
                {{DNNL_ARG_SRC_0, operands[0]}, {DNNL_ARG_SRC_1, operands[1]}});
}

void add_sum(Chain& chain) {
  std::vector<Chain::Source> sources;
  std::vector<dnnl::memory::desc> layouts;
  for (size_t i = 0; i < chain.desc.own_inputs(); ++i) {
    const Dims dims = dims_of(chain.shape(i));
    layouts.push_back(in_blocks(dims, chain.desc.inputs[i].block));
    sources.push_back({DNNL_ARG_MULTIPLE_SRC + static_cast<int>(i), chain.operand(i, dims)});
  }
  const auto make = [&](const dnnl::primitive_attr& attr, const dnnl::memory::desc& dst) {
    return dnnl::sum::primitive_desc(dst, std::vector<float>(layouts.size(), 1), layouts, chain.engine(), attr);
  };
  chain.compute(make, layouts[0], sources);
}

}  // namespace nlsplit::onednn

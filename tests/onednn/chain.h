// A computation on its way to oneDNN: a primitive, then the element-wise steps after it, all fused into it or each a
// primitive of its own. Internal to this folder; what throws here is caught in onednn.cc.
#pragma once

#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/catalogue.h"

namespace nlsplit::onednn {

using Dims = dnnl::memory::dims;

// What runs: primitives one after the other, each with the memory it works on.
struct Prepared {
  struct Call {
    dnnl::primitive primitive;
    std::unordered_map<int, dnnl::memory> args;
  };
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::vector<Call> calls;
  dnnl::memory result;
  std::string implementation;

  void run();
  // A copy in another layout, unless it has it.
  dnnl::memory with_layout(const dnnl::memory& from, const dnnl::memory::desc& layout) const;
};

// dst = algorithm(dst), or dst = algorithm(dst, operand).
struct Step {
  dnnl::algorithm algorithm;
  float alpha = 0, beta = 0;
  std::optional<dnnl::memory> operand = std::nullopt;  // of dst's extents, or broadcast to them
  bool onto_operand = false;                           // an addition whose operand's memory becomes the result's
};

// oneDNN's steps for a unary element-wise operator; empty: it has none.
std::vector<Step> unary_steps(Op op, const Attrs& attrs);

dnnl::memory::desc row_major(const Dims& dims);
// In blocks of channels, or row-major for block 0.
dnnl::memory::desc in_blocks(const Dims& dims, int block);
// oneDNN is to choose the layout.
dnnl::memory::desc any_layout(const Dims& dims);

class Chain {
 public:
  using Inputs = std::vector<std::span<const float>>;
  Chain(const ComputeDesc& desc, const Inputs& inputs) : desc(desc), inputs_(inputs) {}

  const ComputeDesc& desc;
  bool sum_in_place = false;  // the epilogue's first Add has to be onto its operand
  Prepared prepared;

  const dnnl::engine& engine() const { return prepared.engine; }
  const Shape& shape(size_t input) const { return desc.inputs[input].shape; }
  const Shape& out_shape() const { return desc.outputs[0].shape; }
  // A copy of an input's elements under these extents, times `scale`; `layout` says where they are to be read from
  // if not row-major.
  dnnl::memory operand(size_t input, const Dims& dims, float scale = 1) const;
  dnnl::memory operand(size_t input, const dnnl::memory::desc& layout) const;

  // `make` gives the description of a primitive with these attributes and a result of this layout, `dst` or the one
  // that oneDNN chose for it; `sources` are its other arguments, in whatever layout. `steps` come before the desc's
  // epilogue. `scale`: of the result before all steps.
  struct Source {
    int arg;
    dnnl::memory memory;
  };
  using Make = std::function<dnnl::primitive_desc_base(const dnnl::primitive_attr&, const dnnl::memory::desc& dst)>;
  void compute(const Make& make, const dnnl::memory::desc& dst, const std::vector<Source>& sources,
               std::vector<Step> steps = {}, float scale = 1);

 private:
  std::vector<Step> epilogue(const Dims& dims) const;
  void add_step(const Step& step);
  void add_call(const dnnl::primitive_desc_base& what, std::unordered_map<int, dnnl::memory> args);

  const Inputs& inputs_;
};

// One family each: adds the desc's operator to a chain.
void add_conv(Chain& chain, bool winograd);
void add_conv_transpose(Chain& chain);
void add_pool(Chain& chain);
void add_product(Chain& chain);        // Gemm, MatMul
void add_inner_product(Chain& chain);  // the same where product_by_constant_matrix
bool product_by_constant_matrix(const ComputeDesc& desc);
void add_softmax(Chain& chain);
void add_layer_norm(Chain& chain);
void add_batch_norm(Chain& chain);
void add_lrn(Chain& chain);
void add_reduce_mean(Chain& chain);
void add_unary(Chain& chain);
void add_binary(Chain& chain);
void add_sum(Chain& chain);

// Does the last window end behind the padding that the desc has (ceil_mode)?
bool pool_overhangs(const ComputeDesc& desc);

}  // namespace nlsplit::onednn

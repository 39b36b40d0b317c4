#include "onednn/chain.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"

namespace nlsplit::onednn {
namespace {

using dnnl::algorithm;
using dnnl::memory;

constexpr auto f32 = memory::data_type::f32;

float* floats(const memory& memory) { return static_cast<float*>(memory.get_data_handle()); }

bool is_reference(const dnnl::primitive_desc_base& desc) {
  return std::string_view(desc.impl_info_str()).starts_with("ref");
}

// oneDNN 2.6 gives all fused steps of one algorithm the arguments of one of them (openvinotoolkit/oneDNN, pull request
// 157): a clip to [0, 1] and one to [-0.5, 0.75] both become the same.
bool fusible(const std::vector<Step>& steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Step &a = steps[i], &b = steps[j];
      if (a.algorithm == b.algorithm && (a.alpha != b.alpha || a.beta != b.beta)) return false;
    }
  }
  return !steps.empty();
}

// The primitive that `plain` describes with all steps fused into it, if oneDNN has one that is not its reference code.
std::optional<dnnl::primitive_desc_base> with_fused(const std::vector<Step>& steps, const Chain::Make& make,
                                                    dnnl::primitive_attr attr, const dnnl::primitive_desc_base& plain) {
  if (!fusible(steps)) return std::nullopt;
  dnnl::post_ops post_ops;
  for (const Step& step : steps) {
    if (step.onto_operand)
      post_ops.append_sum();
    else if (step.operand)
      post_ops.append_binary(step.algorithm, step.operand->get_desc());
    else
      post_ops.append_eltwise(1, step.algorithm, step.alpha, step.beta);
  }
  attr.set_post_ops(post_ops);
  try {
    // With a result of the layout that was chosen without steps: the operands have it, and given a choice oneDNN 2.6
    // takes slow code where an operand is as large as the result.
    const dnnl::primitive_desc_base fused = make(attr, plain.query_md(dnnl::query::dst_md));
    if (is_reference(fused) && !is_reference(plain)) return std::nullopt;
    return fused;
  } catch (const dnnl::error& e) {
    if (e.status != dnnl_unimplemented) throw;
    return std::nullopt;
  }
}

int post_op_operand(size_t step) { return DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(step)) | DNNL_ARG_SRC_1; }

}  // namespace

std::vector<Step> unary_steps(Op op, const Attrs& attrs) {
  const auto number = [&](std::string_view name) { return static_cast<float>(attr_float(attrs, name)); };
  switch (op) {
    case Op::Relu:
      return {{algorithm::eltwise_relu}};
    case Op::LeakyRelu:
      return {{algorithm::eltwise_relu, number("alpha")}};
    case Op::Sigmoid:
      return {{algorithm::eltwise_logistic}};
    case Op::Tanh:
      return {{algorithm::eltwise_tanh}};
    case Op::HardSwish:
      return {{algorithm::eltwise_hardswish}};
    case Op::HardSigmoid:  // 2.6 has no name for it
      return {{algorithm::eltwise_linear, number("alpha"), number("beta")}, {algorithm::eltwise_clip, 0, 1}};
    case Op::Clip:
      return {{algorithm::eltwise_clip, number("min"), number("max")}};
    case Op::Gelu:
      return {
          {attr_string(attrs, "approximate") == "tanh" ? algorithm::eltwise_gelu_tanh : algorithm::eltwise_gelu_erf}};
    case Op::Exp:
      return {{algorithm::eltwise_exp}};
    case Op::Sqrt:
      return {{algorithm::eltwise_sqrt}};
    case Op::Neg:
      return {{algorithm::eltwise_linear, -1}};
    default:
      return {};
  }
}

memory::desc row_major(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t axis = dims.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * dims[axis];
  return {dims, f32, strides};
}

memory::desc in_blocks(const Dims& dims, int block) {
  switch (block) {
    case 4:
      return {dims, f32, memory::format_tag::nChw4c};
    case 8:
      return {dims, f32, memory::format_tag::nChw8c};
    case 16:
      return {dims, f32, memory::format_tag::nChw16c};
    default:
      CHECK(block == 0, "oneDNN has no blocks of this size");
      return row_major(dims);
  }
}

memory::desc any_layout(const Dims& dims) { return {dims, f32, memory::format_tag::any}; }

memory Chain::operand(size_t input, const Dims& dims, float scale) const {
  memory made(row_major(dims), engine());
  CHECK(made.get_desc().get_size() == inputs_[input].size() * sizeof(float), "other extents hold other elements");
  std::transform(inputs_[input].begin(), inputs_[input].end(), floats(made), [&](float v) { return v * scale; });
  return made;
}

memory Chain::operand(size_t input, const memory::desc& layout) const {
  memory made(layout, engine());
  CHECK(layout.get_size() == inputs_[input].size() * sizeof(float), "a dense layout of the same elements");
  std::copy(inputs_[input].begin(), inputs_[input].end(), floats(made));
  return made;
}

memory Prepared::with_layout(const memory& from, const memory::desc& layout) const {
  if (from.get_desc() == layout) return from;
  memory source = from, to(layout, engine);
  dnnl::stream stream(engine);
  dnnl::reorder(source, to).execute(stream, source, to);
  stream.wait();
  return to;
}

// Operands have the elements of the result, whose extents oneDNN may see as `dims`.
std::vector<Step> Chain::epilogue(const Dims& dims) const {
  std::vector<Step> steps;
  size_t next = desc.own_inputs();
  for (const DescStep& step : desc.epilogue) {
    if (has(step.op, traits::is_step_with_operand)) {
      const auto algorithm = step.op == Op::Add ? algorithm::binary_add : algorithm::binary_mul;
      steps.push_back({.algorithm = algorithm, .operand = operand(next++, dims)});
    } else {
      for (Step& unary : unary_steps(step.op, step.attrs)) steps.push_back(std::move(unary));
    }
  }
  return steps;
}

void Chain::add_call(const dnnl::primitive_desc_base& what, std::unordered_map<int, memory> args) {
  if (!prepared.implementation.empty()) prepared.implementation += " + ";
  prepared.implementation += what.impl_info_str();
  prepared.calls.push_back({dnnl::primitive(what.get()), std::move(args)});
}

void Chain::add_step(const Step& step) {
  const memory::desc layout = prepared.result.get_desc();
  if (step.operand) {
    add_call(dnnl::binary::primitive_desc({step.algorithm, layout, step.operand->get_desc(), layout}, engine()),
             {{DNNL_ARG_SRC_0, prepared.result}, {DNNL_ARG_SRC_1, *step.operand}, {DNNL_ARG_DST, prepared.result}});
  } else {
    add_call(dnnl::eltwise_forward::primitive_desc(
                 {dnnl::prop_kind::forward_inference, step.algorithm, layout, step.alpha, step.beta}, engine()),
             {{DNNL_ARG_SRC, prepared.result}, {DNNL_ARG_DST, prepared.result}});
  }
}

void Chain::compute(const Make& make, const memory::desc& wanted_dst, const std::vector<Source>& sources,
                    std::vector<Step> steps, float scale) {
  dnnl::primitive_attr attr;
  if (scale != 1) attr.set_output_scales(0, {scale});
  const dnnl::primitive_desc_base plain = make(attr, wanted_dst);
  const memory::desc dst = plain.query_md(dnnl::query::dst_md);
  for (Step& step : epilogue(dst.dims())) steps.push_back(std::move(step));
  bool summed = !sum_in_place;
  for (Step& step : steps) {
    if (!step.operand || step.operand->get_desc().dims() != dst.dims()) continue;
    step.operand = prepared.with_layout(*step.operand, dst);
    if (!summed && step.algorithm == algorithm::binary_add) summed = step.onto_operand = true;
  }
  const auto fused = with_fused(steps, make, attr, plain);
  if (sum_in_place && !(summed && fused)) throw dnnl::error(dnnl_unimplemented, "no sum in place");

  const dnnl::primitive_desc_base& chosen = fused ? *fused : plain;
  prepared.result = memory(dst, engine());
  std::unordered_map<int, memory> args;
  for (const Source& source : sources) {
    // Parameters one a channel have no description of their own in some primitives.
    const memory::desc wanted = chosen.query_md(dnnl::query::exec_arg_md, source.arg);
    args.emplace(source.arg, wanted.dims().empty() ? source.memory : prepared.with_layout(source.memory, wanted));
  }
  for (size_t i = 0; fused && i < steps.size(); ++i) {
    if (steps[i].onto_operand)
      prepared.result = *steps[i].operand;
    else if (steps[i].operand)
      args.emplace(post_op_operand(i), *steps[i].operand);
  }
  args.emplace(DNNL_ARG_DST, prepared.result);
  add_call(chosen, std::move(args));
  if (fused) return;
  for (const Step& step : steps) add_step(step);
}

void Prepared::run() {
  for (const Call& call : calls) call.primitive.execute(stream, call.args);
  stream.wait();
}

}  // namespace nlsplit::onednn

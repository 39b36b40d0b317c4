// What a desc means for the module's own kernels: all but those of cuDNN and cuBLASLt. And epilogues.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "exec/cuda/module/module.h"
#include "graph/operators/shapes.h"
#include "kernels/cuda/gpu.h"
#include "kernels/layout.h"

namespace nlsplit::cuda {
namespace {

Step step_of(const DescStep& what, const void* operand) {
  if (what.op == Op::Add) return {Function::add, 0, 0, operand};
  if (what.op == Op::Mul) return {Function::mul, 0, 0, operand};
  return unary_step(what.op, what.attrs);
}

Function function_of(Op op) {
  switch (op) {
    case Op::Add:
      return Function::add;
    case Op::Sub:
      return Function::sub;
    case Op::Mul:
      return Function::mul;
    default:
      return Function::div;  // the catalogue lets nothing else here
  }
}

WindowShape shape_of(const ComputeDesc& desc) {
  const Window w = window_of(desc);
  return {w.batch,      w.channels, w.h,        w.w,          w.out_channels, w.out_h,
          w.out_w,      w.kernel_h, w.kernel_w, w.stride_h,   w.stride_w,     w.dilation_h,
          w.dilation_w, w.pad_top,  w.pad_left, w.pad_bottom, w.pad_right,    w.groups};
}

int64_t axis_of(const ComputeDesc& desc, const Shape& shape) {
  const int64_t axis = attr_int(desc.attrs, "axis");
  return axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis;
}

int64_t count_of(const Shape& shape, int64_t first, int64_t last) {
  int64_t count = 1;
  for (int64_t i = first; i < last; ++i) count *= shape[static_cast<size_t>(i)];
  return count;
}

// Elements from one index of an axis to the next, of a row-major tensor.
std::vector<int64_t> strides_of(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// As much of the epilogue as a pass takes that begins with something else.
Steps first_pass(const KernelCall& call) {
  const std::vector<Step> steps = epilogue_steps(call);
  Steps pass{};
  while (pass.count < most_steps && static_cast<size_t>(pass.count) < steps.size()) {
    pass.step[pass.count] = steps[static_cast<size_t>(pass.count)];
    ++pass.count;
  }
  return pass;
}

// An operand that has one element for each index of some neighbouring axes of the result, the same along all others:
// [outer][extent][inner]. none: it lies otherwise.
std::optional<ReducedAxes> one_for_neighbours(const Shape& operand, const Shape& out) {
  std::vector<int64_t> kept;
  for (size_t axis = 0; axis < out.size(); ++axis) {
    const size_t back = out.size() - axis;
    const int64_t extent = back <= operand.size() ? operand[operand.size() - back] : 1;
    if (extent != 1) kept.push_back(static_cast<int64_t>(axis));
  }
  return around_axes(out, kept);
}

Run run_binary(const ComputeDesc& desc) {
  const Shape& out = desc.outputs[0].shape;
  const Function function = function_of(desc.op);
  const int64_t count = element_count(out);
  if (desc.inputs[0].shape == out && desc.inputs[1].shape == out) {
    return [function](Device& device, const KernelCall& call) {
      return run_epilogue(device, call, input(call, 0), {{function, 0, 0, input(call, 1)}});
    };
  }
  if (const std::optional<ReducedAxes> one = one_for_neighbours(desc.inputs[1].shape, out);
      one && desc.inputs[0].shape == out) {
    return [function, count, r = *one](Device& device, const KernelCall& call) -> Answer {
      const Steps first = first_pass(call);
      RETURN_IF_REFUSED(launch_planes(element_of(call), input(call, 0), input(call, 1), output(call), count, function,
                                      r.extent, r.inner, first, device.compute()));
      return run_epilogue(device, call, output(call), {}, static_cast<size_t>(first.count));
    };
  }
  Walk walk{};
  walk.axes = static_cast<int32_t>(out.size());
  for (size_t operand = 0; operand < 2; ++operand) {
    const Shape& shape = desc.inputs[operand].shape;
    int64_t stride = 1;
    for (size_t back = 0; back < out.size(); ++back) {
      const size_t axis = out.size() - 1 - back;
      const int64_t extent = back < shape.size() ? shape[shape.size() - 1 - back] : 1;
      walk.extent[axis] = out[axis];
      walk.stride[operand][axis] = extent == 1 ? 0 : stride;
      stride *= extent;
    }
  }
  return [walk, function, count](Device& device, const KernelCall& call) -> Answer {
    const Steps first = first_pass(call);
    RETURN_IF_REFUSED(launch_broadcast(element_of(call), input(call, 0), input(call, 1), output(call), count, function,
                                       walk, first, device.compute()));
    return run_epilogue(device, call, output(call), {}, static_cast<size_t>(first.count));
  };
}

Run run_sum(const ComputeDesc& desc) {
  const size_t terms = desc.own_inputs();
  return [terms](Device& device, const KernelCall& call) {
    std::vector<Step> steps;
    for (size_t i = 1; i < terms; ++i) steps.push_back({Function::add, 0, 0, input(call, i)});
    return run_epilogue(device, call, input(call, 0), steps);
  };
}

Run run_unary(const ComputeDesc& desc) {
  const Step step = unary_step(desc.op, desc.attrs);
  return [step](Device& device, const KernelCall& call) { return run_epilogue(device, call, input(call, 0), {step}); };
}

Run run_window(const ComputeDesc& desc) {
  const WindowShape shape = shape_of(desc);
  const bool count_pads = desc.op == Op::AveragePool && attr_int(desc.attrs, "count_include_pad") != 0;
  return [shape, count_pads](Device& device, const KernelCall& call) -> Answer {
    const ComputeDesc& what = *call.desc;
    if (what.op == Op::Conv) {
      const void* bias = what.own_inputs() > 2 ? input(call, 2) : nullptr;
      RETURN_IF_REFUSED(
          launch_conv(element_of(call), input(call, 0), input(call, 1), bias, output(call), shape, device.compute()));
    } else if (what.op == Op::MaxPool) {
      RETURN_IF_REFUSED(launch_max_pool(element_of(call), input(call, 0), output(call), shape, device.compute()));
    } else {
      RETURN_IF_REFUSED(
          launch_average_pool(element_of(call), input(call, 0), output(call), shape, count_pads, device.compute()));
    }
    return run_epilogue(device, call, output(call));
  };
}

Run run_mean(const ReducedAxes& r) {
  return [r](Device& device, const KernelCall& call) -> Answer {
    RETURN_IF_REFUSED(
        launch_mean(element_of(call), input(call, 0), output(call), r.outer, r.extent, r.inner, device.compute()));
    return run_epilogue(device, call, output(call));
  };
}

Run run_softmax(const ComputeDesc& desc) {
  const Shape& shape = desc.inputs[0].shape;
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t axis = axis_of(desc, shape);
  const ReducedAxes r{count_of(shape, 0, axis), shape[static_cast<size_t>(axis)], count_of(shape, axis + 1, rank)};
  return [r](Device& device, const KernelCall& call) -> Answer {
    RETURN_IF_REFUSED(
        launch_softmax(element_of(call), input(call, 0), output(call), r.outer, r.extent, r.inner, device.compute()));
    return run_epilogue(device, call, output(call));
  };
}

static_assert(most_attention_width == most_value_size, "what the catalogue accepts");

Run run_attention(const ComputeDesc& desc) {
  const AttentionShape shape = attention_shape_of(desc);
  const bool masked = desc.own_inputs() > 3;
  return [shape, masked](Device& device, const KernelCall& call) -> Answer {
    RETURN_IF_REFUSED(launch_attention(element_of(call), input(call, 0), input(call, 1), input(call, 2),
                                       masked ? input(call, 3) : nullptr, output(call), shape, device.compute()));
    return run_epilogue(device, call, output(call));
  };
}

// Over all but the first two axes, or over those that the parameters have.
Run run_normalize(const ComputeDesc& desc) {
  const Shape& shape = desc.inputs[0].shape;
  const bool planes = desc.op == Op::InstanceNormalization;
  const int64_t total = element_count(shape);
  const int64_t extent = planes ? total / (shape[0] * shape[1]) : element_count(desc.inputs[1].shape);
  const int64_t channels = planes ? shape[1] : 1;
  const double epsilon = attr_float(desc.attrs, "epsilon");
  return [=](Device& device, const KernelCall& call) -> Answer {
    const void* bias = call.desc->own_inputs() > 2 ? input(call, 2) : nullptr;
    RETURN_IF_REFUSED(launch_normalize(element_of(call), input(call, 0), input(call, 1), bias, output(call),
                                       total / extent, extent, channels, planes, epsilon, device.compute()));
    return run_epilogue(device, call, output(call));
  };
}

// What works channel by channel.
Run run_channels(const ComputeDesc& desc) {
  const Shape& shape = desc.inputs[0].shape;
  const ReducedAxes r{shape[0], shape.size() > 1 ? shape[1] : 1,
                      count_of(shape, 2, static_cast<int64_t>(shape.size()))};
  if (desc.op == Op::BatchNormalization) {
    const double epsilon = attr_float(desc.attrs, "epsilon");
    return [r, epsilon](Device& device, const KernelCall& call) -> Answer {
      RETURN_IF_REFUSED(launch_batch_norm(element_of(call), input(call, 0), input(call, 1), input(call, 2),
                                          input(call, 3), input(call, 4), output(call), r.outer, r.extent, r.inner,
                                          epsilon, device.compute()));
      return run_epilogue(device, call, output(call));
    };
  }
  const int64_t size = attr_int(desc.attrs, "size");
  const auto slope = static_cast<float>(attr_float(desc.attrs, "alpha") / static_cast<double>(size));
  const auto bias = static_cast<float>(attr_float(desc.attrs, "bias"));
  const auto beta = static_cast<float>(attr_float(desc.attrs, "beta"));
  return [=](Device& device, const KernelCall& call) -> Answer {
    RETURN_IF_REFUSED(launch_lrn(element_of(call), input(call, 0), output(call), r.outer, r.extent, r.inner, size,
                                 slope, bias, beta, device.compute()));
    return run_epilogue(device, call, output(call));
  };
}

Run run_concat(const ComputeDesc& desc) {
  const Shape& out = desc.outputs[0].shape;
  const int64_t axis = axis_of(desc, out);
  const int64_t inner = count_of(out, axis + 1, static_cast<int64_t>(out.size())) * size_of(desc.outputs[0].dtype);
  const int64_t rows = count_of(out, 0, axis), pitch = out[static_cast<size_t>(axis)] * inner;
  std::vector<int64_t> widths;
  for (size_t i = 0; i < desc.own_inputs(); ++i)
    widths.push_back(desc.inputs[i].shape[static_cast<size_t>(axis)] * inner);
  return [=](Device& device, const KernelCall& call) -> Answer {
    auto* to = static_cast<char*>(call.outputs[0]);
    for (size_t i = 0; i < widths.size(); ++i) {
      const auto width = static_cast<size_t>(widths[i]);
      RETURN_IF_REFUSED(cudaMemcpy2DAsync(to, static_cast<size_t>(pitch), call.inputs[i], width, width,
                                          static_cast<size_t>(rows), cudaMemcpyDeviceToDevice, device.compute()));
      to += widths[i];
    }
    return run_epilogue(device, call, output(call));
  };
}

struct Strided {
  int64_t begin = 0, count = 0, element = 0;
  Walk walk{};
};
// The same copy in pieces of up to 16 bytes, where neighbours stay neighbours.
Strided widened(Strided s) {
  const int last = s.walk.axes - 1;
  constexpr int64_t widest = 16;
  const auto is_even = [&](int axis) { return s.walk.stride[0][axis] % 2 == 0; };
  const auto may = [&] {
    if (last < 0 || s.element * 2 > widest || s.walk.stride[0][last] != 1) return false;
    if (s.begin % 2 != 0 || s.walk.extent[last] % 2 != 0) return false;
    for (int axis = 0; axis < last; ++axis) {
      if (!is_even(axis)) return false;
    }
    return true;
  };
  while (may()) {
    s.element *= 2;
    s.begin /= 2;
    s.count /= 2;
    s.walk.extent[last] /= 2;
    for (int axis = 0; axis < last; ++axis) s.walk.stride[0][axis] /= 2;
  }
  return s;
}

Run run_strided(const ComputeDesc& desc) {
  const Shape &in = desc.inputs[0].shape, &out = desc.outputs[0].shape;
  const std::vector<int64_t> strides = strides_of(in);
  Walk walk{};
  walk.axes = static_cast<int32_t>(out.size());
  int64_t begin = 0;
  if (desc.op == Op::Transpose) {
    const auto& perm = attr_ints(desc.attrs, "perm");
    for (size_t axis = 0; axis < out.size(); ++axis) {
      walk.extent[axis] = out[axis];
      walk.stride[0][axis] = strides[static_cast<size_t>(perm[axis])];
    }
  } else {
    const std::vector<SlicedAxis> axes = sliced_axes(in, desc.attrs).value();  // it has been verified
    for (size_t axis = 0; axis < out.size(); ++axis) {
      walk.extent[axis] = out[axis];
      walk.stride[0][axis] = axes[axis].step * strides[axis];
      begin += axes[axis].start * strides[axis];
    }
  }
  const Strided each{begin, element_count(out), size_of(desc.outputs[0].dtype), walk};
  return [each, wide = widened(each)](Device& device, const KernelCall& call) -> Answer {
    const auto fits = [&](const void* at) {
      return reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(wide.element) == 0;
    };
    const Strided& s = fits(call.inputs[0]) && fits(call.outputs[0]) ? wide : each;
    RETURN_IF_REFUSED(
        launch_strided(call.inputs[0], call.outputs[0], s.begin, s.count, s.walk, s.element, device.compute()));
    return run_epilogue(device, call, output(call));
  };
}

Run run_cast(const ComputeDesc& desc) {
  const Element from = element_of(desc.inputs[0].dtype), to = element_of(desc.outputs[0].dtype);
  const int64_t count = element_count(desc.outputs[0].shape);
  return [=](Device& device, const KernelCall& call) -> Answer {
    RETURN_IF_REFUSED(launch_cast(from, input(call, 0), to, output(call), count, device.compute()));
    return run_epilogue(device, call, output(call));
  };
}

Run run_gather(const ComputeDesc& desc) {
  const Shape& table = desc.inputs[0].shape;
  const int64_t axis = axis_of(desc, table);
  const ReducedAxes r{count_of(table, 0, axis), table[static_cast<size_t>(axis)],
                      count_of(table, axis + 1, static_cast<int64_t>(table.size()))};
  const int64_t count = element_count(desc.inputs[1].shape), element = size_of(desc.inputs[0].dtype);
  const bool wide = desc.inputs[1].dtype == DType::i64;
  return [=](Device& device, const KernelCall& call) -> Answer {
    RETURN_IF_REFUSED(launch_gather(call.inputs[0], call.inputs[1], wide, call.outputs[0], r.outer, r.extent, count,
                                    r.inner, element, device.compute()));
    return run_epilogue(device, call, output(call));
  };
}

}  // namespace

Element element_of(DType type) {
  switch (type) {
    case DType::f16:
      return Element::f16;
    case DType::bf16:
      return Element::bf16;
    default:
      return Element::f32;  // the catalogue lets no other type where it matters
  }
}

AttentionShape attention_shape_of(const ComputeDesc& desc) {
  const Attention a = attention_of(desc);
  AttentionShape shape{a.batch, a.heads, a.kv_heads, a.queries, a.keys, a.size, a.value_size, {}, 0, false};
  shape.scale = static_cast<float>(attr_float(desc.attrs, "scale"));
  shape.causal = attr_int(desc.attrs, "causal") != 0;
  if (desc.own_inputs() > 3) {
    const Shape& mask = desc.inputs[3].shape;
    int64_t stride = 1;
    for (size_t back = 0; back < mask.size(); ++back) {
      const int64_t extent = mask[mask.size() - 1 - back];
      shape.mask_stride[3 - back] = extent == 1 ? 0 : stride;
      stride *= extent;
    }
  }
  return shape;
}

Step unary_step(Op op, const Attrs& attrs) {
  const auto number = [&](std::string_view name) { return static_cast<float>(attr_float(attrs, name)); };
  switch (op) {
    case Op::Relu:
      return {Function::relu, 0, 0, nullptr};
    case Op::Sigmoid:
      return {Function::sigmoid, 0, 0, nullptr};
    case Op::Tanh:
      return {Function::tanh, 0, 0, nullptr};
    case Op::HardSwish:
      return {Function::hard_swish, 0, 0, nullptr};
    case Op::Exp:
      return {Function::exp, 0, 0, nullptr};
    case Op::Sqrt:
      return {Function::sqrt, 0, 0, nullptr};
    case Op::Neg:
      return {Function::neg, 0, 0, nullptr};
    case Op::Erf:
      return {Function::erf, 0, 0, nullptr};
    case Op::LeakyRelu:
      return {Function::leaky_relu, number("alpha"), 0, nullptr};
    case Op::HardSigmoid:
      return {Function::hard_sigmoid, number("alpha"), number("beta"), nullptr};
    case Op::Clip:
      return {Function::clip, number("min"), number("max"), nullptr};
    case Op::Gelu:
      return {attr_string(attrs, "approximate") == "tanh" ? Function::gelu_tanh : Function::gelu, 0, 0, nullptr};
    default:
      CHECK(false, "no step of a GPU's kernel (kernels/cuda/rows.cc)");
  }
}

std::vector<Step> epilogue_steps(const KernelCall& call, size_t first) {
  const ComputeDesc& desc = *call.desc;
  std::vector<Step> steps;
  size_t operand = desc.own_inputs();
  for (size_t i = 0; i < desc.epilogue.size(); ++i) {
    const DescStep& what = desc.epilogue[i];
    const void* other = has(what.op, traits::is_step_with_operand) ? input(call, operand++) : nullptr;
    if (i >= first) steps.push_back(step_of(what, other));
  }
  return steps;
}

Answer run_epilogue(const Device& device, const KernelCall& call, const void* from, const std::vector<Step>& before,
                    size_t first) {
  std::vector<Step> steps = before;
  const std::vector<Step> own = epilogue_steps(call, first);
  steps.insert(steps.end(), own.begin(), own.end());
  void* to = output(call);
  const int64_t count = element_count(call.desc->outputs[0].shape);
  for (size_t done = 0; done < steps.size() || from != to;) {
    Steps pass{};
    while (pass.count < most_steps && done < steps.size()) pass.step[pass.count++] = steps[done++];
    RETURN_IF_REFUSED(launch_steps(element_of(call), from, to, count, pass, device.compute()));
    from = to;
  }
  return nullptr;
}

Answer run_bias(const Device& device, const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  if (desc.own_inputs() <= 2) return run_epilogue(device, call, output(call));
  const Shape& out = desc.outputs[0].shape;
  const Steps pass = first_pass(call);
  RETURN_IF_REFUSED(launch_planes(element_of(call), output(call), input(call, 2), output(call), element_count(out),
                                  Function::add, out[1], count_of(out, 2, static_cast<int64_t>(out.size())), pass,
                                  device.compute()));
  return run_epilogue(device, call, output(call), {}, static_cast<size_t>(pass.count));
}

namespace {

template <Run (*make)(const ComputeDesc&)>
Answer prepare(Device&, const ComputeDesc& desc, uint64_t, Run& run) {
  run = make(desc);
  return nullptr;
}

Run run_planes_mean(const ComputeDesc& desc) {
  const Shape& shape = desc.inputs[0].shape;
  return run_mean({shape[0] * shape[1], count_of(shape, 2, static_cast<int64_t>(shape.size())), 1});
}

Run run_reduce_mean(const ComputeDesc& desc) {
  return run_mean(around_axes(desc.inputs[0].shape, attr_ints(desc.attrs, "axes")).value());
}

Answer prepare_host(Device&, const ComputeDesc& desc, uint64_t, Run&) {
  return refuse(fmt::format("{} is computed on the host", name_of(desc.op)));
}

}  // namespace

const Prepare code::conv_loops = prepare<run_window>;
const Prepare code::binary = prepare<run_binary>;
const Prepare code::sum = prepare<run_sum>;
const Prepare code::unary = prepare<run_unary>;
const Prepare code::max_pool = prepare<run_window>;
const Prepare code::average_pool = prepare<run_window>;
const Prepare code::global_average_pool = prepare<run_planes_mean>;
const Prepare code::batch_norm = prepare<run_channels>;
const Prepare code::layer_norm = prepare<run_normalize>;
const Prepare code::instance_norm = prepare<run_normalize>;
const Prepare code::lrn = prepare<run_channels>;
const Prepare code::softmax = prepare<run_softmax>;
const Prepare code::attention = prepare<run_attention>;
const Prepare code::reduce_mean = prepare<run_reduce_mean>;
const Prepare code::concat = prepare<run_concat>;
const Prepare code::transpose = prepare<run_strided>;
const Prepare code::slice = prepare<run_strided>;
const Prepare code::gather = prepare<run_gather>;
const Prepare code::cast = prepare<run_cast>;
const Prepare code::host = prepare_host;

}  // namespace nlsplit::cuda

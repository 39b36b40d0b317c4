#include "kernels/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/layout.h"

namespace nlsplit {
namespace {

constexpr int64_t float_bytes = 4;
constexpr size_t most_axes = 8;  // of kernels that walk over arbitrary axes

// ---- refusals: only what choose_kernel cannot rule out by the operator's own type rules

template <Op... accepted>
std::string only(const ComputeDesc& desc) {
  if (((desc.op == accepted) || ...)) return {};
  return fmt::format("it does not compute {}", name_of(desc.op));
}

template <Op... accepted>
std::string only_few_axes(const ComputeDesc& desc) {
  if (std::string why = only<accepted...>(desc); !why.empty()) return why;
  for (const TensorType& type : desc.inputs) {
    if (type.shape.size() > most_axes) return fmt::format("{} has more than {} axes", to_string(type), most_axes);
  }
  return {};
}

std::string refuse_conv_packed(const ComputeDesc& desc) {
  if (std::string why = only<Op::Conv>(desc); !why.empty()) return why;
  return desc.is_weight(1) ? "" : "it packs its weights at load, and these are not constant";
}

std::string refuse_conv_depthwise(const ComputeDesc& desc) {
  if (std::string why = only<Op::Conv>(desc); !why.empty()) return why;
  return desc.inputs[1].shape[1] == 1 ? "" : fmt::format("a filter sees {} channels, not one", desc.inputs[1].shape[1]);
}

// Below about this many pixels a vector of channels is filled better than vectors of pixels: 7 × 7 is 3.06 vectors
// of 16.
constexpr int64_t conv_1x1_fewest_pixels = 64;

std::string refuse_conv_1x1(const ComputeDesc& desc) {
  if (std::string why = refuse_conv_packed(desc); !why.empty()) return why;
  const Window window = window_of(desc);
  if (window.taps() != 1) return "the kernel is not 1x1";
  if (window.out_pixels() < conv_1x1_fewest_pixels) return fmt::format("{} pixels are too few", window.out_pixels());
  return {};
}

std::string refuse_gemm_packed(const ComputeDesc& desc) {
  if (std::string why = only<Op::Gemm>(desc); !why.empty()) return why;
  return desc.is_weight(1) ? "" : "it packs its right operand at load, and this one is not constant";
}

std::string refuse_matmul_packed(const ComputeDesc& desc) {
  if (std::string why = only<Op::MatMul>(desc); !why.empty()) return why;
  if (!desc.is_weight(1)) return "it packs its right operand at load, and this one is not constant";
  return desc.inputs[1].shape.size() == 2 ? "" : "the right operand is not a matrix";
}

// ---- scratch

Bytes floats(int64_t count) { return bytes(count * float_bytes); }

Bytes scratch_conv_1x1(const ComputeDesc& desc) {
  const Window window = window_of(desc);
  return floats(round_up(conv_image_floats(window), widest_vector) +
                product_right_floats(window.channels / window.groups, window.out_pixels()));
}

Bytes scratch_conv_direct(const ComputeDesc& desc) { return floats(conv_image_floats(window_of(desc))); }

Bytes scratch_conv(const ComputeDesc& desc) {
  const Window window = window_of(desc);
  return floats(round_up(conv_image_floats(window), widest_vector) + conv_packed_floats(window, Isa::v4));
}

// One plane's image with room for the last vector to run over, and one plane of results with the columns between the
// rows.
Bytes scratch_window(const ComputeDesc& desc) {
  const Window window = window_of(desc);
  return floats(round_up(window.image_floats() + widest_vector, widest_vector) +
                round_up(window.flat_pixels(), widest_vector));
}

Bytes scratch_product(const ComputeDesc& desc) {
  const Product p = product_of(desc);
  return floats(round_up(product_left_floats(p.m, p.k), widest_vector) + product_right_floats(p.k, p.n));
}

Bytes scratch_product_packed(const ComputeDesc& desc) {
  const Product p = product_of(desc);
  return floats(product_left_floats(p.m, p.k));
}

// ---- packed weights

Bytes packed_conv_1x1(const ComputeDesc& desc, size_t i, Isa) { return i == 1 ? size_of(desc.inputs[1]) : bytes(0); }

Bytes packed_conv_direct(const ComputeDesc& desc, size_t i, Isa isa) {
  return i == 1 ? floats(conv_packed_floats(window_of(desc), isa)) : bytes(0);
}

Bytes packed_product(const ComputeDesc& desc, size_t i, Isa isa) {
  const Product p = product_of(desc);
  return i == 1 ? floats(vector_panels(p.k, p.n, isa)) : bytes(0);
}

constexpr std::array kernels = {
    KernelInfo{"conv_depthwise", "one channel a filter, NCHW; vectors of pixels over the plane's padded image",
               refuse_conv_depthwise, scratch_window, nullptr, true},
    KernelInfo{"conv_1x1", "NCHW; a product of the weights (packed) and the sample's planes, vectors of pixels",
               refuse_conv_1x1, scratch_conv_1x1, packed_conv_1x1, true},
    KernelInfo{"conv_direct",
               "NCHW; vectors of output channels (weights packed), pixels read from the padded image, no im2col",
               refuse_conv_packed, scratch_conv_direct, packed_conv_direct, true},
    KernelInfo{"conv", "conv_direct with weights that become known only at run time", only<Op::Conv>, scratch_conv,
               nullptr, true},
    KernelInfo{"gemm_packed", "matrix product, the right operand packed into vector panels at load", refuse_gemm_packed,
               scratch_product_packed, packed_product, true},
    KernelInfo{"gemm", "matrix product of plain operands, packed block by block", only<Op::Gemm>, scratch_product,
               nullptr, true},
    KernelInfo{"matmul_packed", "product with one matrix for the whole batch, packed into vector panels at load",
               refuse_matmul_packed, scratch_product_packed, packed_product, true},
    KernelInfo{"matmul", "batched matrix product of plain operands, packed block by block", only_few_axes<Op::MatMul>,
               scratch_product, nullptr, true},
    KernelInfo{"binary", "element-wise on two operands, numpy broadcasting",
               only_few_axes<Op::Add, Op::Sub, Op::Mul, Op::Div>, nullptr, nullptr, true},
    KernelInfo{"sum", "element-wise sum of any number of operands, in their order", only<Op::Sum>, nullptr, nullptr,
               true},
    KernelInfo{"unary", "element-wise on one operand",
               only<Op::Relu, Op::Sigmoid, Op::Tanh, Op::HardSwish, Op::Exp, Op::Sqrt, Op::Neg, Op::Erf, Op::LeakyRelu,
                    Op::HardSigmoid, Op::Clip>,
               nullptr, nullptr, true},
    KernelInfo{"max_pool", "vectors of pixels over the plane's padded image", only<Op::MaxPool>, scratch_window,
               nullptr, true},
    KernelInfo{"average_pool", "vectors of pixels over the plane's padded image", only<Op::AveragePool>, scratch_window,
               nullptr, true},
    KernelInfo{"global_average_pool", "one row sum a plane", only<Op::GlobalAveragePool>, nullptr, nullptr, true},
    KernelInfo{"batch_norm", "one scale and shift a plane", only<Op::BatchNormalization>, nullptr, nullptr, true},
    KernelInfo{"lrn", "sum of squares over neighbouring channels, vectors of pixels", only<Op::LRN>, nullptr, nullptr,
               true},
    KernelInfo{"softmax", "largest, exponentials, sum, along one axis", only<Op::Softmax>, nullptr, nullptr, true},
    KernelInfo{"concat", "copies", only<Op::Concat>, nullptr, nullptr, true},
    KernelInfo{"transpose", "copies; tiles where the last axis moves", only_few_axes<Op::Transpose>, nullptr, nullptr,
               true},
    KernelInfo{"reduce_mean", "sums in the order of the reduced axes", only_few_axes<Op::ReduceMean>, nullptr, nullptr,
               true},
    KernelInfo{"pad", "copies into a filled output", only_few_axes<Op::Pad>, nullptr, nullptr, true},
};

constexpr std::array levels = {Isa::v2, Isa::v3, Isa::v4};

bool may_be_step(Op op) {
  switch (op) {
    case Op::Relu:
    case Op::Clip:
    case Op::Sigmoid:
    case Op::HardSigmoid:
    case Op::HardSwish:
    case Op::Tanh:
    case Op::LeakyRelu:
    case Op::Add:
    case Op::Mul:
      return true;
    default:
      return false;
  }
}

// What is asked of every kernel before its own question.
std::string refuse_any(const ComputeDesc& desc) {
  if (is_view(desc.op)) return fmt::format("{} is a view, not a computation", name_of(desc.op));
  for (const TensorType& type : desc.inputs) {
    if (type.dtype != DType::f32) return fmt::format("{} is not f32", to_string(type));
  }
  for (const DescStep& step : desc.epilogue) {
    if (!may_be_step(step.op)) return fmt::format("{} is no epilogue step", name_of(step.op));
  }
  return {};
}

std::string full_name(std::string_view kernel, Isa isa) { return fmt::format("{}_{}", kernel, name_of(isa)); }

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::v2:
      return "v2";
    case Isa::v3:
      return "v3";
    case Isa::v4:
      return "v4";
  }
  CHECK(false, "no such level");
}

Result<Isa> parse_isa(std::string_view text) {
  for (Isa isa : levels) {
    if (text == name_of(isa) || text == fmt::format("x86-64-{}", name_of(isa))) return isa;
  }
  return invalid_input(fmt::format("unknown instruction level \"{}\": one of v2, v3, v4", text));
}

size_t ComputeDesc::operand_count() const {
  return static_cast<size_t>(
      std::ranges::count_if(epilogue, [](const DescStep& step) { return is_binary_elementwise(step.op); }));
}

std::string signature(const ComputeDesc& desc) {
  std::string text = desc.kernel.empty() ? "" : desc.kernel + " ";
  text += fmt::format("{}(", name_of(desc.op));
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    text += fmt::format("{}{}{}", i == 0 ? "" : ", ", desc.is_weight(i) ? "const " : "", to_string(desc.inputs[i]));
  }
  text += ")";
  if (!desc.attrs.empty()) text += " " + to_string(desc.attrs);
  for (const DescStep& step : desc.epilogue) {
    text += fmt::format(" + {}", name_of(step.op));
    if (!step.attrs.empty()) text += " " + to_string(step.attrs);
  }
  text += " ->";
  for (const TensorType& type : desc.outputs) text += " " + to_string(type);
  return text;
}

Work work_of(const ComputeDesc& desc) {
  std::vector<EpilogueStep> steps;
  for (const DescStep& step : desc.epilogue) {
    steps.push_back({step.op, is_binary_elementwise(step.op) ? ValueId(0) : ValueId(), step.attrs, {}});
  }
  return work_of(desc.op, desc.attrs, steps, Types(desc.inputs).first(desc.own_inputs()), desc.outputs);
}

ComputeDesc describe(const Graph& graph, const Node& node) {
  ComputeDesc desc;
  desc.op = node.op;
  desc.attrs = node.attrs;
  const auto add_input = [&](ValueId id) {
    const Value& value = graph.value(id);
    const size_t i = desc.inputs.size();
    if (value.kind == ValueKind::weight && i < 64) desc.weights |= uint64_t{1} << i;
    desc.inputs.push_back(value.type);
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].valid()) {
      CHECK(desc.inputs.size() == i, "only trailing inputs may be left out");
      add_input(node.inputs[i]);
    }
  }
  for (const EpilogueStep& step : node.epilogue) {
    desc.epilogue.push_back({step.op, step.attrs});
    if (is_binary_elementwise(step.op)) add_input(step.operand);
  }
  for (ValueId output : node.outputs) desc.outputs.push_back(graph.value(output).type);
  return desc;
}

std::span<const KernelInfo> all_kernels() { return kernels; }

Result<std::string> choose_kernel(const ComputeDesc& desc, Isa isa) {
  if (std::string why = refuse_any(desc); !why.empty()) {
    return unsupported(fmt::format("no kernel for {}: {}", signature(desc), why));
  }
  std::string said;
  for (const KernelInfo& kernel : kernels) {
    const std::string why = kernel.refuses(desc);
    if (why.empty()) return full_name(kernel.name, isa);
    // Those of other operators have nothing to say.
    if (why != fmt::format("it does not compute {}", name_of(desc.op)))
      said += fmt::format("; {}: {}", kernel.name, why);
  }
  return unsupported(fmt::format("no kernel for {}{}", signature(desc), said));
}

const KernelInfo* find_kernel(std::string_view full_id) {
  for (Isa isa : levels) {
    const std::string suffix = fmt::format("_{}", name_of(isa));
    if (!full_id.ends_with(suffix)) continue;
    const std::string_view name = full_id.substr(0, full_id.size() - suffix.size());
    for (const KernelInfo& kernel : kernels) {
      if (kernel.name == name) return &kernel;
    }
  }
  return nullptr;
}

Isa isa_of(std::string_view full_id) {
  for (Isa isa : levels) {
    if (full_id.ends_with(fmt::format("_{}", name_of(isa)))) return isa;
  }
  CHECK(false, "a kernel's id ends with its level");
}

Status verify(const ComputeDesc& desc) {
  const KernelInfo* kernel = find_kernel(desc.kernel);
  if (kernel == nullptr) return invalid_input(fmt::format("unknown kernel \"{}\"", desc.kernel));
  const auto refused = [&](std::string why) {
    return invalid_input(fmt::format("kernel {} cannot run {}: {}", desc.kernel, signature(desc), why));
  };
  const OpInfo& op = info(desc.op);
  if (std::string why = refuse_any(desc); !why.empty()) return refused(why);
  if (desc.operand_count() > desc.inputs.size()) return refused("an operand of its epilogue is missing");
  if (desc.inputs.size() < 64 && desc.weights >> desc.inputs.size() != 0) return refused("more weights than inputs");
  const int own = static_cast<int>(desc.own_inputs());
  if (own < op.min_inputs || (op.max_inputs >= 0 && own > op.max_inputs)) {
    return refused(fmt::format("{} takes {} inputs, not {}", op.name, op.min_inputs, own));
  }
  auto inferred = op.infer(Types(desc.inputs).first(desc.own_inputs()), desc.attrs);
  if (!inferred.ok()) return refused(inferred.error().message);
  if (*inferred != desc.outputs) return refused(fmt::format("the result is {}", to_string(inferred->front())));
  for (size_t i = desc.own_inputs(); i < desc.inputs.size(); ++i) {
    if (desc.inputs[i] != desc.outputs[0]) {
      return refused(
          fmt::format("the epilogue's operand {} has another type than the result", to_string(desc.inputs[i])));
    }
  }
  for (const DescStep& step : desc.epilogue) {
    if (is_binary_elementwise(step.op)) continue;
    auto same = info(step.op).infer(Types(desc.outputs).first(1), step.attrs);
    if (!same.ok()) return refused(fmt::format("epilogue {}: {}", name_of(step.op), same.error().message));
  }
  if (std::string why = kernel->refuses(desc); !why.empty()) return refused(why);
  return ok_status();
}

}  // namespace nlsplit

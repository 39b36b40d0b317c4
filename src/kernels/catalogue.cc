#include "kernels/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/limits.h"
#include "graph/optimizer.h"
#include "kernels/rows.h"
#include "kernels/types/widened.h"

namespace nlsplit::inline kernels {
namespace {

constexpr std::array all_rows = {
#define NLS_KERNEL(name) &rows::name,
#define NLS_GPU_KERNEL(name) &rows::gpu_##name,
#include "kernels/kernels.def"
};

bool is_reorder(const ComputeDesc& desc) {
  return desc.op == Op::Identity && desc.inputs.size() == 1 && desc.inputs[0].block != desc.outputs[0].block;
}

// What is asked whatever the kernel.
std::string refuse_any(const ComputeDesc& desc, Isa isa) {
  if (is_view(desc.op) && !is_reorder(desc)) return fmt::format("{} is a view, not a computation", name_of(desc.op));
  const auto odd = [&](const TensorType& type) -> std::string {
    if (type.block != 0 && is_gpu(isa))
      return fmt::format("{}: a GPU's kernels work on row-major tensors", to_string(type));
    if (type.block != 0 && type.block != vector_width(isa))
      return fmt::format("{}: level {} has blocks of {}", to_string(type), name_of(isa), vector_width(isa));
    return {};
  };
  for (const TensorType& type : desc.inputs) {
    if (std::string why = odd(type); !why.empty()) return why;
  }
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    if (desc.is_weight(i) && desc.inputs[i].block != 0)
      return fmt::format("{} is constant, but not row-major", to_string(desc.inputs[i]));
  }
  for (const TensorType& type : desc.outputs) {
    if (std::string why = odd(type); !why.empty()) return why;
  }
  if (!desc.epilogue.empty() && desc.outputs.size() != 1) return "an epilogue of several results";
  for (const DescStep& step : desc.epilogue) {
    if (!has(step.op, traits::is_step) && step.op != Op::Add && step.op != Op::Mul)
      return fmt::format("{} is not an epilogue step", name_of(step.op));
  }
  return {};
}

// All kernels but those that say so are for f32, and windows for one spatial axis or two.
std::string refuse_types(const KernelInfo& kernel, const ComputeDesc& desc) {
  for (const TensorType& type : desc.inputs) {
    if (is_scaled(type.dtype) && !kernel.scaled) return fmt::format("elements of {} share scales", to_string(type));
  }
  if (kernel.any_type) return {};
  const DType result = desc.outputs[0].dtype, wanted = kernel.halves && is_half(result) ? result : DType::f32;
  const auto other = [&](const TensorType& type) {
    return fmt::format("{} is not {}", to_string(type), name_of(wanted));
  };
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    if (desc.inputs[i].dtype != wanted && !largest_scalar(desc, i)) return other(desc.inputs[i]);
  }
  for (const TensorType& type : desc.outputs) {
    if (type.dtype != wanted) return other(type);
  }
  return is_window(desc.op) && !has_planes(desc) ? "it works on one spatial axis or two" : "";
}

std::string refuse_layouts(const KernelInfo& kernel, const ComputeDesc& desc) {
  if (kernel.layouts == Layouts::own) return {};
  const int block = kernel.layouts == Layouts::one ? desc.outputs[0].block : 0;
  const auto differs = [&](const TensorType& type) { return type.block != block; };
  if (std::ranges::none_of(desc.inputs, differs) && std::ranges::none_of(desc.outputs, differs)) return {};
  return kernel.layouts == Layouts::one ? "its operands differ in layout" : "it works on row-major tensors";
}

// Whatever the number of cores.
std::string refuse_sizes(const KernelInfo& kernel, const ComputeDesc& desc, Isa isa) {
  const auto too_much = [](std::string_view what) {
    return fmt::format("its {} would be larger than any machine's memory", what);
  };
  if (kernel.workspace != nullptr && kernel.workspace(desc, isa, most_cores) > bytes(most_bytes))
    return too_much("workspace");
  if (kernel.packed_bytes == nullptr) return {};
  for (size_t i = 0; i < desc.own_inputs(); ++i) {
    if (kernel.packed_bytes(desc, i, isa) > bytes(most_bytes)) return too_much("packed form of a weight");
  }
  return {};
}

// Channels are the axis behind the batch.
bool works_on_images(Op op) {
  return is_window(op) || op == Op::GlobalAveragePool || op == Op::BatchNormalization ||
         op == Op::InstanceNormalization || op == Op::LRN;
}

bool is_one_of(std::span<const Op> ops, Op op) { return ops.empty() || std::ranges::find(ops, op) != ops.end(); }

// Row-major types: what the operator's own rules speak of.
std::vector<TensorType> row_major(Types types) {
  std::vector<TensorType> result(types.begin(), types.end());
  for (TensorType& type : result) type.block = 0;
  return result;
}

std::string results_text(Types types) {
  std::string text = types.size() == 1 ? "the result is" : "the results are";
  for (size_t i = 0; i < types.size(); ++i) text += (i == 0 ? " " : ", ") + to_string(types[i]);
  return text;
}

}  // namespace

const KernelInfo& info_of(KernelName kernel) {
  CHECK(is_in_catalogue(kernel), "a kernel of the catalogue");
  return *all_rows[catalogue_index(kernel)];
}

bool takes(const KernelInfo& row, const ComputeDesc& desc) {
  return is_one_of(row.ops, desc.op) && (row.refuses == nullptr || row.refuses(desc).empty());
}

std::string refuse_many_axes(const ComputeDesc& desc) {
  for (const std::vector<TensorType>* types : {&desc.inputs, &desc.outputs}) {
    for (const TensorType& type : *types) {
      if (type.shape.size() > most_kernel_axes)
        return fmt::format("{} has more than {} axes", to_string(type), most_kernel_axes);
    }
  }
  return {};
}

std::string refuse_unless_blocked(const ComputeDesc& desc) {
  return desc.inputs[0].block == 0 || desc.outputs[0].block == 0 ? "it works on blocks of channels" : "";
}

std::string refuse_other_steps(const ComputeDesc& desc) {
  const bool plain = desc.epilogue.empty() || desc.outputs[0].dtype == DType::f32;
  return plain ? "" : "the steps after it are not in f32";
}

bool has_other_types(const ComputeDesc& desc) {
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    if (desc.inputs[i].dtype != DType::f32 && !largest_scalar(desc, i)) return true;
  }
  return std::ranges::any_of(desc.outputs, [](const TensorType& type) { return type.dtype != DType::f32; });
}

bool is_window(Op op) {
  switch (op) {
    case Op::Conv:
    case Op::ConvTranspose:
    case Op::ConvWeightGradient:
    case Op::MaxPool:
    case Op::MaxPoolGradient:
    case Op::AveragePool:
    case Op::AveragePoolGradient:
      return true;
    default:
      return false;
  }
}

bool has_planes(const ComputeDesc& desc) {
  const size_t axes = desc.inputs[0].shape.size();
  return axes == 3 || axes == 4;
}

std::optional<Refusal> refusal(KernelId kernel, const ComputeDesc& desc) {
  if (is_gpu(kernel.level.isa) != (catalogue_index(kernel.name) >= cpu_kernel_count))
    return Refusal{false, fmt::format("level {} has no {}", name_of(kernel.level), name_of(kernel.name))};
  const KernelInfo& row = info_of(kernel.name);
  if (!is_one_of(row.ops, desc.op)) return Refusal{true, fmt::format("it does not compute {}", name_of(desc.op))};
  std::string why = refuse_any(desc, kernel.level.isa);
  if (why.empty()) why = refuse_types(row, desc);
  if (why.empty() && row.refuses != nullptr) why = row.refuses(desc);
  if (why.empty()) why = refuse_layouts(row, desc);
  if (why.empty()) why = refuse_sizes(row, desc, kernel.level.isa);
  if (why.empty()) return std::nullopt;
  return Refusal{false, std::move(why)};
}

Bytes workspace_of(const ComputeDesc& desc, int workers) {
  if (!is_in_catalogue(desc.kernel.name)) return bytes(0);
  const KernelInfo& row = info_of(desc.kernel.name);
  return row.workspace == nullptr ? bytes(0) : row.workspace(desc, desc.kernel.level.isa, workers);
}

Bytes packed_bytes_of(const ComputeDesc& desc, size_t i) {
  if (!is_in_catalogue(desc.kernel.name)) return bytes(0);
  const KernelInfo& row = info_of(desc.kernel.name);
  return row.packed_bytes == nullptr ? bytes(0) : row.packed_bytes(desc, i, desc.kernel.level.isa);
}

uint8_t exact_axis(Op op, size_t axis, size_t rank) {
  constexpr uint8_t image[] = {exact::batch, exact::channels, exact::height, exact::width};
  constexpr uint8_t row[] = {exact::batch, exact::channels, exact::width};
  constexpr uint8_t sequence[] = {exact::batch, exact::tokens, exact::channels};
  if (axis == 0 && rank > 0) return exact::batch;
  if (axis >= rank || rank > std::size(image)) return 0;
  if (rank == 3) return works_on_images(op) ? row[axis] : sequence[axis];
  return image[axis];
}

bool is_exact(const ComputeDesc& desc, size_t axis, int64_t begin, int64_t end) {
  if (desc.kernel.name == KernelName::widened) {
    ComputeDesc wide = widened(desc);
    wide.kernel = {kernel_of_widened(desc).value(), desc.kernel.level};
    return is_exact(wide, axis, begin, end);
  }
  const KernelInfo& row = info_of(desc.kernel.name);
  const Shape& result = desc.outputs[0].shape;
  const uint8_t which = exact_axis(desc.op, axis, result.size());
  if ((row.exact_axes & which) == 0) return false;
  if ((which & (exact::height | exact::width)) == 0) return true;
  return begin % row.exact_multiple == 0 && (end % row.exact_multiple == 0 || end == result[axis]);
}

uint64_t in_place_inputs(const ComputeDesc& desc) {
  if (!is_in_catalogue(desc.kernel.name)) return 0;
  const uint64_t in_place = info_of(desc.kernel.name).in_place;
  uint64_t inputs = 0;
  if (in_place == 0 || (desc.outputs.size() != 1 && !is_update(desc.op))) return inputs;
  for (size_t i = 0; i < std::min<size_t>(desc.own_inputs(), 64); ++i) {
    if (std::ranges::find(desc.outputs, desc.inputs[i]) != desc.outputs.end()) inputs |= uint64_t{1} << i;
  }
  return inputs & in_place;
}

Result<std::vector<KernelId>> candidates(const ComputeDesc& desc, Level level) {
  if (std::string why = refuse_any(desc, level.isa); !why.empty())
    return unsupported(fmt::format("no kernel for {}: {}", signature(desc), why));
  std::string said;
  std::vector<KernelId> ids[3];  // by standing
  for (const KernelName name : kernels_of(level.isa)) {
    const KernelInfo& row = info_of(name);
    if (row.only_in_place || !is_one_of(row.ops, desc.op)) continue;
    const std::optional<Refusal> refused = refusal({name, level}, desc);
    if (!refused) {
      const Standing standing = row.standing == nullptr ? Standing::usual : row.standing(desc);
      ids[static_cast<size_t>(standing)].emplace_back(name, level);
    } else {
      said += fmt::format("; {}: {}", name_of(name), refused->why);
    }
  }
  std::vector<KernelId> result = std::move(ids[0]);
  result.insert(result.end(), ids[1].begin(), ids[1].end());
  if (result.empty()) result = std::move(ids[2]);
  if (result.empty()) return unsupported(fmt::format("no kernel for {}{}", signature(desc), said));
  return result;
}

Result<KernelId> choose_kernel(const ComputeDesc& desc, Level level, const KernelPreference& prefer) {
  ASSIGN_OR_RETURN(const std::vector<KernelId> ids, candidates(desc, level));
  const size_t chosen = prefer && ids.size() > 1 ? prefer(desc, ids) : 0;
  CHECK(chosen < ids.size(), "a preference for no candidate");
  return ids[chosen];
}

Status verify(const ComputeDesc& desc) {
  if (!is_in_catalogue(desc.kernel.name))
    return invalid_input(fmt::format("\"{}\" is not a kernel of the catalogue", to_string(desc.kernel)));
  const auto refused = [&](std::string_view why) {
    return invalid_input(fmt::format("kernel {} cannot run {}: {}", to_string(desc.kernel), signature(desc), why));
  };
  const Operator& op = info(desc.op);
  for (const std::vector<TensorType>* types : {&desc.inputs, &desc.outputs}) {
    for (const TensorType& type : *types) RETURN_IF_ERROR(check_type(type));
  }
  if (desc.outputs.empty()) return refused("it has no result");
  if (std::string why = refuse_any(desc, desc.kernel.level.isa); !why.empty()) return refused(why);
  if (desc.operand_count() > desc.inputs.size()) return refused("an operand of its epilogue is missing");
  if (desc.inputs.size() < 64 && desc.weights >> desc.inputs.size() != 0) return refused("more weights than inputs");
  const int own = static_cast<int>(desc.own_inputs());
  if (own < op.min_inputs || (op.max_inputs >= 0 && own > op.max_inputs)) {
    return refused(fmt::format("{} takes {} inputs, not {}", op.name, op.min_inputs, own));
  }
  const std::vector<TensorType> inputs = row_major(desc.inputs), outputs = row_major(desc.outputs);
  auto inferred = infer(desc.op, Types(inputs).first(desc.own_inputs()), desc.attrs);
  if (!inferred.ok()) return refused(inferred.error().message);
  if (*inferred != outputs) return refused(results_text(*inferred));
  for (size_t i = desc.own_inputs(); i < desc.inputs.size(); ++i) {
    if (desc.inputs[i] != desc.outputs[0]) {
      return refused(
          fmt::format("the epilogue's operand {} has another type than the result", to_string(desc.inputs[i])));
    }
  }
  for (const DescStep& step : desc.epilogue) {
    if (has(step.op, traits::is_step_with_operand)) continue;
    auto same = info(step.op).infer(Types(outputs).first(1), step.attrs);
    if (!same.ok()) return refused(fmt::format("epilogue {}: {}", name_of(step.op), same.error().message));
  }
  if (const auto why = refusal(desc.kernel, desc)) return refused(why->why);
  return ok_status();
}

}  // namespace nlsplit::inline kernels

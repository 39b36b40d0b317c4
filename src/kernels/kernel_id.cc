#include "kernels/kernel_id.h"

#include <fmt/format.h>

#include <array>

namespace nlsplit::inline kernels {
namespace {

constexpr std::array levels = {Isa::v2, Isa::v3, Isa::v4, Isa::neon, Isa::cuda, Isa::tf32};
constexpr size_t cpu_levels = 4;  // the first

constexpr std::array names = {
    std::string_view(""),     std::string_view("none"),   std::string_view("copy"),
    std::string_view("pack"), std::string_view("unpack"), std::string_view("reduce"),
#define NLS_KERNEL(name) std::string_view(#name),
#define NLS_GPU_KERNEL(name) std::string_view(#name),
#include "kernels/kernels.def"
};

constexpr std::array all_kernel_names = {
#define NLS_KERNEL(name) KernelName::name,
#define NLS_GPU_KERNEL(name) KernelName::gpu_##name,
#include "kernels/kernels.def"
};
static_assert(names.size() == first_kernel + all_kernel_names.size());
static_assert(all_kernel_names.size() == cpu_kernel_count + gpu_kernel_count);
static_assert(catalogue_index(KernelName::gpu_conv_cudnn) == cpu_kernel_count,
              "kernels.def has the CPUs' kernels first");

}  // namespace

std::span<const Isa> all_levels() { return std::span(levels).first(cpu_levels); }
std::span<const Isa> gpu_levels() { return std::span(levels).subspan(cpu_levels); }
bool is_gpu(Isa isa) { return isa == Isa::cuda || isa == Isa::tf32; }

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::v2:
      return "v2";
    case Isa::v3:
      return "v3";
    case Isa::v4:
      return "v4";
    case Isa::neon:
      return "neon";
    case Isa::cuda:
      return "cuda";
    case Isa::tf32:
      return "tf32";
  }
  CHECK(false, "no such level");
}

std::string_view full_name_of(Isa isa) {
  switch (isa) {
    case Isa::v2:
      return "x86-64-v2";
    case Isa::v3:
      return "x86-64-v3";
    case Isa::v4:
      return "x86-64-v4";
    case Isa::neon:
      return "armv8-a";
    case Isa::cuda:
      return "cuda-float32";
    case Isa::tf32:
      return "cuda-tf32";
  }
  CHECK(false, "no such level");
}

Result<Isa> parse_isa(std::string_view text) {
  for (Isa isa : levels) {
    if (text == name_of(isa) || text == full_name_of(isa)) return isa;
  }
  std::string known;
  for (Isa isa : all_levels()) known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(isa));
  return invalid_input(fmt::format("unknown instruction level \"{}\": one of {}", text, known));
}

std::span<const KernelName> kernels_of(Isa isa) {
  const std::span<const KernelName> all = all_kernel_names;
  return is_gpu(isa) ? all.subspan(cpu_kernel_count) : all.first(cpu_kernel_count);
}

std::string_view name_of(KernelName name) { return names[static_cast<size_t>(name)]; }

std::string to_string(KernelId id) {
  if (!is_in_catalogue(id.name)) return std::string(name_of(id.name));
  return fmt::format("{}_{}", name_of(id.name), name_of(id.isa));
}

Result<KernelId> parse_kernel(std::string_view text) {
  for (size_t i = 1; i < first_kernel; ++i) {
    if (text == names[i]) return KernelId(static_cast<KernelName>(i));
  }
  if (const size_t end = text.rfind('_'); end != text.npos) {
    for (const Isa isa : levels) {
      if (text.substr(end + 1) != name_of(isa)) continue;
      for (const KernelName name : kernels_of(isa)) {
        if (text.substr(0, end) == name_of(name)) return KernelId(name, isa);
      }
    }
  }
  return invalid_input(fmt::format("there is no kernel \"{}\"", text));
}

}  // namespace nlsplit::inline kernels

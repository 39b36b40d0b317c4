#include "kernels/kernel_id.h"

#include <fmt/format.h>

#include <array>
#include <vector>

namespace nlsplit::inline kernels {
namespace {

struct IsaRow {
  std::string_view name, full_name;
  bool gpu;
};
constexpr std::array isa_rows = {IsaRow{"v2", "x86-64-v2", false}, IsaRow{"v3", "x86-64-v3", false},
                                 IsaRow{"v4", "x86-64-v4", false}, IsaRow{"neon", "armv8-a", false},
                                 IsaRow{"cuda", "cuda", true}};
constexpr std::array cpus = {Isa::v2, Isa::v3, Isa::v4, Isa::neon};
constexpr std::array gpus = {Level(Isa::cuda), Level(Isa::cuda, Precision::tf32)};
constexpr std::array precisions = {std::string_view("float32"), std::string_view("tf32")};

constexpr const IsaRow& row_of(Isa isa) { return isa_rows[static_cast<size_t>(isa)]; }

std::vector<Level> known_levels() {
  std::vector<Level> levels(cpus.begin(), cpus.end());
  levels.insert(levels.end(), gpus.begin(), gpus.end());
  return levels;
}

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
static_assert(catalogue_index(KernelName::gpu_conv_pointwise_cublaslt) == cpu_kernel_count,
              "kernels.def has the CPUs' kernels first");

}  // namespace

bool is_gpu(Isa isa) { return row_of(isa).gpu; }

std::span<const Isa> all_levels() { return cpus; }
std::span<const Level> gpu_levels() { return gpus; }

std::string_view name_of(Precision precision) { return precisions[static_cast<size_t>(precision)]; }

std::string_view name_of(Level level) {
  return level.precision == Precision::float32 ? row_of(level.isa).name : name_of(level.precision);
}

std::string full_name_of(Level level) {
  const IsaRow& row = row_of(level.isa);
  return row.gpu ? fmt::format("{}-{}", row.full_name, name_of(level.precision)) : std::string(row.full_name);
}

Result<Level> parse_level(std::string_view text) {
  for (const Level level : known_levels()) {
    if (text == name_of(level) || text == full_name_of(level)) return level;
  }
  std::string known;
  for (const Isa isa : all_levels()) known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(isa));
  return invalid_input(fmt::format("unknown instruction level \"{}\": one of {}", text, known));
}

std::span<const KernelName> kernels_of(Isa isa) {
  const std::span<const KernelName> all = all_kernel_names;
  return is_gpu(isa) ? all.subspan(cpu_kernel_count) : all.first(cpu_kernel_count);
}

std::string_view name_of(KernelName name) { return names[static_cast<size_t>(name)]; }

std::string to_string(KernelId id) {
  if (!is_in_catalogue(id.name)) return std::string(name_of(id.name));
  return fmt::format("{}_{}", name_of(id.name), name_of(id.level));
}

Result<KernelId> parse_kernel(std::string_view text) {
  for (size_t i = 1; i < first_kernel; ++i) {
    if (text == names[i]) return KernelId(static_cast<KernelName>(i));
  }
  if (const size_t end = text.rfind('_'); end != text.npos) {
    for (const Level level : known_levels()) {
      if (text.substr(end + 1) != name_of(level)) continue;
      for (const KernelName name : kernels_of(level.isa)) {
        if (text.substr(0, end) == name_of(name)) return KernelId(name, level);
      }
    }
  }
  return invalid_input(fmt::format("there is no kernel \"{}\"", text));
}

}  // namespace nlsplit::inline kernels

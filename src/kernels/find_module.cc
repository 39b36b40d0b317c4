#include "kernels/find_module.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

namespace nlsplit::inline kernels {

Result<std::string> find_module(std::string_view name) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return io_error(fmt::format("cannot tell where this program lies: {}", error.message()));
  std::string tried;
  for (const char* folder : {"../lib", NLSPLIT_INSTALLED_KERNELS}) {
    const std::filesystem::path path = (program.parent_path() / folder / name).lexically_normal();
    if (std::filesystem::exists(path, error)) return path.string();
    tried += fmt::format("{}{}", tried.empty() ? "" : " nor ", path.string());
  }
  return io_error(fmt::format("there is neither {}", tried));
}

}  // namespace nlsplit::inline kernels

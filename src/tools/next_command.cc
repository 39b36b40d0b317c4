#include "tools/next_command.h"

#include <filesystem>
#include <system_error>

#include "base/child_process.h"

namespace nlsplit::inline tools {

std::string program_here(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code failure;
  if (is_in_path(name)) return name;
  const fs::path own = fs::read_symlink("/proc/self/exe", failure);
  if (failure) return name;
  const fs::path beside = own.parent_path() / name;
  const fs::path from_here = beside.lexically_relative(fs::current_path(failure));
  const bool inside = !failure && !from_here.empty() && *from_here.begin() != "..";
  return inside ? from_here.string() : beside.string();
}

}  // namespace nlsplit::inline tools

#include "tools/next_command.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

namespace nlsplit::inline tools {

std::string program_here(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code failure;
  if (const char* path = std::getenv("PATH"); path != nullptr) {
    std::istringstream folders(path);
    for (std::string folder; std::getline(folders, folder, ':');) {
      if (::access((fs::path(folder) / name).c_str(), X_OK) == 0) return name;
    }
  }
  const fs::path own = fs::read_symlink("/proc/self/exe", failure);
  if (failure) return name;
  const fs::path beside = own.parent_path() / name;
  const fs::path from_here = beside.lexically_relative(fs::current_path(failure));
  const bool inside = !failure && !from_here.empty() && *from_here.begin() != "..";
  return inside ? from_here.string() : beside.string();
}

}  // namespace nlsplit::inline tools

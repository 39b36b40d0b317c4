#include "tools/outputs.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/file.h"

namespace nlsplit::inline tools {

Status check_outputs(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (path.empty() || path == "-") continue;
    const std::filesystem::path parent = std::filesystem::path(path).parent_path();
    std::error_code failure;
    if (!parent.empty() && !std::filesystem::is_directory(parent, failure))
      return invalid_input(fmt::format("cannot write {}: there is no folder {}", path, parent.string()));
    if (const auto file = FileWriter::open(path); !file) return file.error();
  }
  return ok_status();
}

}  // namespace nlsplit::inline tools

#include "tools/nlbench_machine.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <string_view>
#include <thread>

#include "base/units.h"

namespace nlsplit::inline tools {

std::string describe_machine() {
  const auto field = [](const char* path, std::string_view key) -> std::string {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (!line.starts_with(key)) continue;
      const size_t colon = line.find(':');
      const size_t begin = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
      return begin == std::string::npos ? "" : line.substr(begin);
    }
    return "";
  };
  std::string model = field("/proc/cpuinfo", "model name");
  if (model.empty()) model = "unknown CPU";
  const long long kib = std::atoll(field("/proc/meminfo", "MemTotal").c_str());
  return fmt::format("{}, {} cores, {}", model, std::thread::hardware_concurrency(), to_string(bytes(kib * 1024)));
}

}  // namespace nlsplit::inline tools

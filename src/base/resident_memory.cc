#include "base/resident_memory.h"

#include <fstream>
#include <sstream>
#include <string>

namespace nlsplit::inline base {

// proc_pid_status(5): "VmHWM:      3456 kB"
int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kibibytes = 0;
    if (words >> name >> kibibytes && name == "VmHWM:") return kibibytes * 1024;
  }
  return 0;
}

// proc_pid_clear_refs(5)
void forget_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace nlsplit::inline base

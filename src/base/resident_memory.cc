#include "base/resident_memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "base/mapped_file.h"

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

// malloc_trim(3)
void give_back_freed() { ::malloc_trim(0); }

// Nobody writes through the mapping, so the kernel can read the same bytes again.
void forget_mapped(std::string_view bytes) {
  if (bytes.empty() || mapped_file_at(bytes.data()) == nullptr) return;
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = begin / page * page;
  ::madvise(reinterpret_cast<void*>(first), begin + bytes.size() - first, MADV_DONTNEED);  // a refusal does not matter
}

}  // namespace nlsplit::inline base

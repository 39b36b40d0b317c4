#include "measure/machine_facts.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>

#include "base/file.h"
#include "base/limits.h"
#include "exec/heartbeat/greeting.h"
#include "kernels/cpu.h"

namespace nlsplit::inline measure {
namespace {

using Topology = std::unique_ptr<hwloc_topology, decltype([](hwloc_topology_t it) { hwloc_topology_destroy(it); })>;
using Cpus = std::unique_ptr<hwloc_bitmap_s, decltype([](hwloc_bitmap_t it) { hwloc_bitmap_free(it); })>;

// The number behind a key at the beginning of a line; the whole file's with an empty key.
std::optional<int64_t> number_in(const std::string& path, std::string_view key = "") {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_of("0123456789", key.size());
    if (begin == std::string::npos) return std::nullopt;  // "max"
    int64_t value = 0;
    const auto [end, failure] = std::from_chars(line.data() + begin, line.data() + line.size(), value);
    return failure == std::errc() ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

std::string text_in(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// What this process' control group, and those around it, may have; none: no limit.
std::optional<int64_t> memory_limit() {
  std::optional<int64_t> limit = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) continue;
    for (std::string group = line.substr(3);; group.erase(group.rfind('/'))) {
      const auto own = number_in("/sys/fs/cgroup" + group + "/memory.max");
      if (own) limit = std::min(own, limit.value_or(*own) < *own ? limit : own);
      if (group.empty() || group == "/") break;
    }
  }
  return limit;
}

int count_in(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_bitmap_t within, int64_t* size = nullptr) {
  int count = 0;
  for (hwloc_obj_t it = nullptr; (it = hwloc_get_next_obj_by_type(topology, type, it)) != nullptr;) {
    if (!hwloc_bitmap_intersects(it->cpuset, within)) continue;
    ++count;
    if (size != nullptr) *size = static_cast<int64_t>(it->attr->cache.size);
  }
  return count;
}

}  // namespace

Result<Machine> machine_facts() {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return failed("hwloc does not start");
  const Topology topology(made);
  if (hwloc_topology_load(made) != 0) return failed("hwloc cannot look at this machine");
  const Cpus usable(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(made)));
  if (const Cpus bound(hwloc_bitmap_alloc()); hwloc_get_cpubind(made, bound.get(), HWLOC_CPUBIND_PROCESS) == 0)
    hwloc_bitmap_and(usable.get(), usable.get(), bound.get());

  Machine machine;
  machine.name = own_host();
  machine.levels = supported_levels();
  if (machine.levels.empty()) return unsupported("there are no kernels for this machine's processor");
  machine.cores = count_in(made, HWLOC_OBJ_CORE, usable.get());
  if (machine.cores == 0) machine.cores = std::max(1, count_in(made, HWLOC_OBJ_PU, usable.get()));
  machine.cores = std::min(machine.cores, most_cores);
  constexpr std::array levels = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE,
                                 HWLOC_OBJ_L5CACHE};
  for (size_t l = 0; l < levels.size(); ++l) {
    int64_t size = 0;
    const int count = count_in(made, levels[l], usable.get(), &size);
    if (count > 0 && size > 0) machine.caches.push_back({static_cast<int>(l) + 1, bytes(size), count});
  }
  const int64_t installed = static_cast<int64_t>(hwloc_get_root_obj(made)->total_memory);
  const int64_t limit = std::min(memory_limit().value_or(installed), installed);
  machine.memory = bytes(limit);
  machine.free_memory = bytes(std::min(number_in("/proc/meminfo", "MemAvailable:").value_or(0) * 1024, limit));
  const std::string model = text_in("/proc/cpuinfo", "model name");
  machine.about = fmt::format("{}, {} core{}, {}", model.empty() ? "unknown CPU" : model, machine.cores,
                              machine.cores == 1 ? "" : "s", to_string(machine.memory));
  return machine;
}

}  // namespace nlsplit::inline measure

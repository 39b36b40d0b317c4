#include "base/cores.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace nlsplit::inline base {

size_t core_count() { return std::max(1u, std::thread::hardware_concurrency()); }

void on_all_cores(size_t count, const std::function<void(size_t)>& work, size_t cores) {
  std::atomic<size_t> next = 0;
  const auto take = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> others;
  for (size_t t = 1; t < std::min(cores, count); ++t) others.emplace_back(take);
  take();
  for (std::thread& other : others) other.join();
}

}  // namespace nlsplit::inline base

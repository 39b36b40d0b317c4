// Independent pieces of work on all cores of this machine.
//
//   std::vector<double> seconds(plans.size());
//   on_all_cores(plans.size(), [&](size_t i) { seconds[i] = time(plans[i]); });
#pragma once

#include <cstddef>
#include <functional>

namespace nlsplit::inline base {

size_t core_count();  // of this machine; 1 if it does not say

// work(0), …, work(count - 1), each on whichever core is free; waits for all of them and leaves no thread behind.
void on_all_cores(size_t count, const std::function<void(size_t)>& work, size_t cores = core_count());

}  // namespace nlsplit::inline base

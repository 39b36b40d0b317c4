// What this process holds in memory.
#pragma once

#include <cstdint>

namespace nlsplit::inline base {

// The most bytes it has held since it began, or since forget_peak_resident(). 0: the system does not say.
int64_t peak_resident_bytes();
// From now on. Where the system does not allow it the peak stays.
void forget_peak_resident();

}  // namespace nlsplit::inline base

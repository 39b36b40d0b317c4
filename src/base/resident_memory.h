// What this process holds in memory.
#pragma once

#include <cstdint>
#include <string_view>

namespace nlsplit::inline base {

// The most bytes it has held since it began, or since forget_peak_resident(). 0: the system does not say.
int64_t peak_resident_bytes();
// From now on. Where the system does not allow it the peak stays.
void forget_peak_resident();
// What was freed goes back to the system, as far as the allocator kept it.
void give_back_freed();
// Bytes of a mapped file (base/mapped_file.h) take no memory until they are looked at again. Of others: nothing
// happens.
void forget_mapped(std::string_view bytes);

}  // namespace nlsplit::inline base

// What no machine has more of. Numbers that files name are held against these before anything is allocated for them or
// computed with them, so that what follows neither overflows nor runs out of memory for a few bytes of text.
#pragma once

#include <cstdint>
#include <limits>

namespace nlsplit::inline base {

// Of a buffer, an arena, a kernel's workspace: a pebibyte. The largest single machines address 64 TiB (x86-64 with 46
// physical bits), and sums of some thousand of these still fit into 64 bits.
inline constexpr int64_t most_bytes = int64_t{1} << 50;

// The memory of a device that shall have no limit: an arena is held against it, nothing is allocated for it.
inline constexpr int64_t unlimited_memory = std::numeric_limits<int64_t>::max() / 2;

// Threads of a device. Workspaces grow with them, and each is a thread of the system (at most 4,194,304 on Linux, far
// fewer by default).
inline constexpr int most_cores = 4096;

// Devices of a Program: nothing grows with their pairs, unless each talks to each.
inline constexpr int64_t most_devices = 8192;

// Instances of a buffer, and micro-batches: an input has an instance for each.
inline constexpr int most_instances = 1 << 20;
inline constexpr int most_micro_batches = most_instances;
// Of all buffers of a device: each has a list of who used it, while dependencies are found.
inline constexpr int64_t most_instances_of_device = int64_t{1} << 22;

// Tags of messages: what MPI guarantees (MPI_TAG_UB).
inline constexpr int largest_tag = 32767;

// Instructions times the slots they run in: 4 GB of dependencies.
inline constexpr int64_t most_steps = int64_t{1} << 27;

}  // namespace nlsplit::inline base

// A GPU as a Backend, by the C interface of exec/cuda/backend.h. Its arena is in the GPU's memory; the host has a
// mirror of it, with every buffer at the same offset, through which all comes and goes: weights and inputs before the
// run, what is sent and received during it (unless the transport takes the GPU's memory), outputs after it. Execution
// is asynchronous: runs of computations are begun at once, as CUDA graphs where possible (exec/cuda/launches.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exec/backend.h"

namespace nlsplit::inline exec {

// Bytes [begin, end) of an arena.
struct ByteRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// What the transport reads and writes of a device's mirror, in whole pages, ascending and apart: to be page-locked.
std::vector<ByteRange> staged_ranges(const DeviceProgram& device, int64_t page);

// `whole` in pieces, each of which lies in one of `ranges` (ascending and apart) or in none: CUDA refuses to copy host
// memory that is page-locked in part.
std::vector<ByteRange> cut_at(std::span<const ByteRange> ranges, ByteRange whole);

// On the GPU that the device gets of its machine, or what stands in for it (exec/cuda/library.h). Errors: no GPU, too
// little memory, a computation that its libraries refuse.
Result<std::unique_ptr<Backend>> open_cuda(const BackendContext& context);

}  // namespace nlsplit::inline exec

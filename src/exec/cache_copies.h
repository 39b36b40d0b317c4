// Copies within the caches of a device (program/caches.h): the first positions of one sequence become those of another
// one. No messages: each device copies the caches of its own layers and heads.
#pragma once

#include <cstdint>
#include <span>

#include "exec/backend.h"

namespace nlsplit::inline exec {

// Sequences are counted over all micro-batches.
struct CacheCopy {
  int64_t from = 0, to = 0;
  int64_t positions = 0;  // from the first one on; what else the other one keeps stays
  friend bool operator==(const CacheCopy&, const CacheCopy&) = default;
};

// In their order, in all caches of the device. Nothing else runs meanwhile. CHECK-fails: there is no such sequence or
// position. Errors: the backend's.
Status make_copies(std::span<const CacheCopy> copies, const Program& joined, int device, Backend& backend);

}  // namespace nlsplit::inline exec

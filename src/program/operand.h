// Operand: what an instruction reads or writes.
#pragma once

#include <cstdint>

#include "base/id.h"

namespace nlsplit::inline program {

using BufferId = Id<struct BufferTag>;  // within its device

// A buffer, or elements [begin, end) of it counted flat in its own type.
struct Operand {
  BufferId buffer;  // none: an optional input left out
  int64_t begin = 0;
  int64_t end = -1;  // -1: all of it
  bool whole() const { return end < 0; }
  friend bool operator==(const Operand&, const Operand&) = default;
};

}  // namespace nlsplit::inline program

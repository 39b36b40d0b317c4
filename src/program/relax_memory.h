// Inside relax.cc's part of the module: who of a device's instances must come before whom because they touch the same
// bytes of its arena.
#pragma once

#include <cstdint>
#include <vector>

#include "program/dependencies.h"

namespace nlsplit::inline program {

class RelaxedMemory {
 public:
  explicit RelaxedMemory(const DeviceProgram& device);

  // Of the device's instances one after the other, in the Program's order. Adds the edges from earlier ones of which
  // one end is a message, and to `after` the slots whose computations must come before this one's.
  void touch(uint32_t instance, int slot, const Instr& instr, std::vector<Edge>& edges, std::vector<int>& after);

 private:
  struct Access {
    uint32_t instance;
    int slot;
    int64_t begin, end;  // bytes of the arena
    bool writes;
    bool transfer;
    bool own;  // scratch: only its slot looks at it
  };
  struct Place {       // of a buffer
    int list = -1;     // of bank 0; -1: nobody's order depends on it
    int per_bank = 0;  // 1: each bank has a list of its own
    bool own = false;
  };
  void find_own_scratch();
  void find_lists();
  void access(const Access& now, std::vector<Access>& list, std::vector<Edge>& edges, std::vector<int>& after) const;

  const DeviceProgram& device_;
  std::vector<Place> places_;               // [buffer]
  std::vector<std::vector<Access>> lists_;  // accesses that a later one may have to wait for
};

}  // namespace nlsplit::inline program

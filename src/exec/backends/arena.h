// Arena: the one piece of memory a device computes in. Page-aligned, zero at first, in huge pages where the system
// gives them.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "base/units.h"

namespace nlsplit::inline exec {

// Of this machine, swap included. Beyond it an allocation may succeed all the same, until its pages are touched.
Bytes machine_memory();

class Arena {
 public:
  static Result<Arena> allocate(Bytes size);  // error: the machine has not so much memory
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  std::byte* data() const { return data_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }  // as many as were asked for

 private:
  Arena() = default;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;  // whole pages
};

}  // namespace nlsplit::inline exec

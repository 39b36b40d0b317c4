#include "exec/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace nlsplit {

Result<Arena> Arena::allocate(Bytes size) {
  Arena arena;
  if (size.value() <= 0) return arena;
  const auto length = static_cast<size_t>(size.value());
  void* data = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return io_error(fmt::format("cannot allocate an arena of {}: {}", to_string(size), std::strerror(errno)));
  ::madvise(data, length, MADV_HUGEPAGE);  // fewer misses in the address translation; a refusal does not matter
  arena.data_ = static_cast<std::byte*>(data);
  arena.size_ = length;
  return arena;
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Arena::~Arena() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace nlsplit

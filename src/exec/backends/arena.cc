#include "exec/backends/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/limits.h"
#include "base/sizes.h"

namespace nlsplit::inline exec {
namespace {

constexpr size_t huge_page = size_t{2} << 20;

}  // namespace

Bytes machine_memory() {
  struct sysinfo machine {};
  if (::sysinfo(&machine) != 0) return bytes(most_bytes);
  const int64_t units = saturating_sum(static_cast<int64_t>(machine.totalram), static_cast<int64_t>(machine.totalswap));
  return bytes(saturating_product(units, static_cast<int64_t>(machine.mem_unit)));
}

Result<Arena> Arena::allocate(Bytes size) {
  Arena arena;
  if (size.value() <= 0) return arena;
  if (size > machine_memory())
    return io_error(fmt::format("cannot allocate an arena of {}: this machine has {} of memory", to_string(size),
                                to_string(machine_memory())));
  // Huge pages: fewer misses in the address translation. Whole ones from the first byte on, so that every run has the
  // same buffers in the same pages.
  const auto length = (static_cast<size_t>(size.value()) + huge_page - 1) / huge_page * huge_page;
  void* mapped = ::mmap(nullptr, length + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    return lost(fmt::format("cannot allocate an arena of {}: {}", to_string(size), std::strerror(errno)));
  auto* begin = static_cast<std::byte*>(mapped);
  const size_t before = (huge_page - reinterpret_cast<uintptr_t>(begin) % huge_page) % huge_page;
  if (before > 0) ::munmap(begin, before);
  begin += before;
  ::munmap(begin + length, huge_page - before);
  ::madvise(begin, length, MADV_HUGEPAGE);  // a refusal does not matter
  arena.data_ = begin;
  arena.size_ = static_cast<size_t>(size.value());
  arena.mapped_ = length;
  return arena;
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

Arena::~Arena() {
  if (data_ != nullptr) ::munmap(data_, mapped_);
}

}  // namespace nlsplit::inline exec

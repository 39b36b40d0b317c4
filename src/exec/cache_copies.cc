#include "exec/cache_copies.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/layout.h"
#include "program/caches.h"

namespace nlsplit::inline exec {
namespace {

// One cache: [instance][sample][head][position], each position a row of bytes.
void copy_in(const Buffer& cache, const CacheUpdate& form, const CacheCopy& copy, std::byte* arena) {
  CHECK(copy.from != copy.to && copy.positions >= 0 && copy.positions <= form.extent, "no copy of a beginning");
  const auto begin_of = [&](int64_t sequence) {
    const int64_t instance = sequence / form.samples, sample = sequence % form.samples;
    CHECK(sequence >= 0 && instance < cache.instances, "a copy of a sequence that is not there");
    return arena + cache.offset + instance * cache.stride() + sample * form.heads * form.extent * form.row_bytes;
  };
  std::byte* const to = begin_of(copy.to);
  const std::byte* const from = begin_of(copy.from);
  for (int64_t head = 0; head < form.heads; ++head) {
    const int64_t begin = head * form.extent * form.row_bytes;
    std::memcpy(to + begin, from + begin, static_cast<size_t>(copy.positions * form.row_bytes));
  }
}

}  // namespace

Status make_copies(std::span<const CacheCopy> copies, const Program& joined, int device, Backend& backend) {
  const DeviceProgram& own = joined.devices[static_cast<size_t>(device)];
  const std::vector<Cache> caches = caches_of(joined, static_cast<size_t>(device));
  const auto is_cache = [&](const Buffer& buffer) {
    return std::ranges::any_of(caches, [&](const Cache& cache) { return &own.buffer(cache.buffer) == &buffer; });
  };
  RETURN_IF_ERROR(backend.download(is_cache));
  for (const Cache& cache : caches) {
    const CacheUpdate form = cache_update_of(joined.descs[static_cast<size_t>(cache.desc)]);
    for (const CacheCopy& copy : copies) copy_in(own.buffer(cache.buffer), form, copy, backend.host().data());
  }
  return backend.upload(is_cache);
}

}  // namespace nlsplit::inline exec

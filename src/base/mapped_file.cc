#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

namespace nlsplit::inline base {

// A signal handler takes no lock and allocates nothing: entries form a list that only grows, and are used again.
struct Registered {
  std::atomic<bool> taken = true;
  std::atomic<uintptr_t> begin = 0, end = 0;  // equal: nothing
  char path[256] = "";
  Registered* next = nullptr;
};

namespace {

std::atomic<Registered*> all_registered = nullptr;

Registered* free_entry() {
  for (Registered* entry = all_registered; entry != nullptr; entry = entry->next) {
    bool taken = false;
    if (entry->taken.compare_exchange_strong(taken, true)) return entry;
  }
  auto* entry = new Registered;
  entry->next = all_registered;
  while (!all_registered.compare_exchange_weak(entry->next, entry)) {
  }
  return entry;
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  const auto trouble = [&](int error) {
    return io_error(fmt::format("cannot read '{}': {}", path, std::generic_category().message(error)));
  };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return trouble(errno);
  struct stat status {};
  void* address = nullptr;
  int error = 0;
  if (fstat(descriptor, &status) != 0) {
    error = errno;
  } else if (!S_ISREG(status.st_mode)) {
    error = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
  } else if (status.st_size > 0) {
    address = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) error = errno;
  }
  close(descriptor);  // the mapping stays
  if (error != 0) return trouble(error);
  return std::shared_ptr<const MappedFile>(new MappedFile(address, static_cast<size_t>(status.st_size), path));
}

MappedFile::MappedFile(void* address, size_t size, const std::string& path) : address_(address), size_(size) {
  if (address == nullptr) return;
  registered_ = free_entry();
  const size_t left_out = path.size() - std::min(path.size(), sizeof(registered_->path) - 1);
  std::strcpy(registered_->path, path.c_str() + left_out);
  registered_->begin = reinterpret_cast<uintptr_t>(address);
  registered_->end = registered_->begin + size;
}

MappedFile::~MappedFile() {
  if (address_ == nullptr) return;
  registered_->end = registered_->begin.load();
  registered_->taken = false;
  munmap(address_, size_);
}

const char* mapped_file_at(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Registered* entry = all_registered; entry != nullptr; entry = entry->next) {
    if (entry->begin <= at && at < entry->end) return entry->path;
  }
  return nullptr;
}

}  // namespace nlsplit::inline base

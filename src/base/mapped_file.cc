#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace nlsplit {

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
  return std::shared_ptr<const MappedFile>(new MappedFile(address, static_cast<size_t>(status.st_size)));
}

MappedFile::~MappedFile() {
  if (address_ != nullptr) munmap(address_, size_);
}

}  // namespace nlsplit

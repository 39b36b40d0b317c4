#include "base/sync.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/descriptor.h"

namespace nlsplit::inline base {

// std::strerror is not safe with threads.
Error os_error(std::string_view verb, const std::string& path, int code) {
  return io_error(fmt::format("cannot {} '{}': {}", verb, path, std::generic_category().message(code)));
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

namespace {

namespace fs = std::filesystem;

bool is_temporary(const std::string& path) {
  std::error_code failure;
  fs::path base = fs::temp_directory_path(failure).lexically_normal();
  if (failure) return false;
  if (!base.has_filename()) base = base.parent_path();  // "x/" is "x"
  const fs::path whole = fs::absolute(path, failure).lexically_normal();
  return !failure && std::ranges::mismatch(base, whole).in1 == base.end();
}

// File systems that keep nothing answer EINVAL: there is nothing to wait for.
int sync_to_disk(int fd) { return ::fsync(fd) == 0 || errno == EINVAL ? 0 : errno; }

}  // namespace

int write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    content.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

int sync_file(int fd, const std::string& path) { return is_temporary(path) ? 0 : sync_to_disk(fd); }

int sync_folder(const std::string& folder) {
  if (is_temporary(folder)) return 0;
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0) return errno == EACCES ? 0 : errno;  // a folder may be writable and not readable
  return sync_to_disk(opened.get());
}

}  // namespace nlsplit::inline base

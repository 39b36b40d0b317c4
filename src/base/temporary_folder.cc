#include "base/temporary_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

namespace nlsplit::inline base {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view folder_prefix = "nlsplit-run-";
constexpr std::string_view folder_pattern = "XXXXXX";

// The open folder, locked. With LOCK_NB none: somebody has the lock, or there are no locks here.
Descriptor lock_folder(const std::string& path, int how) {
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.get() >= 0 && ::flock(folder.get(), how) != 0 && (how & LOCK_NB) != 0) return Descriptor();
  return folder;
}

bool still_exists(const Descriptor& folder) {
  struct stat info {};
  return folder.get() >= 0 && ::fstat(folder.get(), &info) == 0 && info.st_nlink > 0;
}

// What killed runs left. One that another user left cannot be removed, and stays.
void remove_ownerless(const fs::path& base) {
  std::error_code failure;
  for (fs::directory_iterator at(base, failure), end; !failure && at != end; at.increment(failure)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(folder_prefix) || name.size() != folder_prefix.size() + folder_pattern.size()) continue;
    const Descriptor lock = lock_folder(at->path().string(), LOCK_EX | LOCK_NB);  // until it is gone
    if (lock.get() < 0) continue;
    std::error_code left;
    fs::remove_all(at->path(), left);
  }
}

}  // namespace

Result<TemporaryFolder> TemporaryFolder::create() {
  std::error_code failure;
  const fs::path base = fs::temp_directory_path(failure);
  if (failure) return io_error("no folder for temporary files: " + failure.message());
  remove_ownerless(base);
  for (;;) {
    std::string path = (base / folder_prefix).string().append(folder_pattern);
    if (::mkdtemp(path.data()) == nullptr)
      return io_error(fmt::format("cannot create {}: {}", path, std::strerror(errno)));
    TemporaryFolder folder;
    folder.lock_ = lock_folder(path, LOCK_EX);
    if (!still_exists(folder.lock_)) continue;  // another run removed it before it was locked
    folder.path_ = path;
    return folder;
  }
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}

TemporaryFolder& TemporaryFolder::operator=(TemporaryFolder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  return *this;
}

TemporaryFolder::~TemporaryFolder() { remove(); }

void TemporaryFolder::remove() {
  std::error_code failure;
  if (!path_.empty()) fs::remove_all(path_, failure);
  path_.clear();
  lock_ = Descriptor();
}

}  // namespace nlsplit::inline base

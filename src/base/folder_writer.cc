#include "base/folder_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/sync.h"

namespace nlsplit::inline base {
namespace {

namespace fs = std::filesystem;

constexpr mode_t usual_mode = 0777;

std::string new_name(const std::string& path) { return path + ".nlsplit-new"; }
std::string old_name(const std::string& path) { return path + ".nlsplit-old"; }

// Under the lock nobody else writes here: these are of a run that was killed. No user has names such as these.
void clean_up_after_others(const std::string& path) {
  std::error_code failure;
  if (fs::exists(old_name(path), failure) && !fs::exists(path, failure)) fs::rename(old_name(path), path, failure);
  fs::remove_all(old_name(path), failure);
  fs::remove_all(new_name(path), failure);
}

int rename_or_errno(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

}  // namespace

Result<FolderWriter> FolderWriter::open(const std::string& path, bool exchange) {
  fs::path target = fs::path(path).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "x/" is "x"
  std::error_code failure;
  if (target.has_parent_path()) fs::create_directories(target.parent_path(), failure);
  if (failure) return os_error("create", target.parent_path().string(), failure.value());
  ASSIGN_OR_RETURN(OutputLock lock, OutputLock::beside(target.string()));
  FolderWriter folder(target.string(), std::move(lock), exchange);
  clean_up_after_others(folder.path_);
  const std::string name = new_name(folder.path_);
  if (::mkdir(name.c_str(), usual_mode) != 0) return os_error("create", name, errno);
  folder.temporary_ = name;
  return folder;
}

FolderWriter::FolderWriter(FolderWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      lock_(std::move(other.lock_)),
      exchange_(other.exchange_) {}

FolderWriter::~FolderWriter() {
  std::error_code failure;
  if (!temporary_.empty()) fs::remove_all(temporary_, failure);
}

Status FolderWriter::commit() {
  CHECK(!temporary_.empty(), "the folder is finished");
  int code = sync_folder(temporary_);
  if (code != 0) return os_error("write", path_, code);
  std::string leftover;
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0) {
    leftover = "";
  } else if (exchange_ && ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) {
    leftover = temporary_;
  } else {
    leftover = old_name(path_);
    code = rename_or_errno(path_, leftover);
    if (code == ENOENT) code = 0;  // there is no old one
    if (code == 0) code = rename_or_errno(temporary_, path_);
    if (code != 0) {
      rename_or_errno(leftover, path_);
      return os_error("write", path_, code);
    }
  }
  temporary_.clear();
  code = sync_folder(folder_of(path_));
  std::error_code failure;
  if (!leftover.empty()) fs::remove_all(leftover, failure);
  return code == 0 ? ok_status() : os_error("write", path_, code);
}

}  // namespace nlsplit::inline base

#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/sync.h"

namespace nlsplit::inline base {

namespace {

namespace fs = std::filesystem;

constexpr int64_t largest_file = int64_t{1} << 32;  // a device such as /dev/zero has no end

// make(name) takes a name beside PATH; another thread, or a process of another PID namespace, may have taken one.
// Answers 0 or errno.
template <class Make>
int take_name(const std::string& path, std::string& name, const Make& make) {
  for (int attempt = 0;; ++attempt) {
    name = fmt::format("{}.tmp.{}.{}", path, ::getpid(), attempt);
    const int code = make(name.c_str());
    if (code == 0) return 0;
    if (code == EEXIST) continue;
    name.clear();
    return code;
  }
}

// Whether the name NAME is still that of the open file.
bool is_named(int fd, const char* name) {
  struct stat file {};
  struct stat named {};
  return ::fstat(fd, &file) == 0 && ::lstat(name, &named) == 0 && file.st_dev == named.st_dev &&
         file.st_ino == named.st_ino;
}

// Files with names that killed writers left beside PATH: a writer holds a lock on its file as long as that has such a
// name. Between open() and flock() the writer may have given the file its last name, and another writer taken this one.
void remove_ownerless(const std::string& path) {
  const std::string folder = folder_of(path), prefix = path.substr(path.rfind('/') + 1) + ".tmp.";
  std::error_code failure;
  for (fs::directory_iterator at(folder, failure), end; !failure && at != end; at.increment(failure)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(prefix) || name.find_first_not_of("0123456789.", prefix.size()) != std::string::npos)
      continue;
    const Descriptor file(::open(at->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (file.get() < 0 || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (is_named(file.get(), at->path().c_str())) ::unlink(at->path().c_str());
  }
}

std::string link_to(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

}  // namespace

Result<std::string> read_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return os_error("read", path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return os_error("read", path, errno);
  if (S_ISDIR(info.st_mode)) return os_error("read", path, EISDIR);

  if (info.st_size > largest_file) return os_error("read", path, EFBIG);
  // The size is a first guess only: a pipe says 0, and a file may grow while we read. One more byte, so that a file of
  // the size it said ends without another allocation.
  std::string content(static_cast<size_t>(info.st_size > 0 ? info.st_size : 4095) + 1, '\0');
  size_t filled = 0;
  while (true) {
    if (filled > static_cast<size_t>(largest_file)) return os_error("read", path, EFBIG);  // it never ends
    if (filled == content.size()) content.resize(content.size() * 2);
    const ssize_t n = ::read(file.get(), content.data() + filled, content.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return os_error("read", path, errno);
    if (n == 0) break;
    filled += static_cast<size_t>(n);
  }
  content.resize(filled);
  return content;
}

Result<FileWriter> FileWriter::open(const std::string& path) {
  struct stat info {};
  // A rename would replace /dev/stdout or a pipe by a file.
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    if (S_ISDIR(info.st_mode)) return os_error("write", path, EISDIR);
    return io_error(fmt::format("cannot write '{}': it is not a regular file", path));
  }
  // A file without a name is gone with its process, however that ends.
  Descriptor file(::open(folder_of(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
  if (file.get() >= 0 && ::access(link_to(file.get()).c_str(), F_OK) == 0) {
    ::flock(file.get(), LOCK_EX);  // nobody else knows it
    return FileWriter(path, "", std::move(file));
  }
  // Not every file system has such files.
  std::string temporary;
  const int code = take_name(path, temporary, [&file](const char* name) {
    file = Descriptor(::open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.get() < 0) return errno;
    ::flock(file.get(), LOCK_EX);
    return is_named(file.get(), name) ? 0 : EEXIST;  // without a lock for a moment: taken for a killed writer's
  });
  if (code != 0) return os_error("write", path, code);
  return FileWriter(path, std::move(temporary), std::move(file));
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})), file_(std::move(other.file_)) {}

FileWriter::~FileWriter() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status FileWriter::write(std::string_view content) {
  CHECK(file_.get() >= 0, "the file is finished");
  const int code = write_all(file_.get(), content);
  return code == 0 ? ok_status() : os_error("write", path_, code);
}

Status FileWriter::commit() {
  CHECK(file_.get() >= 0, "the file is finished");
  int code = sync_file(file_.get(), path_);
  if (code == 0 && temporary_.empty()) {
    code = take_name(path_, temporary_, [this](const char* name) {
      return ::linkat(AT_FDCWD, link_to(file_.get()).c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
    });
  }
  if (code == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) code = errno;
  if (code != 0) return os_error("write", path_, code);
  temporary_.clear();
  file_ = Descriptor();
  remove_ownerless(path_);
  code = sync_folder(folder_of(path_));
  return code == 0 ? ok_status() : os_error("write", path_, code);
}

Status write_file(const std::string& path, std::string_view content) {
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::open(path));
  RETURN_IF_ERROR(file.write(content));
  return file.commit();
}

}  // namespace nlsplit::inline base

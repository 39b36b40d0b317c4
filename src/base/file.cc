#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

namespace nlsplit {

namespace {

constexpr int64_t largest_file = int64_t{1} << 32;  // a device such as /dev/zero has no end

// Closes on every way out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }

 private:
  int fd_;
};

// std::strerror is not safe with threads.
Error os_error(std::string_view verb, const std::string& path, int code) {
  return io_error(fmt::format("cannot {} '{}': {}", verb, path, std::generic_category().message(code)));
}

// 0, or errno.
int write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    content.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

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

// Two threads must not write the same PATH at once: they would share the temporary file.
// There is no fsync: the promise is to other processes, not across a power cut.
Result<FileWriter> FileWriter::open(const std::string& path) {
  struct stat info {};
  // A rename would replace /dev/stdout or a pipe by a file.
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    if (S_ISDIR(info.st_mode)) return os_error("write", path, EISDIR);
    return io_error(fmt::format("cannot write '{}': it is not a regular file", path));
  }
  std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return os_error("write", path, errno);
  return FileWriter(path, std::move(temporary), descriptor);
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

FileWriter::~FileWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

Status FileWriter::write(std::string_view content) {
  CHECK(descriptor_ >= 0, "the file is finished");
  const int code = write_all(descriptor_, content);
  return code == 0 ? ok_status() : os_error("write", path_, code);
}

Status FileWriter::commit() {
  CHECK(descriptor_ >= 0, "the file is finished");
  int code = 0;
  if (::close(std::exchange(descriptor_, -1)) != 0) code = errno;  // some file systems report a full disk only here
  if (code == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) code = errno;
  if (code == 0) return ok_status();
  ::unlink(temporary_.c_str());
  return os_error("write", path_, code);
}

Status write_file(const std::string& path, std::string_view content) {
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::open(path));
  RETURN_IF_ERROR(file.write(content));
  return file.commit();
}

}  // namespace nlsplit

#include "base/output_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file.h"
#include "base/sync.h"

namespace nlsplit::inline base {
namespace {

// Whether the name still is that of the open file: its holder removes it when it is done.
bool still_there(int fd, const std::string& name) {
  struct stat held {
  }, named{};
  return ::fstat(fd, &held) == 0 && ::stat(name.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino;
}

std::string this_process() {
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("process {} on {}", ::getpid(), host);
}

}  // namespace

Result<OutputLock> OutputLock::take(const std::string& output, std::string file) {
  for (;;) {
    Descriptor held(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (held.get() < 0) return os_error("write", file, errno);
    OutputLock lock;
    if (::flock(held.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return lock;  // a file system without locks
      const auto holder = read_file(file);
      return invalid_input(fmt::format("another run is writing to '{}' ({}): wait for it, or write elsewhere", output,
                                       holder && !holder->empty() ? *holder : "its process is unknown"));
    }
    if (!still_there(held.get(), file)) continue;
    const std::string who = this_process();
    // The name of the holder is for a message only: a full disk does not matter.
    if (::ftruncate(held.get(), 0) != 0 || ::pwrite(held.get(), who.data(), who.size(), 0) < 0) errno = 0;
    lock.file_ = std::move(file);
    lock.held_ = std::move(held);
    return lock;
  }
}

Result<OutputLock> OutputLock::of_folder(const std::string& folder) { return take(folder, folder + "/.nlsplit-lock"); }

Result<OutputLock> OutputLock::beside(const std::string& path) { return take(path, path + ".nlsplit-lock"); }

OutputLock::OutputLock(OutputLock&& other) noexcept
    : file_(std::exchange(other.file_, {})), held_(std::move(other.held_)) {}

OutputLock::~OutputLock() {
  if (!file_.empty()) ::unlink(file_.c_str());  // before the lock ends: nobody else's is removed
}

}  // namespace nlsplit::inline base

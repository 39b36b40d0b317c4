#include "base/core_claim.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"

namespace nlsplit::inline base {
namespace {

// Core c's lock is byte c; who holds it is written behind all locks.
constexpr off_t holders_begin = 1 << 16;

// Of this boot: core numbers and locks mean nothing to another machine that sees the same folder.
std::string file_of_this_machine() {
  const auto boot = read_file("/proc/sys/kernel/random/boot_id");
  return "/tmp/nlsplit-cores-" + (boot.ok() ? boot->substr(0, 8) : std::string("unknown"));
}

// Of whichever user was first. Systems refuse O_CREAT for other users' files in /tmp (fs.protected_regular).
Descriptor open_shared(const std::string& path) {
  constexpr int how = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  constexpr mode_t for_all = 0666;
  Descriptor file(::open(path.c_str(), how));
  if (file.get() >= 0 || errno != ENOENT) return file;
  file = Descriptor(::open(path.c_str(), how | O_CREAT, for_all));
  if (file.get() >= 0) ::fchmod(file.get(), for_all);
  return file;
}

off_t place_of_holder(int core) { return holders_begin + static_cast<off_t>(sizeof(uint64_t)) * core; }

}  // namespace

CoreClaim CoreClaim::take(const std::vector<int>& cores, size_t count, uint64_t run, const std::string& file) {
  CoreClaim claim;
  claim.locks_ = open_shared(file.empty() ? file_of_this_machine() : file);
  const int fd = claim.locks_.get();
  for (size_t i = 0; i < cores.size() && claim.cores_.size() < count; ++i) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = cores[i];
    lock.l_len = 1;
    if (fd >= 0 && ::fcntl(fd, F_OFD_SETLK, &lock) != 0 && (errno == EAGAIN || errno == EACCES)) {
      uint64_t holder = 0;
      const bool known = ::pread(fd, &holder, sizeof(holder), place_of_holder(cores[i])) == sizeof(holder);
      if (!known || holder != run) claim.others_have_ = true;
      continue;
    }
    if (fd >= 0) {
      // For a message only: a full disk does not matter.
      [[maybe_unused]] const ssize_t written = ::pwrite(fd, &run, sizeof(run), place_of_holder(cores[i]));
    }
    claim.cores_.push_back(cores[i]);
  }
  if (claim.cores_.size() == count) {
    claim.others_have_ = false;
    return claim;
  }
  claim.cores_.clear();
  claim.locks_ = Descriptor();
  return claim;
}

}  // namespace nlsplit::inline base

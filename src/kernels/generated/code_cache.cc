#include "kernels/generated/code_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/sync.h"

namespace nlsplit::inline kernels {
namespace {

// ---- a file: this, the key, the code

struct Header {
  std::array<char, 16> format{"nlsplit code 1\n"};
  uint64_t key_bytes = 0, code_bytes = 0;
  Checksum checksum;  // of key and code
};
static_assert(sizeof(Header) == 48, "written as it is in memory: without gaps");

constexpr std::string_view ending = ".nlcode";
constexpr size_t digits = 32;

std::string file_of(std::string_view key) { return to_string(checksum_of(key)) + std::string(ending); }

// Also what a killed process left of one ("….nlcode.PID.N"). Whatever else lies in the folder is not ours to remove.
bool is_ours(std::string_view name) {
  return name.find_first_not_of("0123456789abcdef") == digits && name.substr(digits).starts_with(ending) &&
         name.find_first_not_of(".0123456789", digits + ending.size()) == std::string_view::npos;
}

std::string content_of(std::string_view key, std::string_view code) {
  Header header;
  header.key_bytes = key.size();
  header.code_bytes = code.size();
  std::string content(sizeof(header), '\0');
  content.append(key).append(code);
  header.checksum = checksum_of(std::string_view(content).substr(sizeof(header)));
  std::memcpy(content.data(), &header, sizeof(header));
  return content;
}

std::optional<std::string> code_in(std::string_view content, std::string_view key) {
  Header header;
  if (content.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, content.data(), sizeof(header));
  content.remove_prefix(sizeof(header));
  const bool whole = header.format == Header().format && header.key_bytes == key.size() && content.starts_with(key) &&
                     header.code_bytes == content.size() - key.size() && header.checksum == checksum_of(content);
  if (!whole) return std::nullopt;
  return std::string(content.substr(key.size()));
}

// ---- the operating system

bool only_ours(const struct stat& info) {
  return info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::optional<std::string> read_all(int fd, size_t size) {
  std::string content(size, '\0');
  for (size_t filled = 0; filled < size;) {
    const ssize_t n = ::read(fd, content.data() + filled, size - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    filled += static_cast<size_t>(n);
  }
  return content;
}

// With the folders above it. 0, or errno.
int make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return 0;
  const std::string above = folder_of(path);
  if (errno != ENOENT || above.size() >= path.size()) return errno;
  if (const int code = make_folder(above); code != 0) return code;
  return ::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
}

struct Entry {
  std::string name;
  int64_t bytes = 0;
  std::pair<int64_t, int64_t> used;  // seconds, nanoseconds
};

std::vector<Entry> entries_of(int folder) {
  std::vector<Entry> entries;
  DIR* const all = ::fdopendir(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (all == nullptr) return entries;
  while (const dirent* const one = ::readdir(all)) {
    struct stat info {};
    if (!is_ours(one->d_name) || ::fstatat(folder, one->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISREG(info.st_mode))
      entries.push_back({one->d_name, info.st_size, {info.st_mtim.tv_sec, info.st_mtim.tv_nsec}});
  }
  ::closedir(all);
  return entries;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

CodeCacheFolder code_cache_folder() {
  if (const std::string named = variable("NLSPLIT_CODE_CACHE"); !named.empty())
    return named == "off" ? CodeCacheFolder{} : CodeCacheFolder{named, true};
  // By the XDG Base Directory Specification a path that is not absolute counts as none.
  if (const std::string caches = variable("XDG_CACHE_HOME"); caches.starts_with('/')) return {caches + "/nlsplit/code"};
  if (const std::string home = variable("HOME"); home.starts_with('/')) return {home + "/.cache/nlsplit/code"};
  return {};
}

Result<std::unique_ptr<CodeCache>> CodeCache::open(const std::string& folder, int64_t limit) {
  if (const int code = make_folder(folder); code != 0) return os_error("make", folder, code);
  Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (opened.get() < 0 || ::fstat(opened.get(), &info) != 0) return os_error("open", folder, errno);
  // Of the folder that is open: one that takes its name now changes nothing.
  if (!only_ours(info)) {
    return invalid_input(info.st_uid != ::geteuid()
                             ? fmt::format("'{}' belongs to user {}, not to {}", folder, info.st_uid, ::geteuid())
                             : fmt::format("others may write to '{}' (mode {:04o}): chmod go-w makes it usable", folder,
                                           info.st_mode & 07777));
  }
  return std::unique_ptr<CodeCache>(new CodeCache(std::move(opened), limit));
}

std::optional<std::string> CodeCache::find(std::string_view key) const {
  const Descriptor file(::openat(folder_.get(), file_of(key).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) return std::nullopt;
  if (!S_ISREG(info.st_mode) || !only_ours(info) || info.st_size > limit_) return std::nullopt;
  const auto content = read_all(file.get(), static_cast<size_t>(info.st_size));
  if (!content) return std::nullopt;
  auto code = code_in(*content, key);
  if (code) ::futimens(file.get(), nullptr);  // used now
  return code;
}

void CodeCache::keep(std::string_view key, std::string_view code) {
  const std::string content = content_of(key, code), name = file_of(key);
  const auto bytes = static_cast<int64_t>(content.size());
  if (bytes > limit_ / 4) return;  // it would drive out too much
  make_room(bytes);
  static std::atomic<int> count = 0;
  const std::string written = fmt::format("{}.{}.{}", name, ::getpid(), count++);
  Descriptor file(::openat(folder_.get(), written.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0) return;
  // Not waited for until it is on disk: what a crash makes of it does not verify.
  const bool whole = write_all(file.get(), content) == 0 && ::close(file.release()) == 0;
  if (!whole || ::renameat(folder_.get(), written.c_str(), folder_.get(), name.c_str()) != 0)
    ::unlinkat(folder_.get(), written.c_str(), 0);
}

void CodeCache::make_room(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (used_ && *used_ + bytes <= limit_) {
    *used_ += bytes;
    return;
  }
  std::vector<Entry> entries = entries_of(folder_.get());
  int64_t used = 0;
  for (const Entry& entry : entries) used += entry.bytes;
  if (used + bytes > limit_) {
    // A quarter more than is needed, so that not every new file looks at all others.
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return std::tie(a.used, a.name) < std::tie(b.used, b.name); });
    for (const Entry& entry : entries) {
      if (used + bytes <= limit_ / 4 * 3) break;
      if (::unlinkat(folder_.get(), entry.name.c_str(), 0) == 0) used -= entry.bytes;
    }
  }
  used_ = used + bytes;
}

std::unique_ptr<CodeCache> open_user_cache() {
  const CodeCacheFolder folder = code_cache_folder();
  if (folder.path.empty()) return nullptr;
  auto cache = CodeCache::open(folder.path);
  if (cache.ok()) return std::move(*cache);
  if (folder.named || cache.error().kind != ErrorKind::io)
    fmt::print(stderr, "generated kernels are compiled anew by every process: {}\n", cache.error().message);
  return nullptr;
}

}  // namespace nlsplit::inline kernels

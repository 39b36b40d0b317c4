// Files for readers that take a path: in a folder of this process, in memory where scripts/fuzz says so (TMPDIR).
#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "fuzz/expect.h"

namespace nlsplit::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// FNV-1a: what a case does beside its text depends on its text alone.
inline uint64_t seed_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Several files in one input: each stands behind a line "== NAME", a name of `names`. What stands before the first such
// line belongs to no file.
inline std::map<std::string, std::string, std::less<>> files_in(std::string_view all,
                                                                std::span<const std::string_view> names) {
  std::map<std::string, std::string, std::less<>> files;
  std::string* into = nullptr;
  while (!all.empty()) {
    const size_t end = std::min(all.find('\n'), all.size() - 1) + 1;
    const std::string_view line = all.substr(0, end);
    all.remove_prefix(end);
    bool begins = false;
    for (const std::string_view name : names) {
      if (line != "== " + std::string(name) + "\n") continue;
      into = &files[std::string(name)];
      begins = true;
    }
    if (!begins && into != nullptr) *into += line;
  }
  return files;
}

class Folder {
 public:
  explicit Folder(const std::string& target)
      : root_(std::filesystem::temp_directory_path() / ("fuzz_" + target + "_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(root_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path(const std::string& name) const { return (root_ / name).string(); }
  std::string write(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary | std::ios::trunc)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
    return path(name);
  }
  void remove(const std::string& name) const { std::filesystem::remove(root_ / name); }

 private:
  std::filesystem::path root_;
};

}  // namespace nlsplit::fuzz

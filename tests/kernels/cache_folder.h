// A folder for a cache of code, which goes with its test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace nlsplit::testing {

class CacheFolder {
 public:
  CacheFolder() : path_((std::filesystem::path(::testing::TempDir()) / "nlsplit_code_XXXXXX").string()) {
    CHECK(::mkdtemp(path_.data()) != nullptr, path_);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;
  ~CacheFolder() {
    std::error_code failure;
    std::filesystem::remove_all(path_, failure);
  }

  const std::string& path() const { return path_; }
  std::vector<std::string> files() const {
    std::vector<std::string> all;
    for (const auto& one : std::filesystem::directory_iterator(path_)) all.push_back(one.path().string());
    return all;
  }
  std::string only_file() const {
    const std::vector<std::string> all = files();
    EXPECT_EQ(all.size(), 1);
    return all.at(0);
  }
  // In place, as a fault of the disk would.
  void overwrite(const std::string& file, std::string_view content) const {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
  }
  // By a second, all of them: file systems' clocks are coarse.
  void make_older() const {
    for (const std::string& file : files()) {
      struct stat info {};
      EXPECT_EQ(::stat(file.c_str(), &info), 0);
      const timespec times[] = {info.st_atim, {info.st_mtim.tv_sec - 1, info.st_mtim.tv_nsec}};
      EXPECT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
    }
  }

 private:
  std::string path_;
};

}  // namespace nlsplit::testing

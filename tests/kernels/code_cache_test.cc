// What is kept is found whole or not at all, whatever became of its file or its folder.
#include "kernels/generated/code_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "kernels/cache_folder.h"

namespace nlsplit::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string failure_of(const std::string& folder) {
  const auto cache = CodeCache::open(folder);
  return cache.ok() ? "" : cache.error().message;
}

mode_t mode_of(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

TEST(CodeCache, FindsWhatWasKeptUnderTheSameKey) {
  const CacheFolder folder;
  const auto cache = CodeCache::open(folder.path()).value();
  EXPECT_EQ(cache->find("a key"), std::nullopt);
  cache->keep("a key", "code");
  cache->keep("another", std::string("\0x", 2));
  EXPECT_EQ(cache->find("a key"), "code");
  EXPECT_EQ(cache->find("a ke"), std::nullopt);
  cache->keep("a key", "newer");
  EXPECT_EQ(CodeCache::open(folder.path()).value()->find("a key"), "newer");
  EXPECT_EQ(CodeCache::open(folder.path()).value()->find("another"), std::string("\0x", 2));
  EXPECT_EQ(folder.files().size(), 2);
  for (const std::string& file : folder.files()) EXPECT_EQ(mode_of(file) & 077, 0) << file;
}

TEST(CodeCache, DamagedFilesAreReplaced) {
  const CacheFolder folder;
  const auto cache = CodeCache::open(folder.path()).value();
  cache->keep("key", "code");
  const std::string file = folder.only_file();
  const std::string whole = read_file(file).value();
  std::vector<std::string> damaged = {"", whole + '\0', whole + whole};
  for (size_t i = 0; i < whole.size(); ++i) {
    damaged.push_back(whole.substr(0, i));
    damaged.push_back(whole);
    damaged.back()[i] ^= 0x10;
  }
  for (const std::string& content : damaged) {
    folder.overwrite(file, content);
    ASSERT_EQ(cache->find("key"), std::nullopt) << content.size() << " bytes";
  }
  cache->keep("key", "code");
  EXPECT_EQ(cache->find("key"), "code");
}

TEST(CodeCache, AnotherKeysFileIsNotTaken) {
  const CacheFolder folder;
  const auto cache = CodeCache::open(folder.path()).value();
  cache->keep("one", "code of one");
  const std::string one = folder.only_file(), content = read_file(one).value();
  cache->keep("two", "code of two");
  for (const std::string& file : folder.files()) folder.overwrite(file, content);
  EXPECT_EQ(cache->find("one"), "code of one");
  EXPECT_EQ(cache->find("two"), std::nullopt);
}

TEST(CodeCache, TakesOnlyPlainFilesThatNobodyElseCanWrite) {
  const CacheFolder folder;
  const auto cache = CodeCache::open(folder.path()).value();
  cache->keep("key", "code");
  const std::string file = folder.only_file(), aside = folder.path() + "/aside";
  ASSERT_EQ(::chmod(file.c_str(), 0620), 0);
  EXPECT_EQ(cache->find("key"), std::nullopt);
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  EXPECT_EQ(cache->find("key"), "code");
  fs::rename(file, aside);
  fs::create_symlink(aside, file);
  EXPECT_EQ(cache->find("key"), std::nullopt);
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);  // reading it would wait for ever
  EXPECT_EQ(cache->find("key"), std::nullopt);
  cache->keep("key", "code");
  EXPECT_EQ(cache->find("key"), "code");
}

TEST(CodeCache, MakesAFolderForItsOwnerAlone) {
  const CacheFolder folder;
  const std::string made = folder.path() + "/new/nlsplit/code";
  ASSERT_EQ(failure_of(made), "");
  for (const char* one : {"/new", "/new/nlsplit", "/new/nlsplit/code"}) EXPECT_EQ(mode_of(folder.path() + one), 0700);
}

TEST(CodeCache, RefusesAFolderThatOthersMayWrite) {
  const CacheFolder folder;
  for (const mode_t mode : {0720U, 0702U, 0777U, 01777U}) {
    ASSERT_EQ(::chmod(folder.path().c_str(), mode), 0);
    EXPECT_THAT(failure_of(folder.path()),
                HasSubstr(fmt::format("others may write to '{}' (mode {:04o})", folder.path(), mode)));
  }
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  EXPECT_EQ(failure_of(folder.path()), "");
}

TEST(CodeCache, RefusesAFolderOfAnotherUser) {
  const CacheFolder folder;
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::chown(folder.path().c_str(), 1, static_cast<gid_t>(-1)), 0);
  }
  const std::string of_another = root ? folder.path() : "/usr";
  EXPECT_EQ(failure_of(of_another),
            fmt::format("'{}' belongs to user {}, not to {}", of_another, root ? 1 : 0, ::geteuid()));
}

TEST(CodeCache, SaysWhyAFolderCannotBeMade) {
  const CacheFolder folder;
  folder.overwrite(folder.path() + "/file", "");
  const auto cache = CodeCache::open(folder.path() + "/file/code");
  ASSERT_FALSE(cache.ok());
  EXPECT_EQ(cache.error().kind, ErrorKind::io);
  EXPECT_THAT(cache.error().message, HasSubstr("Not a directory"));
}

TEST(CodeCache, AFolderThatIsGoneOrADiskThatIsFullKeepsNothing) {
  const CacheFolder folder;
  const auto cache = CodeCache::open(folder.path()).value();
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{}, limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  limit = before;
  limit.rlim_cur = 60;  // of a file of 48 bytes, key and code
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  cache->keep("key", std::string(100, 'x'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(cache->find("key"), std::nullopt);
  EXPECT_EQ(folder.files().size(), 0) << "nothing half written stays";
  fs::remove(folder.path());
  cache->keep("key", "code");
  EXPECT_EQ(cache->find("key"), std::nullopt);
}

TEST(CodeCache, WhatWasUsedLastStaysWithinTheLimit) {
  const CacheFolder folder;
  constexpr int64_t limit = 4096;
  const std::string code(200, 'c'), notes = folder.path() + "/notes.nlcode", left = "a killed process's";
  {
    const auto earlier = CodeCache::open(folder.path(), limit).value();
    earlier->keep("killed", code);
  }
  fs::rename(folder.only_file(), folder.only_file() + ".1234.0");
  folder.make_older();
  folder.overwrite(notes, std::string(2 * limit, 'n'));
  const auto cache = CodeCache::open(folder.path(), limit).value();
  cache->keep("used", code);
  for (int i = 0; i < 60; ++i) {
    folder.make_older();
    ASSERT_EQ(cache->find("used"), code) << i;
    cache->keep(fmt::format("{}", i), code);
  }
  EXPECT_EQ(cache->find("59"), code);
  EXPECT_EQ(cache->find("0"), std::nullopt);
  int64_t used = 0;
  for (const std::string& file : folder.files()) {
    EXPECT_THAT(file, ::testing::Not(HasSubstr(".1234.0")));
    if (file != notes) used += static_cast<int64_t>(fs::file_size(file));
  }
  EXPECT_LE(used, limit);
  EXPECT_GT(used, limit / 2);
  EXPECT_TRUE(fs::exists(notes)) << "not the cache's";
  cache->keep("large", std::string(limit / 2, 'l'));
  EXPECT_EQ(cache->find("large"), std::nullopt) << "would drive out half of the others";
}

TEST(CodeCache, ProcessesThatWriteAtOnceSeeWholeCodeOnly) {
  const CacheFolder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto cache = CodeCache::open(folder.path(), 16384).value();
      bool whole = true;
      for (int round = 0; round < 300; ++round) {
        const std::string key = fmt::format("{}", round % 7), code(static_cast<size_t>(500 + round % 7), 'c');
        cache->keep(key, code);
        const auto found = cache->find(key);
        whole = whole && (!found || *found == code);
      }
      ::_exit(whole ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(folder.files().size(), 7);
}

class Variables : public ::testing::Test {
 protected:
  void TearDown() override {
    set("NLSPLIT_CODE_CACHE", "off");
    set("XDG_CACHE_HOME", caches_);
    set("HOME", home_);
  }
  static void set(const char* name, const std::optional<std::string>& value) {
    value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
  }

 private:
  static std::optional<std::string> get(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  std::optional<std::string> caches_ = get("XDG_CACHE_HOME"), home_ = get("HOME");
};

TEST_F(Variables, SayWhereCodeIsKept) {
  EXPECT_EQ(code_cache_folder().path, "") << "tests keep none";
  set("NLSPLIT_CODE_CACHE", "here/code");
  EXPECT_EQ(code_cache_folder().path, "here/code");
  EXPECT_TRUE(code_cache_folder().named);
  set("NLSPLIT_CODE_CACHE", "");
  set("XDG_CACHE_HOME", "/caches");
  set("HOME", "/home/u");
  EXPECT_EQ(code_cache_folder().path, "/caches/nlsplit/code");
  EXPECT_FALSE(code_cache_folder().named);
  set("NLSPLIT_CODE_CACHE", std::nullopt);
  set("XDG_CACHE_HOME", "caches");
  EXPECT_EQ(code_cache_folder().path, "/home/u/.cache/nlsplit/code");
  set("XDG_CACHE_HOME", std::nullopt);
  set("HOME", std::nullopt);
  EXPECT_EQ(code_cache_folder().path, "");
}

}  // namespace
}  // namespace nlsplit::testing

#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/folder_writer.h"
#include "base/output_lock.h"

namespace nlsplit {
namespace {

namespace fs = std::filesystem;

class File : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "file_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  size_t file_count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }

  std::string directory_;
};

TEST_F(File, GivesBackWhatWasWritten) {
  std::string all_bytes;
  for (int i = 0; i < 100000; ++i) all_bytes += static_cast<char>(i % 256);
  for (const std::string& content : {std::string(), std::string("a"), all_bytes}) {
    ASSERT_TRUE(write_file(path("x"), content));
    const Result<std::string> read = read_file(path("x"));
    ASSERT_TRUE(read);
    EXPECT_EQ(*read, content);
  }
  EXPECT_EQ(file_count(), 1u) << "a temporary file was left";
}

TEST_F(File, ReadErrorsNameThePath) {
  const Result<std::string> missing = read_file(path("none"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::io);
  EXPECT_EQ(missing.error().to_string(), "cannot read '" + path("none") + "': No such file or directory");
  const Result<std::string> directory = read_file(directory_);
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().to_string(), "cannot read '" + directory_ + "': Is a directory");
}

TEST_F(File, ReadsWhatDoesNotSayItsSize) {
  const Result<std::string> status = read_file("/proc/self/status");  // its size is 0 to stat
  ASSERT_TRUE(status);
  EXPECT_TRUE(status->starts_with("Name:"));
}

TEST_F(File, ReadsAPipeToItsEnd) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const std::string content(100'000, 'p');  // more than the first guess
  std::thread writer([&] {
    const int fd = ::open(path("pipe").c_str(), O_WRONLY | O_CLOEXEC);
    for (size_t at = 0; at < content.size();) {
      const ssize_t n = ::write(fd, content.data() + at, content.size() - at);
      if (n <= 0) break;
      at += static_cast<size_t>(n);
    }
    ::close(fd);
  });
  const Result<std::string> read = read_file(path("pipe"));
  writer.join();
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, content);
}

TEST_F(File, WhatCannotBeReadIsSaidSo) {
  const Result<std::string> memory = read_file("/proc/self/mem");  // nothing is mapped at address 0
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().to_string(), "cannot read '/proc/self/mem': Input/output error");
  ASSERT_TRUE(write_file(path("huge"), "").ok());
  fs::resize_file(path("huge"), (uintmax_t{1} << 32) + 1);  // without blocks of its own
  const Result<std::string> huge = read_file(path("huge"));
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().to_string(), "cannot read '" + path("huge") + "': File too large");
}

TEST_F(File, WriteErrorsNameThePathAndLeaveNothing) {
  const Status missing = write_file(path("none/x"), "a");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::io);
  EXPECT_EQ(missing.error().to_string(), "cannot write '" + path("none/x") + "': No such file or directory");
  const Status directory = write_file(directory_, "a");
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().to_string(), "cannot write '" + directory_ + "': Is a directory");
  EXPECT_EQ(file_count(), 0u);
}

TEST_F(File, AFolderThatAppearsMeanwhileStays) {
  {
    auto file = FileWriter::open(path("x"));
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write("new").ok());
    fs::create_directory(path("x"));
    const Status status = file->commit();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().to_string(), "cannot write '" + path("x") + "': Is a directory");
  }
  EXPECT_TRUE(fs::is_directory(path("x")));
  EXPECT_EQ(file_count(), 1u) << "a temporary file was left";
}

// What a killed writer left goes; what somebody holds, or has another name, stays.
TEST_F(File, OnlyOwnerlessFilesAreRemoved) {
  for (const char* name : {"x.tmp.7.0", "x.tmp.8.0", "x.tmp.notes"}) ASSERT_TRUE(write_file(path(name), "a").ok());
  fs::create_symlink(path("x.tmp.notes"), path("x.tmp.9.0"));
  const int held = ::open(path("x.tmp.8.0").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  ASSERT_TRUE(write_file(path("x"), "b").ok());
  ::close(held);
  EXPECT_FALSE(fs::exists(path("x.tmp.7.0")));
  for (const char* name : {"x", "x.tmp.8.0", "x.tmp.notes"}) EXPECT_TRUE(fs::exists(path(name))) << name;
  EXPECT_TRUE(fs::is_symlink(path("x.tmp.9.0")));
}

TEST_F(File, DoesNotReplaceAPipeByAFile) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const Status status = write_file(path("pipe"), "a");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().to_string(), "cannot write '" + path("pipe") + "': it is not a regular file");
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
}

TEST_F(File, ThreadsMayWriteOneFileAtOnce) {
  std::vector<std::thread> writers;
  std::atomic<int> failures = 0;
  for (char c = 'a'; c < 'i'; ++c) {
    writers.emplace_back([&, c] {
      for (int i = 0; i < 100; ++i) failures += write_file(path("x"), std::string(1000, c)).ok() ? 0 : 1;
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(*read_file(path("x")), std::string(1000, (*read_file(path("x")))[0]));
  EXPECT_EQ(file_count(), 1u);
}

// Runs body() in a child and answers its exit code, or -1 if it was killed after so many microseconds.
template <class Body>
int in_child(const Body& body, int kill_after_us = 0) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  if (kill_after_us > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(kill_after_us));
    ::kill(child, SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A limit on the size of files stands for a disk that is full.
void fill_the_disk(rlim_t left) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{left, left};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

TEST_F(File, AFullDiskLeavesTheOldFile) {
  ASSERT_TRUE(write_file(path("x"), "old").ok());
  EXPECT_EQ(
      in_child([&] {
        fill_the_disk(1000);
        const Status status = write_file(path("x"), std::string(5000, 'n'));
        return !status.ok() && status.error().to_string() == "cannot write '" + path("x") + "': File too large" ? 0 : 1;
      }),
      0);
  EXPECT_EQ(*read_file(path("x")), "old");
  EXPECT_EQ(file_count(), 1u);
}

TEST_F(File, AKilledWriterLeavesOneOfTheTwo) {
  const std::string old_text(300'000, 'o'), new_text(500'000, 'n');
  ASSERT_TRUE(write_file(path("x"), old_text).ok());
  for (int run = 0; run < 40; ++run) {
    in_child(
        [&] {
          for (;;) {
            if (!write_file(path("x"), new_text).ok() || !write_file(path("x"), old_text).ok()) return 1;
          }
        },
        200 + 137 * run);
    const auto text = read_file(path("x"));
    ASSERT_TRUE(text.ok() && (*text == old_text || *text == new_text));
  }
  ASSERT_TRUE(write_file(path("x"), "last").ok());
  EXPECT_EQ(file_count(), 1u) << "what killed writers left is removed";
}

TEST_F(File, TheSecondWriterIsToldOfTheFirst) {
  auto lock = OutputLock::beside(path("x"));
  ASSERT_TRUE(lock.ok());
  const auto second = OutputLock::beside(path("x"));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().kind, ErrorKind::invalid_input);
  EXPECT_TRUE(second.error().message.starts_with("another run is writing to '" + path("x") + "' (process " +
                                                 std::to_string(::getpid()) + " on "))
      << second.error().message;
  { const OutputLock over = std::move(*lock); }
  EXPECT_TRUE(OutputLock::beside(path("x")).ok());
  EXPECT_EQ(file_count(), 0u) << "locks are removed";
}

TEST_F(File, ALockEndsWithItsProcess) {
  EXPECT_EQ(in_child([&] {
              auto lock = OutputLock::of_folder(directory_);
              ::_exit(lock.ok() ? 7 : 1);  // without its destructor, as if killed
              return 0;
            }),
            7);
  EXPECT_EQ(file_count(), 1u);
  EXPECT_TRUE(OutputLock::of_folder(directory_).ok());
  EXPECT_EQ(file_count(), 0u);
}

class Folder : public File, public ::testing::WithParamInterface<bool> {
 protected:
  Status replace(const std::string& content) {
    ASSIGN_OR_RETURN(FolderWriter folder, FolderWriter::open(path("out"), GetParam()));
    RETURN_IF_ERROR(write_file(folder.path() + "/a", content));
    RETURN_IF_ERROR(write_file(folder.path() + "/b", content));
    return folder.commit();
  }
};

TEST_P(Folder, IsReplacedAsAWhole) {
  for (const char* content : {"1", "2", "3"}) {
    ASSERT_TRUE(replace(content).ok());
    EXPECT_EQ(*read_file(path("out/a")), content);
    EXPECT_EQ(*read_file(path("out/b")), content);
    EXPECT_EQ(file_count(), 1u) << "the old one is gone, and the lock";
  }
  {
    auto folder = FolderWriter::open(path("out"), GetParam());
    ASSERT_TRUE(folder.ok() && write_file(folder->path() + "/a", "4").ok());
    EXPECT_FALSE(FolderWriter::open(path("out"), GetParam()).ok()) << "another one is at it";
  }
  EXPECT_EQ(*read_file(path("out/a")), "3") << "without a commit";
  EXPECT_EQ(file_count(), 1u);
}

TEST_P(Folder, SurvivesAKillAtAnyMoment) {
  ASSERT_TRUE(replace("old").ok());
  for (int run = 0; run < 40; ++run) {
    in_child(
        [&] {
          for (;;) {
            if (!replace("new").ok() || !replace("old").ok()) return 1;
          }
        },
        200 + 331 * run);
    if (!GetParam()) {  // between two renames the old one has another name, until the next writer comes
      ASSERT_TRUE(FolderWriter::open(path("out"), false).ok());
    }
    const auto a = read_file(path("out/a")), b = read_file(path("out/b"));
    ASSERT_TRUE(a.ok() && b.ok() && *a == *b && (*a == "old" || *a == "new")) << run;
  }
  ASSERT_TRUE(replace("last").ok());
  EXPECT_EQ(file_count(), 1u) << "what killed runs left is removed";
}

INSTANTIATE_TEST_SUITE_P(Exchange, Folder, ::testing::Bool());

}  // namespace
}  // namespace nlsplit

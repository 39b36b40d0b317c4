#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

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

TEST_F(File, DoesNotReplaceAPipeByAFile) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const Status status = write_file(path("pipe"), "a");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().to_string(), "cannot write '" + path("pipe") + "': it is not a regular file");
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
}

}  // namespace
}  // namespace nlsplit

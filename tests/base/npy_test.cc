#include "base/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/file.h"
#include "testing/read_npy.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

class Npy : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "npy_test.XXXXXX";
    const int fd = ::mkstemp(path_.data());
    ASSERT_GE(fd, 0);
    ::close(fd);
  }
  void TearDown() override { std::remove(path_.c_str()); }

  // A format 1.0 file with this header and so many bytes of zeros.
  Result<NpyArray> read(const std::string& header, size_t bytes, char major = 1) {
    std::string content = "\x93NUMPY";
    content += major;
    content += '\0';
    content += static_cast<char>(header.size() & 0xff);
    content += static_cast<char>(header.size() >> 8);
    if (major == 2) content.append(2, '\0');
    return read_bytes(content + header + std::string(bytes, '\0'));
  }

  Result<NpyArray> read_bytes(const std::string& content) {
    EXPECT_TRUE(write_file(path_, content));
    return read_npy(path_);
  }

  // The message without the path, which differs from run to run.
  std::string message(const Result<NpyArray>& result) const {
    if (result.ok()) return "no error";
    const std::string prefix = "'" + path_ + "' ";
    const std::string text = result.error().to_string();
    EXPECT_TRUE(text.starts_with(prefix)) << text;
    return text.substr(prefix.size());
  }

  std::string path_;
};

TEST_F(Npy, GivesBackWhatWasWritten) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{}, {6}, {2, 3}, {1, 2, 1, 3}, {3, 0}}) {
    NpyArray array{shape, {}};
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    for (int64_t i = 0; i < count; ++i) array.values.push_back(0.1f * static_cast<float>(i) - 0.2f);
    ASSERT_TRUE(write_npy(path_, array));
    const Result<NpyArray> read = read_npy(path_);
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_EQ(read->shape, shape);
    EXPECT_EQ(read->values, array.values);
  }
}

// numpy.save(path, numpy.float32([1])), byte for byte.
TEST_F(Npy, WritesWhatNumPyWrites) {
  ASSERT_TRUE(write_npy(path_, {{1}, {1.0f}}));
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
  header.resize(117, ' ');
  const std::string expected =
      std::string("\x93NUMPY\x01\0\x76\0", 10) + header + '\n' + std::string("\0\0\x80\x3f", 4);
  EXPECT_EQ(value_of(read_file(path_)), expected);
}

TEST_F(Npy, ReadsFormatTwoAndAnyKeyOrder) {
  const Result<NpyArray> read_2 = read("{\"shape\":(2,2),'fortran_order':False,'descr':'<f4'}\n", 16, 2);
  ASSERT_TRUE(read_2) << read_2.error().to_string();
  EXPECT_EQ(read_2->shape, (std::vector<int64_t>{2, 2}));
}

TEST_F(Npy, RefusesWhatItDoesNotSupport) {
  EXPECT_EQ(message(read("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n", 8)),
            "holds values of type '<f8'; we read '<f4' (float32)");
  EXPECT_EQ(message(read("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", 4)),
            "holds values of type '[('a', '<f4')]'; we read little-endian numbers and truth values");
  EXPECT_EQ(message(read("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }\n", 16)),
            "is in Fortran order; save it with numpy.ascontiguousarray");
  EXPECT_EQ(message(read("{}", 0, 3)), "has .npy format 3.0; we read 1.0 and 2.0");
  EXPECT_EQ(read("{}", 0, 3).error().kind, ErrorKind::unsupported);
}

TEST_F(Npy, RefusesASizeThatDoesNotFitTheFile) {
  const auto with_shape = [&](const std::string& shape, size_t bytes) {
    return message(read("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n", bytes));
  };
  EXPECT_EQ(with_shape("(2, 3)", 20),
            "says its shape is (2, 3), which needs 24 bytes of values, but 20 follow its header");
  EXPECT_EQ(with_shape("(5,)", 24), "says its shape is (5,), which needs 20 bytes of values, but 24 follow its header");
  // 2^62 * 4 bytes is 0 in 64 bits.
  EXPECT_EQ(with_shape("(4611686018427387904,)", 0),
            "says its shape is (4611686018427387904,), which needs more than 2^64 bytes of values, but 0 follow its "
            "header");
  EXPECT_EQ(with_shape("(9223372036854775807, 9223372036854775807)", 4).substr(0, 20), "says its shape is (9");
}

TEST_F(Npy, ShowsAHeaderThatItDoesNotUnderstand) {
  for (const std::string header :
       {"", "{", "{}", "{'descr'}", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': No, 'shape': ()}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': ()}", "{'descr': '<f4, 'other': 1}"}) {
    const Result<NpyArray> result = read(header, 4);
    const std::string expected = "has an .npy header that we do not understand";
    EXPECT_EQ(message(result), header.empty() ? expected : expected + "\n  | " + header);
  }
}

// Whatever is cut off, there is an error and no read past the end (run under the sanitizers to be sure).
TEST_F(Npy, RefusesEveryTruncation) {
  ASSERT_TRUE(write_npy(path_, {{2}, {1, 2}}));
  const std::string whole = value_of(read_file(path_));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(read_bytes(whole.substr(0, size))) << size;
  }
  EXPECT_EQ(message(read_bytes(whole.substr(0, 5))), "is not an .npy file");
  EXPECT_EQ(message(read_bytes(whole.substr(0, 50))), "ends within its .npy header");
}

TEST_F(Npy, AMissingFileIsAnIoError) {
  const Result<NpyArray> result = read_npy(path_ + ".none");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::io);
}

}  // namespace
}  // namespace nlsplit

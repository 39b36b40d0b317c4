// Files made to do harm by their bytes: paths that lead elsewhere, places that are not there, cut and changed bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "graph/reference/evaluate.h"
#include "onnx_file.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

// A folder with a model of one tensor elsewhere, and a file beside the folder that is none of its business.
class HostileExternalData : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(::testing::TempDir()) / ("hostile_" + std::to_string(getpid()));
    folder_ = root_ / "model";
    std::filesystem::create_directories(folder_);
    for (const auto& file : {root_ / "secret.bin", folder_ / "w.bin"})
      std::ofstream(file, std::ios::binary) << std::string(16, 'A');
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  using Entries = std::vector<std::pair<std::string, std::string>>;
  std::string error_with(const Entries& entries) {
    OnnxFile file(13);
    file.input("x", {4});
    onnx::TensorProto& tensor = file.floats("w", {4}, {});
    tensor.clear_raw_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : entries) {
      auto& entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
    file.node("Add", {"x", "w"}, "y");
    file.output("y");
    const std::filesystem::path path = folder_ / "model.onnx";
    std::ofstream(path, std::ios::binary) << file.bytes();
    return error_of(import_onnx(path.string()));
  }

  std::filesystem::path root_, folder_;
};

TEST_F(HostileExternalData, PathsThatLeaveTheFolder) {
  EXPECT_EQ(error_with({{"location", "w.bin"}}), "accepted");
  EXPECT_EQ(error_with({{"location", "./w.bin"}, {"offset", "0"}, {"length", "16"}}), "accepted");
  std::filesystem::create_symlink(root_ / "secret.bin", folder_ / "link.bin");
  std::filesystem::create_directory_symlink(root_, folder_ / "up");
  const std::string absolute = (folder_ / "w.bin").string();
  for (const std::string& location :
       {std::string("../secret.bin"), std::string("a/../../secret.bin"), absolute, std::string("/etc/passwd"),
        std::string("link.bin"), std::string("up/secret.bin"), std::string("../model/../secret.bin")}) {
    EXPECT_THAT(error_with({{"location", location}}), HasSubstr("outside of the model's folder")) << location;
  }
  EXPECT_THAT(error_with({{"location", std::string("w.bin\0/../../secret.bin", 23)}}), HasSubstr("a zero byte"));
  EXPECT_THAT(error_with({}), HasSubstr("external data without a location"));
  EXPECT_THAT(error_with({{"location", "."}}), HasSubstr("tensor w"));
  EXPECT_THAT(error_with({{"location", "nowhere.bin"}}), HasSubstr("nowhere.bin"));
}

TEST_F(HostileExternalData, PlacesThatAreNotThere) {
  const auto at = [&](const std::string& offset, const std::string& length) {
    return error_with({{"location", "w.bin"}, {"offset", offset}, {"length", length}});
  };
  EXPECT_THAT(at("1", "16"), HasSubstr("ends before its 16 B at 1"));
  EXPECT_THAT(at("18446744073709551615", "16"), HasSubstr("ends before its 16 B at 18446744073709551615"));
  EXPECT_THAT(at("18446744073709551616", "16"), HasSubstr("an offset of \"18446744073709551616\""));
  EXPECT_THAT(at("-1", "16"), HasSubstr("an offset of \"-1\""));
  EXPECT_THAT(at("0", "17"), HasSubstr("17 B of external data, but needs 16 B"));
  EXPECT_THAT(at("0", "0x10"), HasSubstr("a length of \"0x10\""));
  EXPECT_THAT(at("0", ""), HasSubstr("a length of \"\""));
}

// Something of everything whose extents or counts stand in bytes: initializers, integers that become shapes, lists.
std::string network_with_counts() {
  OnnxFile file(13);
  file.input("x", {1, 2, 4, 4});
  file.floats("w", {3, 2, 3, 3}, std::vector<float>(54, 0.5f));
  file.floats("one", {1}, {1});
  file.integers("wide", {1, 3, 4, 4});
  file.integers("to", {1, -1});
  file.integers("parts", {20, 28});
  onnx::NodeProto& conv = file.node("Conv", {"x", "w"}, "a", "conv");
  set(conv, "kernel_shape", Ints{3, 3});
  set(conv, "pads", Ints{1, 1, 1, 1});
  file.node("Expand", {"one", "wide"}, "b", "expand");
  file.node("Add", {"a", "b"}, "c", "add");
  file.node("Shape", {"c"}, "shape", "shape");
  file.node("ConstantOfShape", {"shape"}, "zeros", "fill");
  file.node("Max", {"c", "zeros"}, "d", "max");
  file.node("Reshape", {"d", "to"}, "e", "reshape");
  onnx::NodeProto& split = file.node("Split", {"e", "parts"}, "y", "split");
  set(split, "axis", int64_t{1});
  split.add_output("z");
  file.output("y");
  return file.bytes();
}

// An error, or a model that is sound.
void expect_handled(const std::string& bytes, const std::string& what) {
  const std::string path = OnnxFile::write(bytes);
  ImportOptions options;
  options.effort = 1 << 16;
  const auto model = import_onnx(path, options);
  std::filesystem::remove(path);
  if (!model.ok()) {
    ASSERT_FALSE(model.error().message.empty()) << what;
    ASSERT_EQ(model.error().where.file, path) << what;
    return;
  }
  const Status sound = verify(model->graph);
  ASSERT_TRUE(sound.ok()) << what << ": " << sound.error().message;
}

TEST(HostileImport, EveryPrefixIsRefused) {
  const std::string good = network_with_counts();
  for (size_t length = 0; length < good.size(); ++length) {
    const std::string path = OnnxFile::write(good.substr(0, length));
    const auto model = import_onnx(path);
    std::filesystem::remove(path);
    ASSERT_FALSE(model.ok()) << "the first " << length << " of " << good.size() << " bytes";
    ASSERT_EQ(model.error().where.file, path);
  }
  expect_handled(good, "all bytes");
}

TEST(HostileImport, EveryFlippedBitIsHandled) {
  const std::string good = network_with_counts();
  for (size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(static_cast<unsigned char>(bad[at]) ^ (1u << bit));
      expect_handled(bad, "byte " + std::to_string(at) + ", bit " + std::to_string(bit));
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace nlsplit

// Bad files: a clear error that names the file and the part, and never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/random.h"
#include "onnx_file.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Ints = std::vector<int64_t>;

// conv → norm → relu → gemm with a folded constant: something of everything.
OnnxFile small_network() {
  OnnxFile file(11);
  file.input("x", {1, 2, 4, 4});
  file.floats("w", {3, 2, 3, 3}, std::vector<float>(54, 0.5f));
  for (const char* name : {"scale", "bias", "mean", "var"}) file.floats(name, {3}, {1, 2, 3});
  file.integers("to", {1, -1});
  file.floats("w2", {12, 2}, std::vector<float>(24, 1));
  file.floats("b2", {2}, {1, 2});
  onnx::NodeProto& conv = file.node("Conv", {"x", "w"}, "a", "conv");
  set(conv, "kernel_shape", Ints{3, 3});
  set(conv, "pads", Ints{1, 1, 1, 1});
  set(conv, "strides", Ints{2, 2});
  set(file.node("BatchNormalization", {"a", "scale", "bias", "mean", "var"}, "b", "norm"), "epsilon", 1e-3f);
  file.node("Relu", {"b"}, "c", "relu");
  file.node("Reshape", {"c", "to"}, "d", "reshape");
  set(file.node("Gemm", {"d", "w2", "b2"}, "y", "gemm"), "alpha", 1.0f);
  file.output("y");
  return file;
}

TEST(ImportErrors, Files) {
  EXPECT_EQ(error_of(small_network().import()), "accepted");
  EXPECT_THAT(error_of(import_onnx("/no/such/model.onnx")), HasSubstr("/no/such/model.onnx"));
  EXPECT_EQ(import_onnx("/no/such/model.onnx").error().kind, ErrorKind::io);
  EXPECT_THAT(error_of(import_onnx(::testing::TempDir())), HasSubstr(::testing::TempDir()));
  // The error of a file with this content; it begins with the file's name.
  const auto content_error = [](const std::string& bytes) {
    const std::string path = OnnxFile::write(bytes), error = error_of(import_onnx(path));
    std::filesystem::remove(path);
    EXPECT_THAT(error, StartsWith(path + ": "));
    return error;
  };
  EXPECT_THAT(content_error(""), HasSubstr("the file is empty"));
  EXPECT_THAT(content_error("model: resnet50\nbatch: 8\n"), HasSubstr("not an ONNX model"));
  std::string half = small_network().bytes();
  half.resize(half.size() / 2);
  EXPECT_THAT(content_error(half), HasSubstr("not an ONNX model, or a truncated one"));
}

TEST(ImportErrors, UnsupportedOperatorNamesNodeOperatorAndOpset) {
  OnnxFile file = small_network();
  file.graph().mutable_node(2)->set_op_type("Loop");
  EXPECT_THAT(error_of(file.import()), HasSubstr("node relu (Loop, opset 11): the operator is not supported"));
  EXPECT_EQ(file.import().error().kind, ErrorKind::unsupported);
  file.graph().mutable_node(2)->clear_name();
  EXPECT_THAT(error_of(file.import()), HasSubstr("node c (Loop, opset 11)"))
      << "without a name it is called like its output";
  file.graph().mutable_node(2)->set_domain("com.microsoft");
  EXPECT_THAT(error_of(file.import()), HasSubstr("operators of the domain com.microsoft"));
}

// Changes one thing of the network and gives the error.
std::string error_of_broken_file(const std::function<void(onnx::GraphProto&)>& change) {
  OnnxFile file = small_network();
  change(file.graph());
  return error_of(file.import());
}

TEST(ImportErrors, Tensors) {
  EXPECT_THAT(error_of_broken_file([](auto& g) { g.mutable_initializer(0)->set_dims(0, -3); }),
              HasSubstr("tensor w: f32[-3,2,3,3] has a negative extent"));
  EXPECT_THAT(error_of_broken_file([](auto& g) { g.mutable_initializer(0)->set_dims(0, int64_t{1} << 62); }),
              HasSubstr("too large"));
  EXPECT_THAT(error_of_broken_file([](auto& g) { g.mutable_initializer(0)->mutable_raw_data()->pop_back(); }),
              HasSubstr("f32[3,2,3,3] has 215 B of data, but needs 216 B"));
  EXPECT_THAT(
      error_of_broken_file([](auto& g) { g.mutable_initializer(0)->set_data_type(onnx::TensorProto::COMPLEX64); }),
      HasSubstr("tensor w: element type COMPLEX64"));
  EXPECT_THAT(error_of_broken_file([](auto& g) { g.mutable_initializer(0)->set_data_type(777); }),
              HasSubstr("element type 777"));
  EXPECT_THAT(error_of_broken_file([](auto& g) {
                g.mutable_initializer(0)->clear_raw_data();
                g.mutable_initializer(0)->set_data_location(onnx::TensorProto::EXTERNAL);
                auto& location = *g.mutable_initializer(0)->add_external_data();
                location.set_key("location");
                location.set_value("../../etc/passwd");
              }),
              HasSubstr("tensor w: its data is in '../../etc/passwd', outside of the model's folder"));
  EXPECT_THAT(error_of_broken_file([](auto& g) { g.mutable_initializer(0)->clear_raw_data(); }),
              HasSubstr("has 0 B of data"));
}

TEST(ImportErrors, Graphs) {
  EXPECT_THAT(error_of_broken_file([](auto& g) { g.mutable_node(0)->set_input(0, "c"); }),
              HasSubstr("the graph has a cycle through node conv"));
  EXPECT_THAT(error_of_broken_file([](auto& g) { g.mutable_node(2)->set_input(0, "nowhere"); }),
              HasSubstr("node relu (Relu) reads nowhere, which nothing makes"));
  EXPECT_THAT(error_of_broken_file([](auto& g) { g.mutable_node(2)->set_output(0, "a"); }),
              HasSubstr("value a is made twice"));
  EXPECT_THAT(error_of_broken_file([](auto& g) { g.mutable_output(0)->set_name("z"); }),
              HasSubstr("output z is made by no node"));
  EXPECT_THAT(error_of_broken_file([](auto& g) { g.clear_output(); }), HasSubstr("no outputs"));
  EXPECT_THAT(error_of_broken_file([](auto& g) { g.clear_input(); }), HasSubstr("the model has no inputs"));
  EXPECT_THAT(error_of_broken_file([](auto& g) { g.clear_node(); }), HasSubstr("a model without a graph"));
  EXPECT_THAT(error_of_broken_file([](auto& g) { g.mutable_node(2)->clear_input(); }),
              HasSubstr("node relu (Relu, opset 11)"));
  EXPECT_THAT(error_of_broken_file([](auto& g) { g.mutable_node(0)->mutable_input()->RemoveLast(); }),
              HasSubstr("node conv (Conv, opset 11): an input is missing"));
  EXPECT_THAT(
      error_of_broken_file([](auto& g) {
        g.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(2)->set_dim_value(-4);
      }),
      HasSubstr("input x has an extent of -4"));
  EXPECT_THAT(
      error_of_broken_file([](auto& g) {
        g.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(1)->set_dim_value(5);
      }),
      HasSubstr("node conv (Conv, opset 11): the input has 5 channels"));
}

TEST(ImportErrors, Attributes) {
  const auto conv = [](const Ints& kernel, const Ints& pads, const char* auto_pad) {
    return error_of_broken_file([&](auto& g) {
      onnx::NodeProto& node = *g.mutable_node(0);
      node.clear_attribute();
      set(node, "kernel_shape", kernel);
      set(node, "pads", pads);
      set(node, "dilations", Ints{int64_t{1} << 19, 1});
      set(node, "auto_pad", auto_pad);
    });
  };
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(conv({huge, huge}, {0, 0, 0, 0}, "SAME_UPPER"),
              HasSubstr("a kernel, stride or dilation of 9223372036854775807"));
  EXPECT_THAT(conv({3, 3}, {huge, huge, huge, huge}, "NOTSET"), HasSubstr("pads"));
  EXPECT_THAT(conv({3, 3}, {0}, "NOTSET"), HasSubstr("wrong length"));
  EXPECT_THAT(conv({3, 3}, {0, 0, 0, 0}, "NOTSET"), HasSubstr("exceeds the padded input"));
}

// Every prefix of a model is refused (protobuf has no end mark, so a cut between fields must be noticed by us).
TEST(ImportErrors, EveryTruncationIsRefused) {
  const std::string good = small_network().bytes();
  for (size_t length = 0; length < good.size(); ++length) {
    const std::string path = OnnxFile::write(good.substr(0, length));
    const auto model = import_onnx(path);
    std::filesystem::remove(path);
    ASSERT_FALSE(model.ok()) << "the first " << length << " of " << good.size() << " bytes";
  }
}

// Flipped bytes give an error or another sound model, never a crash. (asan and ubsan run this too.)
TEST(ImportErrors, FlippedBytesNeverCrash) {
  const std::string good = small_network().bytes();
  Random random(11);
  size_t refused = 0;
  constexpr int rounds = 2000;
  for (int round = 0; round < rounds; ++round) {
    std::string bad = good;
    const size_t flips = 1 + random.below(3);
    for (size_t i = 0; i < flips; ++i) bad[random.below(bad.size())] = static_cast<char>(random.below(256));
    const std::string path = OnnxFile::write(bad);
    const auto model = import_onnx(path);
    std::filesystem::remove(path);
    if (!model.ok()) {
      ++refused;
      ASSERT_FALSE(model.error().message.empty());
    } else {
      ASSERT_TRUE(verify(model->graph).ok());
    }
  }
  EXPECT_GT(refused, rounds / 10u);
}

}  // namespace
}  // namespace nlsplit

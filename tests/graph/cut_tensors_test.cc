// Cutting the weights out of a model's bytes: nothing is lost, nothing is copied, and no file makes it read beyond its
// end.
#include "graph/onnx/cut_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/random.h"
#include "onnx_file.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

constexpr size_t least = 64;

std::string noise(size_t size, uint64_t seed) {
  Random random(seed);
  std::string text;
  while (text.size() < size) text += static_cast<char>(random.below(256));
  return text;
}

// A raw tensor of that many bytes.
void fill(onnx::TensorProto& tensor, const std::string& name, size_t size, uint64_t seed) {
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::UINT8);
  tensor.add_dims(static_cast<int64_t>(size));
  tensor.set_raw_data(noise(size, seed));
}

// Tensors wherever a model can have them: initializers, an attribute, a branch of a branch.
onnx::ModelProto everywhere() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("everywhere");
  fill(*graph.add_initializer(), "large", 1000, 1);
  fill(*graph.add_initializer(), "small", least - 1, 2);
  fill(*graph.add_initializer(), "just", least, 3);
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type("If");
  node.set_doc_string(noise(500, 9));
  onnx::AttributeProto& value = *node.add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  fill(*value.mutable_t(), "attribute", 300, 4);
  onnx::AttributeProto& branch = *node.add_attribute();
  branch.set_name("then_branch");
  branch.set_type(onnx::AttributeProto::GRAPH);
  fill(*branch.mutable_g()->add_initializer(), "inner", 200, 5);
  onnx::AttributeProto& deeper = *branch.mutable_g()->add_node()->add_attribute();
  deeper.set_type(onnx::AttributeProto::TENSORS);
  fill(*deeper.add_tensors(), "one of several", 100, 6);
  return model;
}

// Puts the bytes back where they were.
void restore(onnx::TensorProto& tensor, const CutModel& cut, std::string_view file, size_t& restored) {
  if (tensor.external_data_size() == 0) return;
  ASSERT_EQ(tensor.external_data_size(), 1);
  ASSERT_EQ(tensor.external_data(0).key(), cut_key);
  const CutModel::Range range = cut.ranges.at(std::stoul(tensor.external_data(0).value()));
  tensor.set_raw_data(std::string(file.substr(range.offset, range.size)));
  tensor.clear_external_data();
  ++restored;
}
void restore(onnx::GraphProto& graph, const CutModel& cut, std::string_view file, size_t& restored) {
  for (auto& tensor : *graph.mutable_initializer()) restore(tensor, cut, file, restored);
  for (auto& node : *graph.mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_t()) restore(*attribute.mutable_t(), cut, file, restored);
      for (auto& tensor : *attribute.mutable_tensors()) restore(tensor, cut, file, restored);
      if (attribute.has_g()) restore(*attribute.mutable_g(), cut, file, restored);
    }
  }
}

TEST(CutTensors, WhatIsCutAndWhatIsLeftAreTheModel) {
  const onnx::ModelProto model = everywhere();
  const std::string file = model.SerializeAsString();
  const auto cut = cut_tensors(file, least);
  ASSERT_TRUE(cut.ok());
  std::vector<size_t> sizes;
  for (const CutModel::Range& range : cut->ranges) sizes.push_back(range.size);
  // In the order of the file: fields are written by their numbers, nodes first.
  EXPECT_THAT(sizes, ::testing::UnorderedElementsAre(1000, least, 300, 200, 100));
  EXPECT_LT(cut->rest.size(), file.size() - 1664 + 5 * 32);
  onnx::ModelProto rest;
  ASSERT_TRUE(rest.ParseFromString(cut->rest));
  EXPECT_EQ(rest.graph().initializer(1).raw_data(), noise(least - 1, 2)) << "too small to be cut";
  size_t restored = 0;
  restore(*rest.mutable_graph(), *cut, file, restored);
  EXPECT_EQ(restored, 5u);
  EXPECT_EQ(rest.SerializeAsString(), file);
}

TEST(CutTensors, WithoutTensorsNothingChanges) {
  onnx::ModelProto model = everywhere();
  model.mutable_graph()->clear_initializer();
  model.mutable_graph()->clear_node();
  const std::string file = model.SerializeAsString();
  const auto cut = cut_tensors(file, least);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->rest, file);
  EXPECT_TRUE(cut->ranges.empty());
  EXPECT_EQ(cut_tensors("", least)->rest, "");
}

// A field of another number or wire type is none of ours, whatever is in it.
TEST(CutTensors, OnlyTensorsAreLookedFor) {
  for (const std::string& file : {std::string("\x38\x05"),              // graph as a varint
                                  std::string("\x32\x03\x2a\xff\xff"),  // a length that lies, in a string
                                  std::string("\x3d\1\2\3\4"), std::string("\x39\1\2\3\4\5\6\7\x08")}) {
    const auto cut = cut_tensors(file, 0);
    if (file[0] == '\x32') {
      EXPECT_TRUE(!cut.ok() || cut->rest == file);
      continue;
    }
    ASSERT_TRUE(cut.ok());
    EXPECT_EQ(cut->rest, file);
  }
}

TEST(CutTensors, BrokenFramesAreErrors) {
  for (const std::string& file : {
           std::string("\x80"),                                      // a tag that does not end
           std::string("\x3a"),                                      // no length
           std::string("\x3a\x05\x2a"),                              // less than its length
           std::string("\x3a\x02\x2a\x05"),                          // an inner length beyond the outer end
           std::string("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),  // a length near 2^63
           std::string("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
           std::string("\x3b\x3c"),          // a group
           std::string("\x3f"),              // a wire type that there is not
           std::string("\x3d\1\2\3"),        // four bytes, of which there are three
           std::string("\x39\1\2\3\4\5\6"),  // eight, of which there are six
       }) {
    EXPECT_FALSE(cut_tensors(file, 0).ok()) << ::testing::PrintToString(file);
  }
}

// Each prefix is an error, or a whole number of fields: then it is what protobuf makes of it, too.
TEST(CutTensors, EveryTruncation) {
  const std::string file = everywhere().SerializeAsString();
  for (size_t size = 0; size < file.size(); ++size) {
    // A buffer of its own, so that reading beyond its end is seen by a sanitizer.
    const std::string part = file.substr(0, size);
    const auto cut = cut_tensors(part, least);
    onnx::ModelProto parsed;
    EXPECT_EQ(cut.ok(), parsed.ParseFromString(part)) << size;
    if (!cut.ok()) continue;
    for (const CutModel::Range& range : cut->ranges) {
      EXPECT_LE(range.offset, part.size());
      EXPECT_LE(range.size, part.size() - range.offset);
    }
  }
}

TEST(CutTensors, FlippedBitsStayInBounds) {
  const std::string file = everywhere().SerializeAsString();
  Random random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string changed = file;
    for (uint64_t flips = 1 + random.below(4); flips-- > 0;)
      changed[random.below(changed.size())] ^= static_cast<char>(1 << random.below(8));
    const auto cut = cut_tensors(changed, least);
    if (!cut.ok()) continue;
    for (const CutModel::Range& range : cut->ranges) {
      ASSERT_LE(range.offset, changed.size());
      ASSERT_LE(range.size, changed.size() - range.offset);
      ASSERT_GE(range.size, least);
    }
  }
}

// Messages within messages without end cost no stack.
TEST(CutTensors, DeepNestingEnds) {
  std::string inner;
  for (int i = 0; i < 20000; ++i) {
    // graph { node { attribute { g … } } }, each a field with a length.
    for (const char tag : {'\x32', '\x2a', '\x0a'}) {
      std::string size;
      for (size_t rest = inner.size(); size.empty() || rest > 0; rest >>= 7)
        size += static_cast<char>((rest & 0x7f) | (rest >= 0x80 ? 0x80 : 0));
      inner = tag + size + inner;
    }
    if (inner.size() > 100000) break;
  }
  std::string size;
  for (size_t rest = inner.size(); size.empty() || rest > 0; rest >>= 7)
    size += static_cast<char>((rest & 0x7f) | (rest >= 0x80 ? 0x80 : 0));
  const std::string file = "\x3a" + size + inner;
  const auto cut = cut_tensors(file, least);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->rest, file);
}

// ---- import

int64_t anonymous_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8));
  }
  return -1;
}

TEST(ImportMapped, WeightsStayInTheFile) {
  constexpr int64_t rows = 4096, columns = 4096;  // 64 MiB
  const std::string path =
      (std::filesystem::path(::testing::TempDir()) / ("mapped_" + std::to_string(getpid()))).string();
  {
    OnnxFile file(17);
    file.input("x", {1, rows});
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
    file.floats("w", {rows, columns}, values);
    file.floats("b", {columns}, std::vector<float>(columns, 2));
    file.node("MatMul", {"x", "w"}, "a");
    file.node("Add", {"a", "b"}, "y");
    file.output("y");
    std::ofstream(path, std::ios::binary) << file.bytes();
  }
  const int64_t before = anonymous_kib();
  const auto model = import_onnx(path);
  [[maybe_unused]] const int64_t grown = anonymous_kib() - before;
  std::filesystem::remove(path);
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(model->weights.stored_bytes().value(), 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(grown, 8 * 1024) << "KiB";
#endif
  for (const Value& value : model->graph.values) {
    if (value.name != "w") continue;
    const std::string raw = model->weights.materialise(value.content).value();
    ASSERT_EQ(raw.size(), 4u * rows * columns);
    const auto* values = reinterpret_cast<const float*>(raw.data());
    for (const size_t i : {size_t{0}, size_t{999}, size_t{1000}, size_t{12345678}})
      EXPECT_EQ(values[i], static_cast<float>(i % 1000));
  }
}

// A weight that a Constant node holds, as some exporters write them.
TEST(ImportMapped, ConstantNodesToo) {
  OnnxFile file(17);
  file.input("x", {1, 2048});
  onnx::NodeProto& node = file.node("Constant", {}, "c");
  onnx::AttributeProto& value = *node.add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  value.mutable_t()->set_data_type(onnx::TensorProto::FLOAT);
  value.mutable_t()->add_dims(2048);
  const std::vector<float> floats(2048, 1.5f);
  value.mutable_t()->set_raw_data(floats.data(), floats.size() * sizeof(float));
  file.node("Add", {"x", "c"}, "y");
  file.output("y");
  const auto model = file.import();
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(model->weights.stored_bytes().value(), 0);
}

// What only the cutting itself may write.
TEST(ImportMapped, AFileThatNamesACutIsRefused) {
  OnnxFile file(17);
  file.input("x", {1});
  onnx::TensorProto& tensor = file.floats("w", {1}, {1});
  tensor.clear_raw_data();
  auto& entry = *tensor.add_external_data();
  entry.set_key(std::string(cut_key));
  entry.set_value("7");
  file.node("Add", {"x", "w"}, "y");
  file.output("y");
  const auto model = file.import();
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().message, HasSubstr("tensor w: an entry nlsplit.cut of \"7\""));
}

}  // namespace
}  // namespace nlsplit

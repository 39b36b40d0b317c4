// ONNX import: what concerns the network as a whole. Open extents by name, weights in files of their own, constant
// subgraphs, branches, elements of other types than f32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "graph/elements.h"
#include "graph/passes/passes.h"
#include "graph/reference/evaluate.h"
#include "onnx_file.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

std::vector<float> outputs_of(const Result<Model>& model, const std::vector<Tensor>& inputs) {
  if (!model.ok()) return {};
  const auto outputs = evaluate(model->graph, model->weights, inputs);
  return outputs.ok() ? (*outputs)[0].values : std::vector<float>{};
}

// x [n, c, "width"] → Relu
OnnxFile open_network() {
  OnnxFile file(13);
  file.input("x", {-1, 3, -1});
  auto& shape = *file.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
  shape.mutable_dim(0)->set_dim_param("batch");
  shape.mutable_dim(2)->set_dim_param("width");
  file.node("Relu", {"x"}, "y", "it");
  file.output("y");
  return file;
}

TEST(ImportNetwork, OpenExtentsAreBoundByTheirNames) {
  const OnnxFile file = open_network();
  const auto bound = file.import({.dims = {{"batch", 8}, {"width", 192}}});
  ASSERT_TRUE(bound.ok()) << error_of(bound);
  EXPECT_EQ(to_string(bound->graph.value(bound->graph.outputs[0]).type), "f32[8,3,192]");
  EXPECT_THAT(error_of(file.import({.dims = {{"batch", 8}}})),
              HasSubstr("leaves extents open: x axis 2 (width); a scenario's model says them by `dims: {NAME: 8}`"));
  EXPECT_THAT(error_of(file.import()), HasSubstr("x axis 0 (batch), x axis 2 (width);"));
  EXPECT_THAT(error_of(file.import({.dims = {{"batch", 8}, {"width", 1}, {"height", 2}}})),
              HasSubstr("no extent called height"));
  EXPECT_THAT(error_of(file.import({.dims = {{"batch", 8}, {"width", 0}}})), HasSubstr("an extent 0 of width"));
}

// A network whose weight, [2, 3], is 24 bytes of another file.
class ExternalData : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("external_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_ / "model");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  Result<Model> import(const std::string& location, int64_t offset = 0, int64_t length = 24) const {
    OnnxFile file(13);
    file.input("x", {1, 3});
    onnx::TensorProto& weight = file.floats("w", {2, 3}, std::vector<float>(6, 0));
    weight.clear_raw_data();
    weight.set_data_location(onnx::TensorProto::EXTERNAL);
    const auto say = [&](const std::string& key, const std::string& value) {
      auto& entry = *weight.add_external_data();
      entry.set_key(key), entry.set_value(value);
    };
    say("location", location), say("offset", std::to_string(offset)), say("length", std::to_string(length));
    set(file.node("Gemm", {"x", "w"}, "y"), "transB", int64_t{1});
    file.output("y");
    write("model/it.onnx", file.bytes());
    return import_onnx((folder_ / "model" / "it.onnx").string());
  }
  static std::string floats(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  }

  std::filesystem::path folder_;
};

TEST_F(ExternalData, IsMappedFromTheModelsFolder) {
  write("model/weights.bin", "12345678" + floats({1, 2, 3, 4, 5, 6}));
  const auto model = import("weights.bin", 8);
  ASSERT_TRUE(model.ok()) << error_of(model);
  EXPECT_EQ(model->weights.stored_bytes().value(), 0) << "mapped, not copied";
  EXPECT_THAT(outputs_of(model, {tensor({1, 3}, {1, 10, 100})}), ElementsAre(321, 654));
}

TEST_F(ExternalData, StaysInTheModelsFolder) {
  write("weights.bin", floats({1, 2, 3, 4, 5, 6}));
  write("model/short.bin", "123");
  for (const std::string location : {"../weights.bin", "/etc/passwd", "sub/../../weights.bin"})
    EXPECT_THAT(error_of(import(location)), HasSubstr("tensor w: its data is in '" + location + "', outside of"));
  std::filesystem::create_symlink(folder_ / "weights.bin", folder_ / "model" / "link.bin");
  EXPECT_THAT(error_of(import("link.bin")), HasSubstr("outside of the model's folder"));
  EXPECT_THAT(error_of(import("none.bin")), HasSubstr("none.bin"));
  EXPECT_THAT(error_of(import("short.bin")), HasSubstr("'short.bin' ends before its 24 B at 0"));
  EXPECT_THAT(error_of(import("short.bin", std::numeric_limits<int64_t>::max())), HasSubstr("ends before"));
  EXPECT_THAT(error_of(import("short.bin", 0, 3)), HasSubstr("3 B of external data, but needs 24 B"));
}

// if (condition) y = x + one else y = x * two: reads x from around it, and both branches call their constant c.
OnnxFile branching(bool initialized, bool condition) {
  OnnxFile file(13);
  file.input("x", {2});
  if (initialized) {
    onnx::TensorProto& tensor = *file.graph().add_initializer();
    tensor.set_name("condition");
    tensor.set_data_type(onnx::TensorProto::BOOL);
    tensor.set_raw_data(std::string(1, condition ? 1 : 0));
  } else {
    file.input("condition", {}, onnx::TensorProto::BOOL);
  }
  onnx::NodeProto& node = file.node("If", {"condition"}, "z", "branch");
  for (const bool then : {true, false}) {
    onnx::AttributeProto& attr = *node.add_attribute();
    attr.set_name(then ? "then_branch" : "else_branch");
    attr.set_type(onnx::AttributeProto::GRAPH);
    onnx::GraphProto& graph = *attr.mutable_g();
    onnx::TensorProto& constant = *graph.add_initializer();
    constant.set_name("c");
    constant.set_data_type(onnx::TensorProto::FLOAT);
    constant.add_float_data(then ? 1.0f : 2.0f);
    onnx::NodeProto& inner = *graph.add_node();
    inner.set_op_type(then ? "Add" : "Mul");
    inner.add_input("x"), inner.add_input("c"), inner.add_output("r");
    graph.add_output()->set_name("r");
  }
  file.node("Relu", {"z"}, "y", "relu");
  file.output("y");
  return file;
}

TEST(ImportNetwork, AnIfOfAConstantConditionIsItsBranch) {
  EXPECT_THAT(outputs_of(branching(true, true).import(), {tensor({2}, {-3, 5})}), ElementsAre(0, 6));
  EXPECT_THAT(outputs_of(branching(true, false).import(), {tensor({2}, {-3, 5})}), ElementsAre(0, 10));
  EXPECT_THAT(error_of(branching(false, true).import()),
              HasSubstr("node branch (If, opset 13): a condition that is not constant"));
  ImportOptions fixed;
  fixed.constants["condition"] = {{DType::boolean, {}}, std::string(1, '\0')};
  EXPECT_THAT(outputs_of(branching(false, true).import(fixed), {tensor({2}, {-3, 5})}), ElementsAre(0, 10));
  fixed.constants["condition"].type.dtype = DType::u8;
  EXPECT_THAT(error_of(branching(false, true).import(fixed)), HasSubstr("input condition cannot be a constant u8[]"));
}

TEST(ImportNetwork, ConstantSubgraphsAreEvaluated) {
  OnnxFile file(13);
  file.input("x", {1, 2});
  file.floats("w", {2, 1}, {3, 4});
  file.node("Exp", {"w"}, "e");
  set(file.node("Transpose", {"e"}, "t"), "perm", Ints{1, 0});
  file.node("Mul", {"x", "t"}, "y", "it");
  file.output("y");
  const auto model = file.import();
  ASSERT_TRUE(model.ok()) << error_of(model);
  EXPECT_EQ(model->graph.nodes.size(), 1u);
  EXPECT_THAT(outputs_of(model, {tensor({1, 2}, {1, 1})}),
              ElementsAre(::testing::FloatEq(std::exp(3.0f)), ::testing::FloatEq(std::exp(4.0f))));
}

TEST(ImportNetwork, AConstantOutputIsAWeight) {
  OnnxFile file(13);
  file.input("x", {1, 2});
  file.node("Shape", {"x"}, "s");
  file.node("Relu", {"x"}, "y", "it");
  file.output("y");
  file.output("s");
  const auto model = file.import();
  ASSERT_TRUE(model.ok()) << error_of(model);
  EXPECT_EQ(to_string(model->graph.value(model->graph.outputs[1]).type), "i64[2]");
  EXPECT_THAT(batched_values(model->graph).error().message, HasSubstr("output s does not depend on the input"));
}

// Operators that only the reference evaluator has, of integers: through text, and through the passes.
TEST(ImportNetwork, IntegersSurvive) {
  OnnxFile file(13);
  file.input("ids", {2, 3}, onnx::TensorProto::INT64);
  file.floats("table", {4, 2}, {0, 1, 10, 11, 20, 21, 30, 31});
  file.node("Gather", {"table", "ids"}, "y", "it");
  file.output("y");
  auto model = file.import();
  ASSERT_TRUE(model.ok()) << error_of(model);
  EXPECT_EQ(parse_graph(to_string(model->graph), "text").value(), model->graph);
  const std::vector<int64_t> ids = {3, 0, -1, 1, 2, 1};
  const Tensor input = tensor_of({DType::i64, {2, 3}}, raw_of(DType::i64, ids));
  EXPECT_THAT(outputs_of(model, {input}), ElementsAre(30, 31, 0, 1, 30, 31, 10, 11, 20, 21, 10, 11));
  const auto wider = with_batch(model->graph, 5);
  ASSERT_TRUE(wider.ok()) << wider.error().to_string();
  EXPECT_EQ(to_string(wider->value(wider->outputs[0]).type), "f32[5,3,2]");
}

}  // namespace
}  // namespace nlsplit

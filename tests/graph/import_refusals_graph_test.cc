// What import refuses of a graph's inputs, outputs and messages, whatever its operators.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "graph/onnx/cut_tensors.h"
#include "onnx_text.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

// Files that the textual form cannot say.
TEST(ImportRefusals, Messages) {
  const auto refused = [](const std::function<void(OnnxFile&)>& change) {
    OnnxFile file = file_of({13, "float[2] x", "y = Relu (x)"});
    change(file);
    return error_of(file.import());
  };
  EXPECT_EQ(refused([](OnnxFile&) {}), "accepted");
  EXPECT_EQ(refused([](OnnxFile& f) { f.graph().mutable_node(0)->set_domain("ai.onnx"); }), "accepted");
  EXPECT_EQ(refused([](OnnxFile& f) { f.model().mutable_opset_import(0)->set_domain("ai.onnx"); }), "accepted");
  EXPECT_THAT(refused([](OnnxFile& f) { f.model().mutable_opset_import(0)->set_domain("com.example"); }),
              HasSubstr("no ONNX model: it names no operator set"));
  EXPECT_THAT(refused([](OnnxFile& f) { f.graph().add_sparse_initializer(); }), HasSubstr("sparse initializers"));
  EXPECT_THAT(refused([](OnnxFile& f) { f.graph().mutable_input(0)->mutable_type()->clear_value(); }),
              HasSubstr("input x is not a tensor"));
  EXPECT_THAT(
      refused([](OnnxFile& f) { f.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(8); }),
      HasSubstr("input x: element type STRING"));
  EXPECT_THAT(refused([](OnnxFile& f) {
                auto& attr = *f.graph().mutable_node(0)->add_attribute();
                attr.set_name("value");
                attr.set_type(onnx::AttributeProto::TENSOR);
                attr.mutable_t()->set_data_type(onnx::TensorProto::FLOAT);
                attr.mutable_t()->add_dims(2);
              }),
              HasSubstr("node  (Relu): tensor : f32[2] has 0 B of data, but needs 8 B"));
  EXPECT_THAT(refused([](OnnxFile& f) {
                auto& attr = *f.graph().mutable_node(0)->add_attribute();
                attr.set_name("types");
                attr.set_type(onnx::AttributeProto::TYPE_PROTO);
              }),
              HasSubstr("attribute types is of a kind that is not supported"));
  for (const char* number : {"", "x", "1x", "7"}) {
    EXPECT_THAT(refused([&](OnnxFile& f) {
                  onnx::TensorProto& tensor = f.floats("w", {2}, {1, 2});
                  auto& entry = *tensor.add_external_data();
                  entry.set_key(std::string(cut_key));
                  entry.set_value(number);
                }),
                HasSubstr(fmt::format("tensor w: an entry {} of \"{}\"", cut_key, number)));
  }
  const auto another = [](OnnxFile& f) {
    auto& entry = *f.floats("w", {2}, {1, 2}).add_external_data();
    entry.set_key("checksum");
    entry.set_value("7");
  };
  EXPECT_EQ(refused(another), "accepted");
}

// A node that nothing is read of is left out with all it says; outputs without a name cannot be asked for.
TEST(ImportRefusals, Outputs) {
  EXPECT_THAT(error_of(import_text({13, "float[2] x", "none = Relu (x) y = Relu (x)"})), HasSubstr("accepted"));
  EXPECT_THAT(error_of(import_text({13, "float[1,2,4,4] x", "a, y = BatchNormalization (x, x, x, x, x)"})),
              HasSubstr("node a (BatchNormalization, opset 13)"));
  EXPECT_THAT(error_of(import_text({13, "float[1,2,4] x, float[2] s", "a, y = BatchNormalization (x, s, s, s, s)"})),
              HasSubstr("output y is a further output of a node that is not supported"));
  EXPECT_THAT(
      error_of(import_text({13, "float[2] x, bool[1] c = {1}",
                            "none, y = If <then_branch = t () => (float r, float s) { r = Relu (x) s = Relu (x) "
                            "}> (c)"})),
      HasSubstr("accepted"));
}

TEST(ImportRefusals, Inputs) {
  const auto error_with = [](const std::string& inputs, const ImportOptions& options) {
    return error_of(file_of({13, inputs, "y = Relu (x)"}).import(options));
  };
  EXPECT_THAT(error_with("float[n,3] x", {}), HasSubstr("the model leaves extents open: x axis 0 (n)"));
  EXPECT_THAT(error_with("float[n,m] x", {}), HasSubstr("open: x axis 0 (n), x axis 1 (m)"));
  EXPECT_EQ(error_with("float[n,3] x", {.dims = {{"n", 4}}}), "accepted");
  EXPECT_THAT(error_with("float[n,3] x", {.dims = {{"n", 0}}}), HasSubstr("an extent 0 of n"));
  EXPECT_THAT(error_with("float[n,3] x", {.dims = {{"n", 4}, {"m", 4}}}), HasSubstr("no extent called m; it has n"));
  EXPECT_THAT(error_with("float[n,3] x", {.dims = {{"m", 4}}}), HasSubstr("no extent called m; it has n"));
  EXPECT_EQ(error_with("float[n,3] x", {.input_shapes = {{"x", {5, 3}}}, .dims = {{"n", 5}}}), "accepted");
  EXPECT_THAT(error_with("float[2,3] x", {.input_shapes = {{"z", {2, 3}}}}), HasSubstr("no input called z"));
  EXPECT_THAT(error_with("float[2,3] x", {.input_shapes = {{"x", {2}}}}),
              HasSubstr("input x has 2 axes, all extents must be positive"));
  EXPECT_THAT(error_with("float[2,3] x", {.input_shapes = {{"x", {2, 0}}}}), HasSubstr("must be positive"));
  EXPECT_THAT(error_with("float[2,3] x", {.input_shapes = {{"x", {2, 4}}}}),
              HasSubstr("input x: axis 1 is 3 in the file and 4 is asked for"));
  EXPECT_EQ(error_with("float[2,3] x", {.input_shapes = {{"x", {2, 3}}}}), "accepted");
  EXPECT_EQ(error_with("float[0,3] x", {.input_shapes = {{"x", {2, 3}}}}), "accepted");
  EXPECT_EQ(error_with("float x", {.input_shapes = {{"x", {}}}}), "accepted");
  const ImportOptions batches{.input_shapes = {{"a", {4, 3}}, {"b", {5, 3}}}};
  EXPECT_THAT(error_of(file_of({13, "float[2,3] a, float[2,3] b", "y = Add (a, b)"}).import(batches)),
              HasSubstr("the inputs' shapes disagree on the batch"));
  const ImportOptions alike{.input_shapes = {{"a", {4, 3}}, {"b", {4, 3}}}};
  EXPECT_EQ(error_of(file_of({13, "float[2,3] a, float[2,3] b", "y = Add (a, b)"}).import(alike)), "accepted");

  OnnxFile open = file_of({13, "float[2,3] x, float[2,3] z", "y = Add (x, z)"});
  for (int i = 0; i < 2; ++i) open.graph().mutable_input(i)->mutable_type()->mutable_tensor_type()->clear_shape();
  EXPECT_THAT(error_of(open.import()), HasSubstr("the model leaves extents open: all of x, all of z"));
  EXPECT_EQ(error_of(open.import({.input_shapes = {{"x", {2, 3}}, {"z", {2, 3}}}})), "accepted");
}

TEST(ImportRefusals, InputsThatAreConstants) {
  const auto error_with = [](const std::string& inputs, const ImportedConstant& constant, bool ranked = true) {
    OnnxFile file = file_of({13, inputs, "y = Add (x, k)"});
    if (!ranked) file.graph().mutable_input(1)->mutable_type()->mutable_tensor_type()->clear_shape();
    return error_of(file.import({.constants = {{"k", constant}}}));
  };
  const TensorType two{DType::f32, {2}};
  const std::string bytes(8, '\0');
  EXPECT_EQ(error_with("float[2] x, float[2] k", {two, bytes}), "accepted");
  EXPECT_EQ(error_with("float[2] x, float[n] k", {two, bytes}), "accepted");
  EXPECT_EQ(error_with("float[2] x, float[2] k", {two, bytes}, false), "accepted");
  EXPECT_THAT(error_with("float[2] x, float[3] k", {two, bytes}), HasSubstr("input k cannot be a constant f32[2]"));
  EXPECT_THAT(error_with("float[2] x, float[2,1] k", {two, bytes}), HasSubstr("input k cannot be a constant f32[2]"));
  EXPECT_THAT(error_with("float[2] x, int32[2] k", {two, bytes}), HasSubstr("input k cannot be a constant f32[2]"));
  EXPECT_THAT(error_with("float[2] x, float[2] k", {two, "short"}), HasSubstr("input k cannot be a constant f32[2]"));
}

}  // namespace
}  // namespace nlsplit

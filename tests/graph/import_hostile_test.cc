// Files made to do harm: extents and counts that would become memory or hours, and cycles. Each is refused with an
// error that names the node, or imported; nothing crashes. asan and ubsan run this too; scripts/fuzz looks for more
// (docs/fuzzing.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "graph/reference/evaluate.h"
#include "onnx_file.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;
constexpr int64_t huge = std::numeric_limits<int64_t>::max();

struct HostileCase {
  const char* what;
  std::function<void(OnnxFile&)> build;  // an input x f32[1,4,4,4] is there; y is the output
  const char* message;
};

onnx::TensorProto tensor_of_integers(const Ints& values) {
  onnx::TensorProto tensor;
  tensor.set_data_type(onnx::TensorProto::INT64);
  tensor.add_dims(static_cast<int64_t>(values.size()));
  tensor.set_raw_data(values.data(), values.size() * sizeof(int64_t));
  return tensor;
}

// y = op(a constant of one element, the integers)
void grows(OnnxFile& f, const char* op, const Ints& integers) {
  f.floats("one", {1, 1}, {1});
  f.integers("to", integers);
  f.node(op, {"one", "to"}, "y", "grow");
}

// y = op(x, the integers)
onnx::NodeProto& with_integers(OnnxFile& f, const char* op, const Ints& integers) {
  f.integers("to", integers);
  return f.node(op, {"x", "to"}, "y", "it");
}

// n nodes of op; each reads the one before twice.
void doubles(OnnxFile& f, const char* op, int n, int64_t axis = -1) {
  for (int i = 0; i < n; ++i) {
    const std::string from = i == 0 ? "start" : "v" + std::to_string(i);
    onnx::NodeProto& node = f.node(op, {from, from}, i + 1 == n ? "y" : "v" + std::to_string(i + 1));
    node.set_name("n" + std::to_string(i));
    if (axis >= 0) set(node, "axis", axis);
  }
}

const std::vector<HostileCase>& sizes() {
  static const std::vector<HostileCase> cases = {
      {"ConstantOfShape",
       [](OnnxFile& f) {
         f.integers("to", {1 << 20, 1 << 20});
         f.node("ConstantOfShape", {"to"}, "y", "fill");
       },
       "node fill (ConstantOfShape, opset 13): a constant of 1099511627776 elements; at most 2147483648"},
      {"ConstantOfShape, more than 64 bits",
       [](OnnxFile& f) {
         f.integers("to", {huge, huge});
         f.node("ConstantOfShape", {"to"}, "y", "fill");
       },
       "node fill (ConstantOfShape, opset 13)"},
      {"ConstantOfShape, negative",
       [](OnnxFile& f) {
         f.integers("to", {-1});
         f.node("ConstantOfShape", {"to"}, "y", "fill");
       },
       "negative extent"},
      {"Expand",
       [](OnnxFile& f) {
         grows(f, "Expand", {1 << 20, 1 << 16});
       },
       "node grow (Expand, opset 13): a constant of 68719476736 elements"},
      {"Tile",
       [](OnnxFile& f) {
         grows(f, "Tile", {1 << 20, 1 << 16});
       },
       "node grow (Tile, opset 13): a constant of 68719476736 elements"},
      {"Tile, more than 64 bits",
       [](OnnxFile& f) {
         grows(f, "Tile", {huge, huge});
       },
       "node grow (Tile, opset 13)"},
      {"Pad",
       [](OnnxFile& f) {
         grows(f, "Pad", {0, 0, int64_t{1} << 36, 0});
       },
       "node grow (Pad, opset 13): a constant of 68719476737 elements"},
      {"Pad, more than 64 bits",
       [](OnnxFile& f) {
         grows(f, "Pad", {huge, huge, huge, huge});
       },
       "impossible pads"},
      {"Pad by elements",
       [](OnnxFile& f) {
         set(with_integers(f, "Pad", {0, 0, 0, huge, 0, 0, 0, 0}), "mode", "edge");
       },
       "node it (Pad, opset 13): a pad of 9223372036854775807"},
      {"Range",
       [](OnnxFile& f) {
         f.floats("from", {}, {0});
         f.floats("to", {}, {1e30f});
         f.floats("by", {}, {1e-30f});
         f.node("Range", {"from", "to", "by"}, "y", "count");
       },
       "node count (Range, opset 13): a range of that many elements"},
      {"Range, without end",
       [](OnnxFile& f) {
         f.floats("from", {}, {0});
         f.node("Range", {"from", "from", "from"}, "y", "count");
       },
       "node count (Range, opset 13): a range of that many elements"},
      {"Resize",
       [](OnnxFile& f) {
         f.floats("one", {1, 1}, {1});
         f.integers("to", {1 << 20, 1 << 16});
         f.node("Resize", {"one", "", "", "to"}, "y", "grow");
       },
       "node grow (Resize, opset 13): a constant of 68719476736 elements"},
      {"Resize, more than 64 bits",
       [](OnnxFile& f) {
         f.integers("to", {1, 4, huge, huge});
         f.node("Resize", {"x", "", "", "to"}, "y", "grow");
       },
       "a size of 9223372036854775807"},
      {"Resize, no number",
       [](OnnxFile& f) {
         f.floats("by", {4}, {1, 1, NAN, 1});
         f.node("Resize", {"x", "", "by"}, "y", "grow");
       },
       "a scale of nan"},
      {"EyeLike",
       [](OnnxFile& f) {
         f.integers("to", {1 << 15, 1 << 15});
         f.node("ConstantOfShape", {"to"}, "zeros", "fill");
         f.node("EyeLike", {"zeros"}, "y", "eye");
       },
       "node eye (EyeLike, opset 13): a mask of 32768 x 32768"},
      {"Concat of itself",
       [](OnnxFile& f) {
         f.integers("start", {1, 2, 3, 4});
         doubles(f, "Concat", 60, 0);
       },
       "too large"},
      {"Gather of itself",
       [](OnnxFile& f) {
         f.graph().add_initializer()->CopyFrom(tensor_of_integers({0}));
         f.graph().mutable_initializer(0)->set_name("start");
         f.graph().mutable_initializer(0)->add_dims(1);
         doubles(f, "Gather", 40, 0);
       },
       "a result of 65 axes; at most 64 are supported"},
      {"many axes",
       [](OnnxFile& f) {
         f.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->clear_dim();
         for (int i = 0; i < 100; ++i)
           f.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(
               1);
         f.node("Relu", {"x"}, "y");
       },
       "input x: a tensor of 100 axes; at most 64 are supported"},
      {"large masks again and again",
       [](OnnxFile& f) {
         f.integers("to", {1 << 13, 1 << 13});
         f.node("ConstantOfShape", {"to"}, "start", "fill");
         for (int i = 0; i < 1000; ++i)
           set(f.node("EyeLike", {"start"}, i == 999 ? "y" : "e" + std::to_string(i), "eye" + std::to_string(i)), "k",
               int64_t{i});
         for (int i = 0; i < 1000; ++i) f.output(i == 999 ? "y" : "e" + std::to_string(i));
       },
       "computing its constants takes more than a file of that size may ask for"},
  };
  return cases;
}

const std::vector<HostileCase>& attributes() {
  static const std::vector<HostileCase> cases = {
      {"DepthToSpace, a square that is zero in 64 bits",
       [](OnnxFile& f) { set(f.node("DepthToSpace", {"x"}, "y", "it"), "blocksize", int64_t{1} << 32); },
       "node it (DepthToSpace, opset 13): blocks of 4294967296"},
      {"SpaceToDepth", [](OnnxFile& f) { set(f.node("SpaceToDepth", {"x"}, "y", "it"), "blocksize", huge); },
       "blocks of 9223372036854775807"},
      {"Split, parts whose sum overflows",
       [](OnnxFile& f) {
         onnx::NodeProto& node = with_integers(f, "Split", {huge, huge, 6});
         set(node, "axis", int64_t{1});
         node.add_output("y2");
         node.add_output("y3");
       },
       "a part of 9223372036854775807 of an extent of 4"},
      {"Split, a negative part",
       [](OnnxFile& f) {
         onnx::NodeProto& node = with_integers(f, "Split", {-4, 8});
         set(node, "axis", int64_t{1});
         node.add_output("y2");
       },
       "a part of -4 of an extent of 4"},
      {"Hardmax of integers",
       [](OnnxFile& f) {
         f.integers("whole", {1, 2, 3, 4});
         f.node("Hardmax", {"whole"}, "y", "it");
       },
       "node it (Hardmax, opset 13): an operand of type i64"},
      {"TopK", [](OnnxFile& f) { with_integers(f, "TopK", {huge}); }, "k of 9.223372036854776e+18"},
      {"CumSum, an axis that is not a number",
       [](OnnxFile& f) {
         f.floats("axis", {}, {INFINITY});
         f.node("CumSum", {"x", "axis"}, "y", "it");
       },
       "axis of inf"},
      {"Reshape, allowzero",
       [](OnnxFile& f) {
         f.integers("start", {});
         f.graph().mutable_initializer(0)->set_dims(0, 0);
         f.integers("to", {0, -5});
         set(f.node("Reshape", {"start", "to"}, "y", "it"), "allowzero", int64_t{1});
         f.model().mutable_opset_import(0)->set_version(14);
       },
       "negative extent"},
      {"ConvTranspose, output_shape",
       [](OnnxFile& f) {
         f.floats("w", {4, 1, 1, 1}, {1, 1, 1, 1});
         set(f.node("ConvTranspose", {"x", "w"}, "y", "it"), "output_shape", Ints{huge, huge});
       },
       "an output_shape of 9223372036854775807"},
      {"MaxUnpool, pads",
       [](OnnxFile& f) {
         f.integers("at", Ints(64, 0));
         f.integers("to", {1, 4, 4, 4});
         f.node("Reshape", {"at", "to"}, "places");
         onnx::NodeProto& node = f.node("MaxUnpool", {"x", "places"}, "y", "it");
         set(node, "kernel_shape", Ints{huge, huge});
         set(node, "pads", Ints{-huge, -huge, huge, huge});
       },
       "a kernel or pad beyond what is supported"},
      {"Slice without steps",
       [](OnnxFile& f) {
         f.integers("from", {std::numeric_limits<int64_t>::min()});
         f.integers("to", {huge});
         f.integers("axes", {0});
         f.integers("steps", {0});
         f.node("Slice", {"x", "from", "to", "axes", "steps"}, "y", "it");
       },
       "a step of 0"},
      {"Squeeze, an axis outside", [](OnnxFile& f) { with_integers(f, "Squeeze", {huge}); },
       "axis 9223372036854775807 of a tensor with 4 axes"},
      {"Unsqueeze, an axis twice",
       [](OnnxFile& f) {
         with_integers(f, "Unsqueeze", {0, 0});
       },
       "an axis twice"},
      {"Transpose",
       [](OnnxFile& f) {
         set(f.node("Transpose", {"x"}, "y", "it"), "perm", Ints{0, 1, huge, -1});
       },
       "perm is not a permutation"},
      {"LRN", [](OnnxFile& f) { set(f.node("LRN", {"x"}, "y", "it"), "size", huge); },
       "a window of 9223372036854775807"},
      {"RoiAlign, samples",
       [](OnnxFile& f) {
         f.floats("rois", {1, 4}, {0, 0, 1, 1});
         f.integers("of", {0});
         set(f.node("RoiAlign", {"x", "rois", "of"}, "y", "it"), "sampling_ratio", huge);
         f.model().mutable_opset_import(0)->set_version(16);
       },
       "a sampling_ratio of 9223372036854775807"},
      {"Einsum, labels that are none",
       [](OnnxFile& f) { set(f.node("Einsum", {"x"}, "y", "it"), "equation", "......->?"); }, "node it (Einsum"},
      {"LSTM, half a state",
       [](OnnxFile& f) {
         f.input("steps", {2, 1, 3});
         f.floats("w", {1, 8, 3}, std::vector<float>(24, 1));
         f.floats("r", {1, 8, 2}, std::vector<float>(16, 1));
         onnx::TensorProto& state = f.floats("h", {1, 1, 2}, {1});
         state.set_data_type(onnx::TensorProto::FLOAT16);
         f.node("LSTM", {"steps", "w", "r", "", "", "h"}, "y", "it");
       },
       "operands of types f32 and f16"},
      {"no inputs at all", [](OnnxFile& f) { f.node("Conv", {}, "y", "it"); }, "an input is missing"},
      {"an input that is left out",
       [](OnnxFile& f) {
         f.node("Concat", {"", "x"}, "y", "it");
       },
       "node it (Concat"},
  };
  return cases;
}

const std::vector<HostileCase>& cycles() {
  static const std::vector<HostileCase> cases = {
      {"itself",
       [](OnnxFile& f) {
         f.node("Add", {"x", "y"}, "y", "it");
       },
       "the graph has a cycle through node it"},
      {"two",
       [](OnnxFile& f) {
         f.node("Add", {"x", "b"}, "y", "first");
         f.node("Relu", {"y"}, "b", "second");
       },
       "the graph has a cycle through node first"},
      {"through a branch of an If",
       [](OnnxFile& f) {
         onnx::TensorProto& yes = *f.graph().add_initializer();
         yes.set_name("yes");
         yes.set_data_type(onnx::TensorProto::BOOL);
         yes.set_raw_data(std::string(1, '\1'));
         onnx::NodeProto& node = f.node("If", {"yes"}, "y", "choice");
         for (const char* branch : {"then_branch", "else_branch"}) {
           onnx::AttributeProto& attr = *node.add_attribute();
           attr.set_name(branch);
           attr.set_type(onnx::AttributeProto::GRAPH);
           onnx::NodeProto& inner = *attr.mutable_g()->add_node();
           inner.set_op_type("Relu");
           inner.add_input("back");
           inner.add_output("inner");
           attr.mutable_g()->add_output()->set_name("inner");
         }
         f.node("Relu", {"y"}, "back", "turn");
       },
       "the graph has a cycle through node choice"},
  };
  return cases;
}

void expect_refused(const std::vector<HostileCase>& cases) {
  for (const HostileCase& one : cases) {
    OnnxFile file(13);
    file.input("x", {1, 4, 4, 4});
    one.build(file);
    if (file.graph().output_size() == 0) file.output("y");
    EXPECT_THAT(error_of(file.import()), HasSubstr(one.message)) << one.what;
  }
}

TEST(HostileImport, SizesAreErrorsThatNameTheNode) { expect_refused(sizes()); }
TEST(HostileImport, Attributes) { expect_refused(attributes()); }
TEST(HostileImport, Cycles) { expect_refused(cycles()); }

// A sum of itself, and so on: what it is made of doubles with every node, what it takes does not.
TEST(HostileImport, AValueAddedToItselfStaysCheap) {
  OnnxFile file(13);
  file.input("x", {1});
  file.floats("start", {2}, {1, 3});
  doubles(file, "Add", 60);
  file.node("Add", {"x", "y"}, "z");
  file.output("z");
  const auto model = file.import();
  ASSERT_TRUE(model.ok()) << error_of(model);
  const auto sums = evaluate(model->graph, model->weights, {{{DType::f32, {1}}, {0.0f}}});
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ((*sums)[0].values, (std::vector<float>{0x1p60f, 3 * 0x1p60f}));
}

// Ten labels of a hundred values each: 10^20 products for one number.
TEST(HostileImport, ASumOfTooManyProductsStaysANode) {
  OnnxFile file(13);
  file.input("x", {1});
  file.floats("v", {100}, std::vector<float>(100, 1));
  onnx::NodeProto& node = file.node("Einsum", std::vector<std::string>(10, "v"), "s", "sum");
  set(node, "equation", "a,b,c,d,e,f,g,h,i,j->");
  file.node("Add", {"x", "s"}, "y");
  file.output("y");
  const auto model = file.import();
  ASSERT_TRUE(model.ok()) << error_of(model);
  EXPECT_EQ(model->graph.nodes.size(), 2u);
}

TEST(HostileImport, AWindowOverABorderOfPaddingStaysANode) {
  OnnxFile file(13);
  file.input("x", {1});
  file.floats("c", {1, 1, 1, 1}, {1});
  onnx::NodeProto& node = file.node("Conv", {"c", "c"}, "s", "border");
  set(node, "pads", Ints(4, 1 << 20));
  set(node, "strides", Ints(2, 1 << 20));
  file.node("Add", {"x", "s"}, "y");
  file.output("y");
  const auto model = file.import();
  ASSERT_TRUE(model.ok()) << error_of(model);
  EXPECT_EQ(model->graph.nodes.size(), 2u);
}

TEST(HostileImport, ManyNodesOfOneNameGetTheirOwn) {
  OnnxFile file(13);
  file.input("x", {1});
  constexpr int count = 20'000;
  for (int i = 0; i < count; ++i)
    file.node("Relu", {i == 0 ? "x" : "v" + std::to_string(i)}, i + 1 == count ? "y" : "v" + std::to_string(i + 1),
              "a");
  file.output("y");
  const auto model = file.import();
  ASSERT_TRUE(model.ok()) << error_of(model);
  EXPECT_EQ(model->graph.nodes.back().name, "a_20000");
}

// Protobuf itself ends what is nested deeper than any model.
TEST(HostileImport, BranchesWithinBranches) {
  for (const int depth : {10, 5000}) {
    OnnxFile file(13);
    file.input("x", {1});
    onnx::TensorProto& yes = *file.graph().add_initializer();
    yes.set_name("yes");
    yes.set_data_type(onnx::TensorProto::BOOL);
    yes.set_raw_data(std::string(1, '\1'));
    onnx::GraphProto* graph = &file.graph();
    for (int level = 0; level < depth; ++level) {
      onnx::NodeProto& node = *graph->add_node();
      node.set_op_type("If");
      node.add_input("yes");
      node.add_output("y" + std::to_string(level));
      onnx::AttributeProto& attr = *node.add_attribute();
      attr.set_name("then_branch");
      attr.set_type(onnx::AttributeProto::GRAPH);
      graph = attr.mutable_g();
      graph->add_output()->set_name("y" + std::to_string(level + 1));
    }
    onnx::NodeProto& last = *graph->add_node();
    last.set_op_type("Relu");
    last.add_input("x");
    last.add_output("y" + std::to_string(depth));
    file.output("y0");
    const std::string error = error_of(file.import());
    if (depth == 10)
      EXPECT_EQ(error, "accepted");
    else
      EXPECT_THAT(error, HasSubstr("not an ONNX model"));
  }
}

}  // namespace
}  // namespace nlsplit

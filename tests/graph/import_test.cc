// ONNX import: what each opset means, and real networks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "graph/passes/passes.h"
#include "graph/reference/evaluate.h"
#include "onnx_file.h"
#include "testing/paths.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

// One node reading x (and what `build` adds).
template <class Build>
Result<Model> one(int64_t opset, const std::string& op, const Ints& shape, Build build) {
  OnnxFile file(opset);
  file.input("x", shape);
  file.output("y");
  onnx::NodeProto& node = file.node(op, {"x"}, "y", "it");
  build(file, node);
  return file.import();
}
Result<Model> one(int64_t opset, const std::string& op, const Ints& shape) {
  return one(opset, op, shape, [](OnnxFile&, onnx::NodeProto&) {});
}

TEST(Import, ClipLimitsAreAttributesThenInputs) {
  EXPECT_EQ(nodes_of(one(6, "Clip", {1, 4}, [](OnnxFile&, onnx::NodeProto& n) { set(n, "max", 6.0f); })),
            "%y f32[1,4] = Clip(%x) {max=6.0} as \"it\"\n");
  EXPECT_EQ(nodes_of(one(11, "Clip", {1, 4},
                         [](OnnxFile& f, onnx::NodeProto& n) {
                           f.floats("high", {}, {6});
                           n.add_input("");
                           n.add_input("high");
                         })),
            "%y f32[1,4] = Clip(%x) {max=6.0} as \"it\"\n");
  // Others become operands of Max and Min.
  EXPECT_EQ(nodes_of(one(11, "Clip", {1, 4}, [](OnnxFile&, onnx::NodeProto& n) { n.add_input("x"); })),
            "%y f32[1,4] = Max(%x, %x) as \"it\"\n");
}

TEST(Import, AutoPad) {
  // kernel 3, stride 2 over 6: 3 positions reach (3-1)*2+3 = 7, one more than 6; SAME_UPPER pads behind, SAME_LOWER in
  // front
  const auto padded = [](const char* mode) {
    return nodes_of(one(11, "MaxPool", {1, 1, 6, 6}, [&](OnnxFile&, onnx::NodeProto& n) {
      set(n, "kernel_shape", Ints{3, 3});
      set(n, "strides", Ints{2, 2});
      set(n, "auto_pad", mode);
    }));
  };
  EXPECT_THAT(padded("SAME_UPPER"),
              HasSubstr("f32[1,1,3,3] = MaxPool(%x) {kernel_shape=[3,3], pads=[0,0,1,1], strides=[2,2]}"));
  EXPECT_THAT(padded("SAME_LOWER"), HasSubstr("pads=[1,1,0,0]"));
  EXPECT_THAT(padded("VALID"), HasSubstr("f32[1,1,2,2] = MaxPool(%x) {kernel_shape=[3,3], strides=[2,2]}"));
  EXPECT_THAT(padded("ELSE"), HasSubstr("auto_pad ELSE"));
}

TEST(Import, ConvTransposeExtentsAreResolved) {
  const auto made = [](int64_t opset, auto build) {
    return nodes_of(one(opset, "ConvTranspose", {1, 2, 4, 4}, [&](OnnxFile& f, onnx::NodeProto& n) {
      f.floats("w", {2, 3, 3, 3}, std::vector<float>(54, 1));
      n.add_input("w");
      build(n);
    }));
  };
  EXPECT_EQ(made(11, [](onnx::NodeProto&) {}), "%y f32[1,3,6,6] = ConvTranspose(%x, %w) as \"it\"\n");
  // Stride 2: windows reach 3 * 2 + 3 = 9. SAME wants 8, one less: behind for SAME_UPPER, in front for SAME_LOWER.
  const auto same = [&](int64_t opset, const char* mode) {
    return made(opset, [&](onnx::NodeProto& n) {
      set(n, "strides", Ints{2, 2});
      set(n, "auto_pad", mode);
    });
  };
  EXPECT_THAT(same(11, "SAME_UPPER"), HasSubstr("f32[1,3,8,8] ="));
  EXPECT_THAT(same(11, "SAME_UPPER"), HasSubstr("pads=[0,0,1,1]"));
  EXPECT_THAT(same(11, "SAME_LOWER"), HasSubstr("pads=[1,1,0,0]"));
  EXPECT_THAT(same(7, "SAME_UPPER"), HasSubstr("pads=[1,1,0,0]")) << "opset 11 turned it round";
  EXPECT_THAT(same(11, "VALID"), HasSubstr("f32[1,3,9,9] ="));
  EXPECT_THAT(same(11, "ELSE"), HasSubstr("auto_pad ELSE"));
  // 10 rows are one more than the windows reach, 8 columns one less.
  const std::string shaped = made(11, [](onnx::NodeProto& n) {
    set(n, "strides", Ints{2, 2});
    set(n, "output_shape", Ints{10, 8});
  });
  EXPECT_THAT(shaped, HasSubstr("f32[1,3,10,8] ="));
  EXPECT_THAT(shaped, HasSubstr("output_padding=[1,0], pads=[0,1,0,0]"));
  EXPECT_THAT(made(11,
                   [](onnx::NodeProto& n) {
                     set(n, "output_shape", Ints{1, 3, 8, 8});
                   }),
              HasSubstr("output_shape has the wrong length"));
}

TEST(Import, NormalizationsHaveDefaults) {
  EXPECT_EQ(nodes_of(one(17, "LayerNormalization", {2, 3},
                         [](OnnxFile& f, onnx::NodeProto& n) {
                           f.floats("s", {3}, {1, 1, 1});
                           n.add_input("s");
                         })),
            "%y f32[2,3] = LayerNormalization(%x, %s) as \"it\"\n");
  EXPECT_EQ(nodes_of(one(7, "InstanceNormalization", {2, 3, 4},
                         [](OnnxFile& f, onnx::NodeProto& n) {
                           f.floats("s", {3}, {1, 1, 1});
                           n.add_input("s");
                           n.add_input("s");
                           set(n, "epsilon", 0.5f);
                         })),
            "%y f32[2,3,4] = InstanceNormalization(%x, %s, %s) {epsilon=0.5} as \"it\"\n");
  // Who asks for the mean as well gets it from a node of its own.
  OnnxFile file(17);
  file.input("x", {2, 3});
  file.floats("s", {3}, {1, 1, 1});
  file.node("LayerNormalization", {"x", "s"}, "y", "it").add_output("mean");
  file.output("y");
  file.output("mean");
  EXPECT_THAT(nodes_of(file.import()), HasSubstr("%mean f32[2,1] = ReduceMean(%x) {axes=[1]} as \"it.mean\""));
}

TEST(Import, ReduceMeanAxesAreAttributeThenInput) {
  const std::string expected = "%y f32[2,1,4] = ReduceMean(%x) {axes=[1]} as \"it\"\n";
  EXPECT_EQ(nodes_of(one(13, "ReduceMean", {2, 3, 4}, [](OnnxFile&, onnx::NodeProto& n) { set(n, "axes", Ints{1}); })),
            expected);
  EXPECT_EQ(nodes_of(one(18, "ReduceMean", {2, 3, 4},
                         [](OnnxFile& f, onnx::NodeProto& n) {
                           f.integers("axes", {1});
                           n.add_input("axes");
                         })),
            expected);
  EXPECT_EQ(nodes_of(one(18, "ReduceMean", {2, 3},
                         [](OnnxFile&, onnx::NodeProto& n) { set(n, "noop_with_empty_axes", int64_t{1}); })),
            "%y f32[2,3] = Identity(%x) as \"it\"\n");
  EXPECT_THAT(nodes_of(one(18, "ReduceMean", {2, 3})), HasSubstr("axes=[0,1]"));
}

TEST(Import, PadsAreAttributeThenInput) {
  const std::string expected = "%y f32[2,6] = Pad(%x) {pads=[0,1,0,2], value=0.5} as \"it\"\n";
  EXPECT_EQ(nodes_of(one(2, "Pad", {2, 3},
                         [](OnnxFile&, onnx::NodeProto& n) {
                           set(n, "pads", Ints{0, 1, 0, 2});
                           set(n, "value", 0.5f);
                         })),
            expected);
  EXPECT_EQ(nodes_of(one(13, "Pad", {2, 3},
                         [](OnnxFile& f, onnx::NodeProto& n) {
                           f.integers("pads", {0, 1, 0, 2});
                           f.floats("value", {}, {0.5});
                           n.add_input("pads");
                           n.add_input("value");
                         })),
            expected);
  EXPECT_THAT(nodes_of(one(13, "Pad", {2, 3}, [](OnnxFile&, onnx::NodeProto& n) { set(n, "mode", "mirror"); })),
              HasSubstr("mode mirror"));
  // Other fills are elements of the operand: 3 columns, 1 in front and 2 behind.
  EXPECT_EQ(nodes_of(one(13, "Pad", {2, 3},
                         [](OnnxFile& f, onnx::NodeProto& n) {
                           f.integers("pads", {0, 1, 0, 2});
                           n.add_input("pads");
                           set(n, "mode", "reflect");
                         })),
            "%y f32[2,6] = Gather(%x, %it.indices1) {axis=1} as \"it\"\n");
}

TEST(Import, SqueezeAndUnsqueezeKeepTheBatchOpen) {
  EXPECT_EQ(nodes_of(one(11, "Squeeze", {2, 3, 1, 1},
                         [](OnnxFile&, onnx::NodeProto& n) {
                           set(n, "axes", Ints{2, -1});
                         })),
            "%y f32[2,3] = Reshape(%x) {shape=[0,3]} as \"it\"\n");
  EXPECT_EQ(nodes_of(one(13, "Unsqueeze", {2, 3},
                         [](OnnxFile& f, onnx::NodeProto& n) {
                           f.integers("axes", {-1});
                           n.add_input("axes");
                         })),
            "%y f32[2,3,1] = Reshape(%x) {shape=[0,3,1]} as \"it\"\n");
  EXPECT_EQ(nodes_of(one(11, "Squeeze", {1, 3, 1})), "%y f32[3] = Reshape(%x) {shape=[3]} as \"it\"\n")
      << "ONNX: all extents of 1";
  EXPECT_THAT(nodes_of(one(11, "Squeeze", {2, 3}, [](OnnxFile&, onnx::NodeProto& n) { set(n, "axes", Ints{1}); })),
              HasSubstr("squeezes an extent of 3"));
}

// exp(x) over its sum along all axes from `axis` on, as opsets before 13 define it.
TEST(Import, OldSoftmaxRunsOverAllLaterAxes) {
  const Ints shape = {2, 2, 3, 2};
  for (const int64_t axis : {0, 1, 2, 3, -1, -2}) {
    SCOPED_TRACE(axis);
    const auto model = one(11, "Softmax", shape, [&](OnnxFile&, onnx::NodeProto& n) { set(n, "axis", axis); });
    ASSERT_TRUE(model.ok()) << model.error().to_string();
    Tensor x;
    x.type = {DType::f32, shape};
    for (int i = 0; i < 24; ++i) x.values.push_back(static_cast<float>(i % 7) / 3);
    const Tensor y = evaluate(model->graph, model->weights, {x}).value()[0];
    ASSERT_EQ(y.type, x.type);
    int64_t block = 1;
    for (size_t i = static_cast<size_t>((axis + 4) % 4); i < 4; ++i) block *= shape[i];
    for (size_t from = 0; from < 24; from += static_cast<size_t>(block)) {
      double sum = 0;
      for (size_t i = 0; i < static_cast<size_t>(block); ++i) sum += std::exp(x.values[from + i]);
      for (size_t i = 0; i < static_cast<size_t>(block); ++i) {
        EXPECT_NEAR(y.values[from + i], std::exp(x.values[from + i]) / sum, 1e-6) << from + i;
      }
    }
    EXPECT_EQ(with_batch(model->graph, 5).ok(), axis != 0) << "only axis 0 mixes samples";
  }
  EXPECT_EQ(nodes_of(one(13, "Softmax", shape)), "%y f32[2,2,3,2] = Softmax(%x) {axis=3} as \"it\"\n");
}

TEST(Import, DropoutIsNothingUnlessItTrains) {
  EXPECT_EQ(nodes_of(one(7, "Dropout", {1, 4})), "%y f32[1,4] = Dropout(%x) as \"it\"\n");
  EXPECT_EQ(nodes_of(one(13, "Dropout", {1, 4},
                         [](OnnxFile& f, onnx::NodeProto& n) {
                           f.floats("ratio", {}, {0.25});
                           n.add_input("ratio");
                         })),
            "%y f32[1,4] = Dropout(%x) {ratio=0.25} as \"it\"\n");
  EXPECT_THAT(nodes_of(one(13, "Dropout", {1, 4},
                           [](OnnxFile& f, onnx::NodeProto& n) {
                             f.floats("ratio", {}, {0.5});
                             auto& training = f.integers("training", {1});
                             training.set_data_type(onnx::TensorProto::BOOL);
                             training.set_raw_data("\1", 1);
                             n.add_input("ratio");
                             n.add_input("training");
                           })),
              HasSubstr("training_mode"));
}

TEST(Import, FurtherOutputsAreRefusedNotForgotten) {
  OnnxFile file(13);
  file.input("x", {1, 4});
  file.node("BatchNormalization", {"x", "s", "s", "s", "s"}, "a", "norm").add_output("mask");
  file.floats("s", {4}, {1, 1, 1, 1});
  file.node("Sum", {"a", "a", "mask"}, "y", "sum");
  file.output("y");
  EXPECT_THAT(nodes_of(file.import()), HasSubstr("node sum (Sum, opset 13): it reads mask"));
}

// The chain by which exporters write "flatten, whatever the batch": Shape → Gather → Unsqueeze → Concat → Reshape.
TEST(Import, FoldsShapeArithmetic) {
  OnnxFile file(11);
  file.input("x", {2, 3, 4});
  file.integers("zero", {0});
  file.integers("minus_one", {-1});
  file.node("Relu", {"x"}, "r");
  file.node("Shape", {"r"}, "shape");
  set(file.node("Gather", {"shape", "zero"}, "n"), "axis", int64_t{0});
  set(file.node("Concat", {"n", "minus_one"}, "to"), "axis", int64_t{0});
  file.node("Reshape", {"r", "to"}, "y");
  file.output("y");
  EXPECT_EQ(nodes_of(file.import()),
            "%r f32[2,3,4] = Relu(%x) as \"r\"\n%y f32[2,12] = Reshape(%r) {shape=[2,-1]} as \"y\"\n");
}

TEST(Import, FoldsWeightArithmetic) {
  OnnxFile file(13);
  file.input("x", {1, 3});
  file.floats("a", {3}, {1, 2, 3});
  file.floats("b", {1, 1}, {10});
  file.floats("c", {3, 1}, {1, 2, 3});
  file.node("Mul", {"a", "b"}, "ab");  // [3] with [1,1] is [1,3]
  file.node("Add", {"x", "ab"}, "y");
  file.node("Add", {"a", "c"}, "outer");  // rows against columns: no fold, a node
  file.node("Add", {"y", "outer"}, "z");
  file.output("z");
  const auto model = file.import();
  EXPECT_EQ(nodes_of(model), "%y f32[1,3] = Add(%x, %ab) as \"y\"\n%z f32[3,3] = Add(%y, %outer) as \"z\"\n");
  Tensor x;
  x.type.shape = {1, 3};
  x.values = {0, 0, 0};
  const auto z = evaluate(model->graph, model->weights, {x}).value()[0].values;
  EXPECT_EQ(z, (std::vector<float>{12, 23, 34, 13, 24, 35, 14, 25, 36}));  // a_j + c_i + 10 a_j
}

TEST(Import, ConstantOfShapeKeepsEveryInteger) {
  OnnxFile file(9);
  file.input("x", {2});
  file.integers("one", {1});
  onnx::AttributeProto& value = *file.node("ConstantOfShape", {"one"}, "to").add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  value.mutable_t()->set_data_type(onnx::TensorProto::INT64);
  value.mutable_t()->add_dims(1);
  value.mutable_t()->add_int64_data(std::numeric_limits<int64_t>::max());
  file.node("Reshape", {"x", "to"}, "y");
  file.output("y");
  EXPECT_THAT(nodes_of(file.import()), HasSubstr("an extent of 9223372036854775807"));
}

TEST(Import, SortsAndDropsAndNames) {
  OnnxFile file(13);
  file.input("x", {1, 4});
  file.floats("w", {4}, {1, 2, 3, 4});
  file.input("w", {4});  // older files list weights as inputs too
  file.node("Relu", {"b"}, "c", "same");
  file.node("Frobnicate", {"b"}, "dead");  // nobody needs it
  file.node("Add", {"a", "w"}, "b", "same");
  file.node("Tanh", {"x"}, "a");
  file.output("c");
  EXPECT_EQ(
      nodes_of(file.import()),
      "%a f32[1,4] = Tanh(%x) as \"a\"\n%b f32[1,4] = Add(%a, %w) as \"same\"\n%c f32[1,4] = Relu(%b) as \"same_2\"\n");
}

TEST(Import, DynamicExtentsAreBound) {
  OnnxFile file(13);
  file.input("x", {-1, 3, -1});
  file.input("z", {-1});
  file.node("Relu", {"x"}, "y");
  file.output("y");
  EXPECT_THAT(nodes_of(file.import()),
              HasSubstr("the model leaves extents open: x axis 0 (n), x axis 2 (n), z axis 0 (n)"));
  EXPECT_EQ(nodes_of(file.import({{{"x", {2, 3, 5}}, {"z", {1}}}})), "%y f32[2,3,5] = Relu(%x) as \"y\"\n");
  EXPECT_THAT(nodes_of(file.import({{{"x", {2, 4, 5}}, {"z", {1}}}})),
              HasSubstr("axis 1 is 3 in the file and 4 is asked for"));
  EXPECT_THAT(nodes_of(file.import({{{"x", {2, 3}}, {"z", {1}}}})), HasSubstr("input x has 3 axes"));
  EXPECT_THAT(nodes_of(file.import({{{"x", {2, 3, 0}}, {"z", {1}}}})), HasSubstr("must be positive"));
  EXPECT_THAT(nodes_of(file.import({{{"x", {2, 3, 5}}, {"z", {1}}, {"q", {1}}}})), HasSubstr("no input called q"));
  EXPECT_THAT(nodes_of(file.import({{{"x", {int64_t{1} << 40, 3, int64_t{1} << 40}}, {"z", {1}}}})),
              HasSubstr("too large"));
}

TEST(Import, LiteralBatchMayBeOverridden) {
  OnnxFile file(9);
  file.input("x", {1, 2, 3});
  file.integers("to", {1, 6});
  file.node("Reshape", {"x", "to"}, "y");
  file.output("y");
  EXPECT_EQ(nodes_of(file.import({{{"x", {4, 2, 3}}}})), "%y f32[4,6] = Reshape(%x) {shape=[0,6]} as \"y\"\n");
}

// ---- networks nobody here wrote

struct PublishedModel {
  const char* file;
  ImportOptions options;
  size_t nodes;               // of the file, less constants and shape arithmetic
  size_t fused_nodes;         // after the passes
  double giga_multiply_adds;  // of Conv, Gemm and MatMul: published figures, to two digits
};

void PrintTo(const PublishedModel& published, std::ostream* out) { *out << published.file; }

class ImportModels : public ::testing::TestWithParam<PublishedModel> {};

TEST_P(ImportModels, ImportsAsItIs) {
  const std::string path = std::string(NLS_SOURCE_DIR) + "/../shared/models/" + GetParam().file;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  auto model = import_onnx(path, GetParam().options);
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  ASSERT_TRUE(verify(model->graph).ok());
  EXPECT_EQ(model->graph.nodes.size(), GetParam().nodes);
  Work work;
  for (const Node& node : model->graph.nodes) {
    if (node.op == Op::Conv || node.op == Op::Gemm || node.op == Op::MatMul) work += work_of(model->graph, node);
  }
  EXPECT_NEAR(work.flops.value() / 2e9, GetParam().giga_multiply_adds, 0.06 * GetParam().giga_multiply_adds);
  const Graph fused = optimize(model->graph, model->weights).value();
  EXPECT_EQ(fused.nodes.size(), GetParam().fused_nodes);
  for (const Node& node : fused.nodes) EXPECT_NE(node.op, Op::BatchNormalization) << node.name;
  EXPECT_EQ(parse_graph(to_string(fused), "fused").value(), fused);
  const auto batched = with_batch(fused, 8);
  EXPECT_TRUE(batched.ok()) << batched.error().to_string();
}

// What the passes leave:
//   resnet50    53 Convs, each with its norm, ReLU and skip; 2 pools, Reshape, Gemm, Softmax
//   squeezenet  66 less 26 ReLUs and a Dropout; vgg19: 46 less 18 and 2; alexnet: 24 less 7 and 2
//   ppocr       215 less 35 norms, 15 ReLUs and 9 HardSigmoids behind Convs, 7 skips, and, in each of 18 hard-swishes
//   written as
//               x * clip(x + 3, 0, 6) / 6, the Clip and the Mul behind the Add. Its 16,315,376 multiply-adds were
//               counted from the shapes that ONNX's own inference gives.
INSTANTIATE_TEST_SUITE_P(
    Light, ImportModels,
    ::testing::Values(PublishedModel{"light_resnet50.onnx", {}, 176, 58, 4.1},
                      PublishedModel{"light_squeezenet.onnx", {}, 66, 39, 0.35},
                      PublishedModel{"light_vgg19.onnx", {}, 46, 26, 19.6},
                      PublishedModel{"light_bvlc_alexnet.onnx", {}, 24, 15, 0.66},
                      PublishedModel{"ppocr_mobile_v2_cls.onnx", {{{"x", {1, 3, 48, 192}}}}, 215, 112, 0.0163}),
    [](const auto& info) {
      const std::string name = info.param.file;
      return name.substr(0, name.find('.'));
    });

}  // namespace
}  // namespace nlsplit

// ONNX export: what import reads back is what was written, every operator, every network of the zoo; and the onnx
// library's own checker agrees that it is ONNX.
#include "graph/onnx/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/checker.h>
#include <onnx/shape_inference/implementation.h>

#include <set>

#include "base/file.h"
#include "base/text_reader.h"
#include "graph/attr_text.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "onnx_file.h"
#include "testing/random_graph.h"
#include "testing/tensors.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

// A folder of its own, because import calls a graph by its file's name.
class Export : public ::testing::Test {
 protected:
  Export() { std::filesystem::create_directories(folder_); }
  ~Export() override { std::filesystem::remove_all(folder_); }

  std::string path_of(const Graph& graph) const { return (folder_ / (graph.name + ".onnx")).string(); }

  // Also checks the file: its form, and that the types ONNX infers are those we declare.
  Result<Model> round_trip(const Model& model) const {
    const std::string path = path_of(model.graph);
    RETURN_IF_ERROR(export_onnx(model.graph, model.weights, path));
    auto back = import_onnx(path);
    expect_valid(path);
    std::filesystem::remove(path);
    return back;
  }

 private:
  static bool rounds_up(const onnx::GraphProto& graph) {
    for (const onnx::NodeProto& node : graph.node()) {
      for (const onnx::AttributeProto& attr : node.attribute()) {
        if (attr.name() == "ceil_mode" && attr.i() != 0) return true;
      }
    }
    return false;
  }

  static void expect_valid(const std::string& path) {
    onnx::ModelProto message;
    ASSERT_TRUE(message.ParseFromString(value_of(read_file(path))));
    EXPECT_EQ(message.ir_version(), 8);
    ASSERT_EQ(message.opset_import_size(), 1);
    EXPECT_EQ(message.opset_import(0).version(), 17);
    try {
      onnx::checker::check_model(message);
      // Of a rounded-up pool this version of the library also counts a window that begins in the padding behind the
      // input; ONNX has ruled since that there is none.
      if (rounds_up(message.graph())) return;
      onnx::shape_inference::InferShapes(message, onnx::OpSchemaRegistry::Instance(),
                                         onnx::ShapeInferenceOptions(true, 1, false));
    } catch (const std::exception& e) {
      ADD_FAILURE() << path << ": " << e.what();
    }
  }

  std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) / fmt::format("export_{}", getpid());
};

// What ONNX cannot say otherwise: attributes are 32-bit, and a Sum of two is read as an Add.
Graph as_stored(Graph graph) {
  const auto round = [](Attrs& attrs) {
    for (Attr& attr : attrs) {
      if (auto* number = std::get_if<double>(&attr.value)) *number = static_cast<double>(static_cast<float>(*number));
    }
  };
  for (Node& node : graph.nodes) {
    round(node.attrs);
    for (EpilogueStep& step : node.epilogue) round(step.attrs);
    if (node.op == Op::Sum && node.inputs.size() == 2) node.op = Op::Add;
  }
  return graph;
}

// A weight's content is the hash of its bytes in a file, and that of its recipe in the zoo: the bytes must be the same.
void expect_same_model(const Model& actual, const Model& expected) {
  Graph want = as_stored(expected.graph);
  ASSERT_EQ(actual.graph.values.size(), want.values.size());
  for (size_t i = 0; i < want.values.size(); ++i) {
    if (want.values[i].kind != ValueKind::weight) continue;
    const ContentId content = actual.graph.values[i].content;
    ASSERT_TRUE(actual.weights.contains(content)) << want.values[i].name;
    // No EXPECT_EQ: it would print megabytes.
    EXPECT_TRUE(*actual.weights.materialise(content) == *expected.weights.materialise(want.values[i].content))
        << want.values[i].name;
    want.values[i].content = content;
  }
  EXPECT_EQ(to_string(actual.graph), to_string(want));
}

// Every network, the large ones at sizes that a test can write; with all its positions, so that no node is made of
// constants alone, which import folds.
std::vector<std::string> exported() {
  std::vector<std::string> names;
  for (const ZooEntry& entry : zoo()) {
    std::string name(entry.name);
    if (name == "vgg19") continue;      // vgg16's layers
    if (name == "vit_b16") continue;    // below
    if (name == "qwen3_moe") continue;  // ONNX has no experts
    if (name == "bert_base") name += "?layers=1&hidden=64&heads=4&ffn=96&vocab=100&length=512";
    if (name == "gpt2") name += "?layers=1&hidden=64&heads=4&vocab=100&length=1024";
    if (name == "llama") name += "?layers=2&hidden=64&heads=4&kv_heads=2&ffn=96&vocab=100&length=8";
    names.push_back(name);
  }
  return names;
}

class ExportZoo : public Export, public ::testing::WithParamInterface<std::string> {};

TEST_P(ExportZoo, ComesBack) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  if (GetParam() == "vgg16") GTEST_SKIP() << "half a gigabyte of weights; smaller networks run under sanitizers";
#endif
  const Model model = zoo_model(GetParam()).value();
  const auto back = round_trip(model);
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  expect_same_model(*back, model);
}

INSTANTIATE_TEST_SUITE_P(Zoo, ExportZoo, ::testing::ValuesIn(exported()),
                         [](const auto& info) { return info.param.substr(0, info.param.find('?')); });

// Nodes of constants alone come back folded: the same values.
TEST_F(Export, FoldedConstantsChangeNothing) {
  for (const char* name : {"vit_b16?layers=1&hidden=32&heads=2&ffn=48&image=32",
                           "bert_base?layers=1&hidden=32&heads=2&ffn=48&vocab=50&length=7",
                           "gpt2?layers=1&hidden=32&heads=2&vocab=50&length=7"}) {
    SCOPED_TRACE(name);
    const Model model = zoo_model(name).value();
    const auto back = round_trip(model);
    ASSERT_TRUE(back.ok()) << back.error().to_string();
    EXPECT_EQ(back->graph.nodes.size() + 1, model.graph.nodes.size());
    const std::vector<Tensor> inputs = random_inputs(model.graph, 1);
    const std::vector<Tensor> want = evaluate(model.graph, model.weights, inputs).value();
    const std::vector<Tensor> got = evaluate(back->graph, back->weights, inputs).value();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) expect_close(got[i], want[i]);  // epsilons are 32-bit there
  }
}

// Beside the file, each weight of some size at a multiple of 4096; and by itself where the file would be too large.
TEST_F(Export, WeightsInAFileOfTheirOwn) {
  const Model model = zoo_model("simple_cnn").value();
  const std::string path = path_of(model.graph);
  for (const OnnxWriteOptions& options :
       {OnnxWriteOptions{.external_data = true}, OnnxWriteOptions{.largest = 1 << 20}}) {
    ASSERT_TRUE(export_onnx(model.graph, model.weights, path, options).ok());
    EXPECT_LT(std::filesystem::file_size(path), 10000u);
    EXPECT_GT(std::filesystem::file_size(path + ".data"), 4u * 128 * 2048);
    onnx::ModelProto message;
    ASSERT_TRUE(message.ParseFromString(value_of(read_file(path))));
    size_t outside = 0;
    for (const onnx::TensorProto& tensor : message.graph().initializer()) {
      if (tensor.data_location() != onnx::TensorProto::EXTERNAL) continue;
      ++outside;
      for (const auto& entry : tensor.external_data()) {
        if (entry.key() == "location") {
          EXPECT_EQ(entry.value(), "simple_cnn.onnx.data");
        } else if (entry.key() == "offset") {
          EXPECT_EQ(std::stoll(entry.value()) % 4096, 0);
        }
      }
    }
    EXPECT_EQ(outside, 4u) << "four weights; the biases are small";
    const auto back = import_onnx(path);
    ASSERT_TRUE(back.ok()) << back.error().to_string();
    expect_same_model(*back, model);
    std::filesystem::remove(path);
    std::filesystem::remove(path + ".data");
  }
  // Without need there is no such file.
  ASSERT_TRUE(export_onnx(model.graph, model.weights, path).ok());
  EXPECT_FALSE(std::filesystem::exists(path + ".data"));
}

TEST_F(Export, AnotherBatchComesBack) {
  Model model = zoo_model("simple_cnn").value();
  model.graph = with_batch(model.graph, 8).value();
  const auto back = round_trip(model);
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  expect_same_model(*back, model);
}

TEST_F(Export, RandomGraphsComeBack) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const Model model = random_graph(seed, 8);
    const auto back = round_trip(model);
    ASSERT_TRUE(back.ok()) << back.error().to_string();
    expect_same_model(*back, model);
  }
}

// One line an operator: input %x (and %x2, %m, %s, weights), made into %y.
constexpr const char* operators[] = {
    "Conv(%x, %w, %b) {dilations=[1,2], group=2, kernel_shape=[3,2], pads=[0,1,2,1], strides=[2,1]}",
    "Conv(%x, %w) {dilations=[1,1], group=2, kernel_shape=[3,2], pads=[0,0,0,0], strides=[1,1]}",
    ("ConvTranspose(%x, %u, %s) {dilations=[1,2], group=1, kernel_shape=[3,2], output_padding=[1,0], pads=[0,1,2,1], "
     "strides=[2,1]}"),
    "Gemm(%m, %m2, %s) {alpha=0.5, beta=2.0, transA=1, transB=1}",
    "Gemm(%m, %m2) {alpha=1.0, beta=1.0, transA=1, transB=1}",
    "MatMul(%x, %x2)",
    "Add(%x, %b1)",
    "Sub(%b1, %x)",
    "Mul(%x, %x)",
    "Div(%x, %b1)",
    "Sum(%x, %x3, %x)",
    "Relu(%x)",
    "Sigmoid(%x)",
    "Tanh(%x)",
    "HardSwish(%x)",
    "Exp(%x)",
    "Sqrt(%x)",
    "Neg(%x)",
    "Erf(%x)",
    "LeakyRelu(%x) {alpha=0.25}",
    "HardSigmoid(%x) {alpha=0.125, beta=0.75}",
    "Clip(%x) {max=6.0, min=-0.5}",
    "MaxPool(%x) {ceil_mode=1, dilations=[2,1], kernel_shape=[2,3], pads=[0,1,1,1], strides=[1,2]}",
    "AveragePool(%x) {ceil_mode=0, count_include_pad=1, kernel_shape=[2,3], pads=[0,1,1,1], strides=[1,2]}",
    "GlobalAveragePool(%x)",
    "BatchNormalization(%x, %c1, %c2, %c3, %c4) {epsilon=0.5}",
    "LayerNormalization(%x, %l, %l2) {axis=-2, epsilon=0.5}",
    "LayerNormalization(%x, %l) {axis=2, epsilon=0.5}",
    "InstanceNormalization(%x, %c1, %c2) {epsilon=0.5}",
    "LRN(%x) {alpha=0.25, beta=0.75, bias=2.0, size=3}",
    "Softmax(%x) {axis=2}",
    "Concat(%x, %x3, %x) {axis=3}",
    "Reshape(%x) {shape=[0,-1,2]}",
    "Flatten(%x) {axis=2}",
    "Transpose(%x) {perm=[0,2,3,1]}",
    "ReduceMean(%x) {axes=[1,3], keepdims=0}",
    "ReduceSum(%x) {axes=[1,3], keepdims=0}",
    "Expand(%x) {shape=[3,2,4,6,6]}",
    "Pad(%x) {pads=[0,0,1,0,0,1,0,2], value=-1.5}",
    "Identity(%x)",
};

// A network of this one node.
Model model_of_node(const std::string& line) {
  Model model;
  GraphBuilder builder("operator");
  std::vector<std::pair<std::string, ValueId>> known;
  const auto type = [](Shape shape) { return TensorType{DType::f32, std::move(shape)}; };
  const auto mentioned = [&](const std::string& name) {
    return line.find("%" + name + ",") != std::string::npos || line.find("%" + name + ")") != std::string::npos;
  };
  const std::pair<std::string, Shape> inputs[] = {
      {"x", {2, 4, 6, 6}}, {"x2", {6, 3}}, {"x3", {2, 4, 6, 6}}, {"m", {3, 2}}, {"m2", {5, 3}}};
  const std::pair<std::string, Shape> weights[] = {
      {"w", {6, 2, 3, 2}}, {"u", {4, 5, 3, 2}}, {"b", {6}},  {"b1", {4, 1, 1}}, {"s", {5}},    {"c1", {4}},
      {"c", {3}},          {"c2", {4}},         {"c3", {4}}, {"c4", {4}},       {"l", {6, 6}}, {"l2", {6, 6}}};
  for (const auto& [name, shape] : inputs) {
    if (mentioned(name)) known.emplace_back(name, builder.input(name, type(shape)));
  }
  for (const auto& [name, shape] : weights) {
    const ContentId content = model.weights.add_random(type(shape), known.size(), 0.1f, 1);
    if (mentioned(name)) known.emplace_back(name, builder.weight(name, type(shape), content));
  }
  // The attributes are read as the text form reads them.
  const size_t brace = line.find('{');
  Attrs attrs;
  if (brace != std::string::npos) {
    TextReader reader(std::string_view(line).substr(brace), "test");
    CHECK(reader.next_line(), "an empty line");
    attrs = parse_attrs(reader).value();
  }
  std::vector<ValueId> operands;
  for (size_t at = line.find('%'); at != std::string::npos; at = line.find('%', at + 1)) {
    const std::string name = line.substr(at + 1, line.find_first_of(",)", at) - at - 1);
    for (const auto& [have, id] : known) {
      if (have == name) operands.push_back(id);
    }
  }
  const Op op = parse_op(line.substr(0, line.find('('))).value();
  builder.output(builder.add(op, "node of y", std::move(operands), std::move(attrs), "y").value());
  model.graph = std::move(builder).finish();
  return model;
}

TEST_F(Export, EveryOperatorComesBack) {
  std::set<Op> seen;
  for (const char* line : operators) {
    SCOPED_TRACE(line);
    const Model model = model_of_node(line);
    seen.insert(model.graph.nodes[0].op);
    const auto back = round_trip(model);
    ASSERT_TRUE(back.ok()) << back.error().to_string();
    expect_same_model(*back, model);
  }
  for (const Op other : {Op::LSTM, Op::GRU, Op::RNN, Op::Gelu, Op::Attention})
    seen.insert(other);  // they have tests of their own
  for (int i = 0; i < op_count; ++i) {
    const Op op = static_cast<Op>(i);
    EXPECT_EQ(seen.contains(op), has(op, traits::has_kernels) && !has(op, traits::not_in_onnx)) << name_of(op);
  }
}

// Of operators that the reference loops alone compute: what is an input in ONNX, and what is spelled otherwise there.
TEST_F(Export, AttributesThatAreInputsComeBack) {
  for (const char* line : {"Expand(%x) {shape=[3,2,4,6,6]}", "Tile(%x) {repeats=[1,2,1,3]}",
                           "Slice(%x) {axes=[1,3], ends=[4,-100], starts=[1,5], steps=[2,-2]}",
                           "TopK(%x) {axis=1, k=2, largest=0, sorted=1}", "CumSum(%x) {axis=2, exclusive=1, reverse=0}",
                           "ReduceSum(%x) {axes=[1,3], keepdims=0}", "ReduceL2(%x) {axes=[1,3], keepdims=1}",
                           "Cast(%x) {to=\"f64\"}", "ArgMin(%x) {axis=1, keepdims=0, select_last_index=1}"}) {
    SCOPED_TRACE(line);
    const Model model = model_of_node(line);
    const auto back = round_trip(model);
    ASSERT_TRUE(back.ok()) << back.error().to_string();
    expect_same_model(*back, model);
  }
  const auto refused = round_trip(model_of_node("Mish(%x)"));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("node node of y (Mish): not written in opset 17"));
}

// Numbers are of the operand's type.
TEST_F(Export, APadOfHalvesComesBack) {
  Model model;
  GraphBuilder builder("halves");
  const ValueId x = builder.input("x", {DType::f16, {2, 3}});
  const Attrs attrs{{"pads", std::vector<int64_t>{0, 1, 0, 1}}, {"value", 0.5}};
  builder.output(builder.add(Op::Pad, "y", {x}, attrs).value());
  model.graph = std::move(builder).finish();
  const auto back = round_trip(model);
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  expect_same_model(*back, model);
}

TEST_F(Export, ABiasOfAMatMulIsAnAddAndFusedAgain) {
  Model model = model_of_node("MatMul(%x, %x2, %c)");
  auto back = round_trip(model);
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  ASSERT_EQ(back->graph.nodes.size(), 2u);
  EXPECT_EQ(back->graph.nodes[1].op, Op::Add);
  const std::vector<Tensor> inputs = random_inputs(model.graph, 3);
  const std::vector<Tensor> want = evaluate(model.graph, model.weights, inputs).value();
  expect_same_bits(evaluate(back->graph, back->weights, inputs).value(), want);
  const Graph again = optimize(back->graph, back->weights).value();
  ASSERT_EQ(again.nodes.size(), 1u) << to_string(again);
  EXPECT_EQ(again.nodes[0].inputs, model.graph.nodes[0].inputs);
  expect_same_bits(evaluate(again, back->weights, inputs).value(), want);
}

// Opset 17 has its parts only.
TEST_F(Export, AGeluIsItsPartsAndIsRecognizedAgain) {
  for (const char* line : {"Gelu(%x) {approximate=\"none\"}", "Gelu(%x) {approximate=\"tanh\"}"}) {
    SCOPED_TRACE(line);
    const Model model = model_of_node(line);
    auto back = round_trip(model);
    ASSERT_TRUE(back.ok()) << back.error().to_string();
    EXPECT_GT(back->graph.nodes.size(), 4u);
    const std::vector<Tensor> inputs = random_inputs(model.graph, 3);
    expect_close(evaluate(back->graph, back->weights, inputs).value(),
                 evaluate(model.graph, model.weights, inputs).value(), {1e-5, 1e-6});
    const Graph again = optimize(back->graph, back->weights).value();
    ASSERT_EQ(again.nodes.size(), 1u) << to_string(again);
    EXPECT_EQ(again.nodes[0], model.graph.nodes[0]);
  }
}

// Heads of their own or shared, with a mask for all, a mask for each head, or the operator's own.
TEST_F(Export, AnAttentionIsItsPartsAndIsRecognizedAgain) {
  for (const int64_t kv_heads : {4, 2, 1}) {
    for (const Shape& mask : {Shape{}, Shape{5, 7}, Shape{4, 1, 7}, Shape{2, 1, 5, 7}, Shape{2, 4, 5, 7}}) {
      for (const int64_t causal : {0, 1}) {
        if (causal == 1 && !mask.empty()) continue;  // two sums in a row are not recognized
        GraphBuilder builder("attention");
        const auto input = [&](const char* name, Shape shape) {
          return builder.input(name, {DType::f32, std::move(shape)});
        };
        std::vector<ValueId> operands{input("q", {2, 4, 5, 6}), input("k", {2, kv_heads, 7, 6}),
                                      input("v", {2, kv_heads, 7, 3})};
        if (!mask.empty()) operands.push_back(input("mask", mask));
        builder.output(
            builder.add(Op::Attention, "attend", operands, {{"causal", causal}, {"scale", 0.25}}, "y").value());
        Model model;
        model.graph = std::move(builder).finish();
        SCOPED_TRACE(to_string(model.graph));
        auto back = round_trip(model);
        ASSERT_TRUE(back.ok()) << back.error().to_string();
        EXPECT_GT(back->graph.nodes.size(), 4u);
        const std::vector<Tensor> inputs = random_inputs(model.graph, 3);
        const std::vector<Tensor> want = evaluate(model.graph, model.weights, inputs).value();
        expect_close(evaluate(back->graph, back->weights, inputs).value(), want, {1e-5, 1e-6});
        const Graph again = optimize(back->graph, back->weights).value();
        const auto attends = [](const Node& node) { return node.op == Op::Attention; };
        ASSERT_EQ(std::ranges::count_if(again.nodes, attends), 1) << to_string(again);
        EXPECT_EQ(std::ranges::find_if(again.nodes, attends)->attrs, model.graph.nodes[0].attrs);
        EXPECT_TRUE(std::ranges::none_of(again.nodes, [](const Node& node) {
          return node.op == Op::MatMul || node.op == Op::Softmax || node.op == Op::Transpose;
        })) << to_string(again);
        expect_close(evaluate(again, back->weights, inputs).value(), want, {1e-5, 1e-6});
      }
    }
  }
}

// To ONNX an empty list of axes means all of them; to us it means none.
TEST_F(Export, AMeanOverNoAxesIsNothing) {
  const auto back = round_trip(model_of_node("ReduceMean(%x) {axes=[], keepdims=1}"));
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  EXPECT_THAT(to_string(back->graph), HasSubstr("%y f32[2,4,6,6] = Identity(%x)"));
}

TEST_F(Export, FusedStepsAreNodesAgain) {
  Model model = zoo_model("simple_cnn").value();
  model.graph = optimize(model.graph, model.weights).value();
  ASSERT_THAT(to_string(model.graph), HasSubstr(" + Relu as \"relu1\""));
  const auto back = round_trip(model);
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  EXPECT_THAT(to_string(back->graph), HasSubstr("= Relu(%conv1) as \"relu1\""));

  for (uint64_t seed = 100; seed <= 130; ++seed) {
    SCOPED_TRACE(seed);
    Model random = random_graph(seed, 8);
    random.graph = as_stored(optimize(random.graph, random.weights).value());
    const auto read = round_trip(random);
    ASSERT_TRUE(read.ok()) << read.error().to_string();
    const std::vector<Tensor> inputs = random_inputs(random.graph, seed);
    const std::vector<Tensor> want = evaluate(random.graph, random.weights, inputs).value();
    const std::vector<Tensor> got = evaluate(read->graph, read->weights, inputs).value();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) expect_same_bits(got[i], want[i]);
  }
}

// The constants that only ONNX has as values must not take the name of one of ours.
TEST_F(Export, NamesDoNotCollide) {
  Model model;
  GraphBuilder builder("names");
  const ValueId x = builder.input("y.min", {DType::f32, {1, 4}});
  builder.output(builder.add(Op::Clip, "clip", {x}, {{"max", 6.0}, {"min", 0.0}}, "y").value());
  model.graph = std::move(builder).finish();
  const auto back = round_trip(model);
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  expect_same_model(*back, model);
}

TEST_F(Export, Refusals) {
  const auto refusal = [&](const Model& model, const std::string& path) {
    const Status status = export_onnx(model.graph, model.weights, path);
    EXPECT_FALSE(status.ok());
    return status.ok() ? "" : status.error().to_string();
  };
  Model strange = model_of_node("Add(%x, %b1)");
  strange.weights = {};
  const std::string path = path_of(strange.graph);
  EXPECT_THAT(refusal(strange, path), HasSubstr("weight b1: there is no weight with content"));

  EXPECT_THAT(refusal(zoo_model("simple_cnn").value(), "/nowhere/x.onnx"), HasSubstr("cannot write '/nowhere/x.onnx'"));
}

}  // namespace
}  // namespace nlsplit

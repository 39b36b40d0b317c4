// Attention recognized in its parts: golden, in the ways exporters write it, and what only looks like it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "graph/elements.h"
#include "graph/pass_text.h"
#include "graph/zoo/zoo.h"
#include "onnx_file.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

// Texts name constants by how they are made: "weight %c f32[] fill 0.5", "weight %m f32[5,5] causal -1e9" (the zoo's
// recipe), "weight %m f32[5,7] places -inf" (bytes: each of the last 5 of 7 positions sees those before it).
struct AttentionText {
  explicit AttentionText(const std::string& lines) {
    std::string text = "graph \"g\"\n";
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) text += (line.starts_with("weight ") ? weight(line) : line) + "\n";
    graph = parse(text);
  }

  std::string weight(const std::string& line) {
    std::istringstream in(line);
    std::string word, name, type_text, how, number;
    in >> word >> name >> type_text >> how >> number;
    const TensorType type = parse_tensor_type(type_text).value();
    const double value = number.empty() ? 0 : std::stod(number);
    ContentId content;
    if (how == "fill") content = weights.add_fill(type, value);
    if (how == "random") content = weights.add_random(type, ++seed, 1);
    if (how == "causal") content = weights.add_formula(Formula::causal_mask, type, value);
    if (how == "places") {
      const int64_t rows = type.shape[type.shape.size() - 2], columns = type.shape.back();
      std::vector<double> places;
      for (int64_t i = 0; i < element_count(type.shape); ++i)
        places.push_back(i % columns <= i / columns % rows + columns - rows ? 0 : value);
      content = weights.add_bytes(type, raw_of(type.dtype, std::span<const double>(places)));
    }
    return fmt::format("weight {} {} content {}", name, type_text, hex16(content.value));
  }

  Graph after(std::string_view passes) { return run_passes(graph, weights, select_passes(passes).value()).value(); }

  // The pass leaves these operators, in order, and what is computed.
  Graph expect(const std::string& operators) {
    const Graph made = after("recognize_attention");
    std::string left;
    for (const Node& node : made.nodes) left += (left.empty() ? "" : " ") + std::string(name_of(node.op));
    EXPECT_EQ(left, operators) << to_string(made);
    const std::vector<Tensor> inputs = random_inputs(graph, 11);
    const auto want = evaluate(graph, weights, inputs), have = evaluate(made, weights, inputs);
    EXPECT_TRUE(want.ok() && have.ok());
    if (want.ok() && have.ok()) {
      EXPECT_GT(deviation_of(want->at(0)), 0.02);
      expect_close(*have, *want, {1e-5, 2e-6});
    }
    return made;
  }

  Graph graph;
  WeightStore weights;
  uint64_t seed = 0;
};

constexpr const char* operands = "input %q f32[2,3,5,4]\ninput %k f32[2,3,7,4]\ninput %v f32[2,3,7,6]\n";
constexpr const char* turned = "%t f32[2,3,4,7] = Transpose(%k) {perm=[0,1,3,2]} as \"turned\"\n";
constexpr const char* product = "%s f32[2,3,5,7] = MatMul(%q, %t) as \"scores\"\n";
constexpr const char* scaled_scores = "weight %c f32[] fill 0.5\n%d f32[2,3,5,7] = Mul(%s, %c) as \"scaled\"\n";
// Of %d or %s.
std::string shares(const std::string& of) {
  return "%p f32[2,3,5,7] = Softmax(" + of +
         ") {axis=3} as \"shares\"\n%y f32[2,3,5,6] = MatMul(%p, %v) as \"context\"\noutput %y\n";
}

TEST(RecognizeAttention, WithScaleAndMask) {
  AttentionText text(std::string("input %m f32[5,7]\n") + operands + turned + product + scaled_scores +
                     "%a f32[2,3,5,7] = Add(%m, %d) as \"masked\"\n" + shares("%a"));
  EXPECT_EQ(to_string(text.after("recognize_attention")), R"(graph "g"
input %m f32[5,7]
input %q f32[2,3,5,4]
input %k f32[2,3,7,4]
input %v f32[2,3,7,6]
%y f32[2,3,5,6] = Attention(%q, %k, %v, %m) {scale=0.5} as "context"
output %y
)");
  text.expect("Attention");
}

TEST(RecognizeAttention, HoweverItIsScaled) {
  const std::string head = operands;
  EXPECT_EQ(
      attr_float(AttentionText(head + turned + product + shares("%s")).expect("Attention").nodes[0].attrs, "scale"), 1);
  const Graph divided = AttentionText(head + turned + product + "weight %c f32[1] fill 4\n" +
                                      "%d f32[2,3,5,7] = Div(%s, %c) as \"scaled\"\n" + shares("%d"))
                            .expect("Attention");
  EXPECT_EQ(attr_float(divided.nodes[0].attrs, "scale"), 0.25);
  // As PyTorch: a root on both sides, behind the transpose or in front of it.
  const std::string root = head + "weight %c f32[] fill 0.5\n%g f32[2,3,5,4] = Mul(%q, %c) as \"q root\"\n";
  const std::string behind = std::string(turned) + "%h f32[2,3,4,7] = Mul(%c, %t) as \"k root\"\n";
  const std::string before =
      "%i f32[2,3,7,4] = Mul(%k, %c) as \"k root\"\n%h f32[2,3,4,7] = Transpose(%i) {perm=[0,1,3,2]} as \"turned\"\n";
  for (const std::string& k : {behind, before}) {
    const Graph made =
        AttentionText(root + k + "%s f32[2,3,5,7] = MatMul(%g, %h) as \"scores\"\n" + shares("%s")).expect("Attention");
    EXPECT_EQ(attr_float(made.nodes[0].attrs, "scale"), 0.25);
  }
  // Who scales keys that others read, too, does that once more.
  AttentionText(root + behind + "%s f32[2,3,5,7] = MatMul(%g, %h) as \"scores\"\n" + shares("%s") + "output %h\n")
      .expect("Transpose Mul Transpose Attention");
}

TEST(RecognizeAttention, HoweverTheKeysLie) {
  const std::string head = "input %q f32[2,3,5,4]\ninput %v f32[2,3,7,6]\n";
  const std::string steps_first = "input %k f32[2,7,3,4]\n%t f32[2,3,4,7] = Transpose(%k) {perm=[0,2,3,1]} as \"k\"\n";
  const Graph made = AttentionText(head + steps_first + product + shares("%s")).expect("Transpose Attention");
  EXPECT_EQ(attr_ints(made.nodes[0].attrs, "perm"), (std::vector<int64_t>{0, 2, 1, 3}));
  AttentionText(head + "input %t f32[2,3,4,7]\n" + product + shares("%s")).expect("Transpose Attention");
}

TEST(RecognizeAttention, AMaskOfLaterPositionsIsCausal) {
  const std::string square =
      "input %q f32[2,3,5,4]\ninput %k f32[2,3,5,4]\ninput %v f32[2,3,5,6]\n"
      "%t f32[2,3,4,5] = Transpose(%k) {perm=[0,1,3,2]} as \"turned\"\n"
      "%s f32[2,3,5,5] = MatMul(%q, %t) as \"scores\"\n";
  const std::string rest =
      "%a f32[2,3,5,5] = Add(%s, %m) as \"masked\"\n"
      "%p f32[2,3,5,5] = Softmax(%a) {axis=-1} as \"shares\"\n"
      "%y f32[2,3,5,6] = MatMul(%p, %v) as \"context\"\noutput %y\n";
  for (const char* mask : {"f32[5,5] causal -1e9", "f32[5,5] places -1e10", "f32[1,1,5,5] places -inf"}) {
    SCOPED_TRACE(mask);
    const Graph made = AttentionText(square + "weight %m " + mask + "\n" + rest).expect("Attention");
    EXPECT_EQ(attr_int(made.nodes[0].attrs, "causal"), 1);
    EXPECT_EQ(made.nodes[0].inputs.size(), 3u);
  }
  for (const char* mask :
       {"f32[5,5] causal -10", "f32[5,5] places -100", "f32[5,5] random", "f32[3,5,5] places -inf"}) {
    SCOPED_TRACE(mask);
    const Graph made = AttentionText(square + "weight %m " + mask + "\n" + rest).expect("Attention");
    EXPECT_EQ(attr_int(made.nodes[0].attrs, "causal"), 0);
    EXPECT_EQ(made.nodes[0].inputs.size(), 4u);
  }
  // More keys than queries: the last of them are the queries' own.
  const Graph made = AttentionText(std::string(operands) + turned + product + "weight %m f32[5,7] places -inf\n" +
                                   "%a f32[2,3,5,7] = Add(%s, %m) as \"masked\"\n" + shares("%a"))
                         .expect("Attention");
  EXPECT_EQ(attr_int(made.nodes[0].attrs, "causal"), 1);
}

// As transformers' llama: every head of the keys several times, one behind the other.
TEST(RecognizeAttention, RepeatedHeadsAreShared) {
  const auto repeated = [](const std::string& name, int64_t width) {
    return fmt::format(
        "input %{0} f32[2,2,7,{1}]\n%{0}1 f32[2,2,1,7,{1}] = Reshape(%{0}) {{shape=[0,2,1,7,{1}]}} as \"{0}1\"\n"
        "%{0}2 f32[2,2,3,7,{1}] = Expand(%{0}1) {{shape=[2,2,3,7,{1}]}} as \"{0}2\"\n"
        "%{0}3 f32[2,6,7,{1}] = Reshape(%{0}2) {{shape=[0,6,7,{1}]}} as \"{0}3\"\n",
        name, width);
  };
  const std::string text = "input %q f32[2,6,5,4]\n" + repeated("k", 4) + repeated("v", 6) +
                           "%t f32[2,6,4,7] = Transpose(%k3) {perm=[0,1,3,2]} as \"turned\"\n"
                           "%s f32[2,6,5,7] = MatMul(%q, %t) as \"scores\"\n"
                           "%p f32[2,6,5,7] = Softmax(%s) {axis=3} as \"shares\"\n"
                           "%y f32[2,6,5,6] = MatMul(%p, %v3) as \"context\"\noutput %y\n";
  const Graph made = AttentionText(text).expect("Attention");
  EXPECT_EQ(made.value(made.nodes[0].inputs[1]).type.shape, (Shape{2, 2, 7, 4}));
}

// One head, without an axis for it.
TEST(RecognizeAttention, OfThreeAxes) {
  AttentionText(R"(input %q f32[2,5,4]
input %k f32[2,7,4]
input %v f32[2,7,6]
input %m f32[2,5,7]
%t f32[2,4,7] = Transpose(%k) {perm=[0,2,1]} as "turned"
%s f32[2,5,7] = MatMul(%q, %t) as "scores"
%a f32[2,5,7] = Add(%s, %m) as "masked"
%p f32[2,5,7] = Softmax(%a) {axis=2} as "shares"
%y f32[2,5,6] = MatMul(%p, %v) as "context"
output %y
)")
      .expect("Reshape Reshape Reshape Reshape Attention Reshape");
}

TEST(RecognizeAttention, LeavesWhatIsNone) {
  const std::string head = std::string(operands) + turned + product;
  AttentionText(head + shares("%s") + "output %s\n").expect("Transpose MatMul Softmax MatMul");
  AttentionText(head + shares("%s") + "output %p\n").expect("Transpose MatMul Softmax MatMul");
  AttentionText(
      head + "%p f32[2,3,5,7] = Softmax(%s) {axis=2} as \"shares\"\n%y f32[2,3,5,6] = MatMul(%p, %v) as \"context\"\n" +
      "output %y\n")
      .expect("Transpose MatMul Softmax MatMul");
  AttentionText(head + "%u f32[2,3,5,7] = Tanh(%s) as \"capped\"\n" + shares("%u"))
      .expect("Transpose MatMul Tanh Softmax MatMul");
  // A mask that is the same for all keys changes nothing, but it is not the operator's.
  AttentionText("input %m f32[5,1]\n" + head + "%a f32[2,3,5,7] = Add(%s, %m) as \"masked\"\n" + shares("%a"))
      .expect("Transpose MatMul Add Softmax MatMul");
}

TEST(RecognizeAttention, NotForTraining) {
  AttentionText text(std::string(operands) + turned + product + scaled_scores + shares("%d"));
  const Graph made = optimize(text.graph, text.weights, Purpose::training).value();
  EXPECT_TRUE(std::ranges::none_of(made.nodes, [](const Node& node) { return node.op == Op::Attention; }));
  EXPECT_EQ(optimize(text.graph, text.weights).value().nodes.size(), 1u);
}

int count_of(const Graph& graph, Op op) {
  return static_cast<int>(std::ranges::count_if(graph.nodes, [&](const Node& node) { return node.op == op; }));
}

TEST(RecognizeAttention, InTheZoo) {
  for (const auto& [name, causal] : {std::pair{"vit_b16?layers=2&hidden=32&heads=2&ffn=48&image=32", 0},
                                     {"bert_base?layers=2&hidden=32&heads=4&ffn=48&vocab=50&length=6", 0},
                                     {"gpt2?layers=2&hidden=32&heads=4&vocab=50&length=6", 1},
                                     {"llama?layers=2&hidden=32&heads=4&kv_heads=2&ffn=48&vocab=50&length=6", 1},
                                     {"llama?layers=2&hidden=32&heads=4&kv_heads=4&ffn=48&vocab=50&length=6", 1}}) {
    SCOPED_TRACE(name);
    Model model = zoo_model(name).value();
    const Graph made = optimize(model.graph, model.weights).value();
    EXPECT_EQ(count_of(made, Op::Attention), 2) << to_string(made);
    EXPECT_EQ(count_of(made, Op::Softmax), 0);
    for (const Node& node : made.nodes) {
      if (node.op == Op::Attention) {
        EXPECT_EQ(attr_int(node.attrs, "causal"), causal);
      }
    }
    const std::vector<Tensor> inputs = random_inputs(model.graph, 5);
    expect_close(evaluate(made, model.weights, inputs).value(), evaluate(model.graph, model.weights, inputs).value(),
                 {1e-4, 1e-4});
  }
}

// ONNX's own, from opset 23 on.
TEST(RecognizeAttention, AsItIsImported) {
  for (const int64_t kv_heads : {4, 2}) {
    for (const bool causal : {false, true}) {
      OnnxFile file(23);
      file.input("q", {2, 4, 5, 8});
      file.input("k", {2, kv_heads, 5, 8});
      file.input("v", {2, kv_heads, 5, 8});
      file.input("m", {5, 5});
      onnx::NodeProto& node = file.node("Attention", {"q", "k", "v"}, "y", "it");
      if (causal)
        set(node, "is_causal", int64_t{1});
      else
        node.add_input("m");
      file.output("y");
      auto model = file.import();
      ASSERT_TRUE(model.ok()) << model.error().to_string();
      const Graph made = optimize(model->graph, model->weights).value();
      EXPECT_EQ(count_of(made, Op::Attention), 1) << to_string(made);
      EXPECT_EQ(count_of(made, Op::MatMul) + count_of(made, Op::Where) + count_of(made, Op::Expand), 0)
          << to_string(made);
      const std::vector<Tensor> inputs = random_inputs(model->graph, 5);
      expect_close(evaluate(made, model->weights, inputs).value(),
                   evaluate(model->graph, model->weights, inputs).value(), {1e-5, 1e-5});
    }
  }
}

}  // namespace
}  // namespace nlsplit

// Operators recognized in their parts: golden, in every way they are written, and what only looks like one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/hash.h"
#include "graph/pass_text.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

// Texts name constants "weight %two 2" and random weights "weight %w f32[4] random".
struct OperatorText {
  explicit OperatorText(std::string_view lines) {
    std::string text = "graph \"g\"\n";
    for (size_t at = 0; at < lines.size();) {
      const size_t end = std::min(lines.find('\n', at), lines.size());
      text += line(std::string(lines.substr(at, end - at))) + "\n";
      at = end + 1;
    }
    graph = parse(text);
  }

  std::string line(const std::string& line) {
    if (!line.starts_with("weight ")) return line;
    const size_t space = line.rfind(' '), first = line.find(' ', 7);
    const std::string what = line.substr(space + 1), name = line.substr(0, first);
    if (what == "random") {
      const TensorType type = parse_tensor_type(line.substr(first + 1, space - first - 1)).value();
      const ContentId content = weights.add_random(type, ++seed, 0.5f, 1);
      return fmt::format("{} content {}", line.substr(0, space), hex16(content.value));
    }
    const ContentId content = weights.add_fill({DType::f32, {}}, std::stod(what));
    return fmt::format("{} f32[] content {}", name, hex16(content.value));
  }

  // The passes leave these operators, in order, and what is computed.
  void expect(std::string_view passes, const std::string& operators, Tolerance tolerance = {1e-5, 2e-6}) {
    const Graph made = run_passes(graph, weights, select_passes(passes).value()).value();
    std::string left;
    for (const Node& node : made.nodes) left += (left.empty() ? "" : " ") + std::string(name_of(node.op));
    EXPECT_EQ(left, operators) << to_string(made);
    const std::vector<Tensor> inputs = random_inputs(graph, 11);
    const auto before = evaluate(graph, weights, inputs), after = evaluate(made, weights, inputs);
    ASSERT_TRUE(before.ok() && after.ok());
    EXPECT_GT(deviation_of(before->at(0)), 0.02);
    expect_close(*after, *before, tolerance);
  }

  Graph graph;
  WeightStore weights;
  uint64_t seed = 0;
};

constexpr const char* centered = R"(input %x f32[2,3,8]
%m f32[2,3,1] = ReduceMean(%x) {axes=[-1], keepdims=1} as "mean"
%d f32[2,3,8] = Sub(%x, %m) as "apart"
)";
constexpr const char* squared = R"(%q f32[2,3,8] = Mul(%d, %d) as "square"
)";
constexpr const char* raised = R"(%v f32[2,3,1] = ReduceMean(%q) {axes=[2], keepdims=1} as "variance"
weight %e 0.25
%r f32[2,3,1] = Add(%v, %e) as "raised"
)";
constexpr const char* divided = R"(%s f32[2,3,1] = Sqrt(%r) as "root"
%n f32[2,3,8] = Div(%d, %s) as "normal"
)";
constexpr const char* scaled = R"(weight %w f32[8] random
%g f32[2,3,8] = Mul(%n, %w) as "scaled"
)";
constexpr const char* shifted = R"(weight %b f32[1,1,8] random
%y f32[2,3,8] = Add(%b, %g) as "shifted"
output %y
)";

TEST(RecognizeLayerNorm, WithScaleAndBias) {
  OperatorText text(fmt::format("{}{}{}{}{}{}", centered, squared, raised, divided, scaled, shifted));
  const Graph made = pass("recognize_layer_norm").run(text.graph, text.weights).value();
  EXPECT_EQ(without_contents(to_string(made)), R"(graph "g"
input %x f32[2,3,8]
weight %w f32[8]
weight %b.flat f32[8]
%y f32[2,3,8] = LayerNormalization(%x, %w, %b.flat) {axis=2, epsilon=0.25} as "shifted"
output %y
)");
  text.expect("recognize_layer_norm", "LayerNormalization");
}

TEST(RecognizeLayerNorm, HoweverItIsWritten) {
  const std::string power = "weight %two 2\n%q f32[2,3,8] = Pow(%d, %two) as \"square\"\n";
  const std::string roots[] = {
      "%s f32[2,3,1] = Sqrt(%r) as \"root\"\n%i f32[2,3,1] = Reciprocal(%s) as \"inverse\"\n"
      "%n f32[2,3,8] = Mul(%d, %i) as \"normal\"\n",
      "weight %one 1\n%s f32[2,3,1] = Sqrt(%r) as \"root\"\n%i f32[2,3,1] = Div(%one, %s) as \"inverse\"\n"
      "%n f32[2,3,8] = Mul(%i, %d) as \"normal\"\n",
      "weight %h -0.5\n%i f32[2,3,1] = Pow(%r, %h) as \"inverse\"\n%n f32[2,3,8] = Mul(%d, %i) as \"normal\"\n",
      "weight %h 0.5\n%s f32[2,3,1] = Pow(%r, %h) as \"root\"\n%n f32[2,3,8] = Div(%d, %s) as \"normal\"\n", divided};
  for (const std::string& square : {power, std::string(squared)}) {
    for (const std::string& root : roots) {
      OperatorText(centered + square + raised + root + "output %n\n")
          .expect("recognize_layer_norm", "LayerNormalization");
      OperatorText(centered + square + raised + root + scaled + "output %g\n")
          .expect("recognize_layer_norm", "LayerNormalization");
    }
  }
  // As older exporters do: the difference twice.
  OperatorText(std::string(centered) +
               "%d2 f32[2,3,8] = Sub(%x, %m) as \"again\"\n%q f32[2,3,8] = Mul(%d2, %d2) as \"square\"\n" + raised +
               divided + "output %n\n")
      .expect("merge_common,recognize_layer_norm", "LayerNormalization");
}

TEST(RecognizeLayerNorm, OverSeveralAxes) {
  OperatorText(R"(input %x f32[2,3,8]
%m f32[2,1,1] = ReduceMean(%x) {axes=[2,-2], keepdims=1} as "mean"
%d f32[2,3,8] = Sub(%x, %m) as "apart"
%q f32[2,3,8] = Mul(%d, %d) as "square"
%v f32[2,1,1] = ReduceMean(%q) {axes=[1,2], keepdims=1} as "variance"
weight %e 0.5
%r f32[2,1,1] = Add(%e, %v) as "raised"
%s f32[2,1,1] = Sqrt(%r) as "root"
%n f32[2,3,8] = Div(%d, %s) as "normal"
weight %w f32[3,8] random
%g f32[2,3,8] = Mul(%w, %n) as "scaled"
output %g
)")
      .expect("recognize_layer_norm", "LayerNormalization");
}

TEST(RecognizeLayerNorm, LeavesWhatIsNone) {
  const std::string head = std::string(centered) + squared;
  const std::string untouched = "ReduceMean Sub Mul ReduceMean Add Sqrt Div";
  OperatorText(head + raised + divided + "output %n\noutput %v\n").expect("recognize_layer_norm", untouched);
  OperatorText(std::string(centered) + "%q f32[2,3,8] = Mul(%d, %x) as \"no square\"\n" + raised + divided +
               "output %n\n")
      .expect("recognize_layer_norm", untouched);
  OperatorText(R"(input %x f32[2,8,8]
%m f32[2,1,8] = ReduceMean(%x) {axes=[1], keepdims=1} as "mean"
%d f32[2,8,8] = Sub(%x, %m) as "apart"
%q f32[2,8,8] = Mul(%d, %d) as "square"
%v f32[2,1,8] = ReduceMean(%q) {axes=[1], keepdims=1} as "variance"
weight %e 0.25
%r f32[2,1,8] = Add(%v, %e) as "raised"
%s f32[2,1,8] = Sqrt(%r) as "root"
%n f32[2,8,8] = Div(%d, %s) as "not the last axis"
output %n
)")
      .expect("recognize_layer_norm", untouched);
  // One factor a row is not one an element: the norm is recognized, the product stays.
  OperatorText(head + raised + divided +
               "weight %w f32[3,1] random\n%g f32[2,3,8] = Mul(%n, %w) as \"rows\"\noutput %g\n")
      .expect("recognize_layer_norm", "LayerNormalization Mul");
}

std::string softmax(int axis, const std::string& exponent) {
  const std::string shape = axis == 1 ? "f32[2,1,5]" : "f32[2,4,1]";
  return fmt::format(R"(input %x f32[2,4,5]
%m {0} = ReduceMax(%x) {{axes=[{1}], keepdims=1}} as "largest"
%d f32[2,4,5] = Sub(%x, %m) as "apart"
%e f32[2,4,5] = Exp({2}) as "exp"
%s {0} = ReduceSum(%e) {{axes=[{1}], keepdims=1}} as "sum"
%y f32[2,4,5] = Div(%e, %s) as "quotient"
output %y
)",
                     shape, axis, exponent);
}

TEST(RecognizeSoftmax, GoldenAndLeftAlone) {
  OperatorText text(softmax(-1, "%d"));
  EXPECT_EQ(to_string(pass("recognize_softmax").run(text.graph, text.weights).value()), R"(graph "g"
input %x f32[2,4,5]
%y f32[2,4,5] = Softmax(%x) as "quotient"
output %y
)");
  text.expect("recognize_softmax", "Softmax");
  OperatorText(softmax(1, "%d")).expect("recognize_softmax", "Softmax");
  OperatorText(softmax(1, "%d") + "output %e\n").expect("recognize_softmax", "ReduceMax Sub Exp ReduceSum Div");
  OperatorText(softmax(1, "%x")).expect("remove_dead,recognize_softmax", "Exp ReduceSum Div");
}

// %r: whose curve, %o: one, %h: one half.
TEST(RecognizeGelu, ByErfHoweverItIsWritten) {
  const std::string curves[] = {"weight %c 1.4142135381698608\n%i f32[2,9] = Div(%x, %c) as \"i\"\n",
                                "weight %c 0.7071067690849304\n%i f32[2,9] = Mul(%c, %x) as \"i\"\n"};
  const std::string products[] = {
      "%p f32[2,9] = Mul(%x, %a) as \"p\"\n%y f32[2,9] = Mul(%p, %h) as \"y\"\n",
      "%p f32[2,9] = Mul(%h, %x) as \"p\"\n%y f32[2,9] = Mul(%p, %a) as \"y\"\n",
      "%p f32[2,9] = Mul(%a, %h) as \"p\"\n%y f32[2,9] = Mul(%x, %p) as \"y\"\n",
  };
  for (const std::string& curve : curves) {
    for (const std::string& product : products) {
      OperatorText text("input %x f32[2,9]\n" + curve + "%f f32[2,9] = Erf(%i) as \"f\"\nweight %o 1\n" +
                        "%a f32[2,9] = Add(%f, %o) as \"a\"\nweight %h 0.5\n" + product + "output %y\n");
      EXPECT_EQ(to_string(pass("recognize_gelu").run(text.graph, text.weights).value()), R"(graph "g"
input %x f32[2,9]
%y f32[2,9] = Gelu(%x) as "y"
output %y
)");
      text.expect("recognize_gelu", "Gelu");
    }
  }
}

TEST(RecognizeGelu, ByTanhHoweverItIsWritten) {
  const std::string cubes[] = {
      "weight %k 3\n%p f32[2,9] = Pow(%x, %k) as \"p\"\n%q f32[2,9] = Mul(%c, %p) as \"q\"\n",
      "%p f32[2,9] = Mul(%x, %x) as \"p\"\n%o f32[2,9] = Mul(%p, %x) as \"o\"\n%q f32[2,9] = Mul(%c, %o) as \"q\"\n",
      "%p f32[2,9] = Mul(%x, %c) as \"p\"\n%o f32[2,9] = Mul(%p, %x) as \"o\"\n%q f32[2,9] = Mul(%o, %x) as \"q\"\n"};
  const std::string tail = R"(%t f32[2,9] = Tanh(%v) as "t"
weight %one 1
%a f32[2,9] = Add(%one, %t) as "a"
weight %h 0.5
%z f32[2,9] = Mul(%h, %x) as "z"
%y f32[2,9] = Mul(%z, %a) as "y"
output %y
)";
  for (const std::string& cube : cubes) {
    OperatorText("input %x f32[2,9]\nweight %c 0.044715\n" + cube + "%s f32[2,9] = Add(%x, %q) as \"s\"\n" +
                 "weight %r 0.7978845608\n%v f32[2,9] = Mul(%r, %s) as \"v\"\n" + tail)
        .expect("recognize_gelu", "Gelu");
  }
  // As TensorFlow's: sqrt(2 / pi) x (1 + 0.044715 x²)
  OperatorText(R"(input %x f32[2,9]
weight %c 0.044715
%p f32[2,9] = Mul(%x, %x) as "p"
%q f32[2,9] = Mul(%c, %p) as "q"
weight %o 1
%s f32[2,9] = Add(%o, %q) as "s"
weight %r 0.7978845608
%u f32[2,9] = Mul(%x, %r) as "u"
%v f32[2,9] = Mul(%u, %s) as "v"
)" + tail)
      .expect("recognize_gelu", "Gelu");
  // Another constant is another function.
  OperatorText("input %x f32[2,9]\nweight %c 0.0447\n" + cubes[0] + "%s f32[2,9] = Add(%x, %q) as \"s\"\n" +
               "weight %r 0.7978845608\n%v f32[2,9] = Mul(%r, %s) as \"v\"\n" + tail)
      .expect("recognize_gelu", "Pow Mul Add Mul Tanh Add Mul Mul");
}

TEST(RecognizeGelu, LeavesWhatIsNone) {
  const std::string head = R"(input %x f32[2,9]
input %z f32[2,9]
weight %c 1.4142135381698608
%i f32[2,9] = Div(%x, %c) as "i"
%f f32[2,9] = Erf(%i) as "f"
weight %o 1
%a f32[2,9] = Add(%f, %o) as "a"
weight %h 0.5
)";
  const std::string untouched = "Div Erf Add Mul Mul";
  OperatorText(head + "%p f32[2,9] = Mul(%z, %a) as \"another x\"\n%y f32[2,9] = Mul(%p, %h) as \"y\"\noutput %y\n")
      .expect("recognize_gelu", untouched);
  OperatorText(head + "%p f32[2,9] = Mul(%x, %a) as \"p\"\n%y f32[2,9] = Mul(%p, %h) as \"y\"\noutput %y\noutput %p\n")
      .expect("recognize_gelu", untouched);
  OperatorText(head + "%p f32[2,9] = Mul(%x, %a) as \"p\"\n%y f32[2,9] = Mul(%p, %o) as \"not halved\"\noutput %y\n")
      .expect("recognize_gelu", untouched);
}

// A long chain of products is no pattern, and is not walked from each of its ends.
TEST(RecognizeGelu, ALongProductIsLeftSoon) {
  std::string text = "input %x f32[4]\n%p0 f32[4] = Tanh(%x) as \"p0\"\n";
  for (int i = 1; i <= 3000; ++i) text += fmt::format("%p{} f32[4] = Mul(%p{}, %x) as \"p{}\"\n", i, i - 1, i);
  OperatorText chain(text + "output %p3000\n");
  EXPECT_EQ(pass("recognize_gelu").run(chain.graph, chain.weights).value(), chain.graph);
}

TEST(SimplifyPowers, SquaresCubesAndInverses) {
  const auto power = [](const std::string& exponent) {
    return OperatorText("input %x f32[2,9]\nweight %k " + exponent +
                        "\n%p f32[2,9] = Pow(%x, %k) as \"p\"\n%y f32[2,9] = Relu(%p) as \"y\"\noutput %y\n");
  };
  power("2").expect("simplify_powers", "Mul Relu", {0, 0});
  power("3").expect("simplify_powers", "Mul Mul Relu");
  power("-1").expect("simplify_powers", "Reciprocal Relu", {0, 0});
  power("4").expect("simplify_powers", "Pow Relu");
}

TEST(SimplifyPowers, LeavesWhatIsAnother) {
  // A root, an exponent that decides the shape, one that is not known, and integers, which wrap.
  for (const std::string other :
       {"input %x f32[2,9]\nweight %k 0.5\n%y f32[2,9] = Pow(%x, %k) as \"y\"\noutput %y\n",
        "input %x f32[2,9]\nweight %k f32[1,1,1] random\n%y f32[1,2,9] = Pow(%x, %k) as \"y\"\noutput %y\n",
        "input %x f32[2,9]\ninput %k f32[2,9]\n%y f32[2,9] = Pow(%x, %k) as \"y\"\noutput %y\n",
        "input %x i64[2,9]\nweight %k 2\n%y i64[2,9] = Pow(%x, %k) as \"y\"\noutput %y\n"}) {
    OperatorText text(other);
    EXPECT_EQ(pass("simplify_powers").run(text.graph, text.weights).value(), text.graph) << other;
  }
}

}  // namespace
}  // namespace nlsplit

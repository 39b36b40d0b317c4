// The text form of a Graph: golden, round trip, and errors that show the place.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "base/random.h"
#include "graph/builder.h"
#include "graph/operators/attributes.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "testing/paths.h"
#include "testing/random_graph.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view residual = R"(graph "residual"
input %x f32[1,4,6,6]
weight %w f32[4,4,3,3] content 00000000000000aa
weight %b f32[4] content 00000000000000bb
%"sum 1" f32[1,4,6,6] = Conv(%x, %w, %b) {pads=[1,1,1,1]} as "conv1" + Add(%x) as "add1" + LeakyRelu {alpha=1.0} as "a \"quoted\" # name"
weight %w2 f32[4,4,1,1] content 0000000000000001
%y f32[1,4,6,6] = Conv(%"sum 1", %w2) as "conv2"
%flat f32[1,144] = Flatten(%y) as "flat"
output %flat
output %y
)";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Text, ParsesAndPrintsBack) {
  const auto graph = parse_graph(residual, "residual.nls");
  ASSERT_TRUE(graph.ok()) << graph.error().to_string();
  EXPECT_EQ(to_string(*graph), residual);
  EXPECT_EQ(graph->name, "residual");
  EXPECT_EQ(graph->nodes.size(), 3u);
  const Node& conv = graph->nodes[0];
  EXPECT_EQ(conv.epilogue.size(), 2u);
  EXPECT_EQ(conv.epilogue[0].operand, graph->inputs[0]);
  EXPECT_EQ(conv.epilogue[1].name, "a \"quoted\" # name");
  EXPECT_EQ(attr_float(conv.epilogue[1].attrs, "alpha"), 1.0);
}

// Whether they are written or not, the graph has them.
TEST(Text, UsualAttributesNeedNotBeWritten) {
  const Graph graph = parse_graph(residual, "residual.nls").value();
  EXPECT_EQ(attr_ints(graph.nodes[0].attrs, "kernel_shape"), (std::vector<int64_t>{3, 3})) << "its weights'";
  EXPECT_EQ(attr_ints(graph.nodes[1].attrs, "pads"), (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(attr_int(graph.nodes[2].attrs, "axis"), 1);
  const std::string written =
      replaced(replaced(std::string(residual), "{pads=[1,1,1,1]}",
                        "{dilations=[1,1], group=1, kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1]}"),
               "Flatten(%y)", "Flatten(%y) {axis=1}");
  EXPECT_EQ(parse_graph(written, "written").value(), graph);
  // What is nearly usual is not left out.
  for (const char* line : {"Pad(%x) {pads=[0,0,0,0], value=-0.0}", "LeakyRelu(%x) {alpha=0.01}", "Softmax(%x) {axis=1}",
                           "Clip(%x) {max=6.0}", "Gelu(%x)", "Gelu(%x) {approximate=\"tanh\"}"}) {
    const std::string text =
        fmt::format("graph \"g\"\ninput %x f32[2,3]\n%y f32[2,3] = {} as \"y\"\noutput %y\n", line);
    EXPECT_EQ(to_string(parse_graph(text, "g").value()), text);
  }
}

TEST(Text, ImagesAreSampledInTheUsualWay) {
  constexpr std::string_view text = R"(graph "images"
input %x f32[1,2,4,4]
input %where f32[1,3,3,2]
input %regions f32[3,4]
input %of i64[3]
%larger f32[1,2,8,8] = Resize(%x) {scales=[1.0,1.0,2.0,2.0], sizes=[0,0,8,8]} as "larger"
%smooth f32[1,2,8,8] = Resize(%x) {mode="linear", scales=[1.0,1.0,2.0,2.0], sizes=[0,0,8,8]} as "smooth"
%there f32[1,2,3,3] = GridSample(%x, %where) as "there"
%cut f32[3,2,2,2] = RoiAlign(%x, %regions, %of) {output_height=2, output_width=2} as "cut"
%curve f32[1,2,4,4] = Gelu(%x) as "curve"
output %larger
output %smooth
output %there
output %cut
output %curve
)";
  const auto graph = parse_graph(text, "images.nls");
  ASSERT_TRUE(graph.ok()) << graph.error().to_string();
  EXPECT_EQ(to_string(*graph), text);
}

// In every attribute that may be missing: the kind its operator asks for, and the documentation's row.
TEST(Text, UsualAttributesAreDocumented) {
  const std::string docs = value_of(read_file(NLS_SOURCE_DIR "/docs/ir.md"));
  const std::vector<TensorType> inputs = {{DType::f32, {1, 4, 6, 6}}, {DType::f32, {4, 4, 3, 3}}};
  size_t documented = 0;
  for (int i = 0; i < op_count; ++i) {
    const Op op = static_cast<Op>(i);
    const Attrs attrs = default_attrs(op, inputs);
    if (attrs.empty()) continue;
    EXPECT_TRUE(std::ranges::is_sorted(attrs, {}, &Attr::name)) << name_of(op);
    for (const Attr& attr : attrs) {
      const auto spec = std::ranges::find(info(op).attrs, attr.name, &AttrSpec::name);
      ASSERT_NE(spec, info(op).attrs.end()) << name_of(op);
      EXPECT_EQ(std::string_view("ifsld").find(spec->kind), attr.value.index()) << name_of(op) << " " << attr.name;
    }
    const std::string text = to_string(attrs), row = "`" + text.substr(1, text.size() - 2) + "`";
    bool found = false;
    for (size_t at = docs.find("\n| `"); at != std::string::npos; at = docs.find("\n| `", at + 1)) {
      const std::string line = docs.substr(at + 1, docs.find('\n', at + 1) - at - 1);
      found = found ||
              (line.find(fmt::format("`{}`", name_of(op))) != std::string::npos && line.find(row) != std::string::npos);
    }
    EXPECT_TRUE(found) << "docs/ir.md has no row for " << name_of(op) << ": " << row;
    ++documented;
  }
  EXPECT_GT(documented, 40u);
}

TEST(Text, TheExampleOfTheDocumentationIsAGraph) {
  const std::string docs = value_of(read_file(NLS_SOURCE_DIR "/docs/ir.md"));
  const size_t begin = docs.find("graph \"block\"");
  ASSERT_NE(begin, std::string::npos);
  const std::string example = docs.substr(begin, docs.find("```", begin) - begin);
  const auto graph = parse_graph(example, "docs/ir.md");
  ASSERT_TRUE(graph.ok()) << graph.error().to_string();
  EXPECT_EQ(to_string(*graph), example);
}

TEST(Text, CostsAreComments) {
  const Graph graph = parse_graph(residual, "residual.nls").value();
  const std::string text = to_string(graph, true);
  // conv2: 2 * 4 * 36 * 4 = 1152 operations; 4 * (144 + 16) bytes in, 4 * 144 out
  EXPECT_THAT(text, HasSubstr("as \"conv2\"  # " + to_string(flops(1152)) + ", reads " + to_string(bytes(640)) +
                              ", writes " + to_string(bytes(576))));
  EXPECT_THAT(text, HasSubstr("# a view"));
  EXPECT_EQ(parse_graph(text, "costs").value(), graph);
}

TEST(Text, RoundTripOfRandomGraphs) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Model model = random_graph(seed, static_cast<int>(1 + seed % 20));
    for (const Graph& graph :
         {model.graph, optimize(model.graph, model.weights).value(), with_batch(model.graph, 3).value()}) {
      const std::string text = to_string(graph);
      const auto parsed = parse_graph(text, "random");
      ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
      EXPECT_EQ(*parsed, graph);
      EXPECT_EQ(to_string(*parsed), text);
    }
  }
}

TEST(Text, RoundTripOfTheZoo) {
  for (const ZooEntry& entry : zoo()) {
    SCOPED_TRACE(entry.name);
    Model model = entry.build(1).value();
    const Graph fused = optimize(model.graph, model.weights).value();
    EXPECT_EQ(parse_graph(to_string(fused), "zoo").value(), fused);
  }
}

std::string error_of(std::string_view text) {
  const auto graph = parse_graph(text, "bad.nls");
  return graph.ok() ? "accepted" : graph.error().to_string();
}

TEST(Text, ErrorsShowThePlace) {
  const std::string good(residual);
  EXPECT_THAT(error_of(""), HasSubstr("no graph"));
  EXPECT_THAT(error_of("grph \"x\""), HasSubstr("bad.nls:1:1: expected 'graph'"));
  EXPECT_THAT(error_of(replaced(good, "Conv(", "Convv(")),
              HasSubstr("bad.nls:5:25: unknown operator Convv; did you mean Conv?"));
  EXPECT_THAT(error_of(replaced(good, "(%x, %w", "(%x, %v")), HasSubstr("%v is not made before this line"));
  EXPECT_THAT(error_of(replaced(good, "f32[1,4,6,6]", "f8[1,4,6,6]")), HasSubstr("bad.nls:2:"));
  EXPECT_THAT(error_of(replaced(good, "f32[1,4,6,6]", "f32[1,4,6,")), HasSubstr("not a tensor type"));
  EXPECT_THAT(error_of(replaced(good, "[1,4,6,6]", "[1,4,99999999999999,6666]")), HasSubstr("too large"));
  EXPECT_THAT(error_of(replaced(good, "{pads", "{group=1, group=2, pads")), HasSubstr("stands twice"));
  EXPECT_THAT(error_of(replaced(good, "Flatten(", "Transpose(")),
              HasSubstr("node flat (Transpose): attribute perm is missing"));
  EXPECT_THAT(error_of(replaced(good, "{pads", "{group=1.0, pads")), HasSubstr("attribute group has the wrong type"));
  EXPECT_THAT(error_of(replaced(good, "as \"conv2\"", "")), HasSubstr("expected 'as'"));
  EXPECT_THAT(error_of(replaced(good, "weight %b", "weight %w")), HasSubstr("two values are called w"));
  EXPECT_THAT(error_of(replaced(good, "as \"flat\"", "as \"conv2\"")), HasSubstr("two nodes are called conv2"));
  EXPECT_THAT(error_of(replaced(good, "%flat f32[1,144]", "%flat f32[144]")),
              HasSubstr("is said to be f32[144], but is f32[1,144]"));
  EXPECT_THAT(error_of(replaced(good, "Add(%x)", "Sub(%x)")), HasSubstr("Sub cannot be fused"));
  EXPECT_THAT(error_of(replaced(good, "Add(%x)", "Add(%b)")), HasSubstr("operand of another type"));
  EXPECT_THAT(error_of(replaced(good, "Add(%x)", "Add")), HasSubstr("wrong number of operands"));
  EXPECT_THAT(error_of(replaced(good, "alpha=1.0", "alpha=nan")),
              HasSubstr("expected a number (a number), found 'nan'"));
  EXPECT_THAT(error_of(replaced(replaced(good, "output %flat\n", ""), "output %y\n", "")),
              HasSubstr("without outputs"));
}

// What chance alone would not write: otherwise the fuzzer sees little of what lies behind the parser.
TEST(Text, TheFuzzersRecurrentNetworkIsAccepted) {
  const auto text = read_file(NLS_SOURCE_DIR "/tests/fuzz/corpus/graph_text/recurrent.txt");
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(error_of(*text), "accepted");
}

TEST(Text, CountsAreBounded) {
  std::string ones = "1", attrs = "a0=1";
  for (int i = 1; i < 65; ++i) ones += ",1";
  for (int i = 1; i < 300; ++i) attrs += fmt::format(", a{}=1", i);
  EXPECT_THAT(error_of("graph \"g\"\ninput %x f32[" + ones + "]\noutput %x\n"),
              HasSubstr("a tensor of 65 axes; at most 64 are supported"));
  EXPECT_THAT(error_of("graph \"g\"\ninput %x f32[1]\n%y f32[1] = Relu(%x) {" + attrs + "} as \"y\"\noutput %y\n"),
              HasSubstr("more than 256 attributes"));
}

// Whatever a text says, it is accepted or refused; what is accepted prints and parses back.
TEST(Text, DamagedTextNeverCrashes) {
  const std::string good(residual);
  Random random(7);
  const std::string_view pieces[] = {"-1", "0",   "9223372036854775807", "%", "\"", "[", "]", "{", "}", ",",
                                     "=",  "f32", "+ Relu as \"r\""};
  size_t accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    const size_t at = random.below(text.size());
    switch (random.below(4)) {
      case 0:
        text[at] = static_cast<char>(random.below(256));
        break;
      case 1:
        text.resize(at);
        break;
      case 2:
        text.erase(at, 1 + random.below(8));
        break;
      default:
        text.insert(at, pieces[random.below(std::size(pieces))]);
        break;
    }
    const auto graph = parse_graph(text, "damaged");
    if (!graph.ok()) continue;
    ++accepted;
    const std::string printed = to_string(*graph);
    ASSERT_EQ(parse_graph(printed, "printed").value(), *graph) << text;
  }
  EXPECT_GT(accepted, 0u) << "changes inside names and contents are legal";
}

TEST(Text, TensorTypes) {
  for (const char* text : {"f32[]", "f32[1,3,224,224]", "i64[0]", "bool[2,2]", "i32[7]"}) {
    EXPECT_EQ(to_string(parse_tensor_type(text).value()), text);
  }
  for (const char* text :
       {"", "f32", "f32[", "f32[1,]", "f32[,1]", "f32[-1]", "f32[1]x", "q8[1]", "f32[99999999,99999999]"}) {
    EXPECT_FALSE(parse_tensor_type(text).ok()) << text;
  }
}

}  // namespace
}  // namespace nlsplit

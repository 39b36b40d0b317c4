// LSTM, GRU and RNN: their equations by hand, the one form import makes of them, the batch axis, and the way back to
// ONNX.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/builder.h"
#include "graph/onnx/export.h"
#include "graph/passes/passes.h"
#include "graph/reference/evaluate.h"
#include "onnx_file.h"
#include "testing/tensors.h"
#include "testing/types.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Ints = std::vector<int64_t>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

const Attrs forward{{"direction", std::string("forward")}};

// One unit, one feature, two steps; every weight another number.
TEST(Recurrent, LstmByHand) {
  const double w[] = {0.5, -0.4, 0.3, 0.7}, r[] = {0.2, 0.6, -0.5, 0.1};  // i, o, f, c
  const double b[] = {0.01, 0.02, 0.03, 0.04, 0.1, 0.2, 0.3, 0.4}, p[] = {0.25, -0.75, 0.35};
  const double x[] = {1.5, -2};
  double h = 0.3, c = -0.6;
  std::vector<float> expected;
  for (int t = 0; t < 2; ++t) {
    const auto sum = [&](int g) { return w[g] * x[t] + r[g] * h + b[g] + b[g + 4]; };
    const double i = sigmoid(sum(0) + p[0] * c), f = sigmoid(sum(2) + p[2] * c), g = std::tanh(sum(3));
    c = f * c + i * g;
    h = sigmoid(sum(1) + p[1] * c) * std::tanh(c);
    expected.push_back(static_cast<float>(h));
  }
  const auto column = [](const auto& numbers) {
    Tensor tensor{f32({1, static_cast<int64_t>(std::size(numbers)), 1}), {}};
    for (const double number : numbers) tensor.values.push_back(static_cast<float>(number));
    return tensor;
  };
  Tensor bias = column(b), peepholes = column(p);
  bias.type.shape = {1, 8}, peepholes.type.shape = {1, 3};
  const auto y =
      run_op(Op::LSTM, forward,
             {column(x), column(w), column(r), bias, tensor({1, 1, 1}, {0.3f}), tensor({1, 1, 1}, {-0.6f}), peepholes});
  ASSERT_EQ(y.size(), 3u);
  expect_close(y[0], tensor({1, 2, 1, 1}, expected));
  expect_close(y[1], tensor({1, 1, 1}, {expected[1]}));
  expect_close(y[2], tensor({1, 1, 1}, {static_cast<float>(c)}));
}

TEST(Recurrent, GruByHand) {
  for (const int64_t after : {0, 1}) {
    const double w[] = {0.5, -0.4, 0.7}, r[] = {0.2, 0.6, -0.5}, b[] = {0.01, 0.02, 0.03, 0.1, 0.2, 0.3};  // z, r, h
    double h = 0.8;
    const double z = sigmoid(w[0] * 1.5 + r[0] * h + b[0] + b[3]), reset = sigmoid(w[1] * 1.5 + r[1] * h + b[1] + b[4]);
    const double from_state = after != 0 ? reset * (r[2] * h + b[5]) : r[2] * (reset * h) + b[5];
    h = (1 - z) * std::tanh(w[2] * 1.5 + b[2] + from_state) + z * h;
    Attrs attrs = forward;
    set_attr(attrs, "linear_before_reset", after);
    const auto y = run_op(
        Op::GRU, attrs,
        {tensor({1, 1, 1}, {1.5}), tensor({1, 3, 1}, {0.5f, -0.4f, 0.7f}), tensor({1, 3, 1}, {0.2f, 0.6f, -0.5f}),
         tensor({1, 6}, {0.01f, 0.02f, 0.03f, 0.1f, 0.2f, 0.3f}), tensor({1, 1, 1}, {0.8f})});
    expect_close(y[0], tensor({1, 1, 1, 1}, {static_cast<float>(h)}));
  }
}

// With w = 1, r = 1: h = tanh(x + h). Steps in their order, from the end, and both.
TEST(Recurrent, Directions) {
  const float one = std::tanh(1.0f), two = std::tanh(2.0f);
  const float then_two = std::tanh(2 + one), then_one = std::tanh(1 + two);
  const Tensor x = tensor({1, 2, 1}, {1, 2}), unit = tensor({1, 1, 1}, {1}), zeros = tensor({1, 2}, {0, 0});
  const auto reverse = run_op(Op::RNN, {{"direction", std::string("reverse")}}, {x, unit, unit, zeros});
  expect_close(reverse[0], tensor({1, 2, 1, 1}, {then_one, two}));
  expect_close(reverse[1], tensor({1, 1, 1}, {then_one}));
  const Tensor units = tensor({2, 1, 1}, {1, 1}), both_zeros = tensor({2, 2}, {0, 0, 0, 0});
  const auto both = run_op(Op::RNN, {{"direction", std::string("bidirectional")}}, {x, units, units, both_zeros});
  expect_close(both[0], tensor({1, 2, 2, 1}, {one, then_one, then_two, two}));
  expect_close(both[1], tensor({1, 2, 1}, {then_two, then_one}));
}

TEST(Recurrent, TypesAndWork) {
  const auto infer = [](Op op, const std::vector<TensorType>& inputs, const Attrs& attrs) {
    const auto types = info(op).infer(inputs, attrs);
    if (!types.ok()) return types.error().message;
    std::string text;
    for (const TensorType& type : *types) text += (text.empty() ? "" : " ") + to_string(type);
    return text;
  };
  const Attrs both{{"direction", std::string("bidirectional")}};
  std::vector<TensorType> lstm{f32({5, 7, 3}), f32({1, 8, 3}), f32({1, 8, 2}), f32({1, 16})};
  EXPECT_EQ(infer(Op::LSTM, lstm, forward), "f32[5,7,1,2] f32[5,1,2] f32[5,1,2]");
  EXPECT_THAT(infer(Op::LSTM, lstm, both), HasSubstr("the input weights are f32[1,8,3], not f32[2,8,3]"));
  EXPECT_THAT(infer(Op::LSTM, lstm, {{"direction", std::string("sideways")}}), HasSubstr("a direction \"sideways\""));
  lstm.push_back(f32({4, 1, 2}));
  EXPECT_THAT(infer(Op::LSTM, lstm, forward), HasSubstr("the initial states are f32[4,1,2], not f32[5,1,2]"));
  lstm[4] = f32({1, 1, 2});
  lstm.push_back(f32({5, 1, 2}));
  lstm.push_back(f32({1, 7}));
  EXPECT_THAT(infer(Op::LSTM, lstm, forward), HasSubstr("the peepholes are f32[1,7], not f32[1,6]"));
  EXPECT_EQ(infer(Op::RNN, {f32({5, 7, 3}), f32({2, 2, 3}), f32({2, 2, 2}), f32({2, 4})}, both),
            "f32[5,7,2,2] f32[5,2,2]");
  // 35 steps of 2 units, each with 4 gates of 3 + 2 multiply-adds and nine operations more.
  lstm.resize(4);
  const auto types = info(Op::LSTM).infer(lstm, forward).value();
  EXPECT_EQ(work_of(Op::LSTM, forward, {}, lstm, types).flops.value(), 35 * 2 * (4 * 5 * 2 + 9));

  const auto keeps = [](const std::vector<TensorType>& inputs, uint64_t batched) {
    return info(Op::LSTM).keeps_batch(inputs, batched, forward);
  };
  EXPECT_TRUE(keeps(lstm, 1));
  EXPECT_FALSE(keeps(lstm, 3)) << "weights for each sample";
  lstm.push_back(f32({5, 1, 2}));
  EXPECT_TRUE(keeps(lstm, 1 | 1 << 4));
  EXPECT_FALSE(keeps(lstm, 1)) << "a constant state for each of the samples";
  lstm[4] = f32({1, 1, 2});
  EXPECT_TRUE(keeps(lstm, 1));
}

// ---- import

std::vector<float> ramp(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(0.4f * std::sin(static_cast<float>(i)));
  return values;
}

void weight(OnnxFile& file, const std::string& name, const Shape& shape) {
  file.floats(name, shape, ramp(element_count(shape)));
}

// x is [steps, batch, 3], two units; `build` may add inputs and attributes.
template <class Build>
Result<Model> lstm(Build build, const std::string& op = "LSTM", int64_t gates = 4, int64_t opset = 14) {
  OnnxFile file(opset);
  file.input("x", {4, 5, 3});
  weight(file, "w", {1, gates * 2, 3});
  weight(file, "r", {1, gates * 2, 2});
  onnx::NodeProto& node = file.node(op, {"x", "w", "r"}, "y", "it");
  file.output("y");
  build(file, node);
  return file.import();
}

void set_strings(onnx::NodeProto& node, const std::string& name, const std::vector<std::string>& values) {
  onnx::AttributeProto& attr = *node.add_attribute();
  attr.set_name(name);
  attr.set_type(onnx::AttributeProto::STRINGS);
  for (const std::string& value : values) attr.add_strings(value);
}

TEST(ImportRecurrent, IsBatchFirstBetweenTransposes) {
  EXPECT_EQ(nodes_of(lstm([](OnnxFile&, onnx::NodeProto& n) { set(n, "hidden_size", int64_t{2}); })),
            "%it.x f32[5,4,3] = Transpose(%x) {perm=[1,0,2]} as \"it.x\"\n"
            "%it.y f32[5,4,1,2], %it.y_h f32[5,1,2], %it.y_c f32[5,1,2] = LSTM(%it.x, %w, %r, %it.zero_bias) "
            "as \"it\"\n"
            "%y f32[4,1,5,2] = Transpose(%it.y) {perm=[1,2,0,3]} as \"it.y\"\n");
  EXPECT_EQ(nodes_of(lstm(
                [](OnnxFile&, onnx::NodeProto& n) {
                  set(n, "layout", int64_t{1});
                  set(n, "linear_before_reset", int64_t{1});
                  n.add_output("y_h");
                },
                "GRU", 3)),
            "%y f32[4,5,1,2], %y_h f32[4,1,2] = GRU(%x, %w, %r, %it.zero_bias) "
            "{linear_before_reset=1} as \"it\"\n");
}

TEST(ImportRecurrent, OptionalInputs) {
  const auto with = [](const std::vector<std::string>& inputs, const std::vector<float>& state) {
    return nodes_of(lstm([&](OnnxFile& f, onnx::NodeProto& n) {
      weight(f, "b", {1, 16});
      weight(f, "p", {1, 6});
      f.integers("lengths", {4, 4, 4, 4, 4});
      f.floats("h", {1, 5, 2}, state);
      for (const std::string& input : inputs) n.add_input(input);
    }));
  };
  const std::vector<float> zeros(10, 0.0f), same{1, 2, 1, 2, 1, 2, 1, 2, 1, 2}, own = ramp(10);
  EXPECT_THAT(with({"b", "lengths"}, zeros), HasSubstr("= LSTM(%it.x, %w, %r, %b) as"));
  EXPECT_THAT(with({"b", "", "h"}, zeros), HasSubstr("= LSTM(%it.x, %w, %r, %b) as")) << "the state begins as zero";
  EXPECT_THAT(with({"b", "", "h"}, same), HasSubstr("= LSTM(%it.x, %w, %r, %b, %it.h) as"));
  EXPECT_THAT(with({"", "", "", "h"}, own), HasSubstr("= LSTM(%it.x, %w, %r, %it.zero_bias, %it.zero_h, %it.c) as"));
  EXPECT_THAT(with({"b", "", "", "", "p"}, own), HasSubstr("= LSTM(%it.x, %w, %r, %b, %it.zero_h, %it.zero_c, %p) as"));
}

TEST(ImportRecurrent, Refusals) {
  const auto refused = [](auto build, int64_t opset = 14) { return nodes_of(lstm(build, "LSTM", 4, opset)); };
  const std::string at = "node it (LSTM, opset 14): ";
  EXPECT_THAT(refused([](OnnxFile&, onnx::NodeProto& n) { set(n, "clip", 1.0f); }), HasSubstr(at + "clip"));
  EXPECT_THAT(refused([](OnnxFile&, onnx::NodeProto& n) { set(n, "input_forget", int64_t{1}); }),
              HasSubstr(at + "input_forget"));
  EXPECT_THAT(refused([](OnnxFile&, onnx::NodeProto& n) { set(n, "hidden_size", int64_t{3}); }),
              HasSubstr(at + "hidden_size is 3, the recurrent weights are for 2"));
  EXPECT_THAT(refused([](OnnxFile&, onnx::NodeProto& n) { set(n, "direction", "sideways"); }),
              HasSubstr("a direction \"sideways\""));
  EXPECT_THAT(refused([](OnnxFile&, onnx::NodeProto& n) {
                set_strings(n, "activations", {"Sigmoid", "Relu", "Tanh"});
              }),
              HasSubstr(at + "the activation Relu as number 2 of LSTM"));
  EXPECT_THAT(refused([](OnnxFile&, onnx::NodeProto& n) {
                set_strings(n, "activations", {"Sigmoid", "tanh", "Tanh"});
              }),
              HasSubstr("= LSTM("));
  EXPECT_THAT(refused([](OnnxFile&, onnx::NodeProto&) {}, 6), HasSubstr("recurrent operators before opset 7"));
  EXPECT_THAT(refused([](OnnxFile& f, onnx::NodeProto& n) {
                f.integers("lengths", {4, 4, 3, 4, 4});
                n.add_input("");
                n.add_input("lengths");
              }),
              HasSubstr(at + "a sequence_lens of 3 where there are 4 steps"));
  EXPECT_THAT(refused([](OnnxFile& f, onnx::NodeProto& n) {
                f.input("lengths", {5}, onnx::TensorProto::INT32);
                n.add_input("");
                n.add_input("lengths");
              }),
              HasSubstr(at + "sequence_lens that is not constant"));
  EXPECT_THAT(refused([](OnnxFile& f, onnx::NodeProto& n) {
                weight(f, "h", {1, 4, 2});
                n.add_input("");
                n.add_input("");
                n.add_input("h");
              }),
              HasSubstr(at + "input 5 is f32[1,4,2], not f32[1,5,2]"));
  EXPECT_THAT(refused([](OnnxFile&, onnx::NodeProto& n) { n.set_input(1, "x"); }),
              HasSubstr("the input weights are f32[4,5,3]"));
}

// As PyTorch writes a batch-first LSTM of two layers, the first one bidirectional.
OnnxFile batch_first_network(int64_t batch) {
  OnnxFile file(14);
  file.input("x", {batch, 6, 3});
  weight(file, "w1", {2, 16, 3});
  weight(file, "r1", {2, 16, 4});
  weight(file, "b1", {2, 32});
  weight(file, "w2", {1, 8, 8});
  weight(file, "r2", {1, 8, 2});
  weight(file, "b2", {1, 16});
  file.floats("zeros", {2, batch, 4}, std::vector<float>(static_cast<size_t>(8 * batch), 0.0f));
  file.integers("merged", {0, 0, -1});
  set(file.node("Transpose", {"x"}, "x.t", "turn"), "perm", Ints{1, 0, 2});
  set(file.node("LSTM", {"x.t", "w1", "r1", "b1", "", "zeros", "zeros"}, "y1", "first"), "direction", "bidirectional");
  set(file.node("Transpose", {"y1"}, "y1.t", "directions"), "perm", Ints{0, 2, 1, 3});
  file.node("Reshape", {"y1.t", "merged"}, "y1.m", "merge");
  onnx::NodeProto& second = file.node("LSTM", {"y1.m", "w2", "r2", "b2"}, "y2", "second");
  second.add_output("h2");
  file.integers("axis", {1});
  file.node("Squeeze", {"y2", "axis"}, "y2.s", "squeeze");
  set(file.node("Transpose", {"y2.s"}, "y", "back"), "perm", Ints{1, 0, 2});
  file.integers("axis0", {0});
  file.node("Squeeze", {"h2", "axis0"}, "h", "last");
  file.output("y");
  file.output("h");
  return file;
}

TEST(ImportRecurrent, ABatchFirstNetworkHasNoTransposes) {
  for (const int64_t batch : {1, 3}) {
    auto model = batch_first_network(batch).import();
    ASSERT_TRUE(model.ok()) << model.error().to_string();
    const Graph one = with_batch(model->graph, 1).value();
    EXPECT_EQ(nodes_of(Model{optimize(one, model->weights).value(), {}}),
              "%first.y f32[1,6,2,4], %first.y_h f32[1,2,4], %first.y_c f32[1,2,4] = LSTM(%x, %w1, %r1, %b1) "
              "{direction=\"bidirectional\"} as \"first\"\n"
              "%merge.reshape f32[1,6,8] = Reshape(%first.y) {shape=[0,0,-1]} as \"merge.reshape\"\n"
              "%second.y f32[1,6,1,2], %second.y_h f32[1,1,2], %second.y_c f32[1,1,2] = LSTM(%merge.reshape, %w2, %r2, "
              "%b2) as \"second\"\n"
              "%squeeze.reshape f32[1,6,2] = Reshape(%second.y) {shape=[0,6,2]} as \"squeeze.reshape\"\n"
              "%y f32[1,6,2] = Identity(%squeeze.reshape) as \"back\"\n"
              "%h f32[1,2] = Reshape(%second.y_h) {shape=[0,2]} as \"last\"\n");
  }
}

// Whatever the Transposes became: the samples of a batch are what each is alone.
TEST(ImportRecurrent, SamplesKeepApart) {
  auto model = batch_first_network(1).import();
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  const Tensor x = random_tensor(f32({3, 6, 3}), 1);
  const auto whole = evaluate(with_batch(model->graph, 3).value(), model->weights, {x}).value();
  for (int64_t s = 0; s < 3; ++s) {
    const auto part = [&](const Tensor& all) {
      const auto each = static_cast<std::ptrdiff_t>(all.values.size() / 3);
      Tensor one{all.type, {all.values.begin() + s * each, all.values.begin() + (s + 1) * each}};
      one.type.shape[0] = 1;
      return one;
    };
    const auto alone = evaluate(model->graph, model->weights, {part(x)}).value();
    expect_same_bits(alone, {part(whole[0]), part(whole[1])});
  }
  // A network whose own input has the steps first has no samples along axis 0.
  const auto steps_first = lstm([](OnnxFile&, onnx::NodeProto&) {});
  EXPECT_THAT(with_batch(steps_first->graph, 8).error().message, HasSubstr("node it.x (Transpose) mixes samples"));
}

// ---- export: of steps-first ONNX between Transposes, which cancel when it is read back

class ExportRecurrent : public ::testing::TestWithParam<std::string> {};

TEST_P(ExportRecurrent, ComesBack) {
  const std::string text = GetParam();
  GraphBuilder builder("recurrent");
  WeightStore weights;
  const Op op = parse_op(text.substr(0, text.find(' '))).value();
  const bool both = text.find("bidirectional") != std::string::npos, states = text.find("states") != std::string::npos;
  const int64_t gates = op == Op::LSTM ? 4 : op == Op::GRU ? 3 : 1, d = both ? 2 : 1;
  uint64_t n = 0;
  const auto add_weight = [&](Shape shape) {
    const TensorType type = f32(std::move(shape));
    ++n;
    return builder.weight("w" + std::to_string(n), type, weights.add_random(type, n, 0.5f));
  };
  std::vector<ValueId> inputs{builder.input("x", f32({2, 5, 3}))};
  for (const Shape& shape : {Shape{d, gates * 4, 3}, Shape{d, gates * 4, 4}, Shape{d, 2 * gates * 4}})
    inputs.push_back(add_weight(shape));
  if (states) {
    inputs.push_back(builder.input("h", f32({2, d, 4})));
    if (op == Op::LSTM) {
      inputs.push_back(add_weight({1, d, 4}));
      inputs.push_back(add_weight({d, 12}));
    }
  }
  Attrs attrs{{"direction", std::string(both ? "bidirectional" : "reverse")}};
  if (op == Op::GRU) set_attr(attrs, "linear_before_reset", states ? 1 : 0);
  const std::vector<ValueId> outputs = builder.add_all(op, "it", inputs, attrs).value();
  for (const ValueId output : outputs) builder.output(output);
  const Graph graph = std::move(builder).finish();
  ASSERT_TRUE(verify(graph).ok()) << verify(graph).error().to_string();
  EXPECT_EQ(parse_graph(to_string(graph), "text").value(), graph);

  const std::string path = OnnxFile::write("");
  const Status written = export_onnx(graph, weights, path);
  ASSERT_TRUE(written.ok()) << written.error().to_string();
  auto back = import_onnx(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  const Graph read = optimize(back->graph, back->weights).value();
  EXPECT_THAT(to_string(read), Not(HasSubstr("Transpose")));
  const std::vector<Tensor> given = random_inputs(graph, 7);
  expect_same_bits(evaluate(read, back->weights, given).value(), evaluate(graph, weights, given).value());
}

INSTANTIATE_TEST_SUITE_P(All, ExportRecurrent,
                         ::testing::Values("LSTM", "LSTM bidirectional states", "LSTM states", "GRU",
                                           "GRU bidirectional states", "RNN bidirectional", "RNN states"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace nlsplit

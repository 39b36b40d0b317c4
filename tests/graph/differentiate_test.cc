// Gradients of graphs and whole networks: what is differentiated and what is refused, against central differences.
#include "graph/differentiate/differentiate.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "central_differences.h"
#include "graph/builder.h"
#include "graph/differentiate/loss.h"
#include "graph/zoo/zoo.h"
#include "op_attrs.h"

namespace nlsplit {
namespace {

using reference::Array;
using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

// A constant exponent needs no logarithm, and its square no power.
TEST(Differentiate, APowerByAConstant) {
  for (const double exponent : {2.0, 3.0, -0.5}) {
    SCOPED_TRACE(exponent);
    GraphBuilder g("power");
    WeightStore weights;
    const TensorType row{DType::f32, {4}};
    const ValueId w = g.weight("w", row, weights.add_fill(row, 0));
    const ValueId e = g.weight("e", {DType::f32, {}}, weights.add_fill({DType::f32, {}}, exponent));
    const ValueId y = g.add(Op::Pow, "y", {w, e}, {}).value();
    const ValueId loss = g.add(Op::ReduceSum, "loss", {y}, reduction_attrs({0}, 0)).value();
    g.output(loss);
    const Graph graph = std::move(g).finish();
    std::mt19937 random(5);
    EXPECT_LT(worst_error(graph, loss, {w}, weights, {{w, random_values({DType::f64, {4}}, 0.5, 2, random)}}), 1e-6);
    const auto made = differentiate(graph, loss, {w}, weights);
    for (const Node& node : made->graph.nodes) EXPECT_NE(node.op, Op::Log);
  }
}

// Norms and products of zeros have gradients that are numbers: those of PyTorch.
TEST(Differentiate, AtZero) {
  const auto at = [](Op op, const std::vector<double>& x) {
    GraphBuilder g("zero");
    WeightStore weights;
    const auto n = static_cast<int64_t>(x.size());
    const TensorType row{DType::f32, {n}};
    const ValueId w = g.weight("w", row, weights.add_fill(row, 0));
    const ValueId loss = g.add(op, "y", {w}, reduction_attrs({0}, 0)).value();
    const auto made = differentiate(std::move(g).finish(), loss, {w}, weights);
    CHECK(made.ok(), made.error().message.c_str());
    Array values = reference::zeros({DType::f64, {n}});
    values.reals = x;
    return (*evaluate_wide(made->graph, weights, {{w, values}}, made->gradients))[0].reals;
  };
  EXPECT_EQ(at(Op::ReduceL2, {0, 0, 0}), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(at(Op::ReduceProd, {2, 0, 3}), (std::vector<double>{0, 6, 0}));
  EXPECT_EQ(at(Op::ReduceProd, {2, 0, 0}), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(at(Op::ReduceMax, {1, 4, 4}), (std::vector<double>{0, 0.5, 0.5}));
}

// What does not follow its operands passes no gradient on; the other way to the weight is all there is.
TEST(Differentiate, GradientsStopAtWhatIsFlat) {
  GraphBuilder g("flat");
  WeightStore weights;
  const TensorType row{DType::f32, {4}};
  const ValueId w = g.weight("w", row, weights.add_fill(row, 0)), v = g.weight("v", row, weights.add_fill(row, 0));
  const ValueId whole = g.add(Op::Floor, "whole", {v}, {}).value();
  const ValueId y = g.add(Op::Mul, "y", {w, whole}, {}).value();
  const ValueId loss = g.add(Op::ReduceSum, "loss", {y}, reduction_attrs({0}, 0)).value();
  g.output(loss);
  const Graph graph = std::move(g).finish();
  EXPECT_EQ(trained_weights({graph, loss}, weights), std::vector<ValueId>{w});
  const auto made = differentiate(graph, loss, {w}, weights);
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  const auto both = differentiate(graph, loss, {w, v}, weights);
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.error().message, "the loss does not depend on weight v");
}

// x w1 -> Relu -> w2, with w1 used twice; the loss is the mean of squares.
struct Small {
  GraphBuilder g{"small"};
  WeightStore weights;
  ValueId x = g.input("x", {DType::f32, {3, 4}}), w1 = weight("w1", {4, 4}), w2 = weight("w2", {4, 2});
  ValueId loss;
  ValueId weight(const std::string& name, Shape shape) {
    const TensorType type{DType::f32, std::move(shape)};
    return g.weight(name, type, weights.add_random(type, name.size() + name.back(), 0.5f));
  }
  Graph finish() {
    const ValueId a = g.add(Op::MatMul, "a", {x, w1}, {}).value(), b = g.add(Op::MatMul, "b", {a, w1}, {}).value();
    const ValueId r = g.add(Op::Tanh, "r", {b}, {}).value(), y = g.add(Op::MatMul, "y", {r, w2}, {}).value();
    const ValueId squares = g.add(Op::Mul, "squares", {y, y}, {}).value();
    loss = g.add(Op::ReduceMean, "loss", {squares}, {{"axes", Ints{0, 1}}, {"keepdims", int64_t{0}}}).value();
    g.output(loss);
    return std::move(g).finish();
  }
};

TEST(Differentiate, AChainWithAWeightThatIsReadTwice) {
  Small small;
  const Graph graph = small.finish();
  std::mt19937 random(7);
  std::map<ValueId, Array> values;
  for (const ValueId id : {small.x, small.w1, small.w2})
    values.emplace(id, random_values({DType::f64, graph.value(id).type.shape}, -1, 1, random));
  EXPECT_LT(worst_error(graph, small.loss, {small.w1, small.w2}, small.weights, values), 1e-6);
}

TEST(Differentiate, PartsThatEarlierStagesWaitForAndPartsThatMayBeLater) {
  Small small;
  const Graph graph = small.finish();
  const auto made = differentiate(graph, small.loss, {small.w1, small.w2}, small.weights);
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  std::string phases;
  for (size_t n = 0; n < made->graph.nodes.size(); ++n) {
    if (made->phases[n] == NodePhase::forward) continue;
    phases += made->graph.nodes[n].name + (made->phases[n] == NodePhase::input ? " I, " : " W, ");
  }
  // Squares are products of y with itself: two equal contributions. a needs no gradient by x, which nobody trains.
  EXPECT_EQ(phases,
            "d.loss.1 I, d.loss.2 I, d.loss.3 I, d.squares.0 I, d.squares.1 I, d.y.sum0 I, d.y.0 I, d.y.1 W, "
            "d.r.0 I, d.b.0 I, d.b.1 W, d.a.0 W, d.w1.sum1 W, ");
}

// Of the whole network by one weight of every layer kind: a few elements of it.
void check_network(const std::string& name, Loss loss, double limit) {
  SCOPED_TRACE(name);
  auto model = zoo_model(name, 2);
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  const auto with = with_loss(model->graph, loss);
  ASSERT_TRUE(with.ok()) << with.error().to_string();
  const std::vector<ValueId> trained = trained_weights(*with, model->weights);
  const auto made = differentiate(with->graph, with->loss, trained, model->weights);
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  ASSERT_TRUE(verify(made->graph).ok());
  std::mt19937 random(3);
  std::map<ValueId, Array> values;
  for (const ValueId id : with->graph.inputs) {
    TensorType type = with->graph.value(id).type;
    if (type.dtype == DType::f32) type.dtype = DType::f64;
    values.emplace(id,
                   random_values(type, type.dtype == DType::f64 ? -1 : 0, type.dtype == DType::f64 ? 1 : 3, random));
  }
  const auto gradients = evaluate_wide(made->graph, model->weights, values, made->gradients);
  ASSERT_TRUE(gradients.ok()) << gradients.error().to_string();
  for (size_t w = 0; w < trained.size(); ++w) {
    const Value& value = with->graph.value(trained[w]);
    const auto raw = model->weights.materialise(value.content);
    ASSERT_TRUE(raw.ok());
    Array weight = reference::to_array(tensor_of(value.type, *raw));
    weight.type.dtype = DType::f64;
    double largest = 1e-9;
    for (const double g : (*gradients)[w].reals) largest = std::max(largest, std::abs(g));
    const size_t i = static_cast<size_t>(random()) % weight.reals.size();
    double ends[2];
    for (const int side : {0, 1}) {
      Array moved = weight;
      moved.reals[i] += side == 0 ? 1e-6 : -1e-6;
      values.insert_or_assign(trained[w], std::move(moved));
      ends[side] = value_at(with->graph, model->weights, values, with->loss);
    }
    values.erase(trained[w]);
    EXPECT_NEAR((ends[0] - ends[1]) / 2e-6, (*gradients)[w].reals[i], limit * largest) << value.name;
  }
}

TEST(Differentiate, WholeNetworks) {
  check_network("simple_cnn", Loss::softmax_cross_entropy, 1e-5);
  check_network("vit_b16?layers=1&hidden=8&heads=2&ffn=16&image=16&patch=8", Loss::softmax_cross_entropy, 1e-5);
  check_network("gpt2?layers=1&hidden=8&heads=2&vocab=11&length=5", Loss::softmax_cross_entropy, 1e-5);
  check_network("bert_base?layers=1&hidden=8&heads=2&ffn=16&vocab=11&length=5", Loss::mean_squared_error, 1e-5);
}

// Their gradients have types; nothing is computed.
TEST(Differentiate, AllNetworksOfTheZoo) {
  for (const char* name : {"alexnet", "vgg16", "resnet18", "resnet50", "mobilenet_v2", "densenet121", "inception_v3",
                           "efficientnet_b0", "llama?layers=1"}) {
    SCOPED_TRACE(name);
    auto model = zoo_model(name);
    ASSERT_TRUE(model.ok()) << model.error().to_string();
    const auto with = with_loss(model->graph, Loss::softmax_cross_entropy);
    ASSERT_TRUE(with.ok()) << with.error().to_string();
    const std::vector<ValueId> trained = trained_weights(*with, model->weights);
    const auto made = differentiate(with->graph, with->loss, trained, model->weights);
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    for (size_t w = 0; w < trained.size(); ++w)
      EXPECT_EQ(made->graph.value(made->gradients[w]).type, with->graph.value(trained[w]).type);
  }
}

// Gradients in a file need not fit the operator whose they are.
TEST(Gradients, RefuseOperandsThatAreNone) {
  const auto why = [](Op op, std::vector<TensorType> inputs, const Attrs& attrs) {
    const auto made = info(op).infer(inputs, attrs);
    return made.ok() ? "accepted" : made.error().message;
  };
  const auto f32 = [](Shape shape) { return TensorType{DType::f32, std::move(shape)}; };
  const Attrs lrn{{"alpha", 1e-4}, {"beta", 0.75}, {"bias", 1.0}, {"size", int64_t{3}}}, axis{{"axis", int64_t{1}}};
  EXPECT_NE(why(Op::LRNGradient, {f32({4}), f32({4})}, lrn), "accepted");
  EXPECT_NE(why(Op::LRNGradient, {f32({1, 4}), f32({4, 1})}, lrn), "accepted");
  EXPECT_NE(why(Op::SoftmaxGradient, {f32({4}), f32({4})}, axis), "accepted");
  EXPECT_NE(why(Op::ReluGradient, {f32({4}), f32({5})}, {}), "accepted");
  const Attrs conv = with_attr(windows_of({3, 3}, {1, 1}, {0, 0, 0, 0}, {1, 1}), "group", int64_t{1});
  EXPECT_EQ(why(Op::ConvWeightGradient, {f32({1, 2, 5, 5}), f32({1, 4, 4, 3})}, conv),
            "a gradient f32[1,4,4,3] of a result f32[1,4,3,3]");
  EXPECT_NE(why(Op::ConvWeightGradient, {f32({1, 2, 5, 5}), f32({1, 4, 3})}, conv), "accepted");
  const Attrs pool = with_attr(windows_of({2, 2}, {1, 1}, {0, 0, 0, 0}, {1, 1}), "ceil_mode", int64_t{0});
  EXPECT_NE(why(Op::MaxPoolGradient, {f32({1, 2, 5, 5}), f32({1, 2, 5, 5})}, pool), "accepted");
  const Attrs gather{{"axis", int64_t{1}}, {"extent", int64_t{5}}};
  const TensorType two{DType::i64, {2}};
  EXPECT_NE(why(Op::GatherGradient, {f32({3}), two}, gather), "accepted");
  EXPECT_NE(why(Op::GatherGradient, {f32({3, 3}), two}, gather), "accepted");
  EXPECT_NE(why(Op::BatchNormalizationScaleGradient, {f32({2, 3, 4}), f32({2, 3, 4}), f32({3}), f32({4})},
                {{"epsilon", 1e-5}}),
            "accepted");
  EXPECT_NE(why(Op::LayerNormalizationGradient, {f32({2, 3}), f32({2, 3}), f32({4})},
                {{"axis", int64_t{1}}, {"epsilon", 1e-5}}),
            "accepted");
  EXPECT_NE(why(Op::SoftmaxCrossEntropy, {f32({3, 4}), two}, {}), "accepted");
  EXPECT_NE(why(Op::SoftmaxCrossEntropy, {f32({2, 4}), f32({2})}, {}), "accepted");
  EXPECT_NE(why(Op::SoftmaxCrossEntropyGradient, {f32({3}), f32({2, 4}), two}, {}), "accepted");
}

TEST(Losses, RefuseWhatTheyCannot) {
  EXPECT_THAT(parse_loss("hinge").error().message, HasSubstr("'hinge' is not a loss; there are mean_squared_error"));
  GraphBuilder g("vector");
  const ValueId x = g.input("labels", {DType::f32, {4}});
  g.output(g.add(Op::Relu, "y", {x}, {}).value());
  const Graph graph = std::move(g).finish();
  EXPECT_EQ(with_loss(graph, Loss::softmax_cross_entropy).error().message, "the graph has a value labels already");
  Graph renamed = graph;
  renamed.values[0].name = "x";
  EXPECT_EQ(with_loss(renamed, Loss::softmax_cross_entropy).error().message,
            "output y is f32[4]: it has no axis of classes after its samples");
}

TEST(Differentiate, RefusesWhatItCannot) {
  Small small;
  const ValueId lonely = small.weight("lonely", {2});
  const Graph graph = small.finish();
  const auto why = [&](ValueId loss, ValueId trained) {
    const auto made = differentiate(graph, loss, {trained}, small.weights);
    return made.ok() ? "" : made.error().message;
  };
  EXPECT_EQ(why(small.w1, small.w1), "the loss w1 is f32[4,4], not one number");
  EXPECT_EQ(why(small.loss, small.x), "x is not a weight");
  EXPECT_EQ(why(small.loss, lonely), "the loss depends on none of the trained weights");
  const auto both = differentiate(graph, small.loss, {small.w1, lonely}, small.weights);
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.error().message, "the loss does not depend on weight lonely");

  GraphBuilder g("odd");
  const TensorType row{DType::f32, {2, 3}}, places{DType::i64, {2}};
  const ValueId w = g.weight("w", row, small.weights.add_fill(row, 1));
  const ValueId odd = g.add(Op::ReluGradient, "odd", {w, w}, {}).value();
  const ValueId last = g.add(Op::ReduceSum, "loss", {odd}, reduction_attrs({0, 1}, 0)).value();
  const ValueId index = g.weight("index", places, small.weights.add_fill(places, 1));
  g.output(last);
  const Graph twice = std::move(g).finish();
  EXPECT_EQ(differentiate(twice, last, {index}, small.weights).error().message,
            "weight index is i64[2]: only floats have gradients");
  const auto none = differentiate(twice, last, {w}, small.weights);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message, "node odd: ReluGradient is of a training step and not differentiated again");
  EXPECT_EQ(none.error().kind, ErrorKind::unsupported);
}

}  // namespace
}  // namespace nlsplit

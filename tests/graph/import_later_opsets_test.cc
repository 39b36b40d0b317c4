// Operators that ONNX's own tests of opset 17 do not have, or not as opsets 18 to 24 write them: imported, evaluated
// and compared with the definition written out here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "graph/elements.h"
#include "graph/reference/evaluate.h"
#include "onnx_file.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using Ints = std::vector<int64_t>;

// y = op(x, …) of a random x.
struct Made {
  std::vector<float> x, y;
  Shape shape;  // y's
};

template <class Build>
Made make(int64_t opset, const std::string& op, const Shape& shape, Build build) {
  OnnxFile file(opset);
  file.input("x", shape);
  build(file, file.node(op, {"x"}, "y", "it"));
  file.output("y");
  const auto model = file.import();
  EXPECT_TRUE(model.ok()) << model.error().to_string();
  if (!model.ok()) return {};
  const Tensor x = random_tensor({DType::f32, shape}, 7);
  const auto outputs = evaluate(model->graph, model->weights, {x});
  EXPECT_TRUE(outputs.ok());
  return {x.values, (*outputs)[0].values, (*outputs)[0].type.shape};
}

void expect_each(const Made& made, const std::function<double(double)>& f) {
  ASSERT_EQ(made.x.size(), made.y.size());
  for (size_t i = 0; i < made.x.size(); ++i) EXPECT_NEAR(made.y[i], f(made.x[i]), 1e-6) << made.x[i];
}

TEST(LaterOpsets, GatedFunctions) {
  const auto nothing = [](OnnxFile&, onnx::NodeProto&) {};
  expect_each(make(20, "Gelu", {3, 7}, nothing), [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); });
  expect_each(make(20, "Gelu", {3, 7}, [](OnnxFile&, onnx::NodeProto& n) { set(n, "approximate", "tanh"); }),
              [](double x) {
                const double pi = std::acos(-1.0);
                return x / 2 * (1 + std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
              });
  expect_each(make(18, "Mish", {3, 7}, nothing), [](double x) { return x * std::tanh(std::log(1 + std::exp(x))); });
  expect_each(make(24, "Swish", {3, 7}, [](OnnxFile&, onnx::NodeProto& n) { set(n, "alpha", 2.0f); }),
              [](double x) { return x / (1 + std::exp(-2 * x)); });
}

TEST(LaterOpsets, RmsNormalization) {
  const Made made = make(23, "RMSNormalization", {2, 5}, [](OnnxFile& f, onnx::NodeProto& n) {
    f.floats("scale", {5}, {1, 2, 3, 4, 5});
    n.add_input("scale");
    set(n, "epsilon", 0.25f);
  });
  for (size_t row = 0; row < 2; ++row) {
    double squares = 0;
    for (size_t i = 0; i < 5; ++i) squares += made.x[row * 5 + i] * made.x[row * 5 + i];
    for (size_t i = 0; i < 5; ++i) {
      const double expected = made.x[row * 5 + i] / std::sqrt(squares / 5 + 0.25) * (static_cast<double>(i) + 1);
      EXPECT_NEAR(made.y[row * 5 + i], expected, 1e-5);
    }
  }
}

// Opset 18 has a scale a group, 21 one a channel.
TEST(LaterOpsets, GroupNormalization) {
  for (const int64_t opset : {18, 21}) {
    const Made made = make(opset, "GroupNormalization", {2, 4, 3}, [&](OnnxFile& f, onnx::NodeProto& n) {
      f.floats("scale", {opset == 18 ? 2 : 4}, opset == 18 ? std::vector<float>{2, 3} : std::vector<float>{2, 2, 3, 3});
      f.floats("bias", {opset == 18 ? 2 : 4}, opset == 18 ? std::vector<float>{5, 7} : std::vector<float>{5, 5, 7, 7});
      n.add_input("scale"), n.add_input("bias");
      set(n, "num_groups", int64_t{2});
    });
    for (size_t group = 0; group < 4; ++group) {  // of both samples
      double mean = 0, squares = 0;
      for (size_t i = 0; i < 6; ++i) mean += made.x[group * 6 + i] / 6;
      for (size_t i = 0; i < 6; ++i) squares += std::pow(made.x[group * 6 + i] - mean, 2) / 6;
      const double scale = group % 2 == 0 ? 2 : 3, bias = group % 2 == 0 ? 5 : 7;
      for (size_t i = 0; i < 6; ++i) {
        const double normal = (made.x[group * 6 + i] - mean) / std::sqrt(squares + 1e-5);
        EXPECT_NEAR(made.y[group * 6 + i], normal * scale + bias, 1e-4) << "opset " << opset;
      }
    }
  }
}

TEST(LaterOpsets, PoolsWithNorms) {
  const Made pooled = make(18, "LpPool", {1, 1, 4}, [](OnnxFile&, onnx::NodeProto& n) {
    set(n, "kernel_shape", Ints{2});
    set(n, "p", int64_t{3});
  });
  EXPECT_THAT(pooled.shape, ElementsAre(1, 1, 3));
  for (size_t i = 0; i < pooled.y.size(); ++i) {
    const double sum = std::pow(std::abs(pooled.x[i]), 3) + std::pow(std::abs(pooled.x[i + 1]), 3);
    EXPECT_NEAR(pooled.y[i], std::cbrt(sum), 1e-6);
  }
  const Made global =
      make(18, "GlobalLpPool", {1, 1, 2, 2}, [](OnnxFile&, onnx::NodeProto& n) { set(n, "p", int64_t{3}); });
  double sum = 0;
  for (const float x : global.x) sum += std::pow(std::abs(x), 3);
  ASSERT_EQ(global.y.size(), 1u);
  EXPECT_NEAR(global.y[0], std::cbrt(sum), 1e-6);
}

TEST(LaterOpsets, AxesThatBecameInputs) {
  const Made padded = make(18, "Pad", {2, 3}, [](OnnxFile& f, onnx::NodeProto& n) {
    f.integers("pads", {1, 2});
    f.floats("value", {}, {9});
    f.integers("axes", {-1});
    for (const char* input : {"pads", "value", "axes"}) n.add_input(input);
  });
  EXPECT_THAT(padded.y, ElementsAre(9, padded.x[0], padded.x[1], padded.x[2], 9, 9, 9, padded.x[3], padded.x[4],
                                    padded.x[5], 9, 9));
  const Made largest = make(18, "ReduceMax", {2, 3}, [](OnnxFile& f, onnx::NodeProto& n) {
    f.integers("axes", {1});
    n.add_input("axes");
    set(n, "keepdims", int64_t{0});
  });
  EXPECT_THAT(largest.y, ElementsAre(*std::max_element(largest.x.begin(), largest.x.begin() + 3),
                                     *std::max_element(largest.x.begin() + 3, largest.x.end())));
}

// Five columns in two parts: three and what is left.
TEST(LaterOpsets, SplitByTheNumberOfOutputs) {
  OnnxFile file(18);
  file.input("x", {5});
  onnx::NodeProto& node = file.node("Split", {"x"}, "a", "it");
  node.add_output("y");
  set(node, "num_outputs", int64_t{2});
  file.output("y");
  const auto model = file.import();
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  const auto outputs = evaluate(model->graph, model->weights, {tensor({5}, {1, 2, 3, 4, 5})});
  ASSERT_TRUE(outputs.ok());
  EXPECT_THAT((*outputs)[0].values, ElementsAre(4, 5));
}

// 4 × 8 into at most 6 × 6 with the proportions kept: 3 × 6.
TEST(LaterOpsets, ResizeKeepsProportionsOfTheAxesItNames) {
  const Made made = make(18, "Resize", {1, 1, 4, 8}, [](OnnxFile& f, onnx::NodeProto& n) {
    f.integers("sizes", {6, 6});
    n.add_input(""), n.add_input(""), n.add_input("sizes");
    set(n, "axes", Ints{2, 3});
    set(n, "keep_aspect_ratio_policy", "not_larger");
    set(n, "coordinate_transformation_mode", "asymmetric");
    set(n, "nearest_mode", "floor");
  });
  EXPECT_THAT(made.shape, ElementsAre(1, 1, 3, 6));
  ASSERT_EQ(made.y.size(), 18u);
  for (size_t row = 0; row < 3; ++row) {
    for (size_t column = 0; column < 6; ++column)  // the scale is 3 / 4
      EXPECT_EQ(made.y[row * 6 + column], made.x[row * 4 / 3 * 8 + column * 4 / 3]);
  }
}

TEST(LaterOpsets, ScatterTakesTheLargest) {
  const Made made = make(18, "ScatterElements", {3}, [](OnnxFile& f, onnx::NodeProto& n) {
    f.integers("indices", {1, 1});
    f.floats("updates", {2}, {50, 40});
    n.add_input("indices"), n.add_input("updates");
    set(n, "reduction", "max");
  });
  EXPECT_THAT(made.y, ElementsAre(made.x[0], 50, made.x[2]));
}

// Halves are rounded after each operator: 2048 + 1 is no half, and ties go to the even one.
TEST(LaterOpsets, HalvesAreRoundedAfterEveryOperator) {
  OnnxFile file(22);
  file.input("x", {2}, onnx::TensorProto::FLOAT16);
  file.node("Add", {"x", "x"}, "twice");
  onnx::TensorProto& one = file.floats("one", {}, {0});
  one.set_data_type(onnx::TensorProto::FLOAT16);
  one.set_raw_data(raw_of(DType::f16, std::vector{1.0}));
  file.node("Add", {"twice", "one"}, "more");
  set(file.node("Cast", {"more"}, "y"), "to", int64_t{onnx::TensorProto::FLOAT});
  file.output("y");
  const auto model = file.import();
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  const Tensor x = tensor_of({DType::f16, {2}}, raw_of(DType::f16, std::vector{1024.0, 1025.0}));
  const auto outputs = evaluate(model->graph, model->weights, {x});
  ASSERT_TRUE(outputs.ok()) << outputs.error().to_string();
  EXPECT_THAT((*outputs)[0].values, ElementsAre(2048, 2052));
}

}  // namespace
}  // namespace nlsplit

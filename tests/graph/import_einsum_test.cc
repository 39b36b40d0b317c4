// Einsum of one or two operands is imported in parts: the same sums as one Einsum makes, at any batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/passes/passes.h"
#include "graph/reference/evaluate.h"
#include "onnx_file.h"
#include "testing/tensors.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

struct EinsumCase {
  const char* equation;
  std::vector<Shape> shapes;
  bool has_samples = false;  // axis 0 of the operands that are inputs, which is the result's
  bool second_is_constant = false;
};

Model imported(const EinsumCase& it) {
  OnnxFile file(13);
  file.input("x", it.shapes[0]);
  std::vector<std::string> names = {"x"};
  if (it.shapes.size() > 1) {
    names.push_back("y");
    if (it.second_is_constant)
      file.floats("y", it.shapes[1], random_tensor({DType::f32, it.shapes[1]}, 2).values);
    else
      file.input("y", it.shapes[1]);
  }
  set(file.node("Einsum", names, "z", "it"), "equation", it.equation);
  file.output("z");
  return value_of(file.import());
}

bool has_einsum(const Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const Node& node) { return node.op == Op::Einsum; });
}

std::vector<float> by_einsum(const EinsumCase& it, const std::vector<Tensor>& operands) {
  GraphBuilder builder("whole");
  std::vector<ValueId> inputs;
  for (const Tensor& operand : operands)
    inputs.push_back(builder.input("x" + std::to_string(inputs.size()), operand.type));
  builder.output(value_of(builder.add(Op::Einsum, "it", inputs, {{"equation", std::string(it.equation)}})));
  return value_of(evaluate(std::move(builder).finish(), WeightStore(), operands))[0].values;
}

void expect_same_sums(const EinsumCase& it, const Graph& graph, const Model& model) {
  std::vector<Tensor> inputs, operands;
  for (const ValueId input : graph.inputs) inputs.push_back(random_tensor(graph.value(input).type, 1 + inputs.size()));
  operands = inputs;
  if (it.second_is_constant) operands.push_back(random_tensor({DType::f32, it.shapes[1]}, 2));
  const std::vector<float> expected = by_einsum(it, operands);
  const Tensor made = value_of(evaluate(graph, model.weights, inputs))[0];
  ASSERT_EQ(made.values.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(made.values[i], expected[i], 1e-4) << "element " << i;
}

TEST(ImportEinsum, InParts) {
  const EinsumCase cases[] = {
      {"bij,bjk->bik", {{2, 3, 4}, {2, 4, 5}}, true},
      {"bnd,dk->bnk", {{2, 3, 4}, {4, 5}}, true, true},
      {"bnd,kd->bnk", {{2, 3, 4}, {5, 4}}, true, true},
      {"bd,dhk->bhk", {{2, 4}, {4, 3, 5}}, true, true},
      {"bhqd,bhkd->bhqk", {{2, 3, 4, 5}, {2, 3, 6, 5}}, true},
      {"bqhd,bkhd->bhqk", {{2, 4, 3, 5}, {2, 6, 3, 5}}, true},
      {"bhqk,bkhd->bqhd", {{2, 3, 4, 6}, {2, 6, 3, 5}}, true},
      {"bnhd,hdk->bnk", {{2, 4, 3, 5}, {3, 5, 6}}, true, true},
      {"bnd,dhk->bhnk", {{2, 4, 3}, {3, 5, 6}}, true, true},
      {"bhwc,hkc->bhwk", {{2, 3, 4, 5}, {3, 6, 5}}, true, true},
      {"bhwc,wkc->bhwk", {{2, 3, 4, 5}, {4, 6, 5}}, true, true},
      {"bsk,skn->bsn", {{2, 3, 4}, {3, 4, 5}}, true, true},
      {"bijk,bjkl->bli", {{2, 3, 4, 5}, {2, 4, 5, 6}}, true},
      {"bi,bi->b", {{2, 4}, {2, 4}}, true},
      {"bi,j->bij", {{2, 4}, {3}}, true, true},
      {"bj,bi->bij", {{2, 4}, {2, 3}}, true},
      {"bij,j->bij", {{2, 3, 4}, {4}}, true, true},
      {"bij,k->bi", {{2, 3, 4}, {5}}, true, true},
      {"bijk->bki", {{2, 3, 4, 5}}, true},
      {"bij->bji", {{2, 3, 4}}, true},
      {"bij->b", {{2, 3, 4}}, true},
      {"bij->bij", {{2, 3, 4}}, true},
      {"b...ij,jk->b...ik", {{2, 2, 3, 4}, {4, 5}}, true, true},
      {"...ij,...jk", {{2, 1, 3, 4}, {3, 4, 5}}},
      {"dk,bnd->bnk", {{4, 5}, {2, 3, 4}}},
      {"ij,jk", {{3, 4}, {4, 5}}},
      {"ij,jk->ki", {{3, 4}, {4, 5}}},
      {"ba,cb", {{3, 4}, {5, 3}}},
      {"i,i->", {{4}, {4}}},
      {"i,j->", {{4}, {3}}},
      {"i,j->ji", {{4}, {3}}},
      {"ij,ij->i", {{2, 1}, {2, 3}}},
      {"bik,bjk->bij", {{2, 3, 4}, {1, 5, 4}}},
      {"bik,bjk->bij", {{1, 3, 4}, {2, 5, 1}}},
      {"ab,cd->adcb", {{2, 3}, {4, 5}}},
      {"ij->", {{3, 4}}},
  };
  for (const EinsumCase& it : cases) {
    SCOPED_TRACE(it.equation);
    const Model model = imported(it);
    EXPECT_FALSE(has_einsum(model.graph));
    expect_same_sums(it, model.graph, model);
    if (it.has_samples) expect_same_sums(it, value_of(with_batch(model.graph, 3)), model);
  }
}

TEST(ImportEinsum, AsItIs) {
  EXPECT_TRUE(has_einsum(imported({"ii->i", {{3, 3}}}).graph));
  EXPECT_TRUE(has_einsum(imported({"bii,bi->bi", {{2, 3, 3}, {2, 3}}}).graph));
  EXPECT_TRUE(has_einsum(imported({"bij,bjk->bik", {{2, 3, 0}, {2, 0, 5}}}).graph));
  OnnxFile whole(13);
  whole.input("x", {2, 3}, onnx::TensorProto::INT64);
  set(whole.node("Einsum", {"x", "x"}, "z", "it"), "equation", "bi,bi->b");
  whole.output("z");
  EXPECT_TRUE(has_einsum(value_of(whole.import()).graph));
}

TEST(ImportEinsum, TakesFewNodes) {
  const auto parts = [](const EinsumCase& it) {
    std::vector<std::string_view> names;
    const Model model = imported(it);
    for (const Node& node : model.graph.nodes) names.push_back(name_of(node.op));
    return names;
  };
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(parts({"bij,bjk->bik", {{2, 3, 4}, {2, 4, 5}}}), Names{"MatMul"});
  EXPECT_EQ(parts({"bnd,kd->bnk", {{2, 3, 4}, {5, 4}}, true, true}), Names{"MatMul"});
  EXPECT_EQ(parts({"bhqd,bhkd->bhqk", {{2, 3, 4, 5}, {2, 3, 6, 5}}}), (Names{"Transpose", "MatMul"}));
  EXPECT_EQ(parts({"bij,j->bij", {{2, 3, 4}, {4}}}), Names{"Mul"});
  EXPECT_EQ(parts({"bij->bji", {{2, 3, 4}}}), Names{"Transpose"});
  EXPECT_EQ(parts({"bij->bij", {{2, 3, 4}}}), Names{"Identity"});
}

}  // namespace
}  // namespace nlsplit

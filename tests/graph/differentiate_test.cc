// Gradients against central differences, in double precision.
#include "graph/differentiate/differentiate.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "graph/builder.h"
#include "graph/differentiate/loss.h"
#include "graph/reference/wide.h"
#include "graph/zoo/zoo.h"

namespace nlsplit {
namespace {

using reference::Array;
using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

struct Operand {
  Shape shape;
  double low = -2, high = 2;
  bool trained = true;
  bool indices = false;  // low to high - 1
  DType integers = DType::i64;
  Ints given = {};  // instead of random ones
};
struct DifferenceCase {
  std::string name;
  Op op;
  std::vector<Operand> operands;
  Attrs attrs = {};
  size_t result = 0;  // of the operator
};

Array random_values(const TensorType& type, double low, double high, std::mt19937& random) {
  Array array = reference::zeros(type);
  for (int64_t i = 0; i < array.count(); ++i) {
    if (array.real()) {
      array.reals[static_cast<size_t>(i)] = std::uniform_real_distribution<double>(low, high)(random);
    } else {
      array.wholes[static_cast<size_t>(i)] =
          std::uniform_int_distribution<int64_t>(static_cast<int64_t>(low), static_cast<int64_t>(high) - 1)(random);
    }
  }
  return array;
}

double value_at(const Graph& graph, const WeightStore& weights, const std::map<ValueId, Array>& values, ValueId loss) {
  const auto made = evaluate_wide(graph, weights, values, {loss});
  CHECK(made.ok(), made.error().message.c_str());
  return (*made)[0].reals[0];
}

// The largest difference from central differences, relative to the gradient's largest value.
double worst_error(const Graph& graph, ValueId loss, const std::vector<ValueId>& trained, WeightStore& weights,
                   std::map<ValueId, Array> values) {
  const auto made = differentiate(graph, loss, trained, weights);
  CHECK(made.ok(), made.error().message.c_str());
  const Status sound = verify(made->graph);
  CHECK(sound.ok(), sound.error().message.c_str());
  const auto gradients = evaluate_wide(made->graph, weights, values, made->gradients);
  CHECK(gradients.ok(), gradients.error().message.c_str());
  double worst = 0;
  for (size_t w = 0; w < trained.size(); ++w) {
    const Array& gradient = (*gradients)[w];
    double largest = 0, difference = 0;
    for (const double g : gradient.reals) largest = std::max(largest, std::abs(g));
    for (size_t i = 0; i < gradient.reals.size(); ++i) {
      double& x = values.at(trained[w]).reals[i];
      const double before = x, step = 1e-5;
      x = before + step;
      const double above = value_at(graph, weights, values, loss);
      x = before - step;
      const double below = value_at(graph, weights, values, loss);
      x = before;
      difference = std::max(difference, std::abs((above - below) / (2 * step) - gradient.reals[i]));
    }
    EXPECT_GT(largest, 0) << "a gradient that is zero everywhere shows nothing";
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

// loss = Σ op(…)² c, so that no two elements of the result have the same gradient.
double worst_error(const DifferenceCase& what, uint32_t seed) {
  std::mt19937 random(seed);
  GraphBuilder g(what.name);
  WeightStore weights;
  std::vector<ValueId> operands, trained;
  std::map<ValueId, Array> values;
  for (size_t i = 0; i < what.operands.size(); ++i) {
    const Operand& operand = what.operands[i];
    const TensorType type{operand.indices ? operand.integers : DType::f32, operand.shape};
    const ValueId id = g.weight("w" + std::to_string(i), type, weights.add_fill(type, 0));
    TensorType wide = type;
    if (!operand.indices) wide.dtype = DType::f64;
    Array drawn = random_values(wide, operand.low, operand.high, random);
    if (!operand.given.empty()) drawn.wholes = operand.given;
    values.emplace(id, std::move(drawn));
    operands.push_back(id);
    if (operand.trained && !operand.indices) trained.push_back(id);
  }
  const ValueId y = g.add_all(what.op, "y", operands, what.attrs).value()[what.result];
  const TensorType type = g.type(y);
  const ValueId c = g.weight("c", type, weights.add_fill(type, 0));
  values.emplace(c, random_values({DType::f64, type.shape}, 0.5, 1.5, random));
  const ValueId square = g.add(Op::Mul, "square", {y, y}, {}).value();
  const ValueId weighted = g.add(Op::Mul, "weighted", {square, c}, {}).value();
  Ints axes(type.shape.size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  const ValueId loss =
      axes.empty() ? weighted
                   : g.add(Op::ReduceSum, "loss", {weighted}, {{"axes", axes}, {"keepdims", int64_t{0}}}).value();
  g.output(loss);
  const Graph graph = std::move(g).finish();
  return worst_error(graph, loss, trained, weights, std::move(values));
}

Attrs windows_of(Ints kernel, Ints strides, Ints pads, Ints dilations) {
  return {{"dilations", std::move(dilations)},
          {"kernel_shape", std::move(kernel)},
          {"pads", std::move(pads)},
          {"strides", std::move(strides)}};
}
Attrs with_attr(Attrs attrs, const std::string& name, AttrValue value) {
  set_attr(attrs, name, std::move(value));
  return attrs;
}
Attrs gemm_attrs(double alpha, double beta, int64_t ta, int64_t tb) {
  return {{"alpha", alpha}, {"beta", beta}, {"transA", ta}, {"transB", tb}};
}

Attrs reduction_attrs(Ints axes, int64_t keepdims) { return {{"axes", std::move(axes)}, {"keepdims", keepdims}}; }
Attrs equation(std::string text) { return {{"equation", std::move(text)}}; }
Attrs scatter_attrs(std::string reduction) { return {{"axis", int64_t{1}}, {"reduction", std::move(reduction)}}; }
Attrs slice_attrs(Ints axes, Ints starts, Ints ends, Ints steps) {
  return {
      {"axes", std::move(axes)}, {"ends", std::move(ends)}, {"starts", std::move(starts)}, {"steps", std::move(steps)}};
}
Attrs lp_pool_attrs(int64_t p, int64_t ceil_mode) {
  return {{"ceil_mode", ceil_mode},
          {"kernel_shape", Ints{3, 2}},
          {"p", p},
          {"pads", Ints{1, 0, 1, 1}},
          {"strides", Ints{2, 1}}};
}
Attrs resize_attrs(std::string mode, std::vector<double> scales, Ints sizes, int64_t antialias = 0) {
  return {{"antialias", antialias},
          {"coordinate_transformation_mode", std::string("half_pixel")},
          {"cubic_coeff_a", -0.75},
          {"exclude_outside", int64_t{0}},
          {"extrapolation_value", 0.5},
          {"mode", std::move(mode)},
          {"nearest_mode", std::string("round_prefer_floor")},
          {"roi", std::vector<double>{0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9}},
          {"scales", std::move(scales)},
          {"sizes", std::move(sizes)}};
}
Attrs roi_attrs(std::string mode) {
  return {{"coordinate_transformation_mode", std::string("half_pixel")},
          {"mode", std::move(mode)},
          {"output_height", int64_t{2}},
          {"output_width", int64_t{3}},
          {"sampling_ratio", int64_t{2}},
          {"spatial_scale", 1.0}};
}
Attrs grid_attrs(std::string mode, std::string padding, int64_t corners) {
  return {{"align_corners", corners}, {"mode", std::move(mode)}, {"padding_mode", std::move(padding)}};
}
Attrs direction(std::string which) { return {{"direction", std::move(which)}}; }

// Three hidden units; as many first operands as asked for.
std::vector<Operand> recurrent_operands(int64_t gates, int64_t directions, std::vector<Operand> states) {
  std::vector<Operand> all = {{{2, 3, 4}, -1, 1},
                              {{directions, gates * 3, 4}, -1, 1},
                              {{directions, gates * 3, 3}, -1, 1},
                              {{directions, 2 * gates * 3}, -1, 1}};
  all.insert(all.end(), states.begin(), states.end());
  return all;
}

void add_functions(std::vector<DifferenceCase>& all) {
  const std::vector<DifferenceCase> more = {
      {"Acos", Op::Acos, {{{3, 5}, -0.9, 0.9}}},
      {"Acosh", Op::Acosh, {{{3, 5}, 1.2, 3}}},
      {"Asin", Op::Asin, {{{3, 5}, -0.9, 0.9}}},
      {"Asinh", Op::Asinh, {{{3, 5}}}},
      {"Atan", Op::Atan, {{{3, 5}}}},
      {"Atanh", Op::Atanh, {{{3, 5}, -0.9, 0.9}}},
      {"Tan", Op::Tan, {{{3, 5}, -1, 1}}},
      {"Softsign", Op::Softsign, {{{3, 5}}}},
      {"Mish", Op::Mish, {{{3, 5}}}},
      {"Celu", Op::Celu, {{{3, 5}}}, {{"alpha", 0.7}}},
      {"Elu", Op::Elu, {{{3, 5}}}, {{"alpha", 0.7}}},
      {"Selu", Op::Selu, {{{3, 5}}}, {{"alpha", 1.6}, {"gamma", 1.1}}},
      {"Shrink", Op::Shrink, {{{3, 5}}}, {{"bias", 0.1}, {"lambd", 0.5}}},
      {"ThresholdedRelu", Op::ThresholdedRelu, {{{3, 5}}}, {{"alpha", 0.5}}},
      {"Cast", Op::Cast, {{{3, 5}}}, {{"to", std::string("f64")}}},
      {"Pow", Op::Pow, {{{2, 3}, 0.5, 2}, {{3}, -1, 2}}},
      {"PowByWholeNumbers", Op::Pow, {{{2, 5}}, {{5}, 0, 4, false, true, DType::i64, {0, 1, 2, 3, -1}}}},
      {"Mod", Op::Mod, {{{3, 5}}, {{3, 5}, 0.6, 0.9}}, {{"fmod", int64_t{0}}}},
      {"ModWithTheFirstSign", Op::Mod, {{{3, 5}}, {{5}, 0.6, 0.9}}, {{"fmod", int64_t{1}}}},
      {"PRelu", Op::PRelu, {{{2, 3, 4}}, {{3, 1}}}},
      {"Max", Op::Max, {{{5, 6}}, {{6}}, {{5, 1}}}},
      {"Min", Op::Min, {{{5, 6}}, {{6}}, {{5, 1}}}},
      {"Mean", Op::Mean, {{{2, 3}}, {{3}}, {{}}}},
      {"ReduceL1", Op::ReduceL1, {{{2, 3, 4}}}, reduction_attrs({0, -1}, 0)},
      {"ReduceL2", Op::ReduceL2, {{{2, 3, 4}}}, reduction_attrs({0, -1}, 0)},
      {"ReduceSumSquare", Op::ReduceSumSquare, {{{2, 3, 4}}}, reduction_attrs({1}, 1)},
      {"ReduceLogSum", Op::ReduceLogSum, {{{2, 3, 4}, 0.5, 2}}, reduction_attrs({0, -1}, 0)},
      {"ReduceLogSumExp", Op::ReduceLogSumExp, {{{2, 3, 4}}}, reduction_attrs({0, -1}, 0)},
      {"ReduceMax", Op::ReduceMax, {{{2, 3, 4}}}, reduction_attrs({0, -1}, 0)},
      {"ReduceMin", Op::ReduceMin, {{{2, 3, 4}}}, reduction_attrs({1}, 1)},
      {"ReduceProd", Op::ReduceProd, {{{2, 3, 4}}}, reduction_attrs({0, -1}, 0)},
      {"CumSum", Op::CumSum, {{{2, 4}}}, {{"axis", int64_t{1}}, {"exclusive", int64_t{0}}, {"reverse", int64_t{0}}}},
      {"CumSumBackwards",
       Op::CumSum,
       {{{2, 4}}},
       {{"axis", int64_t{-1}}, {"exclusive", int64_t{1}}, {"reverse", int64_t{1}}}},
      {"TopK",
       Op::TopK,
       {{{3, 6}}},
       {{"axis", int64_t{1}}, {"k", int64_t{3}}, {"largest", int64_t{0}}, {"sorted", int64_t{1}}}},
  };
  all.insert(all.end(), more.begin(), more.end());
}

void add_moves(std::vector<DifferenceCase>& all) {
  const Operand apart{{3, 2}, 0, 5, false, true, DType::i64, {0, 3, 1, 4, 2, 0}}, any{{3, 4}, -5, 5, false, true};
  const std::vector<DifferenceCase> more = {
      {"GatherElements", Op::GatherElements, {{{3, 5}}, any}, {{"axis", int64_t{1}}}},
      {"GatherND", Op::GatherND, {{{3, 4, 2}}, {{5, 2}, 0, 3, false, true}}, {{"batch_dims", int64_t{0}}}},
      {"GatherNDOfSamples",
       Op::GatherND,
       {{{2, 2, 4, 3}}, {{2, 2, 5, 1}, -4, 4, false, true, DType::i32}},
       {{"batch_dims", int64_t{2}}}},
      {"ScatterElements", Op::ScatterElements, {{{3, 5}}, apart, {{3, 2}}}, scatter_attrs("none")},
      {"ScatterElementsAdd", Op::ScatterElements, {{{3, 5}}, any, {{3, 4}}}, scatter_attrs("add")},
      {"ScatterElementsMul", Op::ScatterElements, {{{3, 5}}, any, {{3, 4}, 0.5, 2}}, scatter_attrs("mul")},
      {"ScatterElementsMax", Op::ScatterElements, {{{3, 5}}, any, {{3, 4}}}, scatter_attrs("max")},
      {"ScatterElementsMin", Op::ScatterElements, {{{3, 5}}, any, {{3, 4}}}, scatter_attrs("min")},
      {"ScatterND",
       Op::ScatterND,
       {{{4, 3}}, {{2, 1}, 0, 4, false, true, DType::i64, {2, 0}}, {{2, 3}}},
       {{"reduction", std::string("none")}}},
      {"ScatterNDAdd",
       Op::ScatterND,
       {{{4, 3}}, {{5, 1}, 0, 4, false, true}, {{5, 3}}},
       {{"reduction", std::string("add")}}},
      {"ScatterNDMax",
       Op::ScatterND,
       {{{4, 3}}, {{5, 1}, 0, 4, false, true}, {{5, 3}}},
       {{"reduction", std::string("max")}}},
      {"OneHot", Op::OneHot, {{{4}, 0, 3, false, true}, {{2}}}, {{"axis", int64_t{-1}}, {"depth", int64_t{3}}}},
      {"ReverseSequence",
       Op::ReverseSequence,
       {{{4, 3, 2}}, {{3}, 1, 5, false, true}},
       {{"batch_axis", int64_t{1}}, {"time_axis", int64_t{0}}}},
      {"MaxUnpool",
       Op::MaxUnpool,
       {{{1, 2, 2, 2}}, {{1, 2, 2, 2}, 0, 32, false, true, DType::i64, {0, 3, 8, 9, 16, 20, 25, 31}}},
       {{"shape", Ints{0, 0, 4, 4}}}},
      {"Tile", Op::Tile, {{{2, 3}}}, {{"repeats", Ints{2, 3}}}},
      {"PadThatCuts", Op::Pad, {{{4, 5}}}, {{"pads", Ints{-1, 1, 0, -2}}, {"value", 0.5}}},
      {"SliceInSteps", Op::Slice, {{{4, 7}}}, slice_attrs({1, 0}, {5, 1}, {-100, 3}, {-2, 1})},
      {"SliceInStepsOfTwoAxes", Op::Slice, {{{5, 7}}}, slice_attrs({0, 1}, {0, 1}, {5, 7}, {2, 3})},
  };
  all.insert(all.end(), more.begin(), more.end());
}

void add_images(std::vector<DifferenceCase>& all) {
  const Operand image{{2, 2, 4, 5}};
  const std::vector<double> twice{1, 1, 2, 1.6}, half{1, 1, 0.5, 0.6};
  const Ints eight{0, 0, 8, 8}, less{0, 0, 2, 3};
  const Operand regions{{3, 4}, 0, 4, false}, samples{{3}, 0, 2, false, true}, grid{{2, 3, 3, 2}, -0.9, 0.9};
  const std::vector<DifferenceCase> more = {
      {"LpPool", Op::LpPool, {{{2, 2, 6, 5}}}, lp_pool_attrs(2, 0)},
      {"LpPoolCeil", Op::LpPool, {{{2, 2, 6, 5}}}, lp_pool_attrs(3, 1)},
      {"LpPoolOfSizes", Op::LpPool, {{{2, 2, 6, 5}}}, lp_pool_attrs(1, 1)},
      {"Resize", Op::Resize, {image}, resize_attrs("linear", twice, eight)},
      {"ResizeNearest", Op::Resize, {image}, resize_attrs("nearest", twice, eight)},
      {"ResizeCubic", Op::Resize, {image}, resize_attrs("cubic", twice, eight)},
      {"ResizeSmoothed", Op::Resize, {image}, resize_attrs("linear", half, less, 1)},
      {"ResizeOfARegion",
       Op::Resize,
       {image},
       with_attr(resize_attrs("linear", twice, eight), "coordinate_transformation_mode",
                 std::string("tf_crop_and_resize"))},
      {"RoiAlign", Op::RoiAlign, {image, regions, samples}, roi_attrs("avg")},
      {"RoiAlignMax", Op::RoiAlign, {image, regions, samples}, roi_attrs("max")},
      {"GridSample", Op::GridSample, {image, grid}, grid_attrs("linear", "zeros", 0)},
      {"GridSampleAtTheBorder", Op::GridSample, {image, grid}, grid_attrs("linear", "border", 1)},
      {"GridSampleCubic", Op::GridSample, {image, grid}, grid_attrs("cubic", "reflection", 1)},
      {"GridSampleNearest",
       Op::GridSample,
       {image, {{2, 3, 3, 2}, -0.9, 0.9, false}},
       grid_attrs("nearest", "zeros", 0)},
  };
  all.insert(all.end(), more.begin(), more.end());
}

void add_products(std::vector<DifferenceCase>& all) {
  const Operand whole{{2, 3, 4}, 0, 200, false, true, DType::u8};
  const std::vector<DifferenceCase> more = {
      {"MatMulOfARow", Op::MatMul, {{{4}}, {{2, 4, 3}}}},
      {"MatMulByAColumn", Op::MatMul, {{{2, 3, 4}}, {{4}}}},
      {"MatMulOfVectors", Op::MatMul, {{{4}}, {{4}}}},
      {"LinearOfARow", Op::Linear, {{{4}}, {{3, 4}}}},
      {"Einsum", Op::Einsum, {{{2, 3, 4}}, {{2, 4, 5}}}, equation("bij,bjk->bik")},
      {"EinsumOfThree", Op::Einsum, {{{3}}, {{3, 4}}, {{4}}}, equation("i,ij,j->")},
      {"EinsumSums", Op::Einsum, {{{2, 3, 4}}}, equation("ijk->j")},
      {"EinsumOfADiagonal", Op::Einsum, {{{3, 3, 2}}}, equation("iij->j")},
      {"EinsumTakesADiagonal", Op::Einsum, {{{3, 3}}, {{3}}}, equation("ii,i->i")},
      {"EinsumWithAnEllipsis", Op::Einsum, {{{2, 3, 4}}, {{4, 5}}}, equation("...i,ij->...j")},
      {"EinsumBroadcasts", Op::Einsum, {{{2, 1}}, {{2, 3}}}, equation("ij,ij->i")},
      {"Det", Op::Det, {{{2, 3, 3}}}},
      {"DetOfANumber", Op::Det, {{{2, 1, 1}}}},
      {"DequantizeLinear",
       Op::DequantizeLinear,
       {whole, {{3}}, {{3}, 0, 100, false, true, DType::u8}},
       {{"axis", int64_t{1}}}},
      {"DequantizeLinearByOneScale", Op::DequantizeLinear, {whole, {{}}}, {{"axis", int64_t{1}}}},
      {"Attention",
       Op::Attention,
       {{{2, 2, 3, 4}}, {{2, 2, 5, 4}}, {{2, 2, 5, 3}}},
       {{"causal", int64_t{0}}, {"scale", 0.5}}},
      {"AttentionOfSharedHeads",
       Op::Attention,
       {{{2, 4, 3, 5}}, {{2, 2, 6, 5}}, {{2, 2, 6, 3}}, {{4, 1, 6}}},
       {{"causal", int64_t{1}}, {"scale", 0.4}}},
  };
  all.insert(all.end(), more.begin(), more.end());
}

void add_recurrent(std::vector<DifferenceCase>& all) {
  const Operand own{{2, 1, 3}, -1, 1}, shared{{1, 1, 3}, -1, 1}, peepholes{{1, 9}, -1, 1}, both{{2, 2, 3}, -1, 1};
  const auto gru = [](std::string which, int64_t linear) {
    return with_attr(direction(std::move(which)), "linear_before_reset", linear);
  };
  const std::vector<DifferenceCase> more = {
      {"LSTM", Op::LSTM, recurrent_operands(4, 1, {own, shared, peepholes}), direction("forward")},
      {"LSTMLastState", Op::LSTM, recurrent_operands(4, 1, {own, own}), direction("reverse"), 1},
      {"LSTMLastCell", Op::LSTM, recurrent_operands(4, 1, {own, own, peepholes}), direction("forward"), 2},
      {"LSTMBothWays", Op::LSTM, recurrent_operands(4, 2, {both}), direction("bidirectional")},
      {"GRU", Op::GRU, recurrent_operands(3, 1, {shared}), gru("forward", 0)},
      {"GRULinear", Op::GRU, recurrent_operands(3, 1, {own}), gru("reverse", 1)},
      {"GRULastState", Op::GRU, recurrent_operands(3, 2, {both}), gru("bidirectional", 0), 1},
      {"RNN", Op::RNN, recurrent_operands(1, 2, {both}), direction("bidirectional")},
      {"RNNLastState", Op::RNN, recurrent_operands(1, 1, {}), direction("forward"), 1},
  };
  all.insert(all.end(), more.begin(), more.end());
}

std::vector<DifferenceCase> difference_cases() {
  const Attrs conv = windows_of({3, 2}, {2, 1}, {1, 0, 2, 1}, {1, 2});
  const Attrs pool_window = windows_of({3, 2}, {2, 1}, {1, 0, 1, 1}, {1, 1});
  Attrs average = pool_window;
  std::erase_if(average, [](const Attr& attr) { return attr.name == "dilations"; });
  set_attr(average, "ceil_mode", int64_t{1});
  std::vector<DifferenceCase> all = {
      {"Add", Op::Add, {{{2, 3, 4}}, {{3, 1}}}},
      {"AddOfAScalar", Op::Add, {{{2, 3}}, {{}}}},
      {"Sub", Op::Sub, {{{3, 1}}, {{2, 3, 4}}}},
      {"Mul", Op::Mul, {{{2, 1, 4}}, {{3, 4}}}},
      {"Div", Op::Div, {{{2, 3}}, {{3}, 0.5, 2}}},
      {"Sum", Op::Sum, {{{2, 3}}, {{2, 3}}, {{2, 3}}}},
      {"Where", Op::Where, {{{3, 4}, 0, 2, false, true, DType::boolean}, {{3, 4}}, {{2, 1, 4}}}},
      {"Relu", Op::Relu, {{{3, 5}}}},
      {"Sigmoid", Op::Sigmoid, {{{3, 5}}}},
      {"Tanh", Op::Tanh, {{{3, 5}}}},
      {"HardSwish", Op::HardSwish, {{{3, 5}, -5, 5}}},
      {"Exp", Op::Exp, {{{3, 5}}}},
      {"Sqrt", Op::Sqrt, {{{3, 5}, 0.5, 2}}},
      {"Neg", Op::Neg, {{{3, 5}}}},
      {"Log", Op::Log, {{{3, 5}, 0.5, 2}}},
      {"Abs", Op::Abs, {{{3, 5}, 0.5, 2}}},
      {"AbsBelowZero", Op::Abs, {{{3, 5}, -2, -0.5}}},
      {"Reciprocal", Op::Reciprocal, {{{3, 5}, 0.5, 2}}},
      {"Sin", Op::Sin, {{{3, 5}}}},
      {"Cos", Op::Cos, {{{3, 5}}}},
      {"Sinh", Op::Sinh, {{{3, 5}}}},
      {"Cosh", Op::Cosh, {{{3, 5}}}},
      {"Softplus", Op::Softplus, {{{3, 5}}}},
      {"Erf", Op::Erf, {{{3, 5}}}},
      {"LeakyRelu", Op::LeakyRelu, {{{3, 5}}}, {{"alpha", -0.3}}},
      {"HardSigmoid", Op::HardSigmoid, {{{3, 5}, -4, 4}}, {{"alpha", 0.2}, {"beta", 0.4}}},
      {"Clip", Op::Clip, {{{3, 5}}}, {{"max", 1.0}, {"min", -0.5}}},
      {"Gelu", Op::Gelu, {{{3, 5}}}, {{"approximate", std::string("none")}}},
      {"GeluByTanh", Op::Gelu, {{{3, 5}}}, {{"approximate", std::string("tanh")}}},
      {"Conv", Op::Conv, {{{2, 4, 6, 7}}, {{6, 2, 3, 2}}, {{6}}}, with_attr(conv, "group", int64_t{2})},
      {"ConvOfOneAxis",
       Op::Conv,
       {{{2, 3, 9}}, {{2, 3, 3}}},
       with_attr(windows_of({3}, {3}, {0, 1}, {1}), "group", int64_t{1})},
      {"ConvTranspose",
       Op::ConvTranspose,
       {{{2, 4, 3, 4}}, {{4, 3, 3, 2}}, {{6}}},
       with_attr(with_attr(conv, "group", int64_t{2}), "output_padding", Ints{1, 0})},
      {"MaxPool", Op::MaxPool, {{{2, 2, 6, 5}}}, with_attr(pool_window, "ceil_mode", int64_t{0})},
      {"MaxPoolCeil", Op::MaxPool, {{{2, 2, 6, 5}}}, with_attr(pool_window, "ceil_mode", int64_t{1})},
      {"AveragePool", Op::AveragePool, {{{2, 2, 6, 5}}}, with_attr(average, "count_include_pad", int64_t{0})},
      {"AveragePoolOfPadding", Op::AveragePool, {{{2, 2, 6, 5}}}, with_attr(average, "count_include_pad", int64_t{1})},
      {"GlobalAveragePool", Op::GlobalAveragePool, {{{2, 3, 4, 5}}}},
      {"ReduceSum", Op::ReduceSum, {{{2, 3, 4}}}, {{"axes", Ints{0, -1}}, {"keepdims", int64_t{0}}}},
      {"ReduceMean", Op::ReduceMean, {{{2, 3, 4}}}, {{"axes", Ints{1}}, {"keepdims", int64_t{1}}}},
      {"MatMul", Op::MatMul, {{{2, 3, 4}}, {{4, 5}}, {{5}}}},
      {"MatMulBatched", Op::MatMul, {{{2, 1, 3, 4}}, {{3, 4, 5}}}},
      {"Linear", Op::Linear, {{{2, 3, 4}}, {{5, 4}}, {{5}}}},
      {"BatchNormalization",
       Op::BatchNormalization,
       {{{2, 3, 4}}, {{3}}, {{3}}, {{3}, -1, 1, false}, {{3}, 0.5, 2, false}},
       {{"epsilon", 1e-3}}},
      {"Dropout", Op::Dropout, {{{2, 3}}}, {{"ratio", 0.5}}},
      {"DropoutTraining",
       Op::DropoutTraining,
       {{{3, 7}}, {.shape = {1}, .indices = true, .given = {5}}, {.shape = {3}, .indices = true, .given = {4, 0, 9}}},
       {{"ratio", 0.25}, {"seed", int64_t{3}}, {"stream", int64_t{1}}}},
      {"BatchNormalizationTraining", Op::BatchNormalizationTraining, {{{2, 3, 4}}, {{3}}, {{3}}}, {{"epsilon", 1e-3}}},
      {"LayerNormalization",
       Op::LayerNormalization,
       {{{2, 3, 4}}, {{3, 4}}, {{3, 4}}},
       {{"axis", int64_t{1}}, {"epsilon", 1e-3}}},
      {"InstanceNormalization", Op::InstanceNormalization, {{{2, 3, 4, 2}}, {{3}}, {{3}}}, {{"epsilon", 1e-3}}},
      {"LRN", Op::LRN, {{{2, 6, 3}}}, {{"alpha", 0.5}, {"beta", 0.75}, {"bias", 1.5}, {"size", int64_t{4}}}},
      {"Softmax", Op::Softmax, {{{2, 3, 4}}}, {{"axis", int64_t{1}}}},
      {"LogSoftmax", Op::LogSoftmax, {{{2, 3, 4}}}, {{"axis", int64_t{-1}}}},
      {"Identity", Op::Identity, {{{2, 3}}}},
      {"Reshape", Op::Reshape, {{{2, 3, 4}}}, {{"shape", Ints{0, -1, 2}}}},
      {"Flatten", Op::Flatten, {{{2, 3, 4}}}, {{"axis", int64_t{2}}}},
      {"Expand", Op::Expand, {{{3, 1}}}, {{"shape", Ints{2, 1, 4}}}},
      {"Transpose", Op::Transpose, {{{2, 3, 4}}}, {{"perm", Ints{1, 2, 0}}}},
      {"Concat", Op::Concat, {{{2, 3}}, {{2, 1}}, {{2, 2}}}, {{"axis", int64_t{-1}}}},
      {"Pad", Op::Pad, {{{2, 3}}}, {{"pads", Ints{1, 0, 0, 2}}, {"value", 0.5}}},
      {"Slice",
       Op::Slice,
       {{{4, 5}}},
       {{"axes", Ints{1, 0}}, {"ends", Ints{4, 1000}}, {"starts", Ints{1, -2}}, {"steps", Ints{1, 1}}}},
      {"Gather", Op::Gather, {{{3, 5, 2}}, {{2, 4}, -5, 5, false, true}}, {{"axis", int64_t{1}}}},
      {"SoftmaxCrossEntropy", Op::SoftmaxCrossEntropy, {{{3, 2, 5}}, {{3, 2}, 0, 5, false, true}}},
  };
  for (const int64_t ta : {0, 1}) {
    for (const int64_t tb : {0, 1}) {
      all.push_back({"Gemm" + std::to_string(ta) + std::to_string(tb),
                     Op::Gemm,
                     {{ta != 0 ? Shape{4, 3} : Shape{3, 4}}, {tb != 0 ? Shape{5, 4} : Shape{4, 5}}, {{5}}},
                     gemm_attrs(0.5, 1.5, ta, tb)});
    }
  }
  add_functions(all);
  add_moves(all);
  add_images(all);
  add_products(all);
  add_recurrent(all);
  return all;
}

class GradientOf : public ::testing::TestWithParam<DifferenceCase> {};

TEST_P(GradientOf, IsWhatCentralDifferencesAre) {
  for (const uint32_t seed : {1, 2, 3}) EXPECT_LT(worst_error(GetParam(), seed), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Operators, GradientOf, ::testing::ValuesIn(difference_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(Differentiate, EveryRuleHasItsCase) {
  std::string without;
  const std::vector<DifferenceCase> all = difference_cases();
  for (int i = 0; i < op_count; ++i) {
    const Op op = static_cast<Op>(i);
    const bool tested = std::ranges::any_of(all, [&](const DifferenceCase& one) { return one.op == op; });
    if (info(op).gradient.rule != nullptr && !tested) without += std::string(name_of(op)) + " ";
  }
  EXPECT_EQ(without, "");
}

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
  EXPECT_THAT(parse_loss("hinge").error().message, HasSubstr("'hinge' is no loss; there are mean_squared_error"));
  GraphBuilder g("vector");
  const ValueId x = g.input("labels", {DType::f32, {4}});
  g.output(g.add(Op::Relu, "y", {x}, {}).value());
  const Graph graph = std::move(g).finish();
  EXPECT_EQ(with_loss(graph, Loss::softmax_cross_entropy).error().message, "the graph has a value labels already");
  Graph renamed = graph;
  renamed.values[0].name = "x";
  EXPECT_EQ(with_loss(renamed, Loss::softmax_cross_entropy).error().message,
            "output y is f32[4]: it has no axis of classes behind its samples");
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
  EXPECT_EQ(why(small.loss, small.x), "x is no weight");
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

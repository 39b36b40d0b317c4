// The gradient of each operator against central differences, in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "central_differences.h"
#include "graph/builder.h"
#include "op_attrs.h"

namespace nlsplit {
namespace {

using reference::Array;
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

Attrs gemm_attrs(double alpha, double beta, int64_t ta, int64_t tb) {
  return {{"alpha", alpha}, {"beta", beta}, {"transA", ta}, {"transB", tb}};
}

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

}  // namespace
}  // namespace nlsplit

// Flop/s of the computations of training steps at each level this CPU has, by every kernel that accepts them: of
// convolutions forward (weights change), by their operand and by their weights, of products with turned operands, and
// byte/s of what reads and writes memory only. tests/kernels holds all against the reference evaluator.
//
//   gradients_bench --benchmark_filter='v4/resnet18_2/'
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/catalogue.h"
#include "ready_kernel.h"

namespace nlsplit {
namespace {

using Ints = std::vector<int64_t>;

void add(const KernelLibrary& library, const std::string& name, Op op, Attrs attrs, const std::vector<Shape>& inputs) {
  ComputeDesc desc;
  desc.op = op;
  desc.attrs = std::move(attrs);
  for (const Shape& shape : inputs) desc.inputs.push_back({DType::f32, shape});
  desc.outputs = info(op).infer(desc.inputs, desc.attrs).value();
  for (const KernelName kernel : kernels_of(library.isa())) {
    desc.kernel = {kernel, library.isa()};
    if (kernel == KernelName::reference || refusal(desc.kernel, desc)) continue;
    const std::string label = fmt::format("{}/{}/{}", name_of(library.isa()), name, to_string(desc.kernel));
    benchmark::RegisterBenchmark(label.c_str(), [&library, desc](benchmark::State& state) {
      Ready ready(library, desc, 1);
      for (auto _ : state) ready.run();
      count(state, work_of(desc));
    });
  }
}

struct Layer {
  std::string name;
  Shape x;
  int64_t filters, kernel, stride, group;
};

// A convolution three times: forward, by x, by the weights.
void add_convolution(const KernelLibrary& library, const Layer& layer) {
  const int64_t pad = layer.kernel / 2;
  const Attrs attrs{{"dilations", Ints{1, 1}},
                    {"group", layer.group},
                    {"kernel_shape", Ints{layer.kernel, layer.kernel}},
                    {"pads", Ints(4, pad)},
                    {"strides", Ints{layer.stride, layer.stride}}};
  const Shape w{layer.filters, layer.x[1] / layer.group, layer.kernel, layer.kernel};
  const std::vector<TensorType> operands{{DType::f32, layer.x}, {DType::f32, w}};
  const Shape y = info(Op::Conv).infer(operands, attrs).value()[0].shape;
  Attrs transposed = attrs;
  Ints left;  // what the last window does not reach
  for (size_t axis : {2, 3}) left.push_back(layer.x[axis] + 2 * pad - (y[axis] - 1) * layer.stride - layer.kernel);
  set_attr(transposed, "output_padding", left);
  add(library, layer.name + "/forward", Op::Conv, attrs, {layer.x, w});
  add(library, layer.name + "/by_x", Op::ConvTranspose, transposed, {y, w});
  add(library, layer.name + "/by_w", Op::ConvWeightGradient, attrs, {layer.x, y});
}

void add_all(const KernelLibrary& library) {
  for (const Layer& layer : std::vector<Layer>{
           {"resnet18_stem", {4, 3, 224, 224}, 64, 7, 2, 1},
           {"resnet18_1", {4, 64, 56, 56}, 64, 3, 1, 1},
           {"resnet18_2_strided", {4, 64, 56, 56}, 128, 3, 2, 1},
           {"resnet18_2", {4, 128, 28, 28}, 128, 3, 1, 1},
           {"resnet18_3", {4, 256, 14, 14}, 256, 3, 1, 1},
           {"resnet18_4", {4, 512, 7, 7}, 512, 3, 1, 1},
           {"resnet18_small_1", {16, 64, 16, 16}, 64, 3, 1, 1},
           {"resnet18_small_3", {16, 256, 4, 4}, 256, 3, 1, 1},
           {"resnet18_small_4", {16, 512, 2, 2}, 512, 3, 1, 1},
           {"mobilenet_v2_expand", {4, 24, 56, 56}, 144, 1, 1, 1},
           {"mobilenet_v2_project", {4, 384, 14, 14}, 64, 1, 1, 1},
           {"mobilenet_v2_depthwise", {4, 144, 56, 56}, 144, 3, 1, 144},
           {"mobilenet_v2_depthwise_strided", {4, 144, 56, 56}, 144, 3, 2, 144},
           {"mobilenet_v2_depthwise_small", {4, 960, 7, 7}, 960, 3, 1, 960},
           {"mobilenet_v2_small_depthwise_1", {16, 144, 16, 16}, 144, 3, 1, 144},
           {"mobilenet_v2_small_depthwise_2", {16, 384, 4, 4}, 384, 3, 1, 384},
           {"mobilenet_v2_small_depthwise_3", {16, 960, 2, 2}, 960, 3, 1, 960},
           {"mobilenet_v2_small_expand", {16, 64, 4, 4}, 384, 1, 1, 1},
           {"mobilenet_v2_small_project", {16, 960, 2, 2}, 160, 1, 1, 1},
       })
    add_convolution(library, layer);
  const auto gemm = [](int64_t a, int64_t b) {
    return Attrs{{"alpha", 1.0}, {"beta", 1.0}, {"transA", a}, {"transB", b}};
  };
  // A fully connected layer of 1024: forward, by x, by the weights.
  for (const int64_t rows : {64, 512}) {
    const std::string name = fmt::format("linear_1024_rows_{}", rows);
    add(library, name + "/forward", Op::Gemm, gemm(0, 1), {{rows, 1024}, {1024, 1024}});
    add(library, name + "/by_x", Op::Gemm, gemm(0, 0), {{rows, 1024}, {1024, 1024}});
    add(library, name + "/by_w", Op::Gemm, gemm(1, 0), {{rows, 1024}, {rows, 1024}});
  }
  const Shape image{4, 64, 112, 112}, tokens{1024, 1024}, scores{8, 4, 128, 128};
  const Attrs pool{{"ceil_mode", int64_t{0}},
                   {"dilations", Ints{1, 1}},
                   {"kernel_shape", Ints{3, 3}},
                   {"pads", Ints{1, 1, 1, 1}},
                   {"strides", Ints{2, 2}}};
  add(library, "max_pool", Op::MaxPoolGradient, pool, {{4, 64, 56, 56}, image});
  add(library, "relu", Op::ReluGradient, {}, {image, image});
  add(library, "gelu", Op::GeluGradient, {{"approximate", std::string("none")}}, {tokens, tokens});
  add(library, "batch_norm_scale", Op::BatchNormalizationScaleGradient, {{"epsilon", 1e-5}},
      {image, image, {64}, {64}});
  add(library, "channel_sums", Op::ReduceSum, {{"axes", Ints{0, 2, 3}}, {"keepdims", int64_t{0}}}, {image});
  add(library, "column_sums", Op::ReduceSum, {{"axes", Ints{0}}, {"keepdims", int64_t{0}}}, {tokens});
  add(library, "layer_norm", Op::LayerNormalizationGradient, {{"axis", int64_t{-1}}, {"epsilon", 1e-5}},
      {tokens, tokens, {1024}});
  add(library, "softmax", Op::SoftmaxGradient, {{"axis", int64_t{-1}}}, {scores, scores});
  add(library, "momentum", Op::MomentumUpdate, {{"decay", 0.0}, {"momentum", 0.9}, {"nesterov", int64_t{0}}},
      {tokens, tokens, tokens, {1}});
}

}  // namespace
}  // namespace nlsplit

int main(int argc, char** argv) {
  using namespace nlsplit;
  benchmark::Initialize(&argc, argv);
  std::vector<KernelLibrary> libraries;
  for (Isa isa : supported_levels()) libraries.push_back(KernelLibrary::load(isa).value());
  for (const KernelLibrary& library : libraries) add_all(library);
  benchmark::RunSpecifiedBenchmarks();
}

// What happens to a network before it is planned: built or imported, optimised, taken to another batch, printed and
// parsed.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <onnx/onnx_pb.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "graph/onnx/export.h"
#include "graph/onnx/import.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"

namespace nlsplit {
namespace {

void build_zoo(benchmark::State& state, const char* name) {
  for (auto _ : state) {
    auto model = zoo_model(name);
    benchmark::DoNotOptimize(model);
  }
}
BENCHMARK_CAPTURE(build_zoo, resnet50, "resnet50")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(build_zoo, mobilenet_v2, "mobilenet_v2")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(build_zoo, llama_70b, "llama?layers=80&hidden=8192&heads=64&ffn=28672")
    ->Unit(benchmark::kMicrosecond);

// A file that is gone with the benchmark: `layers` of Conv 3x3 over 256 channels, BatchNormalization and Relu.
class OnnxChain {
 public:
  explicit OnnxChain(int layers)
      : path_(std::filesystem::temp_directory_path() / fmt::format("nlsplit_bench_{}_{}.onnx", ::getpid(), layers)) {
    onnx::ModelProto model;
    model.set_ir_version(8);
    model.add_opset_import()->set_version(13);
    onnx::GraphProto& graph = *model.mutable_graph();
    graph.set_name("chain");
    declare(*graph.add_input(), "x0");
    for (int l = 0; l < layers; ++l) {
      add_weight(graph, fmt::format("w{}", l), {channels, channels, 3, 3});
      for (const char* part : {"scale", "bias", "mean", "var"})
        add_weight(graph, fmt::format("{}{}", part, l), {channels});
      onnx::NodeProto& conv =
          add_node(graph, "Conv", {fmt::format("x{}", l), fmt::format("w{}", l)}, fmt::format("c{}", l));
      onnx::AttributeProto& pads = *conv.add_attribute();
      pads.set_name("pads");
      pads.set_type(onnx::AttributeProto::INTS);
      for (int i = 0; i < 4; ++i) pads.add_ints(1);
      add_node(graph, "BatchNormalization",
               {fmt::format("c{}", l), fmt::format("scale{}", l), fmt::format("bias{}", l), fmt::format("mean{}", l),
                fmt::format("var{}", l)},
               fmt::format("b{}", l));
      add_node(graph, "Relu", {fmt::format("b{}", l)}, fmt::format("x{}", l + 1));
    }
    declare(*graph.add_output(), fmt::format("x{}", layers));
    std::ofstream file(path_, std::ios::binary);
    written_ = model.SerializeToOstream(&file) && file.flush().good();
  }
  OnnxChain(const OnnxChain&) = delete;
  OnnxChain& operator=(const OnnxChain&) = delete;
  ~OnnxChain() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  bool written() const { return written_; }
  std::string path() const { return path_.string(); }
  int64_t size() const { return static_cast<int64_t>(std::filesystem::file_size(path_)); }

 private:
  static constexpr int64_t channels = 256;

  static void declare(onnx::ValueInfoProto& value, const std::string& name) {
    value.set_name(name);
    auto& tensor = *value.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(onnx::TensorProto::FLOAT);
    for (const int64_t extent : {int64_t{1}, channels, int64_t{14}, int64_t{14}})
      tensor.mutable_shape()->add_dim()->set_dim_value(extent);
  }

  static void add_weight(onnx::GraphProto& graph, const std::string& name, const std::vector<int64_t>& shape) {
    onnx::TensorProto& tensor = *graph.add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    for (const int64_t extent : shape) tensor.add_dims(extent);
    // Other bytes in each: equal ones would be stored once.
    const std::vector<float> values(static_cast<size_t>(element_count(shape)),
                                    static_cast<float>(graph.initializer_size()));
    tensor.set_raw_data(values.data(), values.size() * sizeof(float));
  }

  static onnx::NodeProto& add_node(onnx::GraphProto& graph, const char* op, const std::vector<std::string>& inputs,
                                   const std::string& output) {
    onnx::NodeProto& node = *graph.add_node();
    node.set_op_type(op);
    node.set_name(output);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(output);
    return node;
  }

  std::filesystem::path path_;
  bool written_ = false;
};

// Argument: layers, 2.36 MB of weights each. Bytes are the file's.
void import_onnx_file(benchmark::State& state) {
  const auto layers = static_cast<int>(state.range(0));
  const OnnxChain file(layers);
  if (!file.written()) return state.SkipWithError("the ONNX file could not be written");
  const auto checked = import_onnx(file.path());
  if (!checked.ok() || checked->graph.nodes.size() != 3 * static_cast<size_t>(layers))
    return state.SkipWithError(checked.ok() ? "not all layers came in" : checked.error().message.c_str());
  for (auto _ : state) {
    auto model = import_onnx(file.path());
    benchmark::DoNotOptimize(model);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * file.size());
}
BENCHMARK(import_onnx_file)->Arg(1)->Arg(40)->Unit(benchmark::kMillisecond);

int64_t anonymous_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8));
  }
  return 0;
}

// VGG-19 with its 575 MB of weights, imported and optimised; anonymous_MiB: what that took of memory that is not the
// file's.
void import_vgg19(benchmark::State& state) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("nlsplit_bench_{}_vgg19.onnx", ::getpid());
  {
    const Model zoo = zoo_model("vgg19").value();
    if (!export_onnx(zoo.graph, zoo.weights, path.string()).ok())
      return state.SkipWithError("the ONNX file could not be written");
  }
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  double most = 0;
  for (auto _ : state) {
    const int64_t before = anonymous_kib();
    auto model = import_onnx(path.string());
    auto graph = model.ok() ? optimize(model->graph, model->weights) : Result<Graph>(model.error());
    if (!graph.ok()) {
      state.SkipWithError(graph.error().message.c_str());
      break;
    }
    most = std::max(most, static_cast<double>(anonymous_kib() - before) / 1024);
    benchmark::DoNotOptimize(graph);
  }
  std::filesystem::remove(path);
  state.counters["anonymous_MiB"] = most;
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * size);
}
BENCHMARK(import_vgg19)->Unit(benchmark::kMillisecond);

// items = nodes, before the passes.
void optimize_zoo(benchmark::State& state, const char* name) {
  const Model model = zoo_model(name).value();
  for (auto _ : state) {
    WeightStore weights = model.weights;
    auto graph = optimize(model.graph, weights);
    benchmark::DoNotOptimize(graph);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * model.graph.nodes.size()));
}
BENCHMARK_CAPTURE(optimize_zoo, resnet50, "resnet50")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(optimize_zoo, mobilenet_v2, "mobilenet_v2")->Unit(benchmark::kMicrosecond);

Graph optimized(const char* name) {
  Model model = zoo_model(name).value();
  return optimize(model.graph, model.weights).value();
}

void with_batch_resnet50(benchmark::State& state) {
  const Graph graph = optimized("resnet50");
  for (auto _ : state) {
    auto batched = with_batch(graph, 16);
    benchmark::DoNotOptimize(batched);
  }
}
BENCHMARK(with_batch_resnet50)->Unit(benchmark::kMicrosecond);

void print_graph_resnet50(benchmark::State& state) {
  const Graph graph = optimized("resnet50");
  size_t size = 0;
  for (auto _ : state) {
    const std::string text = to_string(graph);
    size += text.size();
  }
  state.SetBytesProcessed(static_cast<int64_t>(size));
}
BENCHMARK(print_graph_resnet50)->Unit(benchmark::kMicrosecond);

void parse_graph_resnet50(benchmark::State& state) {
  const Graph graph = optimized("resnet50");
  const std::string text = to_string(graph);
  if (const auto parsed = parse_graph(text, "bench"); !parsed.ok() || *parsed != graph)
    return state.SkipWithError("the text does not parse back");
  for (auto _ : state) {
    auto parsed = parse_graph(text, "bench");
    benchmark::DoNotOptimize(parsed);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}
BENCHMARK(parse_graph_resnet50)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace nlsplit

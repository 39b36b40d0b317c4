// Flop/s of every distinct kernel of some networks at batch 1 (by the layer that has it first), at each level this CPU
// has, of the networks as a whole, and of single computations that those networks do not have ("single"). The result of
// each is checked against the reference evaluator before it is timed. A build with oneDNN (-DNLSPLIT_ONEDNN=ON) has its
// rows, ".../onednn", beside ours at this CPU's best level. Transformers are timed at that level only, as they are and
// with the products and the Softmax that Attention is made of ("bert_base_in_parts").
//
//   kernels_bench --benchmark_filter='resnet50/v4/'
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "kernel_case.h"
#include "kernels/assign.h"
#include "kernels/layout.h"
#include "kernels/module/kernel_library.h"
#include "onednn_row.h"
#include "ready_kernel.h"

namespace nlsplit {
namespace {

void time_kernel(benchmark::State& state, const KernelLibrary& library, const ComputeDesc& desc) {
  Ready ready(library, desc, 1);
  if (!ready.is_right()) return state.SkipWithError("the result is wrong");
  for (auto _ : state) ready.run();
  count(state, work_of(desc));
}

// oneDNN has no level but this CPU's best.
void add_row(const std::string& label, const KernelLibrary& library, const ComputeDesc& desc) {
  benchmark::RegisterBenchmark(label.c_str(),
                               [&library, desc](benchmark::State& state) { time_kernel(state, library, desc); });
  if (library.isa() == supported_levels().back()) add_onednn_row(label, desc);
}

// All layers in order. (Their operands are not each other's results, but as large.)
void time_network(benchmark::State& state, const KernelLibrary& library, const std::vector<ComputeDesc>& descs) {
  std::vector<Ready> layers;
  Work work;
  for (const ComputeDesc& desc : descs) {
    layers.emplace_back(library, desc, layers.size());
    work += work_of(desc);
  }
  for (auto _ : state) {
    for (Ready& layer : layers) layer.run();
  }
  count(state, work);
}

// passes: as select_passes takes them.
void add_network(const std::string& name, const KernelLibrary& library, const std::string& label,
                 std::string_view passes = "all") {
  Model model = zoo_model(name).value();
  const Graph graph = run_passes(model.graph, model.weights, select_passes(passes).value()).value();
  std::vector<ComputeDesc> all;
  std::set<std::string> seen;
  const std::string prefix = fmt::format("{}/{}/", label, name_of(library.isa()));
  const Assignment chosen = assign_kernels(graph, library.isa()).value();
  std::vector<std::pair<ComputeDesc, std::string>> computations;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const Reorder& reorder : chosen.reorders) {
      if (reorder.before != n) continue;
      const Value& value = graph.value(reorder.value);
      const TensorType from = with_block(value.type, chosen.made_in[reorder.value.index()]);
      computations.emplace_back(reorder_desc(from, reorder.block, library.isa()), value.name);
    }
    if (!is_view(graph.nodes[n].op)) computations.emplace_back(chosen.descs[n], graph.nodes[n].name);
  }
  const auto is_float = [](const TensorType& type) { return type.dtype == DType::f32; };
  for (const auto& [desc, layer] : computations) {
    if (!std::ranges::all_of(desc.inputs, is_float)) continue;  // looked up by number: any would be out of range
    all.push_back(desc);
    if (!seen.insert(signature(desc)).second) continue;
    add_row(prefix + fmt::format("{}/{}", layer, to_string(desc.kernel)), library, desc);
  }
  benchmark::RegisterBenchmark((prefix + "whole").c_str(), [&library, all](benchmark::State& state) {
    time_network(state, library, all);
  })->Unit(benchmark::kMillisecond);
}

// Constant from input `first_weight` on. block: of all tensors; 0: row-major.
ComputeDesc computation(Op op, Attrs attrs, const std::vector<Shape>& inputs, size_t first_weight, Isa isa,
                        int block = 0) {
  ComputeDesc desc;
  desc.op = op;
  desc.attrs = std::move(attrs);
  for (const Shape& shape : inputs) {
    if (desc.inputs.size() >= first_weight) desc.weights |= uint64_t{1} << desc.inputs.size();
    desc.inputs.push_back({DType::f32, shape});
  }
  desc.outputs = info(op).infer(desc.inputs, desc.attrs).value();
  for (TensorType& type : desc.inputs) type.block = block;
  for (TensorType& type : desc.outputs) type.block = block;
  desc.kernel = choose_kernel(desc, isa).value();
  return desc;
}

void add_singles(const KernelLibrary& library) {
  using Ints = std::vector<int64_t>;
  const auto add = [&](const std::string& name, Op op, Attrs attrs, const std::vector<Shape>& inputs,
                       size_t first_weight) {
    const ComputeDesc desc = computation(op, std::move(attrs), inputs, first_weight, library.isa());
    add_row(fmt::format("single/{}/{}/{}", name_of(library.isa()), name, to_string(desc.kernel)), library, desc);
  };
  // A transformer's layer: 12 heads of 64, 128 tokens, 768 features.
  add("scores", Op::MatMul, {}, {{12, 128, 64}, {12, 64, 128}}, 2);
  add("softmax", Op::Softmax, {{"axis", int64_t{-1}}}, {{12, 128, 128}}, 1);
  add("context", Op::MatMul, {}, {{12, 128, 128}, {12, 128, 64}}, 2);
  for (const int64_t tokens : {128, 1024}) {
    const Shape heads{1, 12, tokens, 64};
    for (const int64_t causal : {0, 1}) {
      add(fmt::format("attention_{}{}", tokens, causal != 0 ? "_causal" : ""), Op::Attention,
          {{"causal", causal}, {"scale", 0.125}}, {heads, heads, heads}, 3);
    }
  }
  add("layer_norm", Op::LayerNormalization, {{"axis", int64_t{-1}}, {"epsilon", 1e-5}}, {{128, 768}, {768}, {768}}, 1);
  add("erf", Op::Erf, {}, {{128, 3072}}, 1);
  // What split plans move: a halo's rows, half of the columns, half of the channels, and everything joined again.
  const auto slice = [](int64_t axis, int64_t begin, int64_t end) {
    return Attrs{{"axes", Ints{axis}}, {"ends", Ints{end}}, {"starts", Ints{begin}}, {"steps", Ints{1}}};
  };
  const int block = static_cast<int>(vector_width(library.isa()));
  const auto add_moves = [&](const std::string& name, Op op, const Attrs& attrs, const std::vector<Shape>& inputs) {
    for (const int of : {0, block})
      add_row(fmt::format("single/{}/{}{}", name_of(library.isa()), name, of == 0 ? "" : "_blocked"), library,
              computation(op, attrs, inputs, inputs.size(), library.isa(), of));
  };
  add_moves("halo", Op::Slice, slice(2, 54, 56), {{1, 64, 56, 56}});
  add_moves("columns", Op::Slice, slice(3, 0, 28), {{1, 64, 56, 56}});
  add_moves("channels", Op::Slice, slice(1, 32, 64), {{1, 64, 56, 56}});
  for (const int64_t axis : {1, 2, 3}) {
    Shape half{1, 64, 56, 56};
    half[static_cast<size_t>(axis)] /= 2;
    add_moves(fmt::format("join_axis_{}", axis), Op::Concat, {{"axis", axis}}, {half, half});
  }
  add_moves("sum", Op::Sum, {}, {{1, 64, 56, 56}, {1, 64, 56, 56}, {1, 64, 56, 56}});
  // Few rows: weights that stay in a cache, and 64 MiB that do not.
  for (const int64_t rows : {1, 2, 4, 8, 16, 128}) {
    add(fmt::format("linear_768x3072_rows_{}", rows), Op::MatMul, {}, {{rows, 768}, {768, 3072}}, 1);
  }
  for (const int64_t rows : {1, 4, 8}) {
    add(fmt::format("linear_4096x4096_rows_{}", rows), Op::MatMul, {}, {{rows, 4096}, {4096, 4096}}, 1);
  }
  // 32 steps of 256 features, 512 hidden units: 4 MiB of an LSTM's recurrent weights are read at each.
  for (const int64_t batch : {1, 8}) {
    const auto shapes = [&](int64_t gates) {
      return std::vector<Shape>{{batch, 32, 256}, {1, gates * 512, 256}, {1, gates * 512, 512}, {1, 2 * gates * 512}};
    };
    const Attr forward{"direction", std::string("forward")};
    add(fmt::format("lstm_512_batch_{}", batch), Op::LSTM, {forward}, shapes(4), 1);
    for (const int64_t after : {0, 1}) {
      add(fmt::format("gru_512_{}batch_{}", after != 0 ? "linear_before_reset_" : "", batch), Op::GRU,
          {forward, {"linear_before_reset", after}}, shapes(3), 1);
    }
  }
  const auto doubles = [](int64_t kernel, int64_t pad) {
    return Attrs{{"dilations", Ints{1, 1}},      {"group", int64_t{1}},  {"kernel_shape", Ints{kernel, kernel}},
                 {"output_padding", Ints{0, 0}}, {"pads", Ints(4, pad)}, {"strides", Ints{2, 2}}};
  };
  add("upsample_4x4", Op::ConvTranspose, doubles(4, 1), {{1, 128, 32, 32}, {128, 64, 4, 4}}, 1);
  add("upsample_2x2", Op::ConvTranspose, doubles(2, 0), {{1, 256, 28, 28}, {256, 128, 2, 2}}, 1);
}

}  // namespace
}  // namespace nlsplit

int main(int argc, char** argv) {
  using namespace nlsplit;
  benchmark::Initialize(&argc, argv);
  std::vector<KernelLibrary> libraries;
  for (Isa isa : supported_levels()) {
    auto loaded = KernelLibrary::load(isa);
    CHECK(loaded.ok(), loaded.error().to_string());
    libraries.push_back(std::move(*loaded));
  }
  for (const KernelLibrary& library : libraries) {
    for (const char* network : {"resnet50", "resnet18", "mobilenet_v2", "vgg16", "alexnet", "simple_cnn"})
      add_network(network, library, network);
    add_singles(library);
  }
  for (const char* network : {"bert_base", "gpt2", "vit_b16"}) {
    add_network(network, libraries.back(), network);
    add_network(network, libraries.back(), fmt::format("{}_in_parts", network), "all,-recognize_attention");
  }
  benchmark::RunSpecifiedBenchmarks();
}

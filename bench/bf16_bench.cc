// Products and convolutions of bfloat16, one thread, at this CPU's best level: flop/s beside `instruction`, what
// vdpbf16ps reaches when all that it reads is in registers. The layers are BERT's, for eight sequences of 128 tokens,
// and ResNet-50's, for eight images. Before a row is timed, its bits are compared with those without the instruction.
//
//   bf16_bench --benchmark_filter=conv
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "graph/half.h"
#include "kernels/cpu.h"
#include "kernels/layout.h"
#include "kernels/module/kernel_library.h"

namespace nlsplit {
namespace {

#if defined(__x86_64__)
void time_instruction(benchmark::State& state) {
  constexpr int at_once = 24, flops = 64;
  for (auto _ : state) {
    asm volatile(
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"
        "vdpbf16ps %%zmm30, %%zmm31, %%zmm\\r\n"
        ".endr" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
              "xmm13", "xmm14", "xmm15");
  }
  state.counters["flop/s"] = benchmark::Counter(at_once * flops, benchmark::Counter::kIsIterationInvariantRate);
}
#endif

// Memory at a boundary that vectors and cache lines have.
class Aligned {
 public:
  explicit Aligned(int64_t bytes) : memory_(static_cast<size_t>(bytes) + 64) {
    begin_ = (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64;
  }
  char* data() { return memory_.data() + begin_; }

 private:
  std::vector<char> memory_;
  size_t begin_;
};

class Layer {
 public:
  Layer(const KernelLibrary& library, ComputeDesc desc)
      : desc_(std::move(desc)),
        code_(**library.find(desc_.kernel)),
        out_bytes_(stored_elements(desc_.outputs[0]) * int64_t{sizeof(uint16_t)}),
        out_(out_bytes_),
        workspace_(workspace_of(desc_, 1).value()) {
    for (size_t i = 0; i < desc_.inputs.size(); ++i) {
      const int64_t count = stored_elements(desc_.inputs[i]);
      std::vector<float> values(static_cast<size_t>(count));
      fill_normal(i + 1, values.data(), count);
      Aligned raw(count * int64_t{sizeof(uint16_t)});
      auto* halves = reinterpret_cast<uint16_t*>(raw.data());
      const float scale = i == 1 ? 1 / std::sqrt(static_cast<float>(count / desc_.outputs[0].shape[1])) : 1;
      std::ranges::transform(values, halves, [&](float value) { return bf16_bits(scale * value); });
      if (const int64_t packed = packed_bytes_of(desc_, i).value(); packed > 0) {
        operands_.emplace_back(packed);
        code_.pack(desc_, i, raw.data(), operands_.back().data());
      } else {
        operands_.push_back(std::move(raw));
      }
    }
    for (Aligned& operand : operands_) inputs_.push_back(operand.data());
  }

  void run() {
    void* outputs[] = {out_.data()};
    code_.run({&desc_, inputs_.data(), outputs, workspace_.data(), {}});
  }
  std::string bits() {
    run();
    return {out_.data(), static_cast<size_t>(out_bytes_)};
  }

 private:
  ComputeDesc desc_;
  const KernelCode& code_;
  int64_t out_bytes_;
  Aligned out_, workspace_;
  std::vector<Aligned> operands_;
  std::vector<const void*> inputs_;
};

void time_layer(benchmark::State& state, const KernelLibrary& library, const ComputeDesc& desc) {
  Layer layer(library, desc);
  const std::string bits = layer.bits();
  library.use_dot_product(false);
  if (layer.bits() != bits) state.SkipWithError("other bits without the instruction");
  library.use_dot_product(true);
  for (auto _ : state) layer.run();
  state.counters["flop/s"] =
      benchmark::Counter(work_of(desc).flops.value(), benchmark::Counter::kIsIterationInvariantRate);
}

ComputeDesc finished(ComputeDesc desc, Isa isa, bool adds) {
  desc.weights = 0b110;
  if (adds) {
    desc.epilogue.push_back({Op::Add, {}});
    desc.inputs.push_back(desc.outputs[0]);
  }
  desc.kernel.level = isa;
  CHECK(verify(desc).ok(), "a layer that its kernel takes");
  return desc;
}

ComputeDesc product(int64_t m, int64_t k, int64_t n, Isa isa, bool adds) {
  ComputeDesc desc;
  desc.op = Op::MatMul;
  desc.inputs = {{DType::bf16, {m, k}}, {DType::bf16, {k, n}}, {DType::bf16, {n}}};
  desc.outputs = infer(desc.op, desc.inputs, desc.attrs).value();
  desc.kernel.name = KernelName::matmul_bf16;
  return finished(desc, isa, adds);
}

ComputeDesc convolution(int64_t channels, int64_t side, int64_t filters, int64_t kernel, int64_t stride, Isa isa,
                        bool adds) {
  const auto both = [](int64_t value) { return std::vector<int64_t>{value, value}; };
  ComputeDesc desc;
  desc.op = Op::Conv;
  desc.attrs = {{"dilations", both(1)},
                {"group", int64_t{1}},
                {"kernel_shape", both(kernel)},
                {"pads", std::vector<int64_t>(4, kernel / 2)},
                {"strides", both(stride)}};
  desc.inputs = {{DType::bf16, {8, channels, side, side}},
                 {DType::bf16, {filters, channels, kernel, kernel}},
                 {DType::bf16, {filters}}};
  desc.outputs = infer(desc.op, desc.inputs, desc.attrs).value();
  const int block = static_cast<int>(vector_width(isa));
  desc.outputs[0].block = block;
  const bool from_planes = channels < 4;
  if (!from_planes) desc.inputs[0].block = block;
  desc.kernel.name = from_planes ? KernelName::conv_stem_bf16 : KernelName::conv_bf16;
  desc = finished(desc, isa, adds);
  desc.epilogue.push_back({Op::Relu, {}});
  return desc;
}

}  // namespace
}  // namespace nlsplit

int main(int argc, char** argv) {
  using namespace nlsplit;
  benchmark::Initialize(&argc, argv);
  const Isa isa = supported_levels().back();
  const KernelLibrary library = KernelLibrary::load(isa).value();
#if defined(__x86_64__)
  if (cpu_has_bf16_pairs(isa)) benchmark::RegisterBenchmark("instruction", time_instruction);
#endif
  const auto add = [&](const std::string& name, const ComputeDesc& desc) {
    benchmark::RegisterBenchmark(name.c_str(),
                                 [&library, desc](benchmark::State& state) { time_layer(state, library, desc); });
  };
  for (const auto& [m, k, n, adds] : {std::tuple{1024, 768, 768, false},
                                      {1024, 768, 768, true},
                                      {1024, 768, 3072, false},
                                      {1024, 3072, 768, true},
                                      {16, 768, 768, false},
                                      {1, 768, 768, false}})
    add(fmt::format("product/{}x{}x{}{}", m, k, n, adds ? "/add" : ""), product(m, k, n, isa, adds));
  for (const auto& [channels, side, filters, kernel, stride, adds] : {std::tuple{3, 224, 64, 7, 2, false},
                                                                      {64, 56, 64, 3, 1, false},
                                                                      {64, 56, 256, 1, 1, true},
                                                                      {256, 56, 64, 1, 1, false},
                                                                      {128, 28, 512, 1, 1, true},
                                                                      {512, 28, 128, 1, 1, false},
                                                                      {256, 14, 1024, 1, 1, true},
                                                                      {256, 14, 256, 3, 1, false},
                                                                      {256, 56, 512, 1, 2, false},
                                                                      {128, 56, 128, 3, 2, false}})
    add(fmt::format("conv/{}x{}x{}/{}_filters_of_{}/stride_{}{}", channels, side, side, filters, kernel, stride,
                    adds ? "/add" : ""),
        convolution(channels, side, filters, kernel, stride, isa, adds));
  benchmark::RunSpecifiedBenchmarks();
}

// The CUDA backend's own code on the emulated GPU: every operator against the reference, split plans against unsplit
// ones, messages through the mirror, and everything given back.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "differential/generate.h"
#include "exec/gpu_programs.h"
#include "gpu/emulator/control.h"
#include "gpu/gpu_check.h"
#include "graph/builder.h"
#include "graph/zoo/zoo.h"
#include "kernels/cpu.h"
#include "program/verify.h"
#include "testing/compile_program.h"

namespace nlsplit {
namespace {

using namespace testing;

const std::string backend_path = std::string(NLS_BIN_DIR) + "/../lib/libbackend_cuda_emulated.so";

class EmulatedGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    handle = dlopen(backend_path.c_str(), RTLD_LOCAL | RTLD_NOW);
    ASSERT_NE(handle, nullptr) << dlerror();
  }
  // All that was opened is closed by then: descriptors, events, memory.
  void TearDown() override { EXPECT_EQ(reinterpret_cast<EmulatedLeft>(dlsym(handle, "emulated_gpu_left"))(), 0u); }

  void seed(uint64_t value) const { reinterpret_cast<EmulatedSeed>(dlsym(handle, "emulated_gpu_seed"))(value); }
  const cuda::Backend& backend() const {
    return *reinterpret_cast<cuda::BackendFunction>(dlsym(handle, cuda::backend_function))();
  }
  static RunOptions options() {
    RunOptions on_emulator = test_options();
    on_emulator.gpu = {backend_path, GpuMissing::error};
    on_emulator.repeats = 1;
    return on_emulator;
  }

  void* handle = nullptr;
};

TEST_F(EmulatedGpu, IsFoundAndSaysWhatItIs) {
  const auto chosen = choose_backend({backend_path, GpuMissing::error});
  ASSERT_TRUE(chosen.ok()) << chosen.error().to_string();
  EXPECT_EQ(chosen->devices, 4);
  const auto bench = Bench::open(*chosen->backend);
  ASSERT_TRUE(bench.ok()) << bench.error().to_string();
  EXPECT_EQ(bench->text(), "a GPU emulated on the CPU, sm_80, 8 GiB");
}

TEST_F(EmulatedGpu, EveryOperatorGivesWhatTheReferenceGives) {
  auto bench = Bench::open(backend());
  ASSERT_TRUE(bench.ok()) << bench.error().to_string();
  const auto differing = check_operators(*bench, 1, 6);
  ASSERT_TRUE(differing.ok()) << differing.error().to_string();
  EXPECT_EQ(*differing, 0);
}

TEST_F(EmulatedGpu, GeneratedKernelsHaveTheBitsOfTheirLoops) {
  auto bench = Bench::open(backend());
  ASSERT_TRUE(bench.ok()) << bench.error().to_string();
  const auto differing = check_generated(*bench, 1, 4, std::nullopt);
  ASSERT_TRUE(differing.ok()) << differing.error().to_string();
  EXPECT_EQ(*differing, 0);
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The operators above have no indices. Below 0 they count from the end.
TEST_F(EmulatedGpu, GathersByIndicesOfBothWidths) {
  auto bench = Bench::open(backend());
  ASSERT_TRUE(bench.ok()) << bench.error().to_string();
  constexpr int64_t outer = 3, extent = 5, inner = 2;
  const std::vector<int64_t> indices = {4, 0, -2, 1};
  std::vector<float> table(outer * extent * inner), want;
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  for (int64_t o = 0; o < outer; ++o) {
    for (const int64_t index : indices) {
      for (int64_t i = 0; i < inner; ++i)
        want.push_back(static_cast<float>((o * extent + (index + extent) % extent) * inner + i));
    }
  }
  for (const DType type : {DType::i64, DType::i32}) {
    ComputeDesc desc;
    desc.op = Op::Gather;
    desc.attrs = {{"axis", int64_t{1}}};
    desc.inputs = {{DType::f32, {outer, extent, inner}}, {type, {4}}};
    desc.outputs = {{DType::f32, {outer, 4, inner}}};
    desc.kernel = choose_kernel(desc, Isa::cuda).value();
    EXPECT_EQ(to_string(desc.kernel), "gather_cuda");
    const std::string which =
        type == DType::i64 ? raw(indices) : raw(std::vector<int32_t>(indices.begin(), indices.end()));
    const auto got = bench->run(desc, {raw(table), which});
    ASSERT_TRUE(got.ok()) << got.error().to_string();
    EXPECT_EQ((*got)[0], raw(want));
  }
}

// Layers over devices, replicas, several micro-batches under way: the same bits, whatever is early and late.
TEST_F(EmulatedGpu, SplitEqualsUnsplitBitForBit) {
  int compared = 0, with_messages = 0;
  for (uint64_t number = 1; number <= 16; ++number) {
    SCOPED_TRACE(number);
    seed(number);
    const Level level = gpu_levels()[number % 2];
    const auto made = CaseMaker(number, level).make();
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    auto graph = with_batch(made->model.graph, made->batch / made->plan.micro_batches);
    ASSERT_TRUE(graph.ok()) << graph.error().to_string();
    const auto kernels = choose_kernels(std::move(*graph), {level});
    ASSERT_TRUE(kernels.ok()) << kernels.error().to_string();
    const CostTable costs(made->costs, "generated");
    const auto split = compile_program(*kernels, made->plan, made->cluster, made->endpoints, &costs);
    ASSERT_TRUE(split.ok()) << split.error().to_string();
    if (!verify(*split).ok()) continue;  // a dead lock that the plan brings with it
    const Program whole = compile_unsplit(*kernels, made->plan.micro_batches, gpu_device(level), "here").value();
    const auto got = run_threads(*split, job_of(*split, made->model.weights), options());
    ASSERT_TRUE(got.ok()) << error_of(got);
    const auto want = run_threads(whole, job_of(whole, made->model.weights), options());
    ASSERT_TRUE(want.ok()) << error_of(want);
    for (const OutputTensor& output : want->outputs)
      EXPECT_EQ(output_of(*got, output.tensor.name), output.tensor.values) << output.tensor.name;
    ++compared;
    with_messages += split->devices.size() > 1 ? 1 : 0;
  }
  EXPECT_GE(compared, 10);
  EXPECT_GE(with_messages, 5);
}

// Nothing but operators of which code is generated, or which only move: elements of several types, and indices.
Graph generated_network() {
  GraphBuilder builder("generated");
  const auto add = [&](Op op, const char* name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return builder.add(op, name, std::move(inputs), std::move(attrs)).value();
  };
  const ValueId x = builder.input("x", {DType::f32, {2, 3, 6, 5}});
  const ValueId larger = add(Op::Resize, "larger", {x},
                             {{"antialias", int64_t{0}},
                              {"coordinate_transformation_mode", std::string("asymmetric")},
                              {"cubic_coeff_a", -0.75},
                              {"exclude_outside", int64_t{0}},
                              {"extrapolation_value", 0.0},
                              {"mode", std::string("nearest")},
                              {"nearest_mode", std::string("floor")},
                              {"roi", std::vector<double>{0, 0, 0, 0, 1, 1, 1, 1}},
                              {"scales", std::vector<double>{1, 1, 2, 2}},
                              {"sizes", std::vector<int64_t>{2, 3, 12, 10}}});
  const ValueId padded =
      add(Op::Pad, "padded", {larger}, {{"pads", std::vector<int64_t>{0, 0, 1, 0, 0, 0, 1, 2}}, {"value", 0.5}});
  const ValueId sine = add(Op::Sin, "sine", {padded});
  const ValueId less = add(Op::Less, "less", {padded, sine});
  const ValueId chosen = add(Op::Where, "chosen", {less, padded, sine});
  const ValueId whole = add(Op::Cast, "whole", {chosen}, {{"to", std::string("i64")}});
  const ValueId doubled = add(Op::Add, "doubled", {whole, whole});
  const ValueId gathered = add(Op::GatherElements, "gathered", {chosen, doubled}, {{"axis", int64_t{3}}});
  const Attrs along = {{"axis", int64_t{2}}, {"exclusive", int64_t{0}}, {"reverse", int64_t{0}}};
  builder.output(add(Op::CumSum, "sums", {gathered}, along));
  return std::move(builder).finish();
}

// On a CPU and a GPU, cut everywhere: their bits are those of a CPU.
TEST_F(EmulatedGpu, GeneratedKernelsOfACpuAndAGpuGiveTheSameBits) {
  const Graph graph = generated_network();
  const Level cpu = best_isa().value();
  const KernelGraph kernels = choose_kernels(graph, {cpu, Isa::cuda}).value();
  const Program whole = unsplit_on(graph, 2, cpu);
  const Job job = seeded_job(whole);
  const auto want = run_threads(whole, job, test_options());
  ASSERT_TRUE(want.ok()) << error_of(want);
  Cluster cluster;
  cluster.hosts = {{"a", false}, {"b", false}};
  cluster.links = {{"l", HostId(0), HostId(1), bytes_per_second(1e9), seconds(1e-5)}};
  cluster.devices = {gpu_device(cpu), gpu_device()};
  cluster.devices[0].name = "C";
  cluster.devices[0].host = HostId(0);
  cluster.devices[1].host = HostId(1);
  const CostTable costs(std::vector<CostSourcePtr>(2, roofline(flops_per_second(1e9), bytes_per_second(1e9))), "none");
  for (size_t cut = 1; cut < graph.nodes.size(); ++cut) {
    SCOPED_TRACE(graph.nodes[cut].name);
    Plan plan;
    plan.micro_batches = 2;
    plan.stages = {{0, cut, {DeviceId(0)}}, {cut, graph.nodes.size(), {DeviceId(1)}}};
    plan.schedule = "streaming";
    const Program split = compile_program(kernels, plan, cluster, {HostId(0), HostId(1)}, &costs).value();
    EXPECT_TRUE(std::ranges::any_of(split.descs, [](const ComputeDesc& desc) {
      return desc.kernel == KernelId(KernelName::gpu_generated, Isa::cuda);
    }));
    const auto got = run_threads(split, job, options());
    ASSERT_TRUE(got.ok()) << error_of(got);
    EXPECT_EQ(got->outputs[0].tensor.values, want->outputs[0].tensor.values);
  }
}

TEST_F(EmulatedGpu, MovesDataAsTheCpuDoes) {
  for (const char* name : {"instances", "ring_all_reduce", "interleaved", "replicas"}) {
    SCOPED_TRACE(name);
    const Program on_cpu = program_of(name), program = on_gpus(name);
    const auto want = run_threads(on_cpu, seeded_job(on_cpu), test_options());
    const auto got = run_threads(program, seeded_job(program), options());
    ASSERT_TRUE(want.ok()) << error_of(want);
    ASSERT_TRUE(got.ok()) << error_of(got);
    expect_close(*got, *want);
  }
}

// TF32 is used where the level says so, and only there.
TEST_F(EmulatedGpu, RoundsFactorsAtLevelTf32Only) {
  Model model = zoo_model("simple_cnn").value();
  const Graph graph = optimize(model.graph, model.weights).value();
  const auto outputs = [&](Level level) {
    const Program program = unsplit_on(graph, 1, level);
    const auto result =
        run_threads(program, job_of(program, model.weights), is_gpu(level.isa) ? options() : test_options());
    EXPECT_TRUE(result.ok()) << error_of(result);
    return result->outputs[0].tensor.values;
  };
  const std::vector<float> cpu = outputs(best_isa().value()), exact = outputs(Isa::cuda),
                           rounded = outputs({Isa::cuda, Precision::tf32});
  const auto farthest = [&](const std::vector<float>& values) {
    double most = 0;
    for (size_t i = 0; i < cpu.size(); ++i) most = std::max(most, static_cast<double>(std::abs(values[i] - cpu[i])));
    return most;
  };
  EXPECT_LT(farthest(exact), 1e-5);
  EXPECT_GT(farthest(rounded), 1e-5);
  EXPECT_LT(farthest(rounded), 1e-2);
}

}  // namespace
}  // namespace nlsplit

// Devices of kind cuda without a GPU: the whole way from a Program to a backend and back, on a backend that computes on
// the CPU, has memory of its own, runs late and fails on demand (fake_gpu).
#include "exec/backends/cuda.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "differential/generate.h"
#include "exec/cuda/library.h"
#include "exec/gpu_programs.h"
#include "exec/on_fake_gpu.h"
#include "graph/builder.h"
#include "graph/zoo/zoo.h"
#include "kernels/cpu.h"
#include "program/verify.h"
#include "testing/compile_program.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

// ---- the way through

TEST_F(FakeGpu, ComputesWhatTheCpuComputes) {
  Model model = zoo_model("simple_cnn").value();
  const Graph graph = optimize(model.graph, model.weights).value();
  const Program on_cpu = unsplit_on(graph, 2, best_isa().value());
  const auto expected = run_threads(on_cpu, job_of(on_cpu, model.weights), test_options());
  ASSERT_TRUE(expected.ok()) << error_of(expected);
  for (const Level level : gpu_levels()) {
    const Program program = unsplit_on(graph, 2, level);
    ASSERT_TRUE(verify(program).ok()) << verify(program).error().to_string();
    const auto result = run_threads(program, job_of(program, model.weights), options());
    ASSERT_TRUE(result.ok()) << error_of(result);
    expect_close(*result, *expected);
    EXPECT_EQ(result->trace.peak_bytes[0], program.devices[0].arena);
  }
  EXPECT_GT(fake_calls("launch"), 0);
}

// Times are the backend's, in the order of the Program, and within the run.
TEST_F(FakeGpu, TellsWhenEachComputationRan) {
  Model model = zoo_model("simple_cnn").value();
  const Program program = unsplit_on(optimize(model.graph, model.weights).value(), 4, Isa::cuda);
  const auto result = run_threads(program, job_of(program, model.weights), options());
  ASSERT_TRUE(result.ok()) << error_of(result);
  double before = 0;
  for (const Span& span : result->trace.spans) {
    EXPECT_GE(span.start, before);
    EXPECT_GE(span.finish, span.start);
    before = span.finish;
  }
  EXPECT_GT(before, 0);
}

// Split plans with messages through the mirror give the unsplit network's bits: the fake's kernels are the CPU's, whose
// elements do not depend on the batch.
TEST_F(FakeGpu, SplitEqualsUnsplitBitForBit) {
  int compared = 0, with_messages = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    const auto made = CaseMaker(seed, Isa::cuda).make();
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    auto graph = with_batch(made->model.graph, made->batch / made->plan.micro_batches);
    ASSERT_TRUE(graph.ok()) << graph.error().to_string();
    const auto kernels = choose_kernels(std::move(*graph), {Isa::cuda});
    ASSERT_TRUE(kernels.ok()) << kernels.error().to_string();
    const CostTable costs(made->costs, "generated");
    const auto split = compile_program(*kernels, made->plan, made->cluster, made->endpoints, &costs);
    ASSERT_TRUE(split.ok()) << split.error().to_string();
    if (!verify(*split).ok()) continue;  // a dead lock that the plan brings with it
    const Program whole = compile_unsplit(*kernels, made->plan.micro_batches, gpu_device(), "here").value();
    const auto got = run_threads(*split, job_of(*split, made->model.weights), options());
    ASSERT_TRUE(got.ok()) << error_of(got);
    const auto want = run_threads(whole, job_of(whole, made->model.weights), options());
    ASSERT_TRUE(want.ok()) << error_of(want);
    for (const OutputTensor& output : want->outputs)
      EXPECT_EQ(output_of(*got, output.tensor.name), output.tensor.values) << output.tensor.name;
    ++compared;
    with_messages += split->devices.size() > 1 ? 1 : 0;
  }
  EXPECT_GE(compared, 30);
  EXPECT_GE(with_messages, 20);
}

// reduce, pack, unpack and copy, many instances, both ways.
TEST_F(FakeGpu, MovesDataAsTheCpuDoes) {
  for (const char* name : {"instances", "ring_all_reduce", "interleaved", "replicas"}) {
    SCOPED_TRACE(name);
    const Program on_cpu = program_of(name), program = on_gpus(name);
    const auto want = run_threads(on_cpu, seeded_job(on_cpu), test_options());
    const auto got = run_threads(program, seeded_job(program), options());
    ASSERT_TRUE(want.ok()) << error_of(want);
    ASSERT_TRUE(got.ok()) << error_of(got);
    expect_close(*got, *want);
  }
  EXPECT_GT(fake_calls("add"), 0);
  EXPECT_GT(fake_calls("move"), 0);
  EXPECT_GT(fake_calls("launch"), 0);
}

// Two long rows: too few threads for generated code.
Graph with_host_operator() {
  GraphBuilder builder("host");
  const ValueId x = builder.input("x", {DType::f32, {2, 1500}});
  const ValueId a = builder.add(Op::Relu, "relu", {x}, {}).value();
  const Attrs along = {{"axis", int64_t{1}}, {"exclusive", int64_t{0}}, {"reverse", int64_t{0}}};
  const ValueId b = builder.add(Op::CumSum, "sum", {a}, along).value();
  builder.output(builder.add(Op::Neg, "neg", {b}, {}).value());
  return std::move(builder).finish();
}

TEST_F(FakeGpu, WhatItCannotComputeIsComputedOnTheHost) {
  const Program program = unsplit_on(with_host_operator(), 1, Isa::cuda);
  EXPECT_TRUE(std::ranges::any_of(program.descs,
                                  [](const ComputeDesc& desc) { return desc.kernel.name == KernelName::gpu_host; }));
  const Job job = seeded_job(program);
  const auto result = run_threads(program, job, options());
  ASSERT_TRUE(result.ok()) << error_of(result);
  const std::vector<float>&x = job.inputs[0].values, &y = result->outputs[0].tensor.values;
  ASSERT_EQ(x.size(), y.size());
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum = (i == 1500 ? 0 : sum) + std::max(x[i], 0.0f);
    ASSERT_EQ(y[i], -static_cast<float>(sum)) << i;
  }
}

// ---- errors: each function of the backend, as early and as late as it is called

TEST_F(FakeGpu, EveryFailureEndsTheRunAndSaysWhatWasAskedFor) {
  Model model = zoo_model("simple_cnn").value();
  const Graph graph = optimize(model.graph, model.weights).value();
  const KernelGraph kernels = choose_kernels(graph, {Isa::cuda}).value();
  Cluster cluster;
  cluster.hosts = {{"a", false}, {"b", false}};
  cluster.links = {{"l", HostId(0), HostId(1), bytes_per_second(1e9), seconds(1e-5)}};
  for (size_t d = 0; d < 2; ++d) {
    cluster.devices.push_back(gpu_device());
    cluster.devices.back().name = d == 0 ? "A" : "B";
    cluster.devices.back().host = HostId(d);
  }
  Plan plan;
  plan.micro_batches = 2;
  plan.stages = {{0, graph.nodes.size() / 2, {DeviceId(0)}},
                 {graph.nodes.size() / 2, graph.nodes.size(), {DeviceId(1)}}};
  plan.schedule = "streaming";
  const CostTable costs(std::vector<CostSourcePtr>(2, roofline(flops_per_second(1e9), bytes_per_second(1e9))), "none");
  const Program program = compile_program(kernels, plan, cluster, {HostId(0), HostId(1)}, &costs).value();
  const Job job = job_of(program, model.weights);
  fake_fail("", 0);
  RunOptions one_by_one = options();  // what fails in a capture is tried again without: cuda_graphs_test.cc
  one_by_one.gpu.graphs = GpuGraphs::off;
  ASSERT_TRUE(run_threads(program, job, one_by_one).ok());
  const std::vector<const char*> functions = {"open",   "allocate",     "pin",    "copy_in", "copy_out", "prepare",
                                              "launch", "create_event", "record", "query",   "wait",     "elapsed"};
  std::vector<int> calls;
  for (const char* function : functions) calls.push_back(fake_calls(function));
  for (size_t f = 0; f < functions.size(); ++f) {
    EXPECT_GT(calls[f], 0) << functions[f];
    // How often these are called differs from run to run; the first time is always there.
    const bool steady = std::string(functions[f]) != "query" && std::string(functions[f]) != "create_event";
    for (const int nth : steady ? std::vector<int>{1, calls[f] / 2, calls[f]} : std::vector<int>{1}) {
      SCOPED_TRACE(std::string(functions[f]) + " " + std::to_string(nth));
      if (nth < 1) continue;
      fake_fail(functions[f], nth);
      const auto result = run_threads(program, job, one_by_one);
      EXPECT_THAT(error_of(result), AllOf(HasSubstr("(GPU): "), HasSubstr("the fake was told to fail")));
      EXPECT_THAT(error_of(result), ::testing::AnyOf(HasSubstr("device A"), HasSubstr("device B")));
    }
  }
}

// A GPU that never comes to an end of what it was given, before and while it computes.
TEST_F(FakeGpu, AWaitThatNeverReturnsEndsTheRun) {
  Model model = zoo_model("simple_cnn").value();
  const Program program = unsplit_on(optimize(model.graph, model.weights).value(), 2, Isa::cuda);
  const Job job = job_of(program, model.weights);
  RunOptions run_options = options();
  run_options.warmup = 0;
  run_options.repeats = 1;
  fake_fail("", 0);
  ASSERT_TRUE(run_threads(program, job, run_options).ok());
  const int waits = fake_calls("wait");
  ASSERT_GT(waits, 2);
  run_options.deadlines = {10, 0.3, 0.3};
  run_options.on_stuck = [](const Error&) { fake_fail("", 0); };  // nlbench ends here
  for (const int nth : {1, waits - 1}) {
    fake_fail("hang", nth);
    const auto result = run_threads(program, job, run_options);
    ASSERT_FALSE(result.ok()) << nth << " of " << waits;
    EXPECT_EQ(exit_code(result.error()), 3);
    EXPECT_THAT(result.error().message, ::testing::AnyOf(HasSubstr("does not end"), HasSubstr("come to no end")));
  }
}

// ---- which backend, which GPU

TEST(Backend, AMissingFileMeansTheCpuAndANotice) {
  const auto chosen = choose_backend({"/nowhere/libbackend_cuda.so", GpuMissing::cpu});
  ASSERT_TRUE(chosen.ok()) << chosen.error().to_string();
  EXPECT_EQ(chosen->devices, 1);
  EXPECT_EQ(chosen->notice, "no GPU: there is no /nowhere/libbackend_cuda.so; the CPU computes in its place");
  const auto refused = choose_backend({"/nowhere/libbackend_cuda.so", GpuMissing::error});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(refused.error().message, "no GPU: there is no /nowhere/libbackend_cuda.so");
}

TEST(Backend, OneWithoutADeviceIsMissing) {
  fake_fail("count", 1);
  const auto chosen = choose_backend({fake_path, GpuMissing::cpu});
  fake_fail("", 0);
  ASSERT_TRUE(chosen.ok()) << chosen.error().to_string();
  EXPECT_EQ(chosen->notice, "no GPU: the fake was told to fail; the CPU computes in its place");
  EXPECT_EQ(choose_backend({fake_path, GpuMissing::cpu})->notice, "");
}

TEST(Backend, AnotherLibraryIsAnErrorInAnyCase) {
  const std::string kernels = library_folder + "libnlsplit_kernels_" + std::string(name_of(best_isa().value())) + ".so";
  const auto chosen = choose_backend({kernels, GpuMissing::cpu});
  ASSERT_FALSE(chosen.ok());
  EXPECT_THAT(chosen.error().message, HasSubstr("is not a backend: it has no nlsplit_cuda_backend"));
}

// The real one, where it is built: it loads on any machine, and says by itself whether there is a GPU.
TEST(Backend, TheRealOneLoadsWithoutADriver) {
  void* handle = dlopen((library_folder + cuda::backend_file).c_str(), RTLD_LOCAL | RTLD_NOW);
  if (handle == nullptr) GTEST_SKIP() << "libbackend_cuda.so is not built, or lacks a library: " << dlerror();
  const auto function = reinterpret_cast<cuda::BackendFunction>(dlsym(handle, cuda::backend_function));
  ASSERT_NE(function, nullptr);
  EXPECT_EQ(function()->version, cuda::interface_version);
  int devices = -7;
  const char* why = function()->count(&devices);
  if (why != nullptr) {
    EXPECT_THAT(why, HasSubstr("CUDA: "));
    EXPECT_EQ(devices, 0);
    EXPECT_THAT(choose_backend({.missing = GpuMissing::cpu}).value().notice, HasSubstr("no GPU: CUDA: "));
  } else {
    EXPECT_GE(devices, 0);
  }
}

TEST(Backend, ANoticeReachesTheUser) {
  const Program program = unsplit_on(with_host_operator(), 1, Isa::cuda);
  RunOptions on_nothing = test_options();
  on_nothing.gpu = {"/nowhere/libbackend_cuda.so", GpuMissing::cpu};
  std::string said;
  on_nothing.notice = [&](const std::string& notice) { said += notice; };
  const auto result = run_threads(program, seeded_job(program), on_nothing);
  ASSERT_TRUE(result.ok()) << error_of(result);
  EXPECT_THAT(said, AllOf(HasSubstr("device G: no GPU: "), HasSubstr("the CPU computes in its place")));
  EXPECT_THAT(result->ran_on.stands_in, ::testing::ElementsAre(1));
  on_nothing.gpu = {.backend = "/nowhere/libbackend_cuda.so"};  // the default
  const auto refused = run_threads(program, seeded_job(program), on_nothing);
  EXPECT_THAT(error_of(refused), AllOf(HasSubstr("device G: no GPU: there is no "), HasSubstr("--gpu-missing cpu")));
  EXPECT_EQ(exit_code(refused.error()), 2);
}

TEST(Backend, GpusGoRoundAmongTheDevicesOfAMachine) {
  Program program;
  for (const DeviceKind kind : {DeviceKind::cuda, DeviceKind::cpu, DeviceKind::cuda, DeviceKind::cuda})
    program.devices.emplace_back().kind = kind;
  const std::vector<int> all = {0, 1, 2, 3}, last = {2, 3};
  EXPECT_EQ(gpu_number(program, 0, all, 2), 0);
  EXPECT_EQ(gpu_number(program, 2, all, 2), 1);
  EXPECT_EQ(gpu_number(program, 3, all, 2), 0);
  EXPECT_EQ(gpu_number(program, 3, all, 4), 2);
  EXPECT_EQ(gpu_number(program, 3, last, 4), 1);
  EXPECT_EQ(gpu_number(program, 3, last, 1), 0);
}

// ---- arithmetic

TEST(StagedRanges, AreThePagesOfWhatIsSentAndReceived) {
  DeviceProgram device;
  const auto add = [&](int64_t offset, int64_t size, int instances) {
    Buffer& buffer = device.buffers.emplace_back();
    buffer.name = "b" + std::to_string(device.buffers.size());
    buffer.offset = offset;
    buffer.bytes = bytes(size);
    buffer.instances = instances;
    return BufferId(device.buffers.size() - 1);
  };
  const BufferId sent = add(100, 50, 1), received = add(5000, 4000, 1), own = add(64 * 4096, 4096, 1),
                 instances = add(16 * 4096, 4096, 3), empty = add(1 << 20, 0, 1);
  Segment& segment = device.segments.emplace_back();
  const auto transfer = [&](Opcode opcode, BufferId buffer) {
    Instr& instr = segment.instrs.emplace_back();
    instr.opcode = opcode;
    (opcode == Opcode::send ? instr.reads : instr.writes).push_back({buffer, 0, -1});
  };
  EXPECT_TRUE(staged_ranges(device, 4096).empty());
  transfer(Opcode::recv, instances);
  transfer(Opcode::send, sent);
  transfer(Opcode::recv, received);
  transfer(Opcode::send, empty);
  Instr& copy = segment.instrs.emplace_back();
  copy.opcode = Opcode::copy;
  copy.reads = {{own, 0, -1}};
  const std::vector<ByteRange> expected = {{0, 3 * 4096}, {16 * 4096, 19 * 4096}};  // 5000 + 4000 ends in page 2
  EXPECT_EQ(staged_ranges(device, 4096), expected);
}

TEST(GpuDevices, NoCopyCrossesTheEdgeOfWhatIsPageLocked) {
  using Pieces = std::vector<ByteRange>;
  const Pieces locked = {{100, 200}, {300, 400}};
  EXPECT_EQ(cut_at({}, {5, 10}), (Pieces{{5, 10}}));
  EXPECT_EQ(cut_at(locked, {0, 100}), (Pieces{{0, 100}}));
  EXPECT_EQ(cut_at(locked, {120, 180}), (Pieces{{120, 180}}));
  EXPECT_EQ(cut_at(locked, {100, 200}), (Pieces{{100, 200}}));
  EXPECT_EQ(cut_at(locked, {50, 150}), (Pieces{{50, 100}, {100, 150}}));
  EXPECT_EQ(cut_at(locked, {50, 450}), (Pieces{{50, 100}, {100, 200}, {200, 300}, {300, 400}, {400, 450}}));
}

}  // namespace
}  // namespace nlsplit

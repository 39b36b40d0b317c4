#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "compile/compile.h"
#include "exec/backends/arena.h"
#include "exec/backends/backends.h"
#include "exec/guarded_backend.h"
#include "exec/programs.h"
#include "exec/transport_threads.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "kernels/module/kernel_library.h"
#include "program/footprint.h"
#include "testing/random_graph.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Run, NeedsAsManyRanksAsDevices) {
  const Program program = program_of("train_1f1b");
  const Status status = check_ranks(program, 2);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(exit_code(status.error()), 2);
  EXPECT_THAT(status.error().message,
              HasSubstr("this plan runs on 3 devices (A, B, C), and 2 ranks were started. Run it in one process with "
                        "`--transport threads`, over MPI with `mpirun -np 3`"));
  EXPECT_TRUE(check_ranks(program, 3).ok());
}

TEST(Run, InputsAreCheckedBeforeAnythingStarts) {
  const Program program = program_of("train_1f1b");
  Job job = seeded_job(program);
  job.inputs[1].values.pop_back();
  EXPECT_THAT(error_of(run_threads(program, job, test_options())), HasSubstr("input t must be f32[8,2]"));
  job.inputs.pop_back();
  EXPECT_THAT(error_of(run_threads(program, job, test_options())),
              HasSubstr("needs input t (f32[8,2]), which is missing"));
}

TEST(Run, AMissingContentIsAnErrorOfAllDevices) {
  const Program program = program_of("train_1f1b");
  Job job = seeded_job(program);
  job.contents = [all = job.contents](ContentId id) -> Result<std::string_view> {
    if (id.value == 0xb1) return invalid_input("content b1 is gone");
    return all(id);
  };
  EXPECT_THAT(error_of(run_threads(program, job, test_options())), HasSubstr("content b1 is gone"));
}

TEST(Run, AProgramThatVerifyRejectsIsNotRun) {
  Program program = program_of("train_1f1b");
  const Job job = seeded_job(program);
  program.devices[1].segments[0].instrs[0].tag = 9;
  EXPECT_THAT(error_of(run_threads(program, job, test_options())), HasSubstr("tags are crossed"));
}

// A training step of one layer: the gradient by x and dy, and the weight less a quarter of it. Every repeat is the same
// step.
TEST(Run, ATrainingStepUpdatesItsWeights) {
  const auto program = parse_program(R"(nlsplit program 1
program train batch 2 micro_batches 1
device A cpu host a isa v2 memory 1048576
  buffer x f32[2,4] input
  buffer dy f32[2,3] input
  buffer w f32[4,3] state content 7
  buffer v f32[4,3] state
  buffer t i64[1] state
  buffer rate f32[1] stash
  buffer dw f32[12] stash
  buffer ws f32[4096] scratch
  segment W stage 0 phase W
    dw[0:12] = Gemm(x, dy) {alpha=1.0, beta=1.0, transA=1, transB=0} kernel gemm_v2 workspace ws makes f32[4,3]
  segment S stage 0 phase step
    rate = LearningRate(t) {begins=[0], cosine=0, floor=0.0, rates=[0.25], warmup=0} kernel reference_v2
    w, v = MomentumUpdate(w, dw[0:12], v, rate) {decay=0.0, momentum=0.9, nesterov=0} kernel update_v2
    t = StepCount(t) kernel update_v2
  order
    W.0
    S.-
)",
                                     "train.nls");
  ASSERT_TRUE(program.ok()) << program.error().to_string();
  Job job = seeded_job(*program);
  RunOptions options = test_options();
  options.states = true;
  options.repeats = 3;
  const Result<RunResult> result = run_threads(*program, job, options);
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  ASSERT_EQ(result->outputs.size(), 2U);
  std::vector<float> weight(12);
  const std::string_view content = job.contents({7}).value();
  ASSERT_EQ(content.size(), weight.size() * sizeof(float));
  std::memcpy(weight.data(), content.data(), content.size());
  const std::vector<float>&x = job.inputs[0].values, &dy = job.inputs[1].values;
  for (size_t i = 0; i < 4; ++i) {
    for (size_t k = 0; k < 3; ++k) {
      const float gradient = x[i] * dy[k] + x[4 + i] * dy[3 + k];
      EXPECT_NEAR(result->outputs[0].tensor.values[3 * i + k], weight[3 * i + k] - 0.25F * gradient, 1e-6);
      EXPECT_NEAR(result->outputs[1].tensor.values[3 * i + k], gradient, 1e-6);
    }
  }
  options.states = false;
  EXPECT_TRUE(run_threads(*program, job, options).value().outputs.empty());
}

TEST(Run, WhatHasNoKernelIsRefused) {
  const auto program = parse_program(R"(nlsplit program 1
program train batch 2 micro_batches 1
device A cpu host a isa v2 memory 1048576
  buffer x f32[2,4] input
  buffer y f32[2,4] output
  segment F stage 0 phase F
    y = ReluGradient(x, x) kernel none
  order
    F.0
)",
                                     "none.nls");
  ASSERT_TRUE(program.ok()) << program.error().to_string();
  const Result<RunResult> result = run_threads(*program, seeded_job(*program), test_options());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(exit_code(result.error()), 2);
  EXPECT_THAT(result.error().message, HasSubstr("there is no kernel for device A segment F `y = ReluGradient(x, x) "
                                                "kernel none`"));
}

// Two devices whose computations are said to take 20 ms each: they do, whatever this machine can, and so does the
// whole.
TEST(Run, ADeviceClockSaysWhatComputationsTake) {
  const Program program = program_of("interleaved");
  Job job = seeded_job(program);
  constexpr double each = 0.02;
  job.clocks.assign(program.devices.size(), std::vector<double>(program.descs.size(), each));
  RunOptions options = test_options();
  options.repeats = 1;
  options.warmup = 0;
  const auto result = run_threads(program, job, options);
  ASSERT_TRUE(result.ok()) << error_of(result);
  std::vector<double> last(program.devices.size(), 0);
  for (const Span& span : result->trace.spans) {
    const auto d = static_cast<size_t>(span.device);
    const DeviceProgram& device = program.devices[d];
    const Slot& slot = device.order[static_cast<size_t>(span.slot)];
    const Instr& instr = device.segments[static_cast<size_t>(slot.segment)].instrs[static_cast<size_t>(span.instr)];
    if (instr.opcode != Opcode::compute) continue;
    EXPECT_NEAR(span.finish - span.start, each, 1e-9);
    EXPECT_GE(span.start, last[d] - 1e-9) << "one after the other";
    last[d] = span.finish;
  }
  EXPECT_GE(result->makespans_s[0], each * static_cast<double>(program.descs.size()));
  // The same bits as without.
  const auto plain = run_threads(program, seeded_job(program), options);
  ASSERT_TRUE(plain.ok());
  ASSERT_EQ(plain->outputs.size(), result->outputs.size());
  for (size_t i = 0; i < plain->outputs.size(); ++i)
    EXPECT_EQ(plain->outputs[i].tensor.values, result->outputs[i].tensor.values);
}

TEST(Run, AClockThisMachineCannotKeepIsSaid) {
  const Program program = program_of("interleaved");
  Job job = seeded_job(program);
  job.clocks.assign(program.devices.size(), std::vector<double>(program.descs.size(), 0));
  const auto result = run_threads(program, job, test_options());
  ASSERT_TRUE(result.ok()) << error_of(result);
  EXPECT_GT(result->overruns, 0u);
  job.clocks[0].pop_back();
  EXPECT_THAT(error_of(run_threads(program, job, test_options())), HasSubstr("clocks of another program"));
}

TEST(Run, RepeatsAndDuration) {
  const Program program = program_of("instances");
  const Job job = seeded_job(program);
  RunOptions options;
  options.repeats = 2;
  options.warmup = 3;
  int called = 0;
  options.after_repeat = [&](const Repeat& repeat) {
    EXPECT_EQ(repeat.count, ++called);
    EXPECT_EQ(repeat.times.size(), 12u);  // device A: six slots of two instructions
    EXPECT_GT(repeat.calibration_s, 0);
    return true;
  };
  auto result = run_threads(program, job, options);
  ASSERT_TRUE(result.ok()) << error_of(result);
  EXPECT_EQ(result->makespans_s.size(), 2u);
  EXPECT_EQ(called, 2);

  options.duration_s = 0.5;
  called = 0;
  const auto begin = std::chrono::steady_clock::now();
  result = run_threads(program, job, options);
  ASSERT_TRUE(result.ok()) << error_of(result);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
  EXPECT_EQ(result->makespans_s.size(), static_cast<size_t>(called));
  EXPECT_EQ(result->trace.peak_bytes[0], program.devices[0].arena);

  options.after_repeat = [](const Repeat& repeat) { return repeat.count < 3; };
  options.duration_s = 100;
  result = run_threads(program, job, options);
  ASSERT_TRUE(result.ok()) << error_of(result);
  EXPECT_EQ(result->makespans_s.size(), 3u);
}

TEST(Run, AnInterruptEndsItWithAnError) {
  const Program program = program_of("instances");
  RunOptions options;
  options.cancelled = [] { return true; };
  const auto result = run_threads(program, seeded_job(program), options);
  EXPECT_EQ(error_of(result), "interrupted");
}

// B runs alone; A never sends.
TEST(Watchdog, NamesDeviceSlotAndWhatIsMissing) {
  const Program program = program_of("instances");
  const auto deps = dependencies(program);
  ASSERT_TRUE(deps.ok());
  ThreadWorld world(2, bytes(0));
  const GpuOptions no_gpu;
  const auto backend = open_backend({.program = program, .device = 1, .gpu = no_gpu});
  ASSERT_TRUE(backend.ok()) << error_of(backend);
  DeviceRun device_run(program, *deps, 1, **backend, world.endpoint(1), {0.1, nullptr});
  device_run.arm();
  const auto result = device_run.start(std::chrono::steady_clock::now());
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, AllOf(HasSubstr("device B: nothing happened for 0.1 s, and no device computes"),
                                            HasSubstr("waits to run   device B slot 0 (F.0) `half = pack(a)"),
                                            HasSubstr("has not received device B slot 0 (F.0) `recv a from A tag 0`")));
}

// Receives are posted as soon as their instance is free, not when the slot's turn comes: four instances, so four at the
// start.
TEST(Run, ReceivesArePostedAhead) {
  const Program program = program_of("instances");
  const auto deps = dependencies(program);
  const auto result = run_threads(program, seeded_job(program), test_options());
  ASSERT_TRUE(result.ok()) << error_of(result);
  std::vector<Span> recvs, computes;
  for (const Span& span : result->trace.spans) {
    if (span.device != 1) continue;
    (instr_of(program, {span.device, span.slot, span.instr}).opcode == Opcode::recv ? recvs : computes).push_back(span);
  }
  ASSERT_EQ(recvs.size(), 6u);
  for (int slot = 0; slot < 4; ++slot)
    EXPECT_LE(recvs[static_cast<size_t>(slot)].start, computes[0].start) << "slot " << slot;
}

// On one device of the level this machine has.
Program unsplit(const Graph& graph, int micro_batches) {
  Device device;
  device.name = "A";
  device.memory = bytes(int64_t{1} << 40);
  device.level = best_isa().value();
  const KernelGraph kernels = choose_kernels(graph, {device.level}).value();
  return compile_unsplit(kernels, micro_batches, device, "here").value();
}

TEST(Memory, AnArenaIsAsLargeAsAskedFor) {
  for (const int64_t size : {int64_t{1}, int64_t{4096}, int64_t{3} << 20}) {
    const Arena arena = Arena::allocate(bytes(size)).value();
    EXPECT_EQ(static_cast<int64_t>(arena.bytes().size()), size);
    arena.bytes().back() = std::byte{1};
  }
  EXPECT_EQ(Arena::allocate(bytes(0)).value().bytes().size(), 0u);
}

// What is measured of a run is what the Program's parts add up to.
TEST(Memory, ARunAllocatesWhatTheFootprintSays) {
  Model model = zoo_model("simple_cnn").value();
  const Program program = unsplit(optimize(model.graph, model.weights).value(), 2);
  const auto result = run_threads(program, job_of(program, model.weights), test_options());
  ASSERT_TRUE(result.ok()) << error_of(result);
  ASSERT_EQ(result->trace.peak_bytes.size(), 1u);
  EXPECT_EQ(result->trace.peak_bytes[0], footprints(program)[0].total());
  const Program three = program_of("train_1f1b");
  const auto pipeline = run_threads(three, seeded_job(three), test_options());
  ASSERT_TRUE(pipeline.ok()) << error_of(pipeline);
  ASSERT_EQ(pipeline->trace.peak_bytes.size(), 3u);
  for (size_t d = 0; d < 3; ++d) EXPECT_EQ(pipeline->trace.peak_bytes[d], three.devices[d].arena);
}

// Nothing is written beside the arena, and its last bytes are used.
TEST(Memory, ARunStaysWithinItsArena) {
  Model model = zoo_model("simple_cnn").value();
  const Program program = unsplit(optimize(model.graph, model.weights).value(), 2);
  const DeviceProgram& device = program.devices[0];
  const auto library = KernelLibrary::load(device.level.isa);
  ASSERT_TRUE(library.ok()) << library.error().to_string();
  KernelTable kernels;
  for (const ComputeDesc& desc : program.descs) kernels.push_back(library->find(desc.kernel).value());
  GuardedBackend backend(program, 0, kernels);
  std::byte* const arena = backend.host().data();
  int64_t last_end = 0;
  for (const Buffer& buffer : device.buffers) {
    if (buffer.kind == BufferKind::view) continue;
    last_end = std::max(last_end, buffer.offset + buffer.instances * buffer.stride());
    if (buffer.kind == BufferKind::input)
      std::memset(arena + buffer.offset, 0, static_cast<size_t>(buffer.instances * buffer.stride()));
    if (!buffer.has_content) continue;
    const std::string raw = model.weights.materialise(buffer.content).value();
    ASSERT_TRUE(backend.place(buffer, raw).ok());
  }
  EXPECT_EQ(last_end, device.arena.value());
  const auto deps = dependencies(program);
  ASSERT_TRUE(deps.ok());
  ThreadWorld world(1, bytes(0));
  DeviceRun device_run(program, *deps, 0, backend, world.endpoint(0), {});
  device_run.arm();
  ASSERT_TRUE(device_run.start(std::chrono::steady_clock::now()).ok());
  EXPECT_EQ(backend.written_beside(), 0);
}

// Results in their operands' places are the same bits as results in places of their own.
TEST(Memory, ComputingInPlaceChangesNoBit) {
  int in_place = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const Model model = random_graph(seed, 12);  // no passes: element-wise nodes stand alone
    const Program program = unsplit(model.graph, 2);
    for (const Instr& instr : program.devices[0].segments[0].instrs) {
      const auto place = [&](const Operand& operand) {
        const DeviceProgram& device = program.devices[0];
        return device.buffer(device.root(operand.buffer)).offset;
      };
      if (std::ranges::any_of(instr.reads, [&](const Operand& read) { return place(read) == place(instr.writes[0]); }))
        ++in_place;
    }
    Program apart = program;
    DeviceProgram& device = apart.devices[0];
    for (Buffer& buffer : device.buffers) {
      if (buffer.kind != BufferKind::scratch) continue;
      buffer.offset = device.arena.value();
      device.arena += bytes(buffer.stride());
    }
    const auto shared_run = run_threads(program, job_of(program, model.weights), test_options());
    const auto apart_run = run_threads(apart, job_of(apart, model.weights), test_options());
    ASSERT_TRUE(shared_run.ok()) << error_of(shared_run);
    ASSERT_TRUE(apart_run.ok()) << error_of(apart_run);
    ASSERT_EQ(shared_run->outputs.size(), 1u);
    const std::vector<float>&a = shared_run->outputs[0].tensor.values, &b = apart_run->outputs[0].tensor.values;
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
  }
  EXPECT_GT(in_place, 30);
}

TEST(Place, StatesWithoutContentAreZero) {
  const std::string text =
      "nlsplit program 1\n"
      "program zero batch 1 micro_batches 1\n"
      "device A cpu host a isa v2 memory 4096\n"
      "  buffer s f32[3] state\n"
      "  buffer x f32[3] input\n"
      "  buffer y f32[3] output\n"
      "  segment F stage 0 phase F\n"
      "    y = reduce(s, x)\n"
      "    s = copy(y)\n"
      "  order\n"
      "    F.0\n";
  const auto program = parse_program(text, "zero.nls");
  ASSERT_TRUE(program.ok()) << program.error().to_string();
  Job job = seeded_job(*program);
  job.inputs[0].values = {1, 2, 3};
  const auto result = run_threads(*program, job, test_options());
  ASSERT_TRUE(result.ok()) << error_of(result);
  EXPECT_EQ(output_of(*result, "y"), (std::vector<float>{1, 2, 3}));
}

// One is added to a state in each repeat.
TEST(Run, StatesAreTheFirstOnesAgainOrGoOn) {
  const auto program = parse_program(R"(nlsplit program 1
program count batch 1 micro_batches 1
device A cpu host a isa v2 memory 4096
  buffer s f32[3] state
  buffer x f32[3] input
  buffer y f32[3] output
  segment F stage 0 phase F
    y = reduce(s, x)
    s = copy(y)
  order
    F.0
)",
                                     "count.nls");
  ASSERT_TRUE(program.ok()) << program.error().to_string();
  Job job = seeded_job(*program);
  job.inputs[0].values = {1, 2, 3};
  RunOptions options = test_options();
  options.warmup = 1;
  options.repeats = 4;
  EXPECT_EQ(output_of(run_threads(*program, job, options).value(), "y"), (std::vector<float>{1, 2, 3}));
  options.keep_states = true;
  EXPECT_EQ(output_of(run_threads(*program, job, options).value(), "y"), (std::vector<float>{5, 10, 15}));
}

}  // namespace
}  // namespace nlsplit

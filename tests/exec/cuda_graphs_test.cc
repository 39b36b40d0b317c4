// Runs of computations as CUDA graphs, on a backend that keeps calls and does them when the graph is launched.
#include <gmock/gmock.h>

#include <set>

#include "differential/generate.h"
#include "exec/on_fake_gpu.h"
#include "graph/builder.h"
#include "graph/zoo/zoo.h"
#include "program/verify.h"
#include "testing/compile_program.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CudaGraphs : public FakeGpu {
 protected:
  static RunOptions with(GpuGraphs graphs, int repeats = 3) {
    RunOptions on_fake = options();
    on_fake.gpu.graphs = graphs;
    on_fake.warmup = 1;
    on_fake.repeats = repeats;
    return on_fake;
  }
  static Program simple_cnn(int micro_batches) {
    return unsplit_on(optimize(model().graph, model().weights).value(), micro_batches, Isa::cuda);
  }
  static Model& model() {
    static Model one = zoo_model("simple_cnn").value();
    return one;
  }
  static int computations(const Program& program) {
    int count = 0;
    for (const Slot& slot : program.devices[0].order)
      count += static_cast<int>(program.devices[0].segments[static_cast<size_t>(slot.segment)].instrs.size());
    return count;
  }
};

TEST_F(CudaGraphs, ManyLaunchesBecomeOne) {
  const Program program = simple_cnn(1);
  const int n = computations(program), repeats = 5;
  ASSERT_GE(n, 4);
  const Job job = job_of(program, model().weights);
  const auto one_by_one = run_threads(program, job, with(GpuGraphs::off, repeats));
  ASSERT_TRUE(one_by_one.ok()) << error_of(one_by_one);
  EXPECT_EQ(fake_calls("launch"), n * (1 + repeats));
  EXPECT_EQ(fake_calls("launch_graph"), 0);
  EXPECT_EQ(fake_calls("begin_capture"), 0);
  for (const GpuGraphs graphs : {GpuGraphs::timed, GpuGraphs::untimed}) {
    fake_fail("", 0);
    const auto as_graph = run_threads(program, job, with(graphs, repeats));
    ASSERT_TRUE(as_graph.ok()) << error_of(as_graph);
    // The warm-up does them one by one and then captures them.
    EXPECT_EQ(fake_calls("launch"), 2 * n);
    EXPECT_EQ(fake_calls("begin_capture"), 1);
    EXPECT_EQ(fake_calls("launch_graph"), repeats);
    EXPECT_EQ(as_graph->outputs[0].tensor.values, one_by_one->outputs[0].tensor.values);
  }
}

// Eight micro-batches in a row with nobody to wait for: an untimed graph serves each set of instances, a timed one is
// captured up to four times so that its times can be read in time.
TEST_F(CudaGraphs, ServeEveryMicroBatchOfTheSameAddresses) {
  const Program program = simple_cnn(8);
  const Job job = job_of(program, model().weights);
  const int slots = static_cast<int>(program.devices[0].order.size()), repeats = 3;
  std::set<std::vector<int>> instances;
  for (const Slot& slot : program.devices[0].order) {
    std::vector<int> key = {slot.segment};
    for (const InstanceUse& use : slot.instances) key.push_back(use.instance);
    instances.insert(key);
  }
  const int keys = static_cast<int>(instances.size());
  const auto untimed = run_threads(program, job, with(GpuGraphs::untimed, repeats));
  ASSERT_TRUE(untimed.ok()) << error_of(untimed);
  EXPECT_EQ(fake_calls("begin_capture"), keys);
  EXPECT_EQ(fake_calls("launch_graph"), slots * (1 + repeats) - keys);
  fake_fail("", 0);
  const auto timed = run_threads(program, job, with(GpuGraphs::timed, repeats));
  ASSERT_TRUE(timed.ok()) << error_of(timed);
  EXPECT_GE(fake_calls("begin_capture"), keys);
  EXPECT_LE(fake_calls("begin_capture"), 4 * keys);
  EXPECT_EQ(fake_calls("launch_graph") + fake_calls("begin_capture"), slots * (1 + repeats));
  EXPECT_EQ(untimed->outputs[0].tensor.values, timed->outputs[0].tensor.values);
}

TEST_F(CudaGraphs, SayWhenEachComputationRan) {
  const Program program = simple_cnn(8);
  const Job job = job_of(program, model().weights);
  for (const GpuGraphs graphs : {GpuGraphs::timed, GpuGraphs::untimed}) {
    const auto result = run_threads(program, job, with(graphs));
    ASSERT_TRUE(result.ok()) << error_of(result);
    double before = 0;
    int with_length = 0;
    for (const Span& span : result->trace.spans) {
      EXPECT_GE(span.start, before);
      EXPECT_GE(span.finish, span.start);
      before = span.finish;
      with_length += span.finish > span.start ? 1 : 0;
    }
    EXPECT_GT(before, 0);
    const auto slots = program.devices[0].order.size();
    if (graphs == GpuGraphs::timed)
      EXPECT_GT(with_length, static_cast<int>(result->trace.spans.size() / 2));
    else
      EXPECT_EQ(with_length, static_cast<int>(slots)) << "the first computation of a run stands for all";
  }
}

// Whatever interrupts a run: messages, instances that change, the order of a schedule.
TEST_F(CudaGraphs, ChangeNoBits) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 15; ++seed) {
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
    const Job job = job_of(*split, made->model.weights);
    const auto want = run_threads(*split, job, with(GpuGraphs::off));
    ASSERT_TRUE(want.ok()) << error_of(want);
    for (const GpuGraphs graphs : {GpuGraphs::timed, GpuGraphs::untimed}) {
      const auto got = run_threads(*split, job, with(graphs));
      ASSERT_TRUE(got.ok()) << error_of(got);
      for (const OutputTensor& output : want->outputs)
        EXPECT_EQ(output_of(*got, output.tensor.name), output.tensor.values) << output.tensor.name;
    }
    compared += fake_calls("launch_graph") > 0 ? 1 : 0;
    fake_fail("", 0);
  }
  EXPECT_GE(compared, 6);
}

// Two runs, and between them what waits for the stream.
TEST_F(CudaGraphs, StopWhereTheHostComputes) {
  GraphBuilder builder("host");
  ValueId x = builder.input("x", {DType::f32, {2, 1500}});
  int n = 0;
  for (const Op op : {Op::Relu, Op::Neg, Op::CumSum, Op::Neg, Op::CumSum, Op::Sigmoid, Op::Neg}) {
    Attrs attrs;  // of two long rows, which are too few threads for generated code
    if (op == Op::CumSum) attrs = {{"axis", int64_t{1}}, {"exclusive", int64_t{0}}, {"reverse", int64_t{0}}};
    x = builder.add(op, "n" + std::to_string(n++), {x}, attrs).value();
  }
  builder.output(x);
  const Program program = unsplit_on(std::move(builder).finish(), 1, Isa::cuda);
  const Job job = seeded_job(program);
  const auto want = run_threads(program, job, with(GpuGraphs::off));
  ASSERT_TRUE(want.ok()) << error_of(want);
  fake_fail("", 0);
  const auto got = run_threads(program, job, with(GpuGraphs::timed));
  ASSERT_TRUE(got.ok()) << error_of(got);
  EXPECT_EQ(got->outputs[0].tensor.values, want->outputs[0].tensor.values);
  int runs = 0, length = 0;
  for (const Instr& instr : program.devices[0].segments[0].instrs) {
    const bool on_host = program.descs[static_cast<size_t>(instr.desc)].kernel.name == KernelName::gpu_host;
    length = on_host ? 0 : length + 1;
    runs += length == 2 ? 1 : 0;
  }
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(fake_calls("begin_capture"), runs);
}

TEST_F(CudaGraphs, ThatCannotBeCapturedAreDoneWithout) {
  const Program program = simple_cnn(4);
  const Job job = job_of(program, model().weights);
  const auto want = run_threads(program, job, with(GpuGraphs::off));
  ASSERT_TRUE(want.ok()) << error_of(want);
  for (const char* function : {"begin_capture", "end_capture"}) {
    SCOPED_TRACE(function);
    RunOptions on_fake = with(GpuGraphs::timed);
    std::vector<std::string> notices;
    on_fake.notice = [&](const std::string& notice) { notices.push_back(notice); };
    fake_fail(function, 1);
    const auto got = run_threads(program, job, on_fake);
    ASSERT_TRUE(got.ok()) << error_of(got);
    EXPECT_EQ(got->outputs[0].tensor.values, want->outputs[0].tensor.values);
    EXPECT_EQ(fake_calls("launch_graph"), 0);
    EXPECT_EQ(fake_calls("begin_capture"), 1);
    ASSERT_EQ(notices.size(), 1u);
    EXPECT_EQ(notices[0],
              "device G (GPU): cannot capture a graph: the fake was told to fail; computations are begun one by one");
  }
}

TEST_F(CudaGraphs, ThatCannotBeLaunchedEndTheRun) {
  const Program program = simple_cnn(1);
  const Job job = job_of(program, model().weights);
  for (const int nth : {1, 3}) {
    fake_fail("launch_graph", nth);
    EXPECT_THAT(error_of(run_threads(program, job, with(GpuGraphs::timed))),
                AllOf(HasSubstr("device G (GPU): cannot launch a graph"), HasSubstr("the fake was told to fail")));
  }
}

// The CPU that stands in keeps calls as well.
TEST_F(CudaGraphs, OfTheStandIn) {
  const Program program = simple_cnn(4);
  const Job job = job_of(program, model().weights);
  std::vector<std::vector<float>> outputs;
  for (const GpuGraphs graphs : {GpuGraphs::off, GpuGraphs::timed, GpuGraphs::untimed}) {
    RunOptions on_cpu = with(graphs);
    on_cpu.gpu.backend = "/nowhere/libbackend_cuda.so";
    on_cpu.gpu.missing = GpuMissing::cpu;
    const auto result = run_threads(program, job, on_cpu);
    ASSERT_TRUE(result.ok()) << error_of(result);
    outputs.push_back(result->outputs[0].tensor.values);
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(outputs[0], outputs[2]);
}

}  // namespace
}  // namespace nlsplit

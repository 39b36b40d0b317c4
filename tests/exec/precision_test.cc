// Networks in float16 and bfloat16 as they are run: near the reference evaluator, split equal to unsplit bit for bit,
// and half the bytes in weights and messages.
#include "graph/passes/precision.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "exec/programs.h"
#include "exec/sum.h"
#include "graph/elements.h"
#include "graph/passes/passes.h"
#include "graph/reference/evaluate.h"
#include "graph/zoo/families.h"
#include "graph/zoo/zoo.h"
#include "kernels/cpu.h"
#include "program/text.h"
#include "program/verify.h"
#include "testing/compile_program.h"

namespace nlsplit {
namespace {

using namespace testing;

Device device(size_t number, Isa isa) {
  Device made;
  made.name = fmt::format("D{}", number);
  made.host = HostId(number);
  made.kind = is_gpu(isa) ? DeviceKind::cuda : DeviceKind::cpu;
  made.memory = bytes(int64_t{1} << 40);
  made.level = isa;
  return made;
}

// The first `cut` nodes on one device, the others on another.
Program split_at(const Graph& graph, size_t cut, Isa isa) {
  Cluster cluster;
  Plan plan;
  plan.micro_batches = 2;
  for (size_t d = 0; d < 2; ++d) {
    cluster.hosts.push_back({fmt::format("h{}", d), false});
    cluster.devices.push_back(device(d, isa));
    plan.stages.push_back({d == 0 ? 0 : cut, d == 0 ? cut : graph.nodes.size(), {DeviceId(d)}});
  }
  cluster.links.push_back({"l", HostId(0), HostId(1), bytes_per_second(1e9), seconds(1e-5)});
  const KernelGraph kernels = choose_kernels(graph, {isa}).value();
  Program program = compile_program(kernels, plan, cluster, {HostId(0), HostId(1)}, nullptr).value();
  EXPECT_TRUE(verify(program).ok()) << verify(program).error().to_string();
  return program;
}

Program unsplit(const Graph& graph, Isa isa) {
  return compile_unsplit(choose_kernels(graph, {isa}).value(), 2, device(0, isa), "h0").value();
}

struct Network {
  Model model;
  Graph plain, half;
};

Network network(Model model, DType type) {
  Network made{std::move(model), {}, {}};
  made.plain = optimize(made.model.graph, made.model.weights).value();
  made.half = with_precision(made.plain, made.model.weights, type).value();
  return made;
}

int64_t bytes_sent(const DeviceProgram& device) {
  int64_t sum = 0;
  for (const Segment& segment : device.segments) {
    for (const Instr& instr : segment.instrs)
      sum += instr.opcode == Opcode::send ? bytes_of(device, instr.reads[0]).value() : 0;
  }
  return sum;
}

int64_t bytes_of_weights(const Program& program) {
  int64_t sum = 0;
  for (const DeviceProgram& device : program.devices) {
    for (const Buffer& buffer : device.buffers) sum += buffer.kind == BufferKind::weight ? buffer.bytes.value() : 0;
  }
  return sum;
}

TEST(HalfNetworks, ComeNearTheReference) {
  for (const DType type : {DType::f16, DType::bf16}) {
    const Network net = network(build_simple_cnn(1), type);
    const Program program =
        compile_unsplit(choose_kernels(net.half, {best_isa().value()}).value(), 1, device(0, best_isa().value()), "h0")
            .value();
    const Job job = job_of(program, net.model.weights);
    const auto got = run_threads(program, job, test_options());
    ASSERT_TRUE(got.ok()) << got.error().to_string();
    const auto want = evaluate(net.half, net.model.weights, {{job.inputs[0].type, job.inputs[0].values}});
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    const std::vector<float>&a = got->outputs[0].tensor.values, &b = (*want)[0].values;
    ASSERT_EQ(a.size(), b.size());
    // Both round every layer's result; a sum that lies between two halves may go either way.
    const double unit = type == DType::f16 ? 0x1p-10 : 0x1p-7;
    for (size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(a[i], b[i], 2 * unit * (1 + std::abs(b[i]))) << "at " << i;
  }
}

TEST(HalfNetworks, SplitEqualsUnsplitBitForBit) {
  const Isa isa = best_isa().value();
  for (const DType type : {DType::f16, DType::bf16}) {
    const Network net = network(build_simple_cnn(1), type);
    const Graph graph = with_batch(net.half, 2).value();
    const Program whole = unsplit(graph, isa);
    const auto want = run_threads(whole, job_of(whole, net.model.weights), test_options());
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    for (size_t cut = 1; cut < graph.nodes.size(); ++cut) {
      const Program split = split_at(graph, cut, isa);
      EXPECT_EQ(parse_program(to_string(split), "split").value(), split);
      const auto got = run_threads(split, job_of(split, net.model.weights), test_options());
      ASSERT_TRUE(got.ok()) << got.error().to_string();
      EXPECT_EQ(got->outputs[0].tensor.values, want->outputs[0].tensor.values) << "cut at " << cut;
    }
  }
}

// By a GPU's kernels, which pack nothing.
TEST(HalfNetworks, TakeHalfTheBytes) {
  const Network net = network(build_resnet(18, 1), DType::bf16);
  ASSERT_EQ(net.half.nodes.size(), net.plain.nodes.size() + 2);
  EXPECT_EQ(2 * bytes_of_weights(unsplit(net.half, Isa::cuda)), bytes_of_weights(unsplit(net.plain, Isa::cuda)));
  for (size_t cut = 1; cut < net.plain.nodes.size(); ++cut) {
    const Program plain = split_at(net.plain, cut, Isa::cuda), half = split_at(net.half, cut + 1, Isa::cuda);
    EXPECT_GT(bytes_sent(plain.devices[0]), 0);
    EXPECT_EQ(2 * bytes_sent(half.devices[0]), bytes_sent(plain.devices[0])) << "cut at " << cut;
  }
}

TEST(HalfSums, AreTakenInFloat32AndRoundedOnce) {
  const std::vector<double> a{1, 2048, 0.5, -3}, b{0x1p-11, 1, 0.25, 3}, c{0x1p-11, 1, 0.125, 0};
  for (const auto& [type, want] : {std::pair(DType::f16, std::vector<double>{1 + 0x1p-10, 2050, 0.875, 0}),
                                   std::pair(DType::bf16, std::vector<double>{1, 2048, 0.875, 0})}) {
    std::string sum = raw_of(type, std::span<const double>(a));
    const std::string second = raw_of(type, std::span<const double>(b)),
                      third = raw_of(type, std::span<const double>(c));
    const void* terms[] = {sum.data(), second.data(), third.data()};
    add_terms(type, sum.data(), terms, 3, 4);
    EXPECT_EQ(reals_of(type, sum), want) << name_of(type);
  }
}

}  // namespace
}  // namespace nlsplit

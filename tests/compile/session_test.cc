// Sessions that the compiler makes: what Programs share has one place, what they do not share stays apart.
#include "compile/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "program/verify.h"
#include "testing/layers.h"
#include "testing/star.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

const Buffer* find(const Program& program, size_t device, const std::string& name) {
  const std::vector<Buffer>& buffers = program.devices[device].buffers;
  const auto at = std::ranges::find(buffers, name, &Buffer::name);
  return at == buffers.end() ? nullptr : &*at;
}

std::vector<ValueId> weights_called(const Graph& graph, const std::set<std::string>& names) {
  std::vector<ValueId> found;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].kind == ValueKind::weight && names.contains(graph.values[v].name)) found.emplace_back(v);
  }
  return found;
}

Plan halves(const Graph& graph, int micro_batches, const std::string& schedule) {
  const size_t nodes = graph.nodes.size();
  Plan plan;
  plan.stages = {{0, nodes / 2, {DeviceId(0)}}, {nodes / 2, nodes, {DeviceId(1)}}};
  plan.micro_batches = micro_batches;
  plan.schedule = schedule;
  return plan;
}

CompiledSession compiled(std::span<const SessionPart> parts) {
  auto made = compile_session("test", parts, star(2), {HostId(0), HostId(0)}, nullptr);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(made).value();
}

TEST(CompileSession, TrainingAndEvaluationShareTheWeights) {
  TrainingOptions options;
  options.optimizer = Optimizer::momentum;
  options.micro_batches = 2;
  const KernelGraph step = choose_kernels(testing::layers(2, 2, 8), {Isa::v3}, {}, options).value();
  const Graph network = testing::layers(2, 5, 8);
  const KernelGraph forward =
      choose_kernels(network, {Isa::v3}, {}, std::nullopt, {}, weights_called(network, {"w0", "w1"})).value();
  const SessionPart parts[] = {{"train", &step, halves(step.graph, 2, "1f1b")},
                               {"evaluate", &forward, halves(forward.graph, 3, "streaming")}};
  const Session session = compiled(parts).session;
  ASSERT_EQ(session.programs.size(), 2u);
  const Program &train = session.programs[0], &evaluate = session.programs[1];
  EXPECT_EQ(train.name, "train");
  EXPECT_EQ(evaluate.batch, 15);
  for (const size_t d : {0, 1}) {
    const std::string weight = d == 0 ? "w0" : "w1";
    const Buffer *trained = find(train, d, weight), *read = find(evaluate, d, weight);
    ASSERT_TRUE(trained != nullptr && read != nullptr);
    EXPECT_EQ(trained->kind, BufferKind::state);
    EXPECT_EQ(*trained, *read);
    EXPECT_NE(find(train, d, weight + ".momentum"), nullptr);
    EXPECT_EQ(find(evaluate, d, weight + ".momentum"), nullptr);  // it has no use for the momentum
    for (const Buffer& buffer : evaluate.devices[d].buffers) EXPECT_EQ(buffer.packed_for, KernelId()) << buffer.name;
  }
  // The forward pass of the evaluation rounds as the training's does: the same kernels.
  for (size_t n = 0; n < network.nodes.size(); ++n)
    EXPECT_EQ(forward.chosen.at(Isa::v3).descs[n].kernel, step.chosen.at(Isa::v3).descs[n].kernel);
  const auto again = parse_session(to_string(session), "again.session");
  ASSERT_TRUE(again.ok()) << again.error().to_string();
  EXPECT_TRUE(*again == session);
  const auto choices = parse_choices(session, "train*3 evaluate train evaluate*2").value();
  const auto sequence = in_sequence(session, choices, Choosing::messages);
  ASSERT_TRUE(sequence.ok()) << sequence.error().message;
  EXPECT_TRUE(dry_run(sequence->program, sequence->dependencies).ok());
}

// One sample, and eight: an arena has the weights once, all inputs and outputs, and the larger one's scratch.
TEST(CompileSession, BatchBucketsStoreTheirWeightsOnce) {
  Model model = zoo_model("simple_cnn").value();
  const Graph graph = optimize(model.graph, model.weights).value();
  const KernelGraph one = choose_kernels(with_batch(graph, 1).value(), {Isa::v3}).value();
  const KernelGraph eight = choose_kernels(with_batch(graph, 2).value(), {Isa::v3}).value();
  const SessionPart parts[] = {{"eight", &eight, halves(eight.graph, 4, "streaming")},
                               {"one", &one, halves(one.graph, 1, "streaming")}};
  const Session session = compiled(parts).session;
  const Program joined = join(session).value();
  const auto bytes_of = [](const Program& program, size_t device, auto kinds) {
    int64_t sum = 0;
    for (const Buffer& buffer : program.devices[device].buffers) {
      if (std::ranges::find(kinds, buffer.kind) != kinds.end()) sum += buffer.instances * buffer.stride();
    }
    return sum;
  };
  const std::vector<BufferKind> weights = {BufferKind::weight}, ends = {BufferKind::input, BufferKind::output};
  for (size_t d = 0; d < joined.devices.size(); ++d) {
    const int64_t stored = bytes_of(joined, d, weights);
    EXPECT_GT(stored, 0);
    int64_t other = 0;
    for (size_t p = 0; p < 2; ++p) {
      const auto alone =
          compile_session("alone", std::span(parts).subspan(p, 1), star(2), {HostId(0), HostId(0)}, nullptr);
      const Program& program = alone->session.programs[0];
      EXPECT_EQ(stored, bytes_of(program, d, weights)) << p;
      const int64_t lasts = stored + bytes_of(program, d, ends);
      other = std::max(other, program.devices[d].arena.value() - lasts);
    }
    EXPECT_EQ(joined.devices[d].arena.value(), stored + bytes_of(joined, d, ends) + other);
  }
}

TEST(CompileSession, ErrorsNameTheProgram) {
  const KernelGraph graph = choose_kernels(testing::layers(2, 2, 8), {Isa::v3}).value();
  const SessionPart parts[] = {{"good", &graph, halves(graph.graph, 2, "streaming")},
                               {"bad", &graph, halves(graph.graph, 2, "no_such_schedule")}};
  const auto made = compile_session("test", parts, star(2), {HostId(0), HostId(0)}, nullptr);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, HasSubstr("program bad: "));
}

}  // namespace
}  // namespace nlsplit

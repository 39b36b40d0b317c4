// Networks that go on with states: kept where their layers are, changed where they lie, one for all Programs of a
// session.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compile/session.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "partition/cuts.h"
#include "program/verify.h"
#include "testing/star.h"

namespace nlsplit {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

KernelGraph llama_of(int64_t length) {
  Model model = zoo_model("llama?layers=2&hidden=32&heads=4&kv_heads=2&ffn=64&vocab=50&context=16&length=" +
                          std::to_string(length))
                    .value();
  return choose_kernels(optimize(model.graph, model.weights).value(), {Isa::v3}).value();
}

size_t node_called(const Graph& graph, const std::string& name) {
  return static_cast<size_t>(std::ranges::find(graph.nodes, name, &Node::name) - graph.nodes.begin());
}

Plan cut_before(const Graph& graph, const std::string& node, DeviceId first, DeviceId second) {
  Plan plan;
  const size_t at = node_called(graph, node);
  plan.stages = {{0, at, {first}}, {at, graph.nodes.size(), {second}}};
  plan.micro_batches = 1;
  return plan;
}

constexpr const char* second_layer = "model.layers.1.input_layernorm.square";

const Buffer* state_of(const DeviceProgram& device, const std::string& name) {
  const auto at = std::ranges::find(device.buffers, name, &Buffer::name);
  return at == device.buffers.end() ? nullptr : &*at;
}

TEST(CompileStates, AreKeptWhereTheirLayersAreAndBeginAsZeros) {
  const KernelGraph graph = llama_of(1);
  const Compiled compiled = compile(graph, cut_before(graph.graph, second_layer, DeviceId(0), DeviceId(1)), star(2),
                                    {HostId(0), HostId(0)}, nullptr)
                                .value();
  ASSERT_TRUE(verify(compiled.program).ok()) << verify(compiled.program).error().message;
  for (const size_t d : {0, 1}) {
    const std::string own = "model.layers." + std::to_string(d) + ".self_attn.past_values";
    const std::string other = "model.layers." + std::to_string(1 - d) + ".self_attn.past_values";
    const Buffer* const state = state_of(compiled.program.devices[d], own);
    ASSERT_NE(state, nullptr);
    EXPECT_EQ(state->kind, BufferKind::state);
    EXPECT_FALSE(state->has_content);
    EXPECT_EQ(state_of(compiled.program.devices[d], other), nullptr);
  }
}

TEST(CompileStates, AreChangedWhereTheyLie) {
  const KernelGraph graph = llama_of(4);
  const Compiled compiled = compile(graph, Plan{"", {{0, graph.graph.nodes.size(), {DeviceId(0)}}}, 1}, star(1),
                                    {HostId(0), HostId(0)}, nullptr)
                                .value();
  const DeviceProgram& device = compiled.program.devices[0];
  size_t changes = 0;
  for (const Segment& segment : device.segments) {
    for (const Instr& instr : segment.instrs) {
      if (instr.opcode != Opcode::compute) continue;
      const ComputeDesc& desc = compiled.program.descs[static_cast<size_t>(instr.desc)];
      if (desc.op != Op::TensorScatter) continue;
      ++changes;
      EXPECT_EQ(desc.kernel.name, KernelName::scatter_in_place);
      EXPECT_EQ(instr.reads[0], instr.writes[0]);
      EXPECT_EQ(device.buffer(instr.writes[0].buffer).kind, BufferKind::state);
    }
  }
  EXPECT_EQ(changes, 4u);
}

TEST(CompileStates, NoCutPartsAStateFromWhoReadsIt) {
  const KernelGraph graph = llama_of(1);
  const std::string reader = "model.layers.1.self_attn.context";
  const auto compiled = compile(graph, cut_before(graph.graph, reader, DeviceId(0), DeviceId(1)), star(2),
                                {HostId(0), HostId(0)}, nullptr);
  ASSERT_FALSE(compiled.ok());
  EXPECT_THAT(compiled.error().message,
              HasSubstr("'model.layers.1.self_attn.context' of another stage cannot read it"));
  EXPECT_THAT(find_cuts(graph.graph), Not(Contains(node_called(graph.graph, reader))));
  EXPECT_THAT(find_cuts(graph.graph), Contains(node_called(graph.graph, second_layer)));
}

// The first layers are on device 1, and who asks sits at device 0.
TEST(CompileStates, ASessionSharesThemAndBeginsWhereTheInputsAre) {
  const KernelGraph prompts = llama_of(4), tokens = llama_of(1);
  const SessionPart parts[] = {{"prefill", &prompts, cut_before(prompts.graph, second_layer, DeviceId(1), DeviceId(0))},
                               {"decode", &tokens, cut_before(tokens.graph, second_layer, DeviceId(1), DeviceId(0))}};
  const Session session = compile_session("llama", parts, star(2), {HostId(0), HostId(0)}, nullptr).value().session;
  for (const Program& program : session.programs) {
    EXPECT_NE(state_of(program.devices[0], "input_ids"), nullptr) << program.name;
    EXPECT_EQ(state_of(program.devices[0], "input_ids")->kind, BufferKind::input);
  }
  const std::string keys = "model.layers.0.self_attn.past_keys";
  ASSERT_NE(state_of(session.programs[0].devices[1], keys), nullptr);
  EXPECT_EQ(*state_of(session.programs[0].devices[1], keys), *state_of(session.programs[1].devices[1], keys));
  const auto apart = compile_session("llama", parts, star(2), {HostId(0), HostId(1)}, nullptr);
  ASSERT_FALSE(apart.ok());
  EXPECT_THAT(apart.error().message, HasSubstr("needs the source and the sink on the same host"));
}

}  // namespace
}  // namespace nlsplit

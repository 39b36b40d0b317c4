// footprints: what a Program takes of its devices' memory. That the parts add up to every lowered Program's arena is
// checked where Programs are generated (tests/compile/property_test.cc).
#include "program/footprint.h"

#include <gtest/gtest.h>

#include "compile/compile.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "program/text.h"
#include "program/verify.h"

namespace nlsplit {
namespace {

TEST(Footprint, CountsWhatLivesAtOnce) {
  const auto program = parse_program(R"(nlsplit program 1
program small batch 2 micro_batches 2
device A cpu host a isa v2 memory 65536
  buffer x f32[1,16] input instances 2
  buffer w f32[16] weight content 7
  buffer m f32[1,16] comm instances 2
  buffer a f32[1,16] scratch bytes 64 at 512
  buffer b f32[1,16] scratch bytes 64 at 512
  buffer c f32[1,16] scratch bytes 64 at 640
  segment F stage 0 phase F
    a = Add(x, w) kernel binary_v2 as "first"
    b = Relu(a) kernel unary_v2 as "in its place"
    c = Softmax(b) {axis=1} kernel softmax_v2 as "peak"
    m = Add(b, c) kernel binary_v2 as "last"
    send m to B tag 0
  order
    F.0
    F.1 x:1 m:1
device B cpu host b isa v2 memory 65536
  buffer m f32[1,16] comm instances 1
  buffer y f32[1,16] output instances 2
  segment G stage 1 phase F
    recv m from A tag 0
    y = Tanh(m) kernel unary_v2 as "tanh"
  order
    G.0
    G.1 y:1
)",
                                     "small.nls");
  ASSERT_TRUE(program.ok()) << program.error().to_string();
  ASSERT_TRUE(verify(*program).ok()) << verify(*program).error().to_string();
  const std::vector<DeviceFootprint> devices = footprints(*program);
  ASSERT_EQ(devices.size(), 2u);
  const DeviceFootprint& a = devices[0];
  EXPECT_EQ(a.name, "A");
  EXPECT_EQ(a.inputs, bytes(2 * 64));
  EXPECT_EQ(a.weights, bytes(64));
  EXPECT_EQ(a.messages, bytes(2 * 64));
  EXPECT_EQ(a.activations, bytes(640 + 64 - 512)) << "with the hole between them";
  EXPECT_EQ(a.workspace, bytes(0));
  EXPECT_EQ(a.total(), bytes(128 + 64 + 128 + 192));
  ASSERT_EQ(a.stages.size(), 1u);
  EXPECT_EQ(a.stages[0].bound, bytes(2 * 64)) << "a and b lie in one place, and c beside them";
  EXPECT_EQ(a.stages[0].peak, "peak");
  EXPECT_EQ(a.stages[0].activations, a.activations);
  EXPECT_EQ(a.stages[0].weights, bytes(64));
  EXPECT_EQ(a.stages[0].messages, bytes(2 * 64));
  const DeviceFootprint& b = devices[1];
  EXPECT_EQ(b.outputs, bytes(2 * 64));
  EXPECT_EQ(b.messages, bytes(64));
  EXPECT_EQ(b.activations, bytes(0));
  ASSERT_EQ(b.stages.size(), 1u);
  EXPECT_EQ(b.stages[0].stage, 1);
  EXPECT_EQ(b.stages[0].bound, bytes(0));
}

// The planner reaches what lives at once in the computations as they are lowered, not only in the graph.
TEST(Footprint, EveryNetworkOfTheZooIsWithinTwoPercentOfTheBound) {
  for (const ZooEntry& entry : zoo()) {
    Model model = zoo_model(entry.name).value();
    const Graph graph = optimize(model.graph, model.weights).value();
    for (const Isa isa : {Isa::v2, Isa::v4}) {
      const KernelGraph kernels = choose_kernels(graph, {isa}).value();
      Device device;
      device.memory = bytes(int64_t{1} << 45);
      device.level = isa;
      const Program program = compile_unsplit(kernels, 2, device, "here").value();
      const DeviceFootprint footprint = footprints(program)[0];
      SCOPED_TRACE(entry.name);
      EXPECT_EQ(footprint.total(), program.devices[0].arena);
      ASSERT_EQ(footprint.stages.size(), 1u);
      const StageFootprint& stage = footprint.stages[0];
      EXPECT_EQ(stage.activations, footprint.activations);
      EXPECT_EQ(stage.weights, footprint.weights);
      EXPECT_LE(stage.activations / stage.bound, 1.02);
      EXPECT_LE(stage.workspace, footprint.workspace);
      EXPECT_NE(stage.peak, "");
    }
  }
}

}  // namespace
}  // namespace nlsplit

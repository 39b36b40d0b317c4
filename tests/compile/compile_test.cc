// lower on cases small enough to read: the golden text, and the rules for messages, instances, memory and endpoints one
// by one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/file.h"
#include "compile/instances.h"
#include "graph/builder.h"
#include "graph/memory.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "program/text.h"
#include "program/verify.h"
#include "symbolic.h"
#include "testing/compile_program.h"
#include "testing/paths.h"
#include "testing/star.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

KernelGraph zoo_kernels(std::string_view name) {
  Model model = zoo_model(name).value();
  return choose_kernels(optimize(model.graph, model.weights).value(), {Isa::v3}).value();
}

Plan plan_of(const std::vector<std::string>& parts, int micro_batches, const KernelGraph& kernels,
             const Cluster& cluster) {
  Plan plan;
  plan.stages = parse_stages(parts, kernels.graph, cluster, nullptr).value();
  plan.micro_batches = micro_batches;
  return plan;
}

Program lowered(const KernelGraph& kernels, const Cluster& cluster, const std::vector<std::string>& parts,
                int micro_batches, Endpoints ends, const std::string& schedule = "streaming",
                const CostTable* costs = nullptr) {
  Plan plan = plan_of(parts, micro_batches, kernels, cluster);
  plan.schedule = schedule;
  auto program = compile_program(kernels, plan, cluster, ends, costs);
  EXPECT_TRUE(program.ok()) << program.error().message;
  const Status sound = verify(*program);
  EXPECT_TRUE(sound.ok()) << sound.error().message << "\n" << to_string(*program);
  EXPECT_EQ(check_symbols(*program, kernels), "");
  return std::move(program).value();
}

const DeviceProgram& device(const Program& program, const std::string& name) {
  const auto at = std::find_if(program.devices.begin(), program.devices.end(),
                               [&](const DeviceProgram& d) { return d.name == name; });
  EXPECT_NE(at, program.devices.end()) << name;
  return *at;
}

const Buffer& buffer(const DeviceProgram& device, const std::string& name) {
  const auto at =
      std::find_if(device.buffers.begin(), device.buffers.end(), [&](const Buffer& b) { return b.name == name; });
  EXPECT_NE(at, device.buffers.end()) << name;
  return *at;
}

std::string slots(const DeviceProgram& device) {
  std::string text;
  for (const Slot& slot : device.order) text += (text.empty() ? "" : " ") + slot_name(device, slot);
  return text;
}

// r0 … in a row.
KernelGraph chain(size_t n, Op op = Op::Relu) {
  const Attrs attrs = op == Op::Softmax ? Attrs{{"axis", int64_t{1}}} : Attrs{};
  GraphBuilder builder("chain");
  ValueId value = builder.input("x", {DType::f32, {1, 16}});
  for (size_t i = 0; i < n; ++i) value = builder.add(op, fmt::format("r{}", i), {value}, attrs).value();
  builder.output(value);
  return choose_kernels(std::move(builder).finish(), {Isa::v3}).value();
}

TEST(Lower, SimpleCnnOnThreeMachinesReadsLikeThis) {
  const std::string file = std::string(NLS_SOURCE_DIR) + "/tests/compile/simple_cnn_abc.nls";
  const Cluster cluster = star(3);
  const std::string text = to_string(
      lowered(zoo_kernels("simple_cnn"), cluster, {"..relu1@A", "..relu2@B", "rest@C"}, 2, {HostId(0), HostId(2)}));
  const auto golden = read_file(file);
  if (golden.ok() && *golden == text) return;
  const std::string actual = ::testing::TempDir() + "lower_simple_cnn_abc.nls";
  ASSERT_TRUE(write_file(actual, text).ok());
  FAIL() << "differs from the golden text; if that is right: cp " << actual << " " << file;
}

TEST(Lower, DevicesStandInOrderOfFirstUseAndEndpointsLast) {
  const KernelGraph kernels = chain(4);
  const Cluster cluster = star(4);
  const auto names = [&](const std::vector<std::string>& parts, size_t source, size_t sink) {
    std::string text;
    for (const DeviceProgram& d : lowered(kernels, cluster, parts, 2, {HostId(source), HostId(sink)}).devices) {
      text += fmt::format("{}{}:{}", text.empty() ? "" : " ", d.name, name_of(d.kind));
    }
    return text;
  };
  EXPECT_EQ(names({"..r0@C", "rest@B"}, 1, 2), "C:cpu B:cpu");
  EXPECT_EQ(names({"..r0@C", "rest@B"}, 0, 3), "C:cpu B:cpu a:host d:host");
  EXPECT_EQ(names({"rest@B"}, 3, 3), "B:cpu d:host");
}

TEST(Lower, AnEndpointNeverHasTheNameOfADevice) {
  const KernelGraph kernels = chain(2);
  Cluster cluster = star(2);
  cluster.devices[1].name = "a";
  const Program program = lowered(kernels, cluster, {"rest@a"}, 1, {HostId(0), HostId(0)});
  EXPECT_EQ(program.devices[1].name, "a_2");
  EXPECT_EQ(program.devices[1].host, "a");
}

TEST(Lower, SourceAndSinkActBetweenTheSlotsOfTheirDevices) {
  // Inputs go out two ahead: that is how many instances B has for them.
  const Program program = lowered(chain(4), star(3), {"..r1@B", "rest@C"}, 4, {HostId(2), HostId(1)});
  EXPECT_EQ(slots(device(program, "C")), "source.0 source.1 source.2 F1.0 source.3 F1.1 F1.2 F1.3");
  EXPECT_EQ(slots(device(program, "B")), "F0.0 F0.1 F0.2 sink.0 F0.3 sink.1 sink.2 sink.3");
}

TEST(Lower, ReplicasHaveASegmentForEachOfTheirPeers) {
  const Program program = lowered(chain(3), star(4), {"..r0@A", "..r1@B+C", "rest@D"}, 5, {HostId(0), HostId(3)});
  EXPECT_EQ(slots(device(program, "A")), "F0.0 F0_2.1 F0.2 F0_2.3 F0.4");
  EXPECT_EQ(slots(device(program, "B")), "F1.0 F1.2 F1.4");
  EXPECT_EQ(slots(device(program, "C")), "F1.1 F1.3");
  EXPECT_EQ(slots(device(program, "D")), "F2.0 F2_2.1 F2.2 F2_2.3 F2.4");
}

TEST(Lower, CostsDecideHowManyTurnsAReplicaTakes) {
  const CostTable costs(
      {roofline(flops_per_second(2e9), bytes_per_second(2e9)), roofline(flops_per_second(1e9), bytes_per_second(1e9))},
      "s");
  const KernelGraph kernels = chain(3);
  Cluster cluster = star(2);
  for (Link& link : cluster.links) {  // messages take no time to speak of
    link.bandwidth = bytes_per_second(1e15);
    link.latency = seconds(0);
  }
  const Program program = lowered(kernels, cluster, {"rest@A+B"}, 9, {HostId(0), HostId(0)}, "streaming", &costs);
  const auto turns = [](const DeviceProgram& d) {
    return std::count_if(d.order.begin(), d.order.end(),
                         [&](const Slot& slot) { return d.segments[static_cast<size_t>(slot.segment)].stage == 0; });
  };
  EXPECT_EQ(turns(device(program, "A")), 6) << program.name;
  EXPECT_EQ(turns(device(program, "B")), 3);
}

TEST(Lower, StreamingHasTwoInstancesAndFillDrainAllAndTheyAreUsedRoundRobin) {
  const auto instances_used = [](const DeviceProgram& d, const std::string& name) {
    std::vector<int> used;
    for (const Slot& slot : d.order) {
      for (size_t b = 0; b < d.buffers.size(); ++b) {
        if (d.buffers[b].name == name) used.push_back(instance_of(d, slot, BufferId(b)));
      }
    }
    return used;
  };
  const Program streaming = lowered(chain(3), star(3), {"..r0@A", "..r1@B", "rest@C"}, 5, {HostId(0), HostId(2)});
  EXPECT_EQ(buffer(device(streaming, "B"), "r0").instances, 2);
  EXPECT_EQ(instances_used(device(streaming, "B"), "r0"), (std::vector<int>{0, 1, 0, 1, 0}));
  EXPECT_EQ(instances_used(device(streaming, "A"), "x"),
            (std::vector<int>{0, 1, 2, 3, 4}));  // inputs have an instance each
  const Program all =
      lowered(chain(3), star(3), {"..r0@A", "..r1@B", "rest@C"}, 5, {HostId(0), HostId(2)}, "fill_drain");
  EXPECT_EQ(buffer(device(all, "B"), "r0").instances, 5);
  EXPECT_EQ(instances_used(device(all, "B"), "r0"), (std::vector<int>{0, 1, 2, 3, 4}));
  const Program one = lowered(chain(3), star(3), {"..r0@A", "..r1@B", "rest@C"}, 1, {HostId(0), HostId(2)});
  EXPECT_EQ(buffer(device(one, "B"), "r0").instances, 1);
  // A replica that takes one of two micro-batches needs one instance.
  const Program turns = lowered(chain(3), star(3), {"..r0@A", "rest@B+C"}, 2, {HostId(0), HostId(0)});
  EXPECT_EQ(buffer(device(turns, "B"), "r0").instances, 1);
}

// x -> r0 -> r1 -> r2; r3 = r2 + r0: r0 skips a stage if all are apart.
KernelGraph skip() {
  GraphBuilder builder("skip");
  const ValueId x = builder.input("x", {DType::f32, {1, 16}});
  const ValueId r0 = builder.add(Op::Relu, "r0", {x}, {}).value();
  const ValueId r1 = builder.add(Op::Relu, "r1", {r0}, {}).value();
  const ValueId r2 = builder.add(Op::Relu, "r2", {r1}, {}).value();
  const ValueId sum = builder.add(Op::Add, "sum", {r2, r0}, {}).value();
  builder.output(builder.add(Op::Mul, "product", {sum, r0}, {}).value());
  return choose_kernels(std::move(builder).finish(), {Isa::v3}).value();
}

TEST(Lower, AValueGoesOnceToEachDeviceThatNeedsItUnderOneTag) {
  const Program program = lowered(skip(), star(3), {"..r0@A", "..r1@B", "rest@C"}, 3, {HostId(0), HostId(2)});
  std::vector<std::string> sends;
  for (const Segment& segment : program.devices[0].segments) {
    for (const Instr& instr : segment.instrs) {
      if (instr.opcode == Opcode::send) sends.push_back(to_string(program, program.devices[0], instr));
    }
  }
  EXPECT_EQ(sends, (std::vector<std::string>{"send r0 to B tag 1", "send r0 to C tag 1"}));
  // Every number stands for one value, on every device.
  std::map<int, std::string> tags;
  for (const DeviceProgram& d : program.devices) {
    for (const Segment& segment : d.segments) {
      for (const Instr& instr : segment.instrs) {
        if (!is_transfer(instr.opcode)) continue;
        const Operand& operand = instr.opcode == Opcode::send ? instr.reads[0] : instr.writes[0];
        EXPECT_EQ(tags.emplace(instr.tag, d.buffer(operand.buffer).name).first->second, d.buffer(operand.buffer).name);
      }
    }
  }
}

TEST(Lower, WhatADeviceKeepsForItsOwnLaterStageIsStashed) {
  const Program program = lowered(skip(), star(2), {"..r1@A", "..r2@B", "rest@A"}, 4, {HostId(0), HostId(0)});
  const DeviceProgram& a = device(program, "A");
  EXPECT_EQ(buffer(a, "r0").kind, BufferKind::stash);
  EXPECT_EQ(buffer(a, "r1").kind, BufferKind::comm);
  EXPECT_EQ(buffer(a, "r2").kind, BufferKind::comm);
  EXPECT_EQ(buffer(a, "sum").kind, BufferKind::scratch);
  EXPECT_EQ(buffer(a, "product").kind, BufferKind::output);
  EXPECT_GE(buffer(a, "r0").instances, 2);
}

TEST(Lower, ViewsTakeNoBytesAndCrossStagesAsTheirRoot) {
  const KernelGraph kernels = zoo_kernels("simple_cnn");
  const Program program = lowered(kernels, star(3), {"..relu1@A", "..relu2@B", "rest@C"}, 2, {HostId(0), HostId(2)});
  EXPECT_EQ(to_string(buffer(device(program, "B"), "relu2").type), "f32[1,32,8,8]c8");
  EXPECT_EQ(to_string(buffer(device(program, "C"), "flatten").type), "f32[1,2048]");
  const Program whole = lowered(kernels, star(1), {"rest@A"}, 2, {HostId(0), HostId(0)});
  EXPECT_EQ(buffer(whole.devices[0], "flatten").kind, BufferKind::view);
}

TEST(Lower, OutputsAreWrittenInPlaceOrCopied) {
  GraphBuilder builder("outputs");
  const ValueId x = builder.input("x", {DType::f32, {1, 2, 3}});
  const ValueId r = builder.add(Op::Relu, "r", {x}, {}).value();
  const ValueId flat = builder.add(Op::Flatten, "flat", {r}, {{"axis", int64_t{1}}}).value();
  for (const ValueId value : {flat, r, x}) builder.output(value);
  const KernelGraph kernels = choose_kernels(std::move(builder).finish(), {Isa::v3}).value();
  const Program one = lowered(kernels, star(1), {"rest@A"}, 2, {HostId(0), HostId(0)});
  std::vector<std::string> text;
  for (const Segment& segment : one.devices[0].segments) {
    for (const Instr& instr : segment.instrs)
      text.push_back(segment.name + ": " + to_string(one, one.devices[0], instr));
  }
  EXPECT_EQ(text, (std::vector<std::string>{"F0: r_2 = Relu(x) kernel unary_v3 as \"r\"",
                                            "sink: r = copy(flat) as \"r\"", "sink: x_2 = copy(x) as \"x\""}));
  EXPECT_EQ(buffer(one.devices[0], "r_2").kind, BufferKind::view);  // the storage is the output `flat`
  lowered(kernels, star(2), {"..r@A", "rest@B"}, 3, {HostId(0), HostId(1)});
}

TEST(Lower, EqualWeightsAreOneBuffer) {
  GraphBuilder builder("shared");
  const TensorType type{DType::f32, {1, 16}};
  const ValueId x = builder.input("x", type);
  const ValueId w = builder.weight("w", type, ContentId{7}), same = builder.weight("same", type, ContentId{7});
  const ValueId other = builder.weight("other", type, ContentId{8});
  ValueId y = builder.add(Op::Add, "a", {x, w}, {}).value();
  y = builder.add(Op::Add, "b", {y, same}, {}).value();
  y = builder.add(Op::Add, "c", {y, other}, {}).value();
  builder.output(y);
  const KernelGraph kernels = choose_kernels(std::move(builder).finish(), {Isa::v3}).value();
  const Program program = lowered(kernels, star(1), {"rest@A"}, 1, {HostId(0), HostId(0)});
  std::string names;
  for (const Buffer& b : program.devices[0].buffers) {
    if (b.kind == BufferKind::weight) names += b.name + " ";
  }
  EXPECT_EQ(names, "w other ");
}

TEST(Lower, ScratchTakesWhatItsLifetimesNeed) {
  // A chain of equal values needs two places, however long it is: one is read while the other is written. The first
  // reads the input and the last writes the output.
  const int64_t value = 64;  // 16 floats
  const Program apart = lowered(chain(9, Op::Softmax), star(1), {"rest@A"}, 3, {HostId(0), HostId(0)});
  EXPECT_EQ(apart.devices[0].arena.value(), 3 * value + 3 * value + 2 * value);
  // Element by element it needs one: each result lies where its operand lay.
  const Program program = lowered(chain(9), star(1), {"rest@A"}, 3, {HostId(0), HostId(0)});
  const DeviceProgram& a = program.devices[0];
  EXPECT_EQ(a.arena.value(), 3 * value + 3 * value + value);
  EXPECT_EQ(
      std::count_if(a.buffers.begin(), a.buffers.end(), [](const Buffer& b) { return b.kind == BufferKind::scratch; }),
      8);
  // Two stages of one device share the region; what passes between them does not.
  const Program twice = lowered(chain(9), star(2), {"..r3@A", "..r4@B", "rest@A"}, 1, {HostId(0), HostId(0)});
  EXPECT_EQ(device(twice, "A").arena.value(), value + value + 2 * value + value);  // x, r8; r3, r4; one place
}

// A value takes its operand's place only where nobody needs the operand afterwards, and where the kernel takes it
// element by element.
TEST(Lower, ResultsTakeTheirOperandsPlaceWhereNobodyNeedsThemAnyMore) {
  GraphBuilder builder("place");
  const TensorType type{DType::f32, {2, 16}};
  const ValueId x = builder.input("x", type), row = builder.input("row", {DType::f32, {1, 16}});
  const auto add = [&](Op op, const std::string& name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return builder.add(op, name, std::move(inputs), std::move(attrs)).value();
  };
  const ValueId a = add(Op::Exp, "a", {x});
  const ValueId kept = add(Op::Tanh, "kept", {a});       // a dies: in its place
  const ValueId early = add(Op::Sqrt, "early", {kept});  // `kept` is read once more: apart
  const ValueId both = add(Op::Mul, "both", {kept, early});
  const ValueId twice = add(Op::Add, "twice", {both, both});
  const ValueId small = add(Op::Neg, "small", {row});
  const ValueId wide = add(Op::Sub, "wide", {small, twice});  // not in the place of the one that is repeated
  const ValueId soft = add(Op::Softmax, "soft", {wide}, {{"axis", int64_t{1}}});  // reads a row twice: apart
  const ValueId sum = add(Op::Sum, "sum", {soft, soft});  // would overwrite its second operand before reading it
  builder.output(add(Op::Neg, "end", {sum}));
  const KernelGraph kernels = choose_kernels(std::move(builder).finish(), {Isa::v3}).value();
  const Program program = lowered(kernels, star(1), {"rest@A"}, 1, {HostId(0), HostId(0)});
  const DeviceProgram& device = program.devices[0];
  const auto at = [&](const char* name) { return buffer(device, name).offset; };
  EXPECT_EQ(at("kept"), at("a"));
  EXPECT_NE(at("early"), at("kept"));
  EXPECT_TRUE(at("both") == at("kept") || at("both") == at("early"));
  EXPECT_EQ(at("twice"), at("both"));
  EXPECT_EQ(at("wide"), at("twice"));
  EXPECT_NE(at("wide"), at("small"));
  EXPECT_NE(at("soft"), at("wide"));
  EXPECT_NE(at("sum"), at("soft"));
  // x, row, end; two places of 128 bytes and `small`, which lives beside one.
  EXPECT_EQ(device.arena.value(), 128 + 64 + 128 + 2 * 128);
}

TEST(Lower, AllNetworksPeakWhereThePlannerSays) {
  for (const char* name : {"simple_cnn", "resnet18", "mobilenet_v2"}) {
    const KernelGraph kernels = zoo_kernels(name);
    const Program program = lowered(kernels, star(1), {"rest@A"}, 2, {HostId(0), HostId(0)});
    const DeviceProgram& a = program.devices[0];
    int64_t lasting = 0, scratch = 0, scratch_end = 0;
    for (const Buffer& b : a.buffers) {
      if (b.kind == BufferKind::scratch && b.name != "workspace") {
        scratch += b.stride();
        scratch_end = std::max(scratch_end, b.offset + b.stride());
      } else if (b.kind != BufferKind::view) {
        lasting += b.instances * b.stride();
      }
    }
    EXPECT_EQ(a.arena.value(), scratch_end) << name;
    EXPECT_LE(a.arena.value() - lasting, scratch) << name;
    EXPECT_GT(a.arena.value(), lasting) << name;
  }
}

TEST(Lower, AnInstanceIsNotUsedAgainBeforeItsMicroBatchIsOver) {
  // Received for 0 and 1 before either is used: one instance, as this schedule says, would not do.
  DeviceProgram device;
  Buffer x;
  x.name = "x";
  x.type = {DType::f32, {4}};
  x.kind = BufferKind::comm;
  x.bytes = bytes(16);
  device.buffers.push_back(x);
  Instr recv, read;
  recv.opcode = Opcode::recv;
  recv.writes = {{BufferId(0)}};
  read.opcode = Opcode::copy;
  read.reads = {{BufferId(0)}};
  device.segments.push_back({"in", io_stage, 0, Phase::forward, {recv}, {}});
  device.segments.push_back({"F0", 0, 0, Phase::forward, {read}, {}});
  device.order = {{0, 0, {}}, {0, 1, {}}, {1, 0, {}}, {0, 2, {}}, {1, 1, {}}, {1, 2, {}}};
  InstanceRules rules;
  rules.instanced = {true};
  for (size_t i = 0; i < device.order.size(); ++i) rules.slots.push_back({static_cast<double>(i), {}});
  assign_instances(rules, find_touched(device, rules.instanced), 3, device);
  std::vector<int> used;
  for (const Slot& slot : device.order) used.push_back(instance_of(device, slot, BufferId(0)));
  EXPECT_EQ(used, (std::vector<int>{0, 1, 0, 0, 1, 0}));
  EXPECT_EQ(device.buffers[0].instances, 2);
}

TEST(Lower, KeepsTheClustersMessageRules) {
  Cluster cluster = star(2);
  cluster.eager_limit = bytes(4096);
  cluster.nic_window = 3;
  const Program program = lowered(chain(2), cluster, {"..r0@A", "rest@B"}, 2, {HostId(0), HostId(1)});
  EXPECT_EQ(program.eager_limit, bytes(4096));
  EXPECT_EQ(program.nic_window, 3);
  EXPECT_EQ(program.name, "chain [..r0@A, rest@B]");
  EXPECT_EQ(program.batch, 2);
}

TEST(Lower, UnsplitIsTheGraphOnOneDevice) {
  const KernelGraph kernels = zoo_kernels("simple_cnn");
  const Cluster cluster = star(1);
  const Program program = compile_unsplit(kernels, 4, cluster.devices[0], "somewhere").value();
  EXPECT_TRUE(verify(program).ok());
  EXPECT_EQ(check_symbols(program, kernels), "");
  ASSERT_EQ(program.devices.size(), 1u);
  EXPECT_EQ(program.devices[0].host, "somewhere");
  EXPECT_EQ(slots(program.devices[0]), "F0.0 F0.1 F0.2 F0.3");
  EXPECT_EQ(program.batch, 4);
}

TEST(Lower, EqualComputationsAreOneDescription) {
  const Program program = lowered(chain(9), star(2), {"..r4@A", "rest@B"}, 2, {HostId(0), HostId(1)});
  EXPECT_EQ(program.descs.size(), 1u);
}

// Blocks of channels are of one level; a device that the plan leaves out has no say.
TEST(Lower, LayoutsOfMessagesDependOnTheDevicesOfThePlan) {
  Model model = zoo_model("simple_cnn").value();
  const KernelGraph kernels = choose_kernels(optimize(model.graph, model.weights).value(), {Isa::v3, Isa::v4}).value();
  Cluster cluster = star(3);
  const auto text = [&](const std::vector<std::string>& parts) {
    return to_string(lowered(kernels, cluster, parts, 2, {HostId(0), HostId(0)}));
  };
  const std::string alike = text({"..relu1@A", "rest@B"});
  EXPECT_THAT(alike, HasSubstr("buffer relu1 f32[1,16,8,8]c8 comm"));
  cluster.devices[2].level = Isa::v4;
  EXPECT_EQ(text({"..relu1@A", "rest@B"}), alike);
  const std::string mixed = text({"..relu1@A", "..relu2@B", "rest@C"});
  EXPECT_THAT(mixed, HasSubstr("buffer relu1 f32[1,16,8,8] comm"));
  EXPECT_THAT(mixed, Not(HasSubstr("c8 comm")));
}

TEST(Lower, ErrorsSayWhatDoesNotFit) {
  const KernelGraph kernels = chain(3);
  Cluster cluster = star(2);
  const Endpoints ends{HostId(0), HostId(0)};
  const auto error = [&](const Plan& plan) {
    return compile_program(kernels, plan, cluster, ends, nullptr).error().message;
  };
  Plan plan = plan_of({"..r0@A", "rest@B"}, 2, kernels, cluster);
  plan.schedule = "steaming";
  EXPECT_THAT(error(plan), HasSubstr("unknown schedule 'steaming'; did you mean 'streaming'?"));
  plan.schedule = "streaming";
  plan.stages.pop_back();
  EXPECT_THAT(error(plan), HasSubstr("2 layers have no device"));
  plan = plan_of({"..r0@A", "rest@B"}, 2, kernels, cluster);
  cluster.devices[1].level = Isa::v4;
  EXPECT_EQ(error(plan), "no kernels were chosen for level v4 of device B");

  GraphBuilder builder("constant");
  const ValueId x = builder.input("x", {DType::f32, {1, 2}});
  builder.output(builder.add(Op::Relu, "r", {x}, {}).value());
  builder.output(builder.weight("w", {DType::f32, {1, 2}}, ContentId{1}));
  const KernelGraph constant = choose_kernels(std::move(builder).finish(), {Isa::v3}).value();
  EXPECT_EQ(compile_unsplit(constant, 1, star(1).devices[0], "a").error().message,
            "output 'w' is a constant: nothing computes it");
}

}  // namespace
}  // namespace nlsplit

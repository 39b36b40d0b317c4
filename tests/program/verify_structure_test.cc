// check_structure, at what a text cannot say: a Program may also come from code, and every index of it is followed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "kernels/without_kernel.h"
#include "program/complaint.h"

namespace nlsplit {
namespace {

using testing::complaint;
using ::testing::HasSubstr;
using testing::replaced;

const std::string sound = R"(nlsplit program 1
program sound batch 4 micro_batches 2
device A cpu host a isa v2 memory 65536
  buffer x f32[2,16] input instances 2
  buffer v f32[32] view of x
  buffer w f32[4] weight content 1f
  buffer b f32[1,8,2,2]c4 comm
  buffer a f32[2,16] comm instances 2
  segment F stage 0 phase F
    a = copy(v)
    send a to B tag 3
    b = copy(b)
    collective reduce-scatter ring of A, B elements 0, 0 {
      a = reduce(a, a)
    }
    a = Relu(a) kernel unary_v2
    a[0:4] = pack(x) axis 1 begin 0 end 2
  order
    F.0
    F.1 x:1 a:1
device B cpu host b isa v2 memory 65536
  buffer a f32[2,16] comm instances 2
  buffer y f32[2,16] output instances 2
  segment G stage 1 phase F
    recv a from A tag 3
    collective reduce-scatter ring of A, B elements 0, 0 {
      y = copy(a)
    }
  order
    G.0
    G.1 a:1 y:1
)";

// What check_structure says once `change` was made to the sound Program.
std::string changed(const std::function<void(Program&)>& change) {
  auto program = parse_program(sound, "test.nls");
  EXPECT_TRUE(program.ok()) << program.error().to_string();
  change(*program);
  const Status status = check_structure(*program);
  return status.ok() ? "" : status.error().message;
}

TEST(Structure, CollectivesAreOfTheirGroup) {
  const auto group = [](std::vector<int> members) {
    return changed([&](Program& p) { p.devices[0].segments[0].collectives[0].group = std::move(members); });
  };
  EXPECT_EQ(group({1, 0}), "");
  for (const std::vector<int>& members : {std::vector<int>{0}, {0, 0}, {0, 2}, {0, -1}})
    EXPECT_THAT(group(members), HasSubstr("device A segment F: the group of a collective needs two devices at least"));
  EXPECT_THAT(changed([](Program& p) {
                p.devices[1].segments[0].collectives[0].group = {0, 2};
              }),
              HasSubstr("needs two devices at least"));
  const auto three = [](const std::function<void(Program&)>& change) {
    return changed([&](Program& p) {
      p.devices.push_back(p.devices[1]);
      p.devices[2].name = "C";
      change(p);
    });
  };
  EXPECT_EQ(three([](Program&) {}), "device C segment G: a collective of a group that the device is not in");
  EXPECT_THAT(three([](Program& p) {
                p.devices[2].segments[0].collectives[0].group = {0, 2};
                p.devices[0].segments[0].collectives[0].group = {0, 2};
                p.devices[0].segments[0].instrs[1].collective = 0;
                p.devices[0].segments[0].instrs[1].peer = 1;
              }),
              HasSubstr("a message of a collective to a device that is not in its group"));
}

// A broadcast of 32 elements between the devices.
TEST(Structure, CollectivesHaveTheirSizes) {
  const auto said = [](const std::function<void(Program&)>& change) {
    return changed([&](Program& p) {
      for (DeviceProgram& device : p.devices) {
        Segment& segment = device.segments[0];
        for (Instr& instr : segment.instrs) instr.collective = is_transfer(instr.opcode) ? 0 : -1;
        segment.collectives[0] = {CollectiveKind::broadcast, CollectiveAlgorithm::direct, {0, 1}, {32}};
      }
      change(p);
    });
  };
  const auto each = [](Program& p, const std::function<void(Collective&)>& change) {
    for (DeviceProgram& device : p.devices) change(device.segments[0].collectives[0]);
  };
  const auto collective = [&](const std::function<void(Collective&)>& change) {
    return said([&](Program& p) { each(p, change); });
  };
  EXPECT_EQ(said([](Program&) {}), "");
  EXPECT_THAT(collective([](Collective& c) { c.algorithm = CollectiveAlgorithm::doubling; }),
              HasSubstr("broadcast has no algorithm 'doubling'"));
  EXPECT_THAT(collective([](Collective& c) {
                c.elements = {16, 16};
              }),
              HasSubstr("broadcast of 2 devices with 2 sizes; it has 1"));
  EXPECT_THAT(collective([](Collective& c) { c.elements = {-1}; }), HasSubstr("a value of an impossible size"));
  EXPECT_THAT(collective([](Collective& c) { c.elements = {33}; }),
              HasSubstr("device B segment G: 32 elements received in broadcast; it takes 33"));
  EXPECT_THAT(collective([](Collective& c) { c.elements = {31}; }),
              HasSubstr("device A segment F: a message of 32 elements in a collective of 31"));
  EXPECT_THAT(collective([](Collective& c) {
                c.kind = CollectiveKind::all_gather;
                c.elements = {0, 32};
              }),
              HasSubstr("device A segment F: 0 elements received in all-gather; it takes 32"));
  EXPECT_THAT(said([](Program& p) { p.devices[0].segments[0].instrs[3].collective = 0; }),
              HasSubstr("device A segment F: a reduce in broadcast"));
  EXPECT_THAT(said([](Program& p) { p.devices[0].segments[0].instrs[4].collective = 0; }),
              HasSubstr("device A segment F: a compute in a collective"));
}

TEST(Structure, MembersDoTheSameCollectives) {
  std::string other = sound;
  const std::string_view ring = "scatter ring";
  other.replace(other.rfind(ring), ring.size(), "scatter direct");
  EXPECT_EQ(complaint(other), "devices A and B do other collectives of their group, or in another order");
}

TEST(Structure, TheSoundOneIsAccepted) {
  EXPECT_EQ(complaint(sound), "");
  EXPECT_EQ(changed([](Program&) {}), "");
}

TEST(Structure, OfThePrograms) {
  EXPECT_THAT(changed([](Program& p) { p.micro_batches = 0; }), HasSubstr("a program needs a batch"));
  EXPECT_THAT(changed([](Program& p) { p.batch = 0; }), HasSubstr("a program needs a batch"));
  EXPECT_THAT(changed([](Program& p) { p.devices.clear(); }), HasSubstr("a program without devices"));
  EXPECT_THAT(changed([](Program& p) { p.nic_window = -1; }), HasSubstr("negative eager_limit"));
  EXPECT_THAT(changed([](Program& p) { p.devices[1].name = "A"; }), HasSubstr("two devices are called A"));
  EXPECT_THAT(changed([](Program& p) {
                // 2^20 slots of 130 instructions.
                auto& segment = p.devices[0].segments[0];
                segment.instrs.resize(1);
                segment.instrs.resize(130, segment.instrs[0]);
                p.devices[0].order.assign(size_t{1} << 20, Slot{0, 0, {}});
              }),
              HasSubstr("too many instructions to run"));
}

TEST(Structure, OfDevices) {
  EXPECT_THAT(changed([](Program& p) { p.devices[0].cores = 0; }), HasSubstr("cores must be"));
  EXPECT_THAT(changed([](Program& p) { p.devices[0].memory = bytes(-1); }), HasSubstr("impossible size of memory"));
  EXPECT_THAT(changed([](Program& p) { p.devices[0].kind = DeviceKind::cuda; }),
              HasSubstr("of kind cuda has no level v2"));
  EXPECT_THAT(changed([](Program& p) { p.devices[0].buffers[3].name = "x"; }), HasSubstr("two buffers are called x"));
  EXPECT_THAT(changed([](Program& p) { p.devices[0].segments.push_back(p.devices[0].segments[0]); }),
              HasSubstr("two segments are called F"));
  EXPECT_THAT(changed([](Program& p) { p.devices[0].kind = DeviceKind::host; }),
              HasSubstr("an endpoint computes nothing"));
}

TEST(Structure, OfBuffers) {
  const auto x = [](const std::function<void(Buffer&)>& change) {
    return changed([&](Program& p) { change(p.devices[0].buffers[0]); });
  };
  const auto view = [](const std::function<void(Buffer&)>& change) {
    return changed([&](Program& p) { change(p.devices[0].buffers[1]); });
  };
  EXPECT_THAT(x([](Buffer& b) { b.type.shape[0] = -1; }), HasSubstr("device A buffer x: "));
  EXPECT_THAT(x([](Buffer& b) { b.bytes = bytes(-64); }), HasSubstr("impossible size"));
  EXPECT_THAT(x([](Buffer& b) { b.instances = 0; }), HasSubstr("impossible number of instances"));
  EXPECT_THAT(x([](Buffer& b) { b.offset = -64; }), HasSubstr("not aligned"));
  EXPECT_THAT(x([](Buffer& b) { b.has_content = true; }), HasSubstr("only weight and state buffers have content"));
  EXPECT_THAT(view([](Buffer& b) { b.of = BufferId(); }), HasSubstr("a view of nothing"));
  EXPECT_THAT(view([](Buffer& b) { b.of = BufferId(1000); }), HasSubstr("a view of nothing"));
  EXPECT_THAT(view([](Buffer& b) { b.of = BufferId(1); }), HasSubstr("a view of a view"));
  EXPECT_THAT(view([](Buffer& b) { b.type.shape[0] = 16; }), HasSubstr("a view of another size"));
  EXPECT_THAT(view([](Buffer& b) { b.of = BufferId(3); }), HasSubstr("a view of what is not row-major"));
  EXPECT_THAT(changed([](Program& p) { p.devices[0].buffers[3].kind = BufferKind::output; }),
              HasSubstr("only stash, scratch and comm buffers are in blocks"));
  EXPECT_THAT(changed([](Program& p) { p.devices[0].buffers[2].has_content = false; }),
              HasSubstr("a weight without content"));
  EXPECT_THAT(changed([](Program& p) {
                p.devices[0].buffers[2].packed_for = {KernelName::unary, Isa::v2};
                p.devices[0].buffers[2].packed_input = -1;
              }),
              HasSubstr("packed for no input"));
}

TEST(Structure, OfInstructions) {
  const auto instr = [](size_t i, const std::function<void(Instr&)>& change) {
    return changed([&](Program& p) { change(p.devices[0].segments[0].instrs[i]); });
  };
  constexpr size_t copy = 0, send = 1, blocks = 2, reduce = 3, compute = 4;
  EXPECT_THAT(instr(copy, [](Instr& i) { i.reads[0].buffer = BufferId(); }), HasSubstr("a missing operand"));
  EXPECT_THAT(instr(copy, [](Instr& i) { i.writes[0].buffer = BufferId(); }), HasSubstr("a missing operand"));
  EXPECT_THAT(instr(copy, [](Instr& i) { i.reads[0].buffer = BufferId(99); }), HasSubstr("no such buffer"));
  EXPECT_THAT(instr(copy, [](Instr& i) { i.writes[0].buffer = BufferId(99); }), HasSubstr("no such buffer"));
  EXPECT_THAT(instr(compute, [](Instr& i) { i.reads[0].buffer = BufferId(99); }), HasSubstr("no such buffer"));
  EXPECT_THAT(instr(compute, [](Instr& i) { i.workspace.buffer = BufferId(99); }), HasSubstr("no such buffer"));
  EXPECT_THAT(instr(copy, [](Instr& i) { i.workspace.buffer = BufferId(4); }),
              HasSubstr("only a computation has a workspace"));
  EXPECT_THAT(instr(blocks, [](Instr& i) { i.reads[0].end = 4; }), HasSubstr("which is not row-major"));
  EXPECT_THAT(instr(copy, [](Instr& i) { i.reads[0].begin = 4; }), HasSubstr("a slice without end"));
  EXPECT_THAT(instr(copy, [](Instr& i) { i.reads[0].end = 33; }), HasSubstr("slice 0:33 leaves buffer v"));
  EXPECT_THAT(instr(copy, [](Instr& i) { i.reads[0].begin = -1, i.reads[0].end = 4; }), HasSubstr("leaves buffer v"));
  EXPECT_THAT(instr(reduce, [](Instr& i) { i.collective = 1; }), HasSubstr("no such collective"));
  EXPECT_THAT(instr(copy, [](Instr& i) { i.reads.push_back(i.reads[0]); }), HasSubstr("wrong number of operands"));
  EXPECT_THAT(instr(reduce, [](Instr& i) { i.reads.clear(); }), HasSubstr("wrong number of operands"));
  EXPECT_THAT(instr(copy, [](Instr& i) { i.writes.push_back(i.writes[0]); }), HasSubstr("wrong number of results"));
  EXPECT_THAT(instr(compute, [](Instr& i) { i.writes.clear(); }), HasSubstr("wrong number of results"));
  EXPECT_THAT(instr(compute, [](Instr& i) { i.desc = 99; }), HasSubstr("no such computation"));
  EXPECT_THAT(instr(compute, [](Instr& i) { i.desc = -1; }), HasSubstr("no such computation"));
  EXPECT_THAT(instr(send, [](Instr& i) { i.peer = 2; }), HasSubstr("no such peer"));
  EXPECT_THAT(instr(send, [](Instr& i) { i.peer = 0; }), HasSubstr("a message to itself"));
  EXPECT_THAT(instr(send, [](Instr& i) { i.tag = 32768; }), HasSubstr("a tag must be 0 … 32767"));
}

TEST(Structure, OfSlots) {
  const auto slot = [](const std::function<void(Slot&)>& change) {
    return changed([&](Program& p) { change(p.devices[0].order[1]); });
  };
  EXPECT_THAT(slot([](Slot& s) { s.segment = 1; }), HasSubstr("device A slot 1: no such segment"));
  EXPECT_THAT(slot([](Slot& s) { s.micro_batch = 2; }), HasSubstr("no such micro-batch"));
  EXPECT_THAT(slot([](Slot& s) { s.instances[0].buffer = BufferId(99); }), HasSubstr("no such buffer"));
  EXPECT_THAT(slot([](Slot& s) { s.instances[0] = {BufferId(1), 0}; }), HasSubstr("no such buffer"));
  EXPECT_THAT(slot([](Slot& s) { s.instances[0].instance = 2; }), HasSubstr("buffer x has no instance 2"));
}

std::string verified_after(const std::function<void(Program&)>& change) {
  auto program = parse_program(sound, "test.nls");
  EXPECT_TRUE(program.ok());
  change(*program);
  const Status status = verify(*program);
  return status.ok() ? std::string() : status.error().message;
}

TEST(Structure, IsJudgedFirst) {
  const auto broken = [](Program& p) { p.devices[1].buffers[0].instances = 0; };
  EXPECT_THAT(verified_after(broken), HasSubstr("impossible number of instances"));
  auto program = parse_program(sound, "test.nls");
  ASSERT_TRUE(program.ok());
  broken(*program);
  const auto own = verified_part(*program, 1);
  ASSERT_FALSE(own.ok());
  EXPECT_THAT(own.error().message, HasSubstr("impossible number of instances"));
}

// The same of a computation that no kernel does.
TEST(Structure, WithoutAKernelTypesAreCheckedToo) {
  const auto without = [](const std::function<void(Instr&)>& change) {
    return verified_after([&](Program& p) {
      p.descs[0].kernel = KernelName::none;
      change(p.devices[0].segments[0].instrs[4]);
    });
  };
  EXPECT_EQ(without([](Instr&) {}), "");
  EXPECT_THAT(without([](Instr& i) { i.reads.push_back(i.reads[0]); }), HasSubstr("2 operands where there must be 1"));
  EXPECT_THAT(without([](Instr& i) { i.reads[0].buffer = BufferId(); }), HasSubstr("operand 0 is left out"));
  EXPECT_THAT(without([](Instr& i) { i.reads[0] = {BufferId(1)}; }), HasSubstr("operand 0 is f32[32], not f32[2,16]"));
  EXPECT_THAT(without([](Instr& i) { i.writes[0] = {BufferId(1)}; }), HasSubstr("result 0 is f32[32], not f32[2,16]"));
}

// What only a Program made by code can say of a computation.
TEST(Structure, DescriptionsMayComeFromElsewhere) {
  const auto compute = [](Program& p) -> Instr& { return p.devices[0].segments[0].instrs[4]; };
  EXPECT_THAT(verified_after([&](Program& p) { compute(p).reads.push_back(compute(p).reads[0]); }),
              HasSubstr("the operands do not fit the computation's description"));
  EXPECT_THAT(verified_after([&](Program& p) { compute(p).reads[0].buffer = BufferId(); }),
              HasSubstr("operand 0 is left out"));
  EXPECT_THAT(verified_after([&](Program& p) { compute(p).reads[0] = {BufferId(1)}; }),
              HasSubstr("operand 0 has another type"));
  EXPECT_THAT(verified_after([&](Program& p) { compute(p).writes[0] = {BufferId(1)}; }),
              HasSubstr("result 0 is f32[32]"));
  EXPECT_THAT(verified_after([&](Program& p) {
                p.descs[0].kernel = KernelName::none;
                compute(p).workspace = {BufferId(4)};
              }),
              HasSubstr("it has no kernel that needs a workspace"));
}

}  // namespace
}  // namespace nlsplit

// What an online run may not change: by hand for small Programs, and for all the others by looking at every two
// instructions that touch the same bytes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "graph/passes/passes.h"
#include "program/text.h"
#include "program/verify.h"
#include "testing/compile_program.h"
#include "testing/paths.h"
#include "testing/random_graph.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Program parse(const std::string& text) {
  auto program = parse_program(text, "test.nls");
  EXPECT_TRUE(program.ok()) << program.error().to_string();
  return std::move(program).value();
}

Program contract_program(const std::string& name) {
  return parse(value_of(read_file(fmt::format("{}/tests/programs/{}.nls", NLS_SOURCE_DIR, name))));
}

Dependencies free_order(const Program& program) {
  auto order = free_dependencies(program);
  EXPECT_TRUE(order.ok()) << order.error().to_string();
  return std::move(order).value();
}

std::vector<std::vector<int>> afters(const std::vector<FreeSlot>& slots) {
  std::vector<std::vector<int>> all;
  for (const FreeSlot& slot : slots) all.push_back(slot.after);
  return all;
}

uint32_t instance_of(const Dependencies& deps, int device, int slot, int instr) {
  for (uint32_t i = 0; i < deps.instances.size(); ++i) {
    if (deps.instances[i] == Instance{device, slot, instr}) return i;
  }
  ADD_FAILURE() << "no such instance";
  return 0;
}

std::vector<uint32_t> sources(const Dependencies& deps, uint32_t to) {
  std::vector<uint32_t> from;
  for (const Edge& edge : deps.into(to)) from.push_back(edge.from);
  return from;
}

// Two stages on each device, two instances for each message: a slot waits for the one that had its instance, for no
// other.
TEST(FreeOrder, OnlyInstancesBindSlots) {
  const Program program = contract_program("interleaved");
  const Dependencies order = free_order(program);
  // A: F0.0 F0.1 F2.0 F2.1 F0.2 F0.3 F2.2 F2.3
  EXPECT_THAT(afters(order.free_slots[0]), ElementsAre(IsEmpty(), IsEmpty(), IsEmpty(), IsEmpty(), ElementsAre(0),
                                                       ElementsAre(1), ElementsAre(2), ElementsAre(3)));
  // B: F1.0 F1.1 F3.0 F3.1 F1.2 F1.3 F3.2 F3.3; what F3 makes has an instance for each micro-batch
  EXPECT_THAT(afters(order.free_slots[1]), ElementsAre(IsEmpty(), IsEmpty(), IsEmpty(), IsEmpty(), ElementsAre(0),
                                                       ElementsAre(1), IsEmpty(), IsEmpty()));
  for (const std::vector<FreeSlot>& slots : order.free_slots) {
    for (const FreeSlot& slot : slots) EXPECT_TRUE(slot.chosen && slot.computes && !slot.fixed);
  }
  EXPECT_EQ(order.free_slots[0][6].slot, (ScheduledSlot{2, Phase::forward, 2}));
  // Sends of A to B: F0.1's waits for its data alone, F0.2's also for F0.1's; F2.0's, of another tag, for neither.
  const Dependencies& deps = order;
  EXPECT_THAT(sources(deps, instance_of(deps, 0, 4, 1)),
              ElementsAre(instance_of(deps, 0, 1, 1), instance_of(deps, 0, 4, 0)));
  EXPECT_THAT(sources(deps, instance_of(deps, 0, 2, 2)), ElementsAre(instance_of(deps, 0, 2, 1)));
  // A computation waits for the one before it in its slot, and for messages.
  EXPECT_THAT(sources(deps, instance_of(deps, 0, 6, 1)),
              ElementsAre(instance_of(deps, 0, 6, 0), instance_of(deps, 0, 2, 2)));
}

// Every slot waits in its middle for what depends on its beginning: all keep their places.
TEST(FreeOrder, ARingKeepsItsPlace) {
  const Dependencies order = free_order(contract_program("ring_all_reduce"));
  for (const std::vector<FreeSlot>& slots : order.free_slots) {
    EXPECT_THAT(afters(slots), ElementsAre(IsEmpty(), ElementsAre(0)));
    for (const FreeSlot& slot : slots) EXPECT_TRUE(slot.fixed && !slot.chosen);
  }
}

// A's third slot asks B and waits for the answer: outside a collective there is no other order for that.
TEST(FreeOrder, WhoeverWaitsInItsMiddleIsRefused) {
  const auto order = free_dependencies(parse(R"(nlsplit program 1
program ask batch 4 micro_batches 4
device A cpu host a memory 1000000
  buffer x f32[10] input instances 4
  buffer q f32[10] comm instances 1
  buffer r f32[10] comm instances 1
  buffer y f32[10] output instances 4
  segment F stage 0 phase F
    y = copy(x)
  segment G stage 0 phase F
    q = copy(x)
    send q to B tag 0
    recv r from B tag 1
    y = copy(r)
  order
    F.0
    F.1 x:1 y:1
    G.2 x:2 y:2
    F.3 x:3 y:3
device B cpu host b memory 1000000
  buffer q f32[10] comm
  buffer r f32[10] comm
  segment H stage 1 phase F
    recv q from A tag 0
    r = copy(q)
    send r to A tag 1
  order
    H.2
)"));
  ASSERT_FALSE(order.ok());
  EXPECT_EQ(order.error().kind, ErrorKind::unsupported);
  EXPECT_THAT(order.error().message, HasSubstr("device A slot 2 (G.2) `q = copy(x)` waits for what depends on it"));
}

// Scratch is each slot's own, unless a slot reads what it has not written.
TEST(FreeOrder, ScratchThatCarriesAValueBinds) {
  const auto text = [](const char* first, const char* second) {
    return fmt::format(R"(nlsplit program 1
program scratch batch 3 micro_batches 3
device A cpu host a memory 1000000
  buffer x f32[10] input instances 3
  buffer t f32[10] scratch
  buffer y f32[10] output instances 3
  segment F stage 0 phase F
    {}
    {}
  order
    F.0
    F.1 x:1 y:1
    F.2 x:2 y:2
)",
                       first, second);
  };
  EXPECT_THAT(afters(free_order(parse(text("t = copy(x)", "y = copy(t)"))).free_slots[0]),
              ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
  EXPECT_THAT(afters(free_order(parse(text("y = copy(t)", "t = copy(x)"))).free_slots[0]),
              ElementsAre(IsEmpty(), ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(afters(free_order(parse(text("t[0:5] = copy(x[0:5])", "y = copy(t)"))).free_slots[0]),
              ElementsAre(IsEmpty(), ElementsAre(0), ElementsAre(0, 1)));
}

// Reads have no order among themselves, so whoever overwrites waits for each of them.
TEST(FreeOrder, AnOverwriterWaitsForAllReaders) {
  const Dependencies order = free_order(parse(R"(nlsplit program 1
program readers batch 2 micro_batches 2
device A cpu host a memory 1000000
  buffer s f32[10] stash
  buffer y f32[10] output instances 2
  buffer x f32[10] input instances 2
  segment F stage 0 phase F
    s = copy(x)
  segment G stage 1 phase F
    y = copy(s)
  segment H stage 2 phase F
    y[0:5] = copy(s[5:10])
  order
    F.0
    G.0
    H.0
    F.1 x:1
    G.1 y:1
    H.1 y:1
)"));
  EXPECT_THAT(afters(order.free_slots[0]), ElementsAre(IsEmpty(), ElementsAre(0), ElementsAre(0, 1),
                                                       ElementsAre(0, 1, 2), ElementsAre(3), ElementsAre(3, 4)));
}

TEST(FreeOrder, RecomputationHasNoPlaceInATable) {
  Program program = contract_program("interleaved");
  program.devices[0].segments[0].phase = Phase::recompute;
  const auto order = free_dependencies(program);
  ASSERT_FALSE(order.ok());
  EXPECT_EQ(order.error().kind, ErrorKind::unsupported);
}

// ---- Every two instructions of different slots that touch the same bytes, one of them writing.

struct Access {
  uint32_t instance;
  int64_t begin, end;
  bool writes, own_scratch;
};

// Whose scratch is never read before it is written, and never sent: by reading the segment, instruction by instruction.
bool own_scratch(const DeviceProgram& device, BufferId root) {
  if (device.buffer(root).kind != BufferKind::scratch) return false;
  const auto size = static_cast<size_t>(device.buffer(root).bytes.value());
  for (const Segment& segment : device.segments) {
    std::vector<bool> written(size, false);
    for (const Instr& instr : segment.instrs) {
      const auto each = [&](const Operand& operand, const auto& byte) {
        if (!operand.buffer.valid() || device.root(operand.buffer) != root) return true;
        if (is_transfer(instr.opcode)) return false;
        const int64_t element = size_of(device.buffer(operand.buffer).type.dtype);
        const auto begin = operand.whole() ? 0 : static_cast<size_t>(operand.begin * element);
        const auto end = operand.whole() ? size : static_cast<size_t>(operand.end * element);
        for (size_t b = begin; b < end; ++b) {
          if (!byte(b)) return false;
        }
        return true;
      };
      const auto read = [&](size_t b) { return static_cast<bool>(written[b]); };
      const auto write = [&](size_t b) {
        written[b] = true;
        return true;
      };
      for (const Operand& operand : instr.reads) {
        if (!each(operand, read)) return false;
      }
      if (!each(instr.workspace, write)) return false;
      for (const Operand& operand : instr.writes) {
        if (!each(operand, write)) return false;
      }
    }
  }
  return true;
}

void expect_conflicts_ordered(const Program& program) {
  const Dependencies deps = free_order(program);
  const size_t count = deps.instances.size();
  std::vector<std::vector<std::vector<uint32_t>>> computes(program.devices.size());  // [device][slot]
  for (size_t d = 0; d < program.devices.size(); ++d) computes[d].resize(program.devices[d].order.size());
  for (uint32_t i = 0; i < count; ++i) {
    const Instance& at = deps.instances[i];
    if (!is_transfer(instr_of(program, at).opcode))
      computes[static_cast<size_t>(at.device)][static_cast<size_t>(at.slot)].push_back(i);
  }
  // What is over when an instance begins, and when it is over itself; in the Program's order, which all edges follow.
  using Over = std::vector<std::vector<bool>>;
  Over at_start(count, std::vector<bool>(count, false)), at_end = at_start;
  const auto join = [&](std::vector<bool>& into, const std::vector<bool>& other) {
    for (size_t k = 0; k < count; ++k) into[k] = into[k] || other[k];
  };
  const auto sequence = dry_run(program, dependencies(program).value());
  ASSERT_TRUE(sequence.ok()) << sequence.error().message;
  for (const uint32_t i : *sequence) {
    const Instance& at = deps.instances[i];
    const bool receives = instr_of(program, at).opcode == Opcode::recv;
    // Receives are posted ahead, but end in order.
    for (const Edge& edge : deps.into(i))
      join(receives && edge.kind == EdgeKind::stream ? at_end[i] : at_start[i], at_end[edge.from]);
    const std::vector<uint32_t>& mine = computes[static_cast<size_t>(at.device)][static_cast<size_t>(at.slot)];
    if (!mine.empty() && mine.front() == i) {
      const std::vector<FreeSlot>& slots = deps.free_slots[static_cast<size_t>(at.device)];
      for (const int before : slots[static_cast<size_t>(at.slot)].after)
        join(at_start[i], at_end[computes[static_cast<size_t>(at.device)][static_cast<size_t>(before)].back()]);
    }
    join(at_end[i], at_start[i]);
    if (receives) join(at_end[i], at_start[deps.match[i]]);
    at_end[i][i] = true;
  }
  for (size_t d = 0; d < program.devices.size(); ++d) {
    const DeviceProgram& device = program.devices[d];
    std::vector<bool> own;
    for (size_t b = 0; b < device.buffers.size(); ++b) own.push_back(own_scratch(device, BufferId(b)));
    std::vector<Access> accesses;
    for (uint32_t i = deps.device_begin[d]; i < deps.device_begin[d + 1]; ++i) {
      const Instr& instr = instr_of(program, deps.instances[i]);
      const Slot& slot = device.order[static_cast<size_t>(deps.instances[i].slot)];
      const auto add = [&](const Operand& operand, bool writes) {
        if (!operand.buffer.valid()) return;
        const BufferId root = device.root(operand.buffer);
        const int64_t begin = address_of(device, slot, operand);
        const int64_t size = operand.whole() ? device.buffer(root).bytes.value() : bytes_of(device, operand).value();
        accesses.push_back({i, begin, begin + size, writes, own[root.index()]});
      };
      for (const Operand& operand : instr.reads) add(operand, false);
      for (const Operand& operand : instr.writes) add(operand, true);
      add(instr.workspace, true);
    }
    for (const Access& a : accesses) {
      for (const Access& b : accesses) {
        if (a.instance >= b.instance || a.end <= b.begin || b.end <= a.begin || !(a.writes || b.writes)) continue;
        if (a.own_scratch && b.own_scratch && deps.instances[a.instance].slot != deps.instances[b.instance].slot)
          continue;  // a device runs one slot at a time
        ASSERT_TRUE(at_start[b.instance][a.instance])
            << describe_instance(program, deps.instances[a.instance]) << " may come behind "
            << describe_instance(program, deps.instances[b.instance]);
      }
    }
  }
}

TEST(FreeOrderConflicts, OfAllContractPrograms) {
  for (const auto& entry : std::filesystem::directory_iterator(NLS_SOURCE_DIR "/tests/programs")) {
    SCOPED_TRACE(entry.path());
    expect_conflicts_ordered(parse(value_of(read_file(entry.path()))));
  }
}

// Several stages on a device, replicas, views, two instruction levels.
TEST(FreeOrderConflicts, OfLoweredPrograms) {
  int checked = 0;
  for (uint64_t seed = 0; seed < 24 && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Model model = random_graph(seed, 7);
    const auto kernels = choose_kernels(optimize(model.graph, model.weights).value(), {Isa::v3, Isa::v4});
    ASSERT_TRUE(kernels.ok());
    Random random(seed + 99);
    Cluster cluster;
    for (const char* name : {"a", "b"}) cluster.hosts.push_back({name, false});
    cluster.links.push_back({"ab", HostId(0), HostId(1), bytes_per_second(1e8), seconds(1e-5), true});
    for (size_t d = 0; d < 2; ++d) {
      cluster.devices.push_back({std::string(1, static_cast<char>('A' + d)), HostId(d), DeviceKind::cpu,
                                 bytes(int64_t{1} << 40), d == 1 && seed % 2 == 0 ? Isa::v4 : Isa::v3});
    }
    Plan plan;
    plan.micro_batches = 1 + static_cast<int>(random.below(4));
    plan.schedule = seed % 3 == 0 ? "online:longest_path,in_flight=3" : "streaming";
    const size_t nodes = kernels->graph.nodes.size();
    for (size_t begin = 0; begin < nodes;) {
      Stage stage{begin, plan.stages.size() == 3 ? nodes : begin + 1 + random.below(nodes - begin), {}};
      stage.devices.push_back(DeviceId(plan.stages.size() % 2));
      if (random.below(4) == 0) stage.devices.push_back(DeviceId((plan.stages.size() + 1) % 2));
      begin = stage.end;
      plan.stages.push_back(std::move(stage));
    }
    const auto program = compile_program(*kernels, plan, cluster, {HostId(0), HostId(random.below(2))}, nullptr);
    ASSERT_TRUE(program.ok()) << program.error().message;
    if (!verify(*program).ok()) continue;  // a device with several stages may need messages in another order
    expect_conflicts_ordered(*program);
    ++checked;
  }
  EXPECT_GE(checked, 12) << "or the loop says nothing";
}

}  // namespace
}  // namespace nlsplit

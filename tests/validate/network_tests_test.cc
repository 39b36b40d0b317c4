#include "validate/network_tests.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "exec/run_threads.h"
#include "program/dependencies.h"
#include "program/text.h"
#include "program/verify.h"
#include "report/chrome_trace.h"
#include "validate/routes.h"

namespace nlsplit {
namespace {

size_t device_slots(const Program& program) { return program.devices[0].order.size(); }

TEST(PingPong, IsAProgramThatRuns) {
  PingPongOptions few{.level_a = Isa::v2, .level_b = {}, .eager_limit = bytes(65480)};
  few.computations = 3;  // and pong computes nothing
  const PingPong test = ping_pong("a", "b", few);
  const Status sound = verify(test.program);
  ASSERT_TRUE(sound.ok()) << sound.error().to_string();
  EXPECT_EQ(test.program.devices[0].order.size(), test.sizes.size());
  RunOptions options;
  options.repeats = 1;
  const auto result = run_threads(test.program, {}, options);
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  // Of ping's spans, send, recv, copy, computations, copy of each slot: no message leaves before all that is done with
  // what the one before brought.
  double last = 0;
  size_t at = 0;
  for (size_t slot = 0; slot < test.sizes.size(); ++slot) {
    const Span &send = result->trace.spans[at++], &recv = result->trace.spans[at++];
    EXPECT_GE(send.start, last);
    EXPECT_GE(recv.finish, send.start);
    last = recv.finish;
    for (int computation = 0; computation < few.computations + 2; ++computation) {
      const Span& span = result->trace.spans[at++];
      EXPECT_EQ(span.device, 0);
      EXPECT_GE(span.start, last);
      last = span.finish;
    }
  }
}

TEST(PingPong, TriesBothSidesOfTheLimit) {
  for (const int64_t limit : {int64_t{0}, int64_t{4000}, int64_t{65480}, int64_t{1} << 40}) {
    const PingPong test = ping_pong("a", "a", {.level_a = Isa::v2, .level_b = Isa::v2, .eager_limit = bytes(limit)});
    EXPECT_TRUE(verify(test.program).ok());
    const auto has = [&](int64_t size) { return std::ranges::count(test.sizes, size) > 0; };
    EXPECT_EQ(has(limit), limit >= 256 && limit <= 4 << 20) << limit;
    EXPECT_TRUE(has(4 << 20));
  }
}

TEST(PingPong, HasNoLargerMessageThanAskedFor) {
  PingPongOptions options{.level_a = Isa::v2, .level_b = Isa::v2, .eager_limit = bytes(65480)};
  EXPECT_EQ(std::ranges::max(ping_pong("a", "b", options).sizes), 4 << 20);
  options.largest_bytes = 25'000'000;
  EXPECT_EQ(std::ranges::max(ping_pong("a", "b", options).sizes), 16 << 20);
}

TEST(PingPong, ComputesByAClock) {
  const Program program =
      ping_pong("a", "b", {.level_a = Isa::v2, .level_b = Isa::v2, .eager_limit = bytes(65480), .computations = 5})
          .program;
  const Clocks clocks = busy_clock(program, 0.01);
  ASSERT_EQ(clocks.size(), 2u);
  for (size_t device = 0; device < 2; ++device) {
    for (const Segment& segment : program.devices[device].segments) {
      double takes = 0;
      for (const Instr& instr : segment.instrs)
        if (instr.opcode == Opcode::compute) takes += clocks[device][static_cast<size_t>(instr.desc)];
      EXPECT_NEAR(takes, 0.01, 1e-12) << segment.name;
    }
  }
}

TEST(BusyPair, ComputesTheSameWithAndWithoutMessages) {
  size_t computations[2] = {0, 0};
  for (const bool messages : {false, true}) {
    const Program program = busy_pair("a", "b", Isa::v2, Isa::v2, {100000, bytes(65480), messages});
    const Status sound = verify(program);
    ASSERT_TRUE(sound.ok()) << sound.error().to_string();
    RunOptions options;
    options.repeats = 1;
    const auto result = run_threads(program, {}, options);
    ASSERT_TRUE(result.ok()) << result.error().to_string();
    size_t sends = 0;
    for (const Span& span : result->trace.spans) {
      const DeviceProgram& device = program.devices[static_cast<size_t>(span.device)];
      const Instr& instr = device.segments[0].instrs[static_cast<size_t>(span.instr)];
      computations[messages ? 1 : 0] += instr.opcode == Opcode::compute ? 1 : 0;
      sends += instr.opcode == Opcode::send ? 1 : 0;
    }
    EXPECT_EQ(sends, messages ? device_slots(program) : 0);
  }
  EXPECT_EQ(computations[0] + 8, computations[1]) << "and what arrived is read";
}

TEST(BusyPair, ComputesAsMuchInQuiet) {
  BusyPairOptions options{100000, bytes(65480)};
  options.slots = 3, options.computations = 40, options.also_without_messages = true;
  const Program program = busy_pair("a", "b", Isa::v2, Isa::v2, options);
  const Status sound = verify(program);
  ASSERT_TRUE(sound.ok()) << sound.error().to_string();
  for (const DeviceProgram& device : program.devices) {
    EXPECT_EQ(std::ranges::count_if(device.segments[0].instrs,
                                    [&](const Instr& instr) {
                                      return instr.opcode == Opcode::compute &&
                                             program.descs[static_cast<size_t>(instr.desc)].op == Op::Erf;
                                    }),
              80);
  }
}

TEST(BusyPair, MayBeShortened) {
  BusyPairOptions options{100000, bytes(65480)};
  options.slots = 2, options.computations = 40;
  const Program program = busy_pair("a", "b", Isa::v2, Isa::v2, options);
  options.computations = 7;
  EXPECT_EQ(to_string(with_fewer_computations(program, 7)), to_string(busy_pair("a", "b", Isa::v2, Isa::v2, options)));
  EXPECT_EQ(to_string(with_fewer_computations(program, 50)), to_string(program));
}

TEST(BusyPair, ItsClockIsShared) {
  BusyPairOptions options{100000, bytes(65480)};
  options.slots = 2, options.computations = 40;
  const Program program = busy_pair("a", "b", Isa::v2, Isa::v2, options);
  const Clocks clocks = busy_clock(program, 0.01);
  double slot = 0;
  for (const Instr& instr : program.devices[0].segments[0].instrs)
    slot += instr.opcode == Opcode::compute ? clocks[0][static_cast<size_t>(instr.desc)] : 0;
  EXPECT_NEAR(slot, 0.01, 1e-12);
}

// An end that is a GPU computes there, by the GPU's kernels; what it sends and receives goes through its copies.
TEST(BusyPair, AGpuComputesOnItself) {
  BusyPairOptions options{100000, bytes(65480)};
  options.slots = 2, options.computations = 4;
  const Level tf32(Isa::cuda, Precision::tf32);
  for (const Program& program :
       {busy_pair("a", "b", Isa::v2, tf32, options),
        clear_to_send_pair("a", "b", Isa::v2, tf32, {8000, 100000, bytes(4000), true, 5, 3})}) {
    const Status sound = verify(program);
    ASSERT_TRUE(sound.ok()) << sound.error().to_string();
    EXPECT_EQ(program.devices[0].kind, DeviceKind::cpu);
    EXPECT_EQ(program.devices[1].kind, DeviceKind::cuda);
    RunOptions on_a_cpu;
    on_a_cpu.repeats = 1;
    on_a_cpu.gpu = {"/nonexistent", GpuMissing::cpu};
    const auto result = run_threads(program, {}, on_a_cpu);
    EXPECT_TRUE(result.ok()) << result.error().to_string();
  }
}

TEST(Crossing, IsAProgramThatRuns) {
  const Program program = crossing("a", "b", 4000, bytes(1000));
  const Status sound = verify(program);
  ASSERT_TRUE(sound.ok()) << sound.error().to_string();
  const auto result = run_threads(program, {}, {});
  EXPECT_TRUE(result.ok()) << result.error().to_string();
}

// Threads copy a message up to the eager limit aside; a larger one waits for its receiver.
TEST(LateReceiver, TellsWhoWaits) {
  for (const bool waits : {true, false}) {
    const Program program = late_receiver("a", "b", Isa::v2, Isa::v2, {8000, bytes(waits ? 4000 : 16000), 2000, 4});
    const Status sound = verify(program);
    ASSERT_TRUE(sound.ok()) << sound.error().to_string();
    RunOptions once;
    once.repeats = 1;
    const auto result = run_threads(program, {}, once);
    ASSERT_TRUE(result.ok()) << result.error().to_string();
    const auto early = left_early(chrome_trace(program, result->trace), "t.json");
    ASSERT_TRUE(early.ok()) << early.error().to_string();
    EXPECT_EQ(*early, !waits);
  }
}

// A slot's message is sent after its computations, and no slot begins before the bulk of the one before is there. (When
// the other side notices that it has the message is its own affair: on a busy machine long after the sender goes on.)
TEST(Answers, TakeTurns) {
  for (const bool bulk : {false, true}) {
    const ClearToSendOptions options{8000, 100000, bytes(4000), bulk, 5, 3};
    const Program program = clear_to_send_pair("a", "b", Isa::v2, Isa::v2, options);
    const Status sound = verify(program);
    ASSERT_TRUE(sound.ok()) << sound.error().to_string();
    RunOptions once;
    once.repeats = 1;
    const auto result = run_threads(program, {}, once);
    ASSERT_TRUE(result.ok()) << result.error().to_string();
    std::vector<double> sent(3, 0), computed(3, 0), there(3, 0), bulk_there(3, 0);  // [slot]
    for (const Span& span : result->trace.spans) {
      const Instr& instr =
          program.devices[static_cast<size_t>(span.device)].segments[0].instrs[static_cast<size_t>(span.instr)];
      const auto slot = static_cast<size_t>(span.slot);
      if (instr.opcode == Opcode::recv) (span.device == 0 ? bulk_there : there)[slot] = span.finish;
      if (span.device != 0) continue;
      if (instr.opcode == Opcode::send) sent[slot] = span.start;
      if (instr.opcode == Opcode::compute && instr.writes[0].buffer == BufferId(0)) computed[slot] = span.finish;
    }
    for (size_t slot = 0; slot < 3; ++slot) {
      EXPECT_GE(sent[slot], computed[slot]);
      EXPECT_GE(there[slot], sent[slot]);
      EXPECT_EQ(bulk_there[slot] > 0, bulk);
      if (slot > 0 && bulk) {
        EXPECT_GE(sent[slot], bulk_there[slot - 1]);
      }
    }
  }
}

TEST(Tests, SurviveTheirFile) {
  NetworkTests set{bytes(65480), {{"g1", "a", "b", {256, 512}}}, {{"b1", "a", "b", 800}}, {{"c1", "a", "b", 1600, 1}},
                   {},           {{"x1", "y1", "a", "b"}}};
  set.slowed.push_back({"s1", "b", "a", 600, 6});
  set.busy.push_back({"p1", "b", "a", 800, 8});
  set.alike = {{{{"a", "b"}}, {{"c", "a"}, {"c", "b"}}, true}, {{{"a", "a"}}, {{"b", "b"}}, false}};
  const auto read = parse_network_tests(to_json(set), "set.json");
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_EQ(to_json(*read), to_json(set));
  EXPECT_EQ(read->slowed[0].messages, 6);
  EXPECT_EQ(read->busy[0].messages, 8);
  ASSERT_EQ(read->alike.size(), 2u);
  EXPECT_EQ(read->alike[0].others, set.alike[0].others);
  EXPECT_EQ(read->alike[1].measured, set.alike[1].measured);
  EXPECT_TRUE(read->alike[0].symmetric && !read->alike[1].symmetric);
  EXPECT_FALSE(parse_network_tests("{}", "set.json").ok());
}

}  // namespace
}  // namespace nlsplit

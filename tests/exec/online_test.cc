// Online runs on threads: whatever a policy answers, the results are those of the Program's own order, bit for bit.
#include <gmock/gmock.h>

#include <chrono>

#include "exec/programs.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* programs[] = {"instances", "interleaved", "replicas", "ring_all_reduce", "train_1f1b"};

Online online_for(const Program& program, const std::string& policy) {
  Online online{policy};
  for (const DeviceProgram& device : program.devices) online.remaining_s.emplace_back(device.order.size(), 0.0);
  return online;
}

Job online_job(const Program& program, const std::string& policy) {
  Job job = seeded_job(program);
  job.online = online_for(program, policy);
  return job;
}

void expect_same_outputs(const RunResult& a, const RunResult& b) {
  ASSERT_EQ(a.outputs.size(), b.outputs.size());
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    EXPECT_EQ(a.outputs[i].tensor.name, b.outputs[i].tensor.name);
    EXPECT_EQ(a.outputs[i].tensor.values, b.outputs[i].tensor.values) << a.outputs[i].tensor.name;
  }
}

// One of the slots that are ready, by lot: pure, as it has to be.
template <uint64_t seed>
std::optional<size_t> by_lot(std::span<const ReadySlot> ready, const DeviceState& state) {
  Random random(seed * 1000 + static_cast<uint64_t>(state.device) * 100 + state.done.size());
  return static_cast<size_t>(random.below(ready.size()));
}
template <uint64_t seed>
constexpr OnlinePolicy lottery = {"lottery", "", by_lot<seed>};

std::optional<size_t> last_stage(std::span<const ReadySlot> ready, const DeviceState&) {
  size_t best = 0;
  for (size_t i = 1; i < ready.size(); ++i) {
    if (ready[i].slot.stage > ready[best].slot.stage) best = i;
  }
  return best;
}
constexpr OnlinePolicy last_stage_first = {"last_stage_first", "", last_stage};

constexpr OnlinePolicy never = {
    "never", "", [](std::span<const ReadySlot>, const DeviceState&) -> std::optional<size_t> { return std::nullopt; }};

TEST(OnlineExec, AnyOrderGivesTheSameBits) {
  for (const char* name : programs) {
    SCOPED_TRACE(name);
    const Program program = program_of(name);
    const auto wanted = run_threads(program, seeded_job(program), test_options());
    ASSERT_TRUE(wanted.ok()) << wanted.error().to_string();
    EXPECT_EQ(wanted->decided, static_order(program));
    for (const OnlinePolicy* policy :
         {&lottery<1>, &lottery<2>, &lottery<3>, &last_stage_first, &all_online_policies()[0]}) {
      RunOptions options = test_options();
      options.repeats = 4;  // each decides for itself, and all must give the same
      options.policy = policy;
      const auto result = run_threads(program, online_job(program, "longest_path"), options);
      ASSERT_TRUE(result.ok()) << policy->name << ": " << result.error().to_string();
      expect_same_outputs(*result, *wanted);
    }
  }
}

// What was decided: every slot once, in an order that memory allows, and the trace is in it.
TEST(OnlineExec, DecisionsAreAnOrderOfTheSlots) {
  const Program program = program_of("interleaved");
  RunOptions options = test_options();
  options.policy = &last_stage_first;
  const auto result = run_threads(program, online_job(program, "longest_path"), options);
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  const Dependencies free = free_dependencies(program).value();
  ASSERT_EQ(result->decided.size(), program.devices.size());
  for (size_t d = 0; d < program.devices.size(); ++d) {
    const std::vector<int>& order = result->decided[d];
    ASSERT_EQ(order.size(), program.devices[d].order.size());
    std::vector<double> start(order.size(), 0);
    for (const Span& span : result->trace.spans) {
      const DeviceProgram& device = program.devices[static_cast<size_t>(span.device)];
      const Slot& slot = device.order[static_cast<size_t>(span.slot)];
      const Instr& instr = device.segments[static_cast<size_t>(slot.segment)].instrs[static_cast<size_t>(span.instr)];
      if (static_cast<size_t>(span.device) == d && !is_transfer(instr.opcode))
        start[static_cast<size_t>(span.slot)] = span.start;
    }
    std::vector<bool> over(order.size(), false);
    for (size_t i = 0; i < order.size(); ++i) {
      const auto s = static_cast<size_t>(order[i]);
      EXPECT_FALSE(over[s]);
      for (const int before : free.free_slots[d][s].after) EXPECT_TRUE(over[static_cast<size_t>(before)]);
      over[s] = true;
      if (i > 0) {
        EXPECT_LE(start[static_cast<size_t>(order[i - 1])], start[s]);
      }
    }
  }
}

TEST(OnlineExec, ALogReplays) {
  for (const char* name : programs) {
    SCOPED_TRACE(name);
    const Program program = program_of(name);
    RunOptions options = test_options();
    options.policy = &lottery<7>;
    const auto first = run_threads(program, online_job(program, "longest_path"), options);
    ASSERT_TRUE(first.ok()) << first.error().to_string();
    Job job = online_job(program, "replay");
    job.online->table = table_of_slots(program, first->decided).devices;
    const auto again = run_threads(program, job, test_options());
    ASSERT_TRUE(again.ok()) << again.error().to_string();
    EXPECT_EQ(table_of_slots(program, again->decided).devices, job.online->table);
    expect_same_outputs(*again, *first);
  }
}

// By the devices' own clocks as well: 2 ms each, so slots of two devices overlap and decisions depend on them.
TEST(OnlineExec, AsksByTheDeviceClock) {
  const Program program = program_of("interleaved");
  Job job = online_job(program, "longest_path");
  job.clocks.assign(program.devices.size(), std::vector<double>(program.descs.size(), 2e-3));
  static double asked_at = 0;
  const OnlinePolicy watching = {"watching", "",
                                 [](std::span<const ReadySlot>, const DeviceState& state) -> std::optional<size_t> {
                                   if (state.device == 0) asked_at = std::max(asked_at, state.now);
                                   return 0;
                                 }};
  RunOptions options = test_options();
  options.policy = &watching;
  options.repeats = 1;
  options.warmup = 0;
  const auto result = run_threads(program, job, options);
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_GE(asked_at, 7 * 2e-3) << "seven slots before the last one";
}

TEST(OnlineExec, APolicyThatNeverChoosesIsNamed) {
  const Program program = program_of("interleaved");
  RunOptions options = test_options();
  options.policy = &never;
  options.watchdog_s = 0.3;
  const auto begin = std::chrono::steady_clock::now();
  const auto result = run_threads(program, online_job(program, "longest_path"), options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(exit_code(result.error()), 3);
  EXPECT_THAT(result.error().message, AllOf(HasSubstr("nothing happened for 0.3 s"), HasSubstr("online policy never")));
  EXPECT_LT(took.count(), 10);
}

// Only A waits for its own choice: B for A.
TEST(OnlineExec, ALogThatCannotBeFollowedSaysWhatItWaitsFor) {
  const Program program = program_of("interleaved");
  Job job = online_job(program, "replay");
  job.online->table = table_of_slots(program, static_order(program)).devices;
  std::swap(job.online->table[0][0], job.online->table[0][4]);  // F0.2 before F0.0, whose instance it takes
  RunOptions options = test_options();
  options.watchdog_s = 0.3;
  const auto result = run_threads(program, job, options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(exit_code(result.error()), 3);
  EXPECT_THAT(result.error().message,
              AllOf(HasSubstr("nothing happened for 0.3 s"), HasSubstr("online policy replay")));
}

TEST(OnlineExec, KnowledgeOfAnotherProgramIsRefused) {
  const Program program = program_of("interleaved");
  const auto error_of = [&](const Job& job) {
    const auto result = run_threads(program, job, test_options());
    return result.ok() ? "no error" : result.error().message;
  };
  Job job = online_job(program, "longest_path");
  job.online->remaining_s.pop_back();
  EXPECT_THAT(error_of(job), HasSubstr("online run of another program"));
  EXPECT_THAT(error_of(online_job(program, "no_such")), HasSubstr("unknown online policy 'no_such'"));
  EXPECT_THAT(error_of(online_job(program, "replay")), HasSubstr("these decisions are of another plan"));
}

}  // namespace
}  // namespace nlsplit

// Generated plans run online with policies that draw lots: whatever they answer, the run ends, its results are those of
// the Program's own order bit for bit, and its log replays, in both tiers of the simulator and on threads.
#include "sim/online.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "differential/digest.h"
#include "differential/generate.h"
#include "exec/run_threads.h"
#include "kernels/module/kernel_library.h"
#include "program/verify.h"
#include "sim/fast.h"
#include "sim/simgrid/simgrid_tier.h"
#include "testing/compile_program.h"

namespace nlsplit {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t cases = 15;  // ten times slower
#else
constexpr uint64_t cases = 60;
#endif

template <uint64_t seed>
std::optional<size_t> by_lot(std::span<const ReadySlot> ready, const DeviceState& state) {
  Random random(seed * 1000 + static_cast<uint64_t>(state.device) * 100 + state.done.size());
  return static_cast<size_t>(random.below(ready.size()));
}
template <uint64_t seed>
constexpr OnlinePolicy lottery = {"lottery", "", by_lot<seed>};
constexpr std::array<const OnlinePolicy*, 3> lotteries = {&lottery<1>, &lottery<2>, &lottery<3>};

RunOptions once(const OnlinePolicy* policy) {
  RunOptions options;
  options.warmup = 0;
  options.repeats = 1;
  options.poison = true;
  options.policy = policy;
  return options;
}

void expect_same_outputs(const RunResult& a, const RunResult& b) {
  ASSERT_EQ(a.outputs.size(), b.outputs.size());
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    const std::vector<float>&x = a.outputs[i].tensor.values, &y = b.outputs[i].tensor.values;
    ASSERT_EQ(x.size(), y.size());
    EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(float)), 0) << a.outputs[i].tensor.name;
  }
}

void expect_same_bits(const Timing& a, const Timing& b) {
  EXPECT_EQ(a.makespan, b.makespan);
  EXPECT_EQ(a.start, b.start);
  EXPECT_EQ(a.finish, b.finish);
  EXPECT_EQ(a.posted, b.posted);
  EXPECT_EQ(a.turn, b.turn);
}

void check_case(const Case& c, uint64_t seed, int& refused) {
  auto at_micro_batch = with_batch(c.model.graph, c.batch / c.plan.micro_batches);
  ASSERT_TRUE(at_micro_batch.ok());
  auto kernels = choose_kernels(std::move(*at_micro_batch), {c.cluster.devices[0].level});
  ASSERT_TRUE(kernels.ok()) << kernels.error().to_string();
  const CostTable costs(c.costs, "generated");
  const auto lowered = compile_program(*kernels, c.plan, c.cluster, c.endpoints, &costs);
  ASSERT_TRUE(lowered.ok()) << lowered.error().to_string();
  const Program& program = *lowered;
  if (!verify(program).ok()) {  // a device with several stages may need messages in another order than its slots
    ++refused;
    return;
  }
  const OnlinePolicy& policy = *lotteries[seed % lotteries.size()];
  const auto free = free_dependencies(program);
  ASSERT_TRUE(free.ok()) << free.error().to_string();
  auto graph = build_online_graph(program, *free, {"longest_path"}, c.cluster, costs);
  ASSERT_TRUE(graph.ok()) << graph.error().to_string();
  graph->online->policy = &policy;
  Timing fast;
  const Status ended = simulate_online(*graph, fast);
  ASSERT_TRUE(ended.ok()) << ended.error().message;
  const auto shared = simulate_all(simgrid_tier(), c.cluster, {&*graph});
  ASSERT_TRUE(shared.ok()) << shared.error().to_string();
  const auto table_of = [&](const std::vector<std::vector<int>>& order) {
    return table_of_slots(program, order).devices;
  };
  const size_t devices = program.devices.size();
  const auto follow = [&](const Timing& timing) {
    auto followed = build_online_graph(program, *free, {"replay", table_of(decisions_of(*graph, timing, devices))},
                                       c.cluster, costs);
    EXPECT_TRUE(followed.ok()) << followed.error().to_string();
    return std::move(followed).value();
  };
  Timing again;
  ASSERT_TRUE(simulate_online(follow(fast), again).ok());
  expect_same_bits(again, fast);
  const TimedGraph followed = follow((*shared)[0]);
  const auto shared_again = simulate_all(simgrid_tier(), c.cluster, {&followed});
  ASSERT_TRUE(shared_again.ok()) << shared_again.error().to_string();
  expect_same_bits((*shared_again)[0], (*shared)[0]);

  const auto inputs = seeded_inputs(program, input_seed);
  Job job{contents_of(c.model.weights), *inputs};
  const auto wanted = run_threads(program, job, once(nullptr));
  ASSERT_TRUE(wanted.ok()) << wanted.error().to_string();
  job.online = online_of(follow(fast), program);
  const auto replayed = run_threads(program, job, once(nullptr));
  ASSERT_TRUE(replayed.ok()) << replayed.error().to_string();
  const auto without_hosts = [](std::vector<std::vector<ScheduledSlot>> table) {  // they come last and decide nothing
    while (!table.empty() && table.back().empty()) table.pop_back();
    return table;
  };
  EXPECT_EQ(without_hosts(table_of(replayed->decided)), without_hosts(job.online->table));
  expect_same_outputs(*replayed, *wanted);
  job.online->policy = "longest_path";
  for (const OnlinePolicy* other : {&policy, static_cast<const OnlinePolicy*>(nullptr)}) {
    const auto online = run_threads(program, job, once(other));
    ASSERT_TRUE(online.ok()) << online.error().to_string();
    expect_same_outputs(*online, *wanted);
  }
}

TEST(DifferentialOnline, AnyOrderEndsAndGivesTheSameBits) {
  int refused = 0;
  for (uint64_t seed = 1; seed <= cases && !::testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    auto made = CaseMaker(seed, best_isa().value()).make();
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    made->plan.schedule = fmt::format("online:longest_path,base={},in_flight={}", made->plan.schedule, 1 + seed % 5);
    check_case(*made, seed, refused);
  }
  EXPECT_LE(refused, static_cast<int>(cases / 5));
}

}  // namespace
}  // namespace nlsplit

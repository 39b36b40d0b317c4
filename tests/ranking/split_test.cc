// Plans that split layers, in the ranking: they are expanded, lowered and judged like others, and what cannot be split
// is said.
#include "compile/split.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "compile/compile.h"
#include "partition/split_load.h"
#include "program/verify.h"
#include "ranking/evaluate.h"
#include "ranking/own_plan.h"
#include "ranking/small_scenario.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::HasSubstr;

constexpr const char* all_axes =
    "{rows: [..relu2@height(A:2+B), rest@A], columns: [..relu2@width-recompute(A+B), rest@B], "
    "samples: [rest@batch(A+B)], channels: [rest@channels(A+B)], matrices: [rest@tensor(A+B)]}";

std::vector<RankedPlan> own_plans(const Ranking& ranking) {
  std::vector<RankedPlan> own;
  for (const RankedPlan& plan : ranking.judged) {
    if (plan.own) own.push_back(plan);
  }
  return own;
}

TEST(Splits, OfEveryAxisAreJudged) {
  const Ranked ranked = rank({.plans = all_axes});
  const std::vector<RankedPlan> own = own_plans(ranked.ranking);
  std::set<std::string> names;
  for (const RankedPlan& plan : own) {
    names.insert(plan.plan.name);
    EXPECT_TRUE(is_split(plan.plan)) << plan.text;
    EXPECT_GT(plan.estimate.throughput, 0) << plan.text;
    EXPECT_NEAR(plan.estimate.throughput * plan.estimate.makespan_s, 8, 1e-9) << plan.text;
    EXPECT_EQ(plan.estimate.devices.size(), 2u) << plan.text;
    for (const DeviceEstimate& device : plan.estimate.devices) EXPECT_GT(device.share, 0) << plan.text;
  }
  EXPECT_EQ(names, (std::set<std::string>{"rows", "columns", "samples", "channels", "matrices"}));
  EXPECT_EQ(own.size(), 5u * 3u);  // 1, 2 and 4 micro-batches
}

// A is four times as fast, but has no memory for four fifths of the weights.
TEST(Splits, TakeSharesThatFit) {
  const auto scenario = parse_scenario(R"(model: zoo:mlp?hidden=1024
workload: {batch: 8, micro_batches: [1, 2]}
devices:
  A: {host: a, memory: 5MiB, costs: {roofline: {compute: 80GFLOPS, memory: 40GBps}}}
  B: {host: b, memory: 5MiB, costs: {roofline: {compute: 20GFLOPS, memory: 10GBps}}}
links: [{between: [a, b], bandwidth: 1Gbps, latency: 50us}]
source: a
sink: a
search: {splits: [channels]}
plans: {even: [rest@channels(A+B)]}
)",
                                       "tight.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.error().to_string();
  const auto ranking = rank_plans(*scenario, load_model(*scenario).value(), {});
  ASSERT_TRUE(ranking.ok()) << ranking.error().to_string();
  const auto found = std::ranges::find(ranking->judged, false, &RankedPlan::own);
  ASSERT_NE(found, ranking->judged.end());
  EXPECT_TRUE(has_splits(found->plan)) << found->text;
  for (const RankedPlan& even : own_plans(*ranking))
    EXPECT_GT(found->estimate.throughput, even.estimate.throughput * 1.02) << found->text;
}

TEST(Splits, AreNeitherSinglesNorCopies) {
  const Ranking ranking = rank({.search = "{splits: []}", .plans = "{pair: [rest@batch(A+B)]}"}).ranking;
  ASSERT_TRUE(ranking.verdict.throughput.split.has_value());
  EXPECT_TRUE(ranking.judged[*ranking.verdict.throughput.split].own);
  EXPECT_FALSE(ranking.verdict.throughput.copies.has_value());
}

// Two machines, each with half of the samples and a link that costs nearly nothing.
TEST(Splits, HalfTheSamplesTakeHalfTheTime) {
  const Ranking ranking = rank({.bandwidth = "1000Gbps",
                                .latency = "0s",
                                .compute = "100MFLOPS",
                                .search = "{splits: []}",
                                .plans = "{pair: {stages: [rest@batch(A+B)], micro_batches: 1}}"})
                              .ranking;
  double single = 0, pair = 0;
  for (const RankedPlan& plan : ranking.judged) {
    if (plan.own) pair = plan.estimate.makespan_s;
    if (plan.text == "A all" && plan.plan.micro_batches == 1) single = plan.estimate.makespan_s;
  }
  EXPECT_NEAR(pair / single, 0.5, 0.02);
}

TEST(Splits, ProgramsVerifyAndKeepThePlansName) {
  const Ranked ranked = rank({.plans = all_axes});
  for (const RankedPlan& plan : own_plans(ranked.ranking)) {
    const auto timed = time_plan(ranked.scenario, ranked.model.graph, plan.plan);
    ASSERT_TRUE(timed.ok()) << timed.error().to_string();
  }
  auto timed = time_plan(ranked.scenario, ranked.model.graph, find_plan(ranked.ranking, "rows").value().plan);
  ASSERT_TRUE(timed.ok());
  EXPECT_EQ(timed->program.name, "simple_cnn [..relu2@height(A:2+B), rest@A]");
  EXPECT_EQ(timed->program.devices.size(), 2u);
  EXPECT_EQ(timed->program.batch, 8);
}

TEST(Splits, SlicesAreAllThatAProgramNeedsBesidesTheModel) {
  Ranked ranked = rank({.plans = all_axes});
  size_t slices = 0;
  for (const RankedPlan& plan : own_plans(ranked.ranking)) {
    const auto timed = time_plan(ranked.scenario, ranked.model.graph, plan.plan);
    ASSERT_TRUE(timed.ok());
    const TimedPlan& made = timed.value();
    add_slices(made.slices, ranked.model.weights);
    add_slices(made.slices, ranked.model.weights);  // twice is once
    slices += made.slices.size();
    for (const DeviceProgram& device : made.program.devices) {
      for (const Buffer& buffer : device.buffers) {
        if (!buffer.has_content) continue;
        EXPECT_TRUE(ranked.model.weights.materialise(buffer.content).ok()) << plan.text;
      }
    }
  }
  EXPECT_GT(slices, 0u);
}

// B computes rows 4 to 8 of a 3x3 convolution's result.
TEST(Splits, ADeviceIsSentTheRowsThatItReads) {
  const Ranked ranked = rank({.plans = "{rows: {stages: [..relu2@height(A+B), rest@A], micro_batches: 2}}"});
  const auto timed = time_plan(ranked.scenario, ranked.model.graph, find_plan(ranked.ranking, "rows").value().plan);
  ASSERT_TRUE(timed.ok()) << timed.error().to_string();
  const DeviceProgram &a = timed->program.devices[0], &b = timed->program.devices[1];
  const auto source = std::ranges::find(a.segments, "source", &Segment::name);
  ASSERT_NE(source, a.segments.end());
  ASSERT_EQ(source->instrs.size(), 2u);
  const Instr &cut = source->instrs[0], &sent = source->instrs[1];
  EXPECT_EQ(cut.opcode, Opcode::pack);
  EXPECT_EQ(a.buffer(cut.reads[0].buffer).kind, BufferKind::input);
  EXPECT_EQ(std::tuple(cut.axis, cut.begin, cut.end), std::tuple(2, 3, 8));
  EXPECT_EQ(sent.opcode, Opcode::send);
  EXPECT_EQ(sent.reads, cut.writes);
  EXPECT_EQ(a.buffer(sent.reads[0].buffer).instances, 2) << "the device computes on while they are sent";
  const TensorType rows{DType::f32, {4, 3, 5, 8}};
  EXPECT_EQ(type_of(a, sent.reads[0]), rows);
  const Instr& received = b.segments[0].instrs[0];
  EXPECT_EQ(received.opcode, Opcode::recv);
  EXPECT_EQ(type_of(b, received.writes[0]), rows);
  for (const Buffer& buffer : b.buffers) EXPECT_NE(buffer.type.shape, (Shape{4, 3, 8, 8})) << buffer.name;
}

TEST(Splits, PartialSumsPromiseATolerance) {
  const Ranking ranking = rank({.plans = all_axes}).ranking;
  EXPECT_EQ(find_plan(ranking, "matrices").value().promise,
            (Promise{rounding_tolerance(DType::f32), "partial sums are added in the order of the shards"}));
  EXPECT_EQ(find_plan(ranking, "samples").value().promise, Promise{});
}

// Winograd computes four rows at once. Boundaries are at such multiples, but for rows that are computed again: those
// are where they are.
TEST(Splits, RowsCutInsideATilePromiseATolerance) {
  const Ranking ranking = rank({.plans = "{rows: [..relu2@height(A:3+B), rest@A], "
                                         "even: [..relu2@height-recompute(A+B), rest@A], "
                                         "uneven: [..relu2@height-recompute(A:3+B), rest@A]}"})
                              .ranking;
  EXPECT_EQ(find_plan(ranking, "rows").value().promise, Promise{});
  EXPECT_EQ(find_plan(ranking, "even").value().promise, Promise{});
  EXPECT_EQ(find_plan(ranking, "uneven").value().promise,
            (Promise{rounding_tolerance(DType::f32),
                     "conv2#0 is cut where its kernel rounds otherwise than within the whole layer"}));
}

TEST(Splits, HalvesPromiseWhatTheirRoundingsAllow) {
  for (const auto& [word, type] : {std::pair("float16", DType::f16), std::pair("bfloat16", DType::bf16)}) {
    const std::string model = fmt::format("{{zoo: simple_cnn, precision: {}}}", word);
    const Ranking ranking = rank({.plans = all_axes, .model = model}).ranking;
    EXPECT_EQ(find_plan(ranking, "matrices").value().promise.tolerance, rounding_tolerance(type));
    EXPECT_EQ(find_plan(ranking, "samples").value().promise, Promise{});
  }
}

TEST(Splits, MicroBatchesThatDoNotLetAPlanLeaveItOut) {
  const Ranking ranking = rank({.plans = "{pair: {stages: [rest@batch(A+B)], micro_batches: [1, 8]}}"}).ranking;
  ASSERT_EQ(ranking.own_left_out.size(), 1u);
  EXPECT_EQ(ranking.own_left_out[0].name, "pair");
  EXPECT_EQ(ranking.own_left_out[0].micro_batches, 8);
  EXPECT_EQ(own_plans(ranking).size(), 1u);
}

TEST(Splits, APlanThatCannotBeSplitAtAllIsToldOfAndTheOthersAreRanked) {
  const Ranking ranking = rank({.plans = "{tokens: [rest@sequence(A+B)], mine: [rest@A]}"}).ranking;
  ASSERT_EQ(ranking.own_refused.size(), 1u);
  const std::string text = ranking.own_refused[0].error.to_string();
  EXPECT_THAT(text, HasSubstr("small.yaml:11:"));
  EXPECT_THAT(text, HasSubstr("sequence"));
  EXPECT_EQ(find_plan(ranking, "tokens").error().to_string(), text);
  EXPECT_EQ(own_plans(ranking).size(), 3u);
}

TEST(Splits, OfATrainingStepAreJudged) {
  Scenario scenario = small_scenario({.plans = "{rows: [..relu2@height(A+B), rest@A], matrices: [rest@tensor(A+B)]}"});
  scenario.training.emplace();
  scenario.schedules = {"gpipe", "1f1b"};
  const Model model = load_model(scenario).value();
  const auto ranking = rank_plans(scenario, model, {});
  ASSERT_TRUE(ranking.ok()) << ranking.error().to_string();
  int rows = 0, matrices = 0;
  for (const RankedPlan& plan : own_plans(*ranking)) {
    (plan.plan.name == "rows" ? rows : matrices) += 1;
    EXPECT_EQ(plan.promise.tolerance, rounding_tolerance(DType::f32)) << plan.text;
    EXPECT_GT(plan.estimate.throughput, 0) << plan.text;
  }
  EXPECT_EQ(matrices, 2 * 3);  // schedules, and 1, 2 and 4 micro-batches
  EXPECT_EQ(rows, 3);          // 1f1b wants one stage a device
}

// A shard has the kernel of its layer, so a search for the fastest kernel of small shapes changes no bits.
TEST(Splits, PartsHaveTheKernelOfTheirLayer) {
  const Ranked ranked = rank({.plans = all_axes});
  const auto prepared = prepare_model(ranked.scenario, ranked.model.graph, 1);
  ASSERT_TRUE(prepared.ok());
  const Plan plan = [&] {
    Plan samples = find_plan(ranked.ranking, "samples").value().plan;
    samples.micro_batches = 1;
    return samples;
  }();
  const auto split = expand_plan(prepared->kernels, plan, ranked.scenario.cluster);
  ASSERT_TRUE(split.ok()) << split.error().to_string();
  const SplitPlan& made = split.value();
  EXPECT_FALSE(has_splits(made.plan));
  std::multiset<KernelId> whole, parts;
  for (const ComputeDesc& desc : prepared.value().kernels.chosen.begin()->second.descs) {
    for (int shard = 0; shard < 2 && !desc.kernel.empty(); ++shard) whole.insert(desc.kernel);
  }
  for (const ComputeDesc& desc : made.kernels.chosen.begin()->second.descs) {
    if (!desc.kernel.empty() && desc.op != Op::Slice && desc.op != Op::Concat) parts.insert(desc.kernel);
  }
  EXPECT_EQ(parts, whole);
}

// What search says of a stage is what is compiled: rows are cut where Winograd's tiles begin.
TEST(Splits, AreScoredAsTheyAreCompiled) {
  const Ranked ranked = rank({.plans = "{rows: [..relu2@height(A:3+B), rest@A]}"});
  const Cluster& cluster = ranked.scenario.cluster;
  const auto prepared = prepare_model(ranked.scenario, ranked.model.graph, 1);
  ASSERT_TRUE(prepared.ok());
  const KernelGraph& whole = prepared->kernels;
  Plan plan = find_plan(ranked.ranking, "rows").value().plan;
  plan.micro_batches = 1;
  const SplitPlan split = expand_plan(whole, plan, cluster).value();
  const Network network = make_network(cluster, HostId(0), HostId(0));
  const auto height = [](const Graph& graph, const Node& node) { return graph.value(node.outputs[0]).type.shape[2]; };
  size_t layers = 0;
  for (size_t n = 0; n < plan.stages[0].end; ++n) {
    const Node& layer = whole.graph.nodes[n];
    if (layer.op != Op::Conv) continue;
    ++layers;
    SearchCosts costs;
    costs.node_seconds.assign(cluster.devices.size(), std::vector<double>(whole.graph.nodes.size(), 0));
    for (std::vector<double>& seconds : costs.node_seconds) seconds[n] = 1;
    SplitLoads loads(whole.graph, cluster, network, costs, exact_multiples(whole));
    const std::vector<double> compute = loads.of(plan.stages).value()[0][0].compute;
    for (const size_t shard : {0, 1}) {
      const auto part =
          std::ranges::find(split.kernels.graph.nodes, fmt::format("{}#{}", layer.name, shard), &Node::name);
      ASSERT_NE(part, split.kernels.graph.nodes.end()) << layer.name;
      EXPECT_DOUBLE_EQ(compute[shard] * static_cast<double>(height(whole.graph, layer)),
                       static_cast<double>(height(split.kernels.graph, *part)))
          << layer.name;
    }
  }
  EXPECT_EQ(layers, 2u);
  const std::vector<int64_t> multiples = exact_multiples(whole);
  EXPECT_GT(*std::ranges::max_element(multiples), 1) << "a network without such kernels shows nothing";
}

UserPlan user_plan(std::vector<std::string> stages) {
  UserPlan plan;
  plan.name = "mine";
  plan.stages = std::move(stages);
  return plan;
}

TEST(CheckOwnPlan, OneThatIsFineHasAPlace) {
  const Scenario scenario = small_scenario({.plans = "{}"});
  const Model model = load_model(scenario).value();
  const auto checked = check_own_plan(scenario, model, user_plan({"..relu2@height(A+B)", "rest@A"}), {});
  ASSERT_TRUE(checked.ok()) << checked.error().to_string();
  const CheckedPlan& made = checked.value();
  ASSERT_TRUE(made.ranking.has_value());
  EXPECT_TRUE(made.troubles.empty());
  EXPECT_EQ(made.text, "height(A+B) ..relu2 | A rest");
  const std::vector<RankedPlan>& judged = made.ranking->judged;
  EXPECT_TRUE(judged[made.place].own);
  for (size_t i = 0; i < made.place; ++i) EXPECT_FALSE(judged[i].own);
  EXPECT_GT(judged.size(), 10u);  // the found ones are there
}

TEST(CheckOwnPlan, TroublesNameTheReason) {
  const Scenario scenario = small_scenario({.memory_b = "64KiB", .plans = "{}"});
  const Model model = load_model(scenario).value();
  const auto first = [&](const UserPlan& plan) {
    const auto checked = check_own_plan(scenario, model, plan, {});
    EXPECT_TRUE(checked.ok());
    if (!checked.ok() || checked.value().ranking) return std::string("no trouble");
    return checked.value().troubles.at(0).error.message;
  };
  EXPECT_THAT(first(user_plan({"..relu9@A", "rest@B"})), HasSubstr("no layer is called 'relu9'"));
  EXPECT_THAT(first(user_plan({"rest@hieght(A+B)"})), HasSubstr("did you mean 'height'?"));
  EXPECT_THAT(first(user_plan({"rest@sequence(A+B)"})), HasSubstr("sequence"));
  EXPECT_THAT(first(user_plan({"..relu1@A", "rest@B"})), HasSubstr("B has 64 KiB and would need "));
}

// Some micro-batches let it, others do not.
TEST(CheckOwnPlan, TroublesOfSomeWaysLeaveTheOthers) {
  const Scenario scenario = small_scenario({.plans = "{}"});
  const Model model = load_model(scenario).value();
  UserPlan plan = user_plan({"rest@batch(A+B)"});
  plan.micro_batches = {2, 8};
  const auto checked = check_own_plan(scenario, model, plan, {});
  ASSERT_TRUE(checked.ok()) << checked.error().to_string();
  const CheckedPlan& made = checked.value();
  ASSERT_EQ(made.troubles.size(), 1u);
  EXPECT_EQ(made.troubles[0].micro_batches, 8);
  ASSERT_TRUE(made.ranking.has_value());
  EXPECT_EQ(made.ranking->judged[made.place].plan.micro_batches, 2);
}

}  // namespace
}  // namespace nlsplit

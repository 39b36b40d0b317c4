#include "ranking/shorter.h"

#include <algorithm>

#include "graph/passes/rewrite.h"

namespace nlsplit::inline ranking {
namespace {

constexpr size_t blocks_left = 2;    // of a stage's: in the first what comes from the stage before may still be awaited
constexpr size_t least_fewer = 6;    // blocks; else two shorter networks are as much work as the whole one
constexpr size_t least_blocks = 10;  // of a repeat

Result<PreparedModel> prepare_without(const Scenario& scenario, const Graph& graph, const Repeat& repeat, size_t fewer,
                                      const KernelGraph* like = nullptr) {
  const std::optional<Graph> shorter = without_blocks(graph, repeat, fewer);
  if (!shorter) return unsupported("the blocks of the network do not follow each other alone");
  return prepare_model(scenario, *shorter, 1, {}, {}, like);
}

}  // namespace

std::optional<Repeat> longest_repeat(const Graph& graph) {
  std::optional<Repeat> longest;
  for (const Repeat& repeat : find_repeats(graph)) {
    if (repeat.count >= least_blocks && (!longest || repeat.period * repeat.count > longest->period * longest->count))
      longest = repeat;
  }
  return longest;
}

std::optional<Graph> without_blocks(const Graph& graph, const Repeat& repeat, size_t fewer) {
  CHECK(fewer + 2 <= repeat.count, "the first block and the last one stay");
  // Those behind the first block go; who read the last of them reads the first block.
  const size_t begin = repeat.begin + repeat.period, end = begin + fewer * repeat.period;
  std::vector<bool> removed(graph.nodes.size(), false);
  std::fill(removed.begin() + static_cast<std::ptrdiff_t>(begin), removed.begin() + static_cast<std::ptrdiff_t>(end),
            true);
  Graph shorter = graph;
  const auto redirected = [&](ValueId value, size_t reader) -> std::optional<ValueId> {
    if (!value.valid() || graph.value(value).kind != ValueKind::node) return value;
    const size_t made = graph.value(value).producer.index();
    if (!removed[made]) return value;
    if (made + repeat.period < end || reader >= end + repeat.period) return std::nullopt;
    const std::vector<ValueId>& outputs = graph.nodes[made].outputs;
    const auto place = std::ranges::find(outputs, value) - outputs.begin();
    return graph.nodes[made - fewer * repeat.period].outputs[static_cast<size_t>(place)];
  };
  for (size_t n = end; n < graph.nodes.size(); ++n) {
    Node& node = shorter.nodes[n];
    for (ValueId& input : node.inputs) {
      const auto now = redirected(input, n);
      if (!now) return std::nullopt;
      input = *now;
    }
    for (EpilogueStep& step : node.epilogue) {
      const auto now = redirected(step.operand, n);
      if (!now) return std::nullopt;
      step.operand = *now;
    }
  }
  for (const ValueId output : graph.outputs) {
    const Value& value = graph.value(output);
    if (value.kind == ValueKind::node && removed[value.producer.index()]) return std::nullopt;
  }
  return compacted(shorter, removed);
}

std::vector<ShorterPlan> shorter_plans(const Plan& plan, const Repeat& repeat) {
  if (plan.micro_batches != 1) return {};
  const size_t end = repeat.begin + repeat.period * repeat.count;
  std::vector<size_t> fewer;  // [stage]
  size_t all = 0;
  for (const Stage& stage : plan.stages) {
    const size_t from = std::max(stage.begin, repeat.begin), to = std::min(stage.end, end);
    const size_t blocks = stage.split && to > from ? (to - from) / repeat.period : 0;
    fewer.push_back(blocks >= blocks_left + least_fewer ? blocks - blocks_left : 0);
    // A block at each end stays.
    if (all + fewer.back() + 2 > repeat.count) fewer.back() = repeat.count - 2 - all;
    all += fewer.back();
  }
  if (all == 0) return {};
  const auto without = [&](const std::vector<size_t>& of_stage, double weight) {
    ShorterPlan made{weight, 0, plan};
    for (size_t s = 0; s < plan.stages.size(); ++s) {
      Stage& stage = made.plan.stages[s];
      stage.begin -= made.fewer * repeat.period;
      made.fewer += of_stage[s];
      stage.end -= made.fewer * repeat.period;
    }
    return made;
  };
  std::vector<ShorterPlan> made = {without(fewer, 1 - static_cast<double>(all))};
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    if (fewer[s] == 0) continue;
    std::vector<size_t> one_more = fewer;
    --one_more[s];
    made.push_back(without(one_more, static_cast<double>(fewer[s])));
  }
  return made;
}

Result<const PreparedModel*> ShorterModels::without(size_t fewer) {
  const std::lock_guard lock(mutex_);
  const auto known = models_.find(fewer);
  if (known != models_.end()) return &known->second;
  ASSIGN_OR_RETURN(PreparedModel prepared, prepare_without(scenario_, graph_, repeat_, fewer));
  return &models_.emplace(fewer, std::move(prepared)).first->second;
}

namespace {

// The same blocks, by name, in the network for prompts.
std::optional<Repeat> same_blocks(const Graph& graph, const Repeat& repeat, const Graph& prompts) {
  const std::optional<Repeat> there = longest_repeat(prompts);
  if (!there || there->period != repeat.period) return std::nullopt;
  const auto at = std::ranges::find(prompts.nodes, graph.nodes[repeat.begin].name, &Node::name);
  Repeat same = repeat;
  same.begin = static_cast<size_t>(at - prompts.nodes.begin());
  const bool within = same.begin >= there->begin &&
                      same.begin + same.period * same.count <= there->begin + there->period * there->count;
  return within ? std::optional(same) : std::nullopt;
}

}  // namespace

ShorterGenerations::ShorterGenerations(const Scenario& scenario, const GenerationModels& whole, const Repeat& repeat)
    : scenario_(scenario), whole_(whole), decode_(repeat) {
  if (whole.prefill) prefill_ = same_blocks(whole.decode.kernels.graph, repeat, whole.prefill->kernels.graph);
}

Result<const GenerationModels*> ShorterGenerations::without(size_t fewer) {
  const std::lock_guard lock(mutex_);
  const auto known = models_.find(fewer);
  if (known != models_.end()) return &known->second;
  GenerationModels made;
  ASSIGN_OR_RETURN(made.decode, prepare_without(scenario_, whole_.decode.kernels.graph, decode_, fewer));
  if (whole_.prefill) {
    ASSIGN_OR_RETURN(made.prefill, prepare_without(scenario_, whole_.prefill->kernels.graph, prefill_.value(), fewer,
                                                   &made.decode.kernels));
  }
  return &models_.emplace(fewer, std::move(made)).first->second;
}

}  // namespace nlsplit::inline ranking

// Of pass `schedule`: how the devices of a stage add up its gradients.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "compile/collective_costs.h"
#include "compile/collectives.h"
#include "compile/lowering.h"
#include "graph/memory.h"

namespace nlsplit::inline compiler {

std::vector<int> Lowering::part_goes_to(const Tied& tied, const Tied::Part& part) const {
  const std::vector<int>& has = group(part.stage);
  std::set<int> to;
  for (const int stage : tied.stages) {
    for (const int device : group(stage)) {
      if (std::ranges::find(has, device) == has.end()) to.insert(device);
    }
  }
  return {to.begin(), to.end()};
}

Status check_sums(const Lowering& lowering) {
  const std::string& name = lowering.plan->schedule;
  if (lowering.online)
    return unsupported(fmt::format("schedule {} decides the order of sums while it runs: not exact", name));
  for (size_t d = 0; d < lowering.table.devices.size(); ++d) {
    std::map<std::pair<int, Phase>, int> last;  // by stage: the micro-batch that was added last
    for (const ScheduledSlot& slot : lowering.table.devices[d]) {
      // Running statistics of the forward pass are sums too.
      const bool forward = slot.phase == Phase::forward && lowering.training->options.batch_norm == BatchNorm::batch;
      if (!forward && slot.phase != Phase::input_gradient && slot.phase != Phase::weight_gradient) continue;
      const auto [before, is_first] = last.try_emplace({slot.stage, slot.phase}, slot.micro_batch);
      if (!is_first && before->second > slot.micro_batch) {
        return unsupported(
            fmt::format("schedule {}: {} has the {} after that of micro-batch {}: its sums are not exact", name,
                        lowering.cluster->device(lowering.devices[d]).name, slot_text(slot), before->second));
      }
      before->second = slot.micro_batch;
    }
  }
  return ok_status();
}

std::vector<size_t> Lowering::weights_of(int stage, const Bucket& bucket) const {
  const Reduction& reduction = reductions[at(stage)];
  const StepNodes& step = training->nodes;
  std::map<int64_t, size_t> weights;  // by gradient
  for (size_t t = 0; t < step.trained.size(); ++t) {
    const auto sum = reduction.begin.find(step.sums[step.parts[t][0]].state);
    if (sum != reduction.begin.end() && sum->second >= bucket.begin && sum->second < bucket.end())
      weights[sum->second] = t;
  }
  std::vector<size_t> in_order;
  for (const auto& [begin, weight] : weights) in_order.push_back(weight);
  return in_order;
}

size_t Lowering::member_of(int stage, int device) const {
  return static_cast<size_t>(std::ranges::find(group(stage), device) - group(stage).begin());
}

size_t Lowering::owner_of(int stage, const Bucket& bucket, size_t weight) const {
  const ValueId sum = training->nodes.sums[training->nodes.parts[weight][0]].state;
  int64_t left = reductions[at(stage)].begin.at(sum) - bucket.begin;
  const std::vector<int64_t>& shares = bucket.reduce.collective.elements;
  size_t member = 0;
  while (left >= shares[member]) left -= shares[member++];
  return member;
}

std::vector<size_t> Lowering::backward_nodes(int stage) const {
  std::vector<size_t> all = nodes.weight[at(stage)];
  if (!joint[at(stage)]) return all;
  all.insert(all.end(), nodes.input[at(stage)].begin(), nodes.input[at(stage)].end());
  std::ranges::sort(all);
  return all;
}

void find_joint_stages(Lowering& lowering) {
  lowering.joint.assign(at(lowering.stages()), lowering.training != nullptr && !lowering.online);
  for (const Flow& flow : lowering.flows) {
    if (flow.backward && flow.producer >= 0) lowering.joint[at(flow.producer)] = false;
  }
  for (const std::vector<ScheduledSlot>& order : lowering.table.devices) {
    for (size_t i = 0; i < order.size(); ++i) {
      if (order[i].phase != Phase::input_gradient) continue;
      const ScheduledSlot weights{order[i].stage, Phase::weight_gradient, order[i].micro_batch};
      if (i + 1 == order.size() || order[i + 1] != weights) lowering.joint[at(order[i].stage)] = false;
    }
  }
}

namespace {

// Of the last micro-batch, on the slowest of the devices that reduce. Without costs each takes 1.
Result<std::vector<BackwardTime>> backward_times(const Lowering& lowering, int stage) {
  const std::vector<size_t> nodes = lowering.backward_nodes(stage);
  std::vector<double> slowest(nodes.size(), 1);
  double longest = -1;
  std::vector<DeviceId> known;
  for (const int device : lowering.group(stage)) {
    if (lowering.costs == nullptr) break;
    const DeviceId id = lowering.devices[at(device)];
    const auto same = [&](DeviceId other) { return same_costs(id, other, *lowering.cluster, *lowering.costs); };
    if (std::ranges::any_of(known, same)) continue;
    known.push_back(id);
    ASSIGN_OR_RETURN(std::vector<double> seconds, node_seconds(lowering, id, nodes));
    const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    if (sum <= longest) continue;
    longest = sum;
    slowest = std::move(seconds);
  }
  std::vector<BackwardTime> times;
  for (size_t i = 0; i < nodes.size(); ++i) times.push_back({nodes[i], slowest[i]});
  return times;
}

// A weight that the stage updates and several nodes read, here or in other stages: its gradient has parts. None: each
// has one gradient, so that all can be shared out.
std::optional<ValueId> weight_in_parts(const Lowering& lowering, int stage) {
  const StepNodes& step = lowering.training->nodes;
  const std::vector<size_t>& sums = lowering.nodes.sums[at(stage)];
  const auto is_here = [&](size_t i) { return std::ranges::find(sums, i) != sums.end(); };
  const auto is_tied_here = [&](size_t i) {
    return std::ranges::any_of(lowering.tied, [&](const Tied& tied) {
      return std::ranges::find(tied.stages, stage) != tied.stages.end() &&
             std::ranges::find(tied.parts, step.sums[i].state, &Tied::Part::sum) != tied.parts.end();
    });
  };
  for (size_t t = 0; t < step.parts.size(); ++t) {
    const std::vector<size_t>& parts = step.parts[t];
    if (parts.size() > 1 && (std::ranges::any_of(parts, is_here) || std::ranges::any_of(parts, is_tied_here)))
      return step.trained[t];
  }
  return std::nullopt;
}

// Of gradients that replicas reduce in messages of another type.
Status check_converted(const Lowering& lowering) {
  const std::string_view type = name_of(lowering.cluster->messages);
  if (lowering.native)
    return unsupported(fmt::format("messages in {}: the transport's own collectives add up f32", type));
  if (lowering.exact) return unsupported(fmt::format("messages in {}: sums of gradients are not exact", type));
  return ok_status();
}

}  // namespace

Status choose_reductions(Lowering& lowering) {
  const Graph& graph = lowering.graph->graph;
  const StepNodes& step = lowering.training->nodes;
  constexpr int64_t element_bytes = 4;                          // f32
  constexpr int64_t aligned = arena_alignment / element_bytes;  // kernels write their results here
  for (size_t s = 0; s < lowering.reductions.size(); ++s) {
    Reduction& reduction = lowering.reductions[s];
    std::vector<Completed> completed;
    const auto made_by = [&](size_t i) { return graph.value(step.sums[i].value).producer.index(); };
    std::vector<size_t> sums = lowering.nodes.sums[s];  // as the backward pass completes them
    std::ranges::sort(sums, {}, made_by);
    for (const size_t i : sums) {
      const ValueId sum = step.sums[i].state;
      const int64_t count = element_count(graph.value(sum).type.shape);
      reduction.begin[sum] = reduction.elements;
      reduction.elements += (count + aligned - 1) / aligned * aligned;
      completed.push_back({made_by(i), reduction.elements});
    }
    if (reduction.group.size() < 2 || reduction.elements == 0) continue;
    const std::optional<ValueId> in_parts = weight_in_parts(lowering, static_cast<int>(s));
    if (in_parts && lowering.zero > 2) {
      return unsupported(
          fmt::format("zero: {}: weight {} is read by several nodes, and replicas share those that one node reads",
                      lowering.zero, graph.value(*in_parts).name));
    }
    reduction.sharded = lowering.zero > 0 && !in_parts;
    reduction.keeps_share = reduction.sharded && lowering.zero > 1;
    reduction.keeps_weights = reduction.sharded && lowering.zero > 2;
    if (reduction.keeps_share) RETURN_IF_ERROR(check_shares(lowering, static_cast<int>(s)));
    std::vector<DeviceId> members;
    std::vector<HostId> hosts;
    for (const int device : reduction.group) {
      members.push_back(lowering.devices[at(device)]);
      hosts.push_back(lowering.cluster->device(members.back()).host);
    }
    CollectiveCosts costs{hosts, *lowering.cluster, element_bytes};
    if (const DType messages = lowering.cluster->messages; messages != DType::f32) {
      RETURN_IF_ERROR(check_converted(lowering));
      costs.element_bytes = size_of(messages, 1);
      costs.grain = converted_grain;
    }
    costs.sum = sums_by(lowering.costs, members);
    ASSIGN_OR_RETURN(const std::vector<BackwardTime> backward, backward_times(lowering, static_cast<int>(s)));
    RETURN_IF_ERROR(choose_buckets(lowering, completed, backward, costs, reduction));
  }
  if (lowering.clipping) deal_out_squares(lowering);
  return ok_status();
}

}  // namespace nlsplit::inline compiler

#include "compile/gathers.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "compile/collective_costs.h"
#include "compile/shares.h"
#include "graph/memory.h"

namespace nlsplit::inline compiler {
namespace {

// Of a weight, up to the place of the next one: kernels read it there.
int64_t room_of(const Lowering& lowering, ValueId weight) {
  constexpr int64_t element_bytes = 4;                          // f32
  constexpr int64_t aligned = arena_alignment / element_bytes;  // as in the buffer of a stage's gradients
  const int64_t count = element_count(lowering.graph->graph.value(weight).type.shape);
  return (count + aligned - 1) / aligned * aligned;
}

bool keeps(const Gathers& gathers, int device, ValueId weight) {
  return gathers.broadcasts.at(weight).collective.group[0] == device;
}

// Of the group, what a device does not keep itself.
int64_t received_elements(const Lowering& lowering, const Gathers& gathers, const Gathers::Group& group, int device) {
  int64_t elements = 0;
  for (const ValueId weight : group.weights) elements += keeps(gathers, device, weight) ? 0 : room_of(lowering, weight);
  return elements;
}

}  // namespace

int Lowering::weights_tag(int stage) const {
  int tag = norm_tag() + 1 + stage;
  for (const Tied& weight : tied) tag += static_cast<int>(weight.parts.size());
  return tag;
}

std::span<const Gathers::Group> groups_of(const Lowering& lowering, int stage, Phase phase) {
  if (stage < 0 || stage >= std::ssize(lowering.gathers)) return {};
  const auto& groups = lowering.gathers[at(stage)].groups;
  const auto found = groups.find(phase);
  return found == groups.end() ? std::span<const Gathers::Group>() : found->second;
}

std::optional<size_t> gathers_with(const Lowering& lowering, int device, int stage, int micro_batch) {
  const std::vector<std::vector<ScheduledSlot>>& table = lowering.table.devices;
  if (at(device) >= table.size() || groups_of(lowering, stage, Phase::forward).empty()) return std::nullopt;
  const auto is_forward = [&](const ScheduledSlot& slot) {
    return slot.stage == stage && slot.phase == Phase::forward;
  };
  const std::vector<ScheduledSlot>& other = table[at(lowering.device_of(stage, micro_batch))];
  const auto taken = std::ranges::find(other, ScheduledSlot{stage, Phase::forward, micro_batch});
  auto left = std::count_if(other.begin(), taken, is_forward);
  const std::vector<ScheduledSlot>& own = table[at(device)];
  for (size_t i = 0; i < own.size(); ++i) {
    if (is_forward(own[i]) && left-- == 0) return i;
  }
  return std::nullopt;
}

int64_t gathered_elements(const Lowering& lowering, int device) {
  int64_t most = 0;
  for (size_t s = 0; s < lowering.gathers.size(); ++s) {
    const std::vector<int>& has = lowering.stage_devices[s];
    if (std::ranges::find(has, device) == has.end()) continue;
    for (const auto& [phase, groups] : lowering.gathers[s].groups) {
      int64_t before = 0;
      for (const Gathers::Group& group : groups) {
        const int64_t elements = received_elements(lowering, lowering.gathers[s], group, device);
        most = std::max(most, before + elements);
        before = elements;
      }
    }
  }
  return most;
}

std::optional<GatheredPlace> gathered_place(const Lowering& lowering, int device, int stage, Phase phase,
                                            ValueId weight, int64_t elements) {
  const std::span<const Gathers::Group> groups = groups_of(lowering, stage, phase);
  if (groups.empty()) return std::nullopt;
  const Gathers& gathers = lowering.gathers[at(stage)];
  if (!gathers.broadcasts.contains(weight) || keeps(gathers, device, weight)) return std::nullopt;
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::vector<ValueId>& weights = groups[g].weights;
    if (std::ranges::find(weights, weight) == weights.end()) continue;
    int64_t begin = 0;
    if (g % groups_at_once == 1) begin = elements - received_elements(lowering, gathers, groups[g], device);
    for (size_t i = 0; weights[i] != weight; ++i)
      begin += keeps(gathers, device, weights[i]) ? 0 : room_of(lowering, weights[i]);
    return GatheredPlace{begin, begin + element_count(lowering.graph->graph.value(weight).type.shape)};
  }
  CHECK(false, "a phase uses a weight that it does not gather");
}

namespace {

struct Kept {
  ValueId weight;
  int device = 0;
};

// Who updates a weight keeps it.
std::vector<Kept> kept_by_updates(const Lowering& lowering, int stage) {
  const Reduction& reduction = lowering.reductions[at(stage)];
  const StepNodes& step = lowering.training->nodes;
  std::vector<Kept> kept;
  if (!reduction.keeps_weights) return kept;
  for (const Bucket& bucket : reduction.buckets) {
    for (const size_t t : lowering.weights_of(stage, bucket))
      kept.push_back({step.trained[t], reduction.group[lowering.owner_of(stage, bucket, t)]});
  }
  return kept;
}

// Where nothing is trained: as another Program has it.
Result<std::vector<Kept>> kept_by_others(const Lowering& lowering, int stage, const std::vector<int>& group) {
  const Graph& graph = lowering.graph->graph;
  std::set<ValueId> weights;
  for (const size_t n : lowering.nodes.forward[at(stage)]) {
    for (const ValueId read : reads_of(graph.nodes[n])) {
      const ValueId root = lowering.graph->root[read.index()];
      const std::vector<ValueId>& states = lowering.graph->states;
      if (graph.value(root).kind == ValueKind::weight && std::ranges::find(states, root) != states.end())
        weights.insert(root);
    }
  }
  std::vector<Kept> kept;
  for (const ValueId weight : weights) {
    const std::string& name = graph.value(weight).name;
    const auto holders = lowering.holders == nullptr ? Holders::const_iterator() : lowering.holders->find(name);
    if (lowering.holders == nullptr || holders == lowering.holders->end())
      return unsupported(fmt::format("zero: {}: no Program before this one trains weight {}", lowering.zero, name));
    const std::vector<int>& has = holders->second;
    const auto keeps_it = [&](int device) { return std::ranges::find(has, device) != has.end(); };
    if (std::ranges::all_of(group, keeps_it)) continue;
    const auto first = std::ranges::find_if(group, keeps_it);
    if (first == group.end())
      return unsupported(fmt::format("zero: {}: weight {} is kept by no replica that reads it", lowering.zero, name));
    kept.push_back({weight, *first});
  }
  return kept;
}

// Devices of the stage that have a micro-batch of it. In training that is the stage's group.
std::vector<int> devices_with_work(const Lowering& lowering, int stage) {
  std::vector<int> devices;
  for (const int device : lowering.stage_devices[at(stage)]) {
    const std::span<const int> of = lowering.stage_device[at(stage)];
    if (std::ranges::find(of, device) != of.end()) devices.push_back(device);
  }
  return devices;
}

class Broadcasts {
 public:
  Broadcasts(const Lowering& lowering, const std::vector<int>& group) : l_(lowering), group_(group) {}

  Result<ExpandedCollective> of(const Kept& kept) {
    const int64_t elements = element_count(l_.graph->graph.value(kept.weight).type.shape);
    const auto [known, is_new] = known_.try_emplace({kept.device, elements});
    if (!is_new) return known->second;
    Collective collective{CollectiveKind::broadcast, CollectiveAlgorithm::ring, group_, {elements}};
    std::rotate(collective.group.begin(), std::ranges::find(collective.group, kept.device), collective.group.end());
    std::vector<HostId> hosts;
    for (const int device : collective.group) hosts.push_back(l_.cluster->device(l_.devices[at(device)]).host);
    ASSIGN_OR_RETURN(collective.algorithm, algorithm_of(collective, hosts));
    known->second.rounds = rounds_of(collective, hosts);
    known->second.of_members = rounds_of_members(known->second.rounds, hosts.size());
    known->second.collective = std::move(collective);
    return known->second;
  }

 private:
  Result<CollectiveAlgorithm> algorithm_of(const Collective& collective, const std::vector<HostId>& hosts) const {
    constexpr int64_t element_bytes = 4;
    if (l_.native)
      return native_algorithm(collective.kind, hosts.size(), bytes(collective.elements[0] * element_bytes));
    if (!l_.all_reduce) return choose_algorithm(collective, {hosts, *l_.cluster, element_bytes});
    const auto known = algorithms_of(collective.kind);
    return std::ranges::find(known, *l_.all_reduce) != known.end() ? *l_.all_reduce : CollectiveAlgorithm::ring;
  }

  const Lowering& l_;
  const std::vector<int>& group_;
  std::map<std::pair<int, int64_t>, ExpandedCollective> known_;  // by who has it, and elements
};

// Weights that are used at the same time, from one node to another.
struct Unit {
  Gathers::Group group;
  int64_t elements = 0;
};

// Of a phase, in their order. Each is over when the next one begins.
std::vector<Unit> units_in(const Lowering& lowering, const Gathers& gathers, const std::vector<size_t>& nodes) {
  std::map<ValueId, size_t> last;
  std::vector<std::pair<size_t, ValueId>> begun;  // node
  for (const size_t n : nodes) {
    for (const ValueId read : reads_of(lowering.graph->graph.nodes[n])) {
      const ValueId root = lowering.graph->root[read.index()];
      if (!gathers.broadcasts.contains(root)) continue;
      if (!last.contains(root)) begun.emplace_back(n, root);
      last[root] = n;
    }
  }
  std::vector<Unit> units;
  for (const auto& [first, weight] : begun) {
    if (units.empty() || units.back().group.last < first) units.emplace_back();
    Unit& unit = units.back();
    unit.group.weights.push_back(weight);
    unit.group.last = std::max(unit.group.last, last[weight]);
    unit.elements += room_of(lowering, weight);
  }
  return units;
}

int64_t largest_pair(const std::vector<Unit>& units) {
  int64_t most = 0;
  for (size_t u = 0; u < units.size(); ++u)
    most = std::max(most, units[u].elements + (u == 0 ? 0 : units[u - 1].elements));
  return most;
}

// Groups of units so that two that follow each other take `room` elements at most, as large as that allows: the larger
// a group, the longer the next one has to come. room: at least that of the largest pair of units.
std::vector<Gathers::Group> grouped(std::vector<Unit> units, int64_t room) {
  std::vector<Unit> made;
  for (size_t u = 0; u < units.size(); ++u) {
    Unit& unit = units[u];
    const int64_t next = u + 1 < units.size() ? units[u + 1].elements : 0;
    const int64_t before = made.size() < 2 ? 0 : made[made.size() - 2].elements;
    const int64_t joined = made.empty() ? 0 : made.back().elements + unit.elements;
    if (made.empty() || joined > room / 2 || before + joined > room || joined + next > room) {
      made.push_back(std::move(unit));
      continue;
    }
    Unit& to = made.back();
    to.elements = joined;
    to.group.last = unit.group.last;
    to.group.weights.insert(to.group.weights.end(), unit.group.weights.begin(), unit.group.weights.end());
  }
  std::vector<Gathers::Group> groups;
  for (Unit& unit : made) groups.push_back(std::move(unit.group));
  return groups;
}

Status check_types(const Lowering& lowering, const std::vector<Kept>& kept) {
  for (const Kept& one : kept) {
    const Value& value = lowering.graph->graph.value(one.weight);
    if (value.type.dtype != DType::f32)
      return unsupported(fmt::format("zero: {} is for weights in f32, and {} is {}", lowering.zero, value.name,
                                     to_string(value.type)));
  }
  return ok_status();
}

Status choose_gathers_of(Lowering& lowering, int stage) {
  const std::vector<int> group = devices_with_work(lowering, stage);
  if (group.size() < 2) return ok_status();
  std::vector<Kept> kept;
  if (lowering.training != nullptr) {
    kept = kept_by_updates(lowering, stage);
  } else {
    ASSIGN_OR_RETURN(kept, kept_by_others(lowering, stage, group));
  }
  if (kept.empty()) return ok_status();
  RETURN_IF_ERROR(check_types(lowering, kept));
  RETURN_IF_ERROR(check_shares(lowering, stage));
  Gathers& gathers = lowering.gathers[at(stage)];
  Broadcasts broadcasts(lowering, group);
  for (const Kept& one : kept) {
    ASSIGN_OR_RETURN(gathers.broadcasts[one.weight], broadcasts.of(one));
  }
  std::map<Phase, std::vector<Unit>> units;
  const auto add = [&](Phase phase, const std::vector<size_t>& nodes) {
    units[phase] = units_in(lowering, gathers, nodes);
  };
  add(Phase::forward, lowering.nodes.forward[at(stage)]);
  if (lowering.training != nullptr) {
    if (lowering.recomputes(stage)) add(Phase::recompute, lowering.nodes.again[at(stage)]);
    if (!lowering.joint[at(stage)]) add(Phase::input_gradient, lowering.nodes.input[at(stage)]);
    add(Phase::weight_gradient, lowering.backward_nodes(stage));
  }
  int64_t room = 0;
  for (const auto& [phase, of] : units) room = std::max(room, largest_pair(of));
  for (auto& [phase, of] : units) {
    if (!of.empty()) gathers.groups[phase] = grouped(std::move(of), room);
  }
  return ok_status();
}

}  // namespace

Status choose_gathers(Lowering& lowering) {
  lowering.gathers.assign(at(lowering.stages()), {});
  if (lowering.zero < 3) return ok_status();
  for (int s = 0; s < lowering.stages(); ++s) RETURN_IF_ERROR(choose_gathers_of(lowering, s));
  return ok_status();
}

}  // namespace nlsplit::inline compiler

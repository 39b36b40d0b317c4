#include "partition/score.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "cost/messages.h"
#include "partition/split_load.h"

namespace nlsplit::inline partition {
namespace {

std::vector<size_t> roots_of(const Graph& graph) {
  std::vector<size_t> root(graph.values.size());
  for (size_t v = 0; v < root.size(); ++v) root[v] = v;
  for (const Node& node : graph.nodes) {
    if (is_view(node.op)) root[node.outputs[0].index()] = root[node.inputs[0].index()];
  }
  return root;
}

// Devices of a group that share each micro-batch.
size_t shards_of(const Stage& stage) { return stage.split ? stage.split->shares.size() : 1; }

std::vector<double> sums_before(const std::vector<double>& values) {
  std::vector<double> sums(1, 0.0);
  for (const double value : values) sums.push_back(sums.back() + value);
  return sums;
}

}  // namespace

std::vector<Crossing> find_crossings(const Graph& graph, DType messages) {
  const std::vector<size_t> root = roots_of(graph);
  std::vector<Crossing> all(graph.values.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (is_view(graph.nodes[n].op)) continue;
    for (const ValueId value : reads_of(graph.nodes[n])) {
      std::vector<size_t>& read = all[root[value.index()]].read;
      if (read.empty() || read.back() != n) read.push_back(n);
    }
  }
  for (const ValueId output : graph.outputs) all[root[output.index()]].is_output = true;
  std::vector<Crossing> kept;
  for (size_t v = 0; v < all.size(); ++v) {
    const Value& value = graph.values[v];
    if (root[v] != v || value.kind == ValueKind::weight || (all[v].read.empty() && !all[v].is_output)) continue;
    const DType as = travels_as(graph, ValueId(v), all[v].is_output, messages);
    all[v].bytes = static_cast<double>(size_of(traveling(value.type, as)).value());
    all[v].part_bytes = least_message_bytes(graph, ValueId(v), messages);
    if (value.kind == ValueKind::node) all[v].made = static_cast<int>(value.producer.index());
    kept.push_back(std::move(all[v]));
  }
  return kept;
}

double shared_seconds(const std::vector<double>& seconds) {
  double rate = 0;
  for (const double s : seconds) rate += 1 / s;  // no time at all: infinitely fast, which is right
  return 1 / rate;
}

bool alike_ways(const std::vector<LaneSeconds>& ways) {
  std::map<uint32_t, int> used_by;
  for (const LaneSeconds& way : ways) {
    for (const auto& [lane, busy] : way) ++used_by[lane];
  }
  return std::ranges::all_of(ways, [&](const LaneSeconds& way) {
    return std::ranges::equal(way, ways[0], [&](const auto& a, const auto& b) {
      return a.second == b.second && used_by[a.first] == used_by[b.first];
    });
  });
}

std::vector<int> share_jobs(int jobs, const std::vector<double>& seconds, const std::vector<LaneSeconds>& ways) {
  const size_t machines = seconds.size();
  std::vector<int> share(machines, 0);
  const bool lanes_matter = !ways.empty();
  if (alike_ways(ways) && std::ranges::all_of(seconds, [&](double s) { return s == seconds[0]; })) {
    const int each = jobs / static_cast<int>(machines), over = jobs % static_cast<int>(machines);
    for (size_t r = 0; r < share.size(); ++r) share[r] = each + (static_cast<int>(r) < over ? 1 : 0);
    return share;
  }
  std::vector<LaneSeconds> own;  // the ways, their lanes numbered from 0
  std::vector<uint32_t> lanes;
  if (lanes_matter) own = ways;
  for (LaneSeconds& way : own) {
    for (auto& [lane, busy] : way) {
      const auto number = static_cast<uint32_t>(std::ranges::find(lanes, lane) - lanes.begin());
      if (number == lanes.size()) lanes.push_back(lane);
      lane = number;
    }
  }
  std::vector<double> lane_seconds(lanes.size(), 0);
  for (int j = 0; j < jobs; ++j) {
    size_t best = 0;
    double best_end = never;
    for (size_t r = 0; r < machines; ++r) {
      double end = seconds[r] * (share[r] + 1);
      if (end > best_end) continue;
      if (lanes_matter) {
        for (const auto& [lane, busy] : own[r]) end = std::max(end, lane_seconds[lane] + busy);
      }
      if (end < best_end || (end == best_end && share[r] < share[best])) {
        best = r;
        best_end = end;
      }
    }
    ++share[best];
    if (!lanes_matter) continue;
    for (const auto& [lane, busy] : own[best]) lane_seconds[lane] += busy;
  }
  return share;
}

bool same_place(const StagePlace& x, const StagePlace& y) {
  return x.device.valid() ? x.device == y.device : !y.device.valid() && x.host == y.host;
}

void add_way(LaneSeconds& way, const Network& network, const StagePlace& from, const StagePlace& to, double bytes) {
  if (bytes == 0 || same_place(from, to)) return;
  for (const uint32_t lane : network.path(from.host, to.host).lanes)
    add_lane(way, lane, bytes * network.lane_seconds_per_byte[lane]);
}

void add_lane(LaneSeconds& way, uint32_t lane, double seconds) {
  const auto known = std::ranges::find(way, lane, &LaneSeconds::value_type::first);
  if (known == way.end())
    way.emplace_back(lane, seconds);
  else
    known->second += seconds;
}

Scorer::Scorer(const Cluster& cluster, const Network& network, HostId source, HostId sink, const SearchCosts& costs,
               std::vector<Crossing> crossings)
    : cluster_(cluster),
      network_(network),
      source_(source),
      sink_(sink),
      costs_(costs),
      crossings_(std::move(crossings)) {
  for (const std::vector<double>& seconds : costs.node_seconds) prefix_.push_back(sums_before(seconds));
  if (costs.step == nullptr) return;
  for (const std::vector<double>& seconds : costs.step->updates) updates_before_.push_back(sums_before(seconds));
  for (size_t d = 0; d < costs.step->inputs.size(); ++d) {
    std::vector<double> backward = costs.step->inputs[d];
    for (size_t n = 0; n < backward.size(); ++n) backward[n] += costs.step->weights[d][n];
    backward_before_.push_back(sums_before(backward));
  }
  gradient_bytes_before_ = sums_before(costs.step->gradient_bytes);
}

// In training: of a step, on a device of the stage; shard: within its group, load: of that group, if it is split.
double Scorer::update_seconds(const Stage& stage, DeviceId device, const SplitLoad* load, size_t shard) const {
  if (updates_before_.empty()) return 0;
  if (load != nullptr) return load->update_seconds[shard];
  const std::vector<double>& before = updates_before_[device.index()];
  return before[stage.end] - before[stage.begin];
}

// What the replicas of a stage take to reduce their gradients: at least as long as in a ring.
double Scorer::reduce_seconds(const Stage& stage, std::vector<StagePlace> members, Lanes& lanes) const {
  const double all = gradient_bytes_before_[stage.end] - gradient_bytes_before_[stage.begin];
  if (members.size() < 2 || all == 0) return 0;
  std::ranges::sort(members, {}, &StagePlace::device);
  const auto count = static_cast<double>(members.size());
  LaneSeconds busy;
  for (size_t m = 0; m < members.size(); ++m) {
    const Path& path = network_.path(members[m].host, members[(m + 1) % members.size()].host);
    lanes.connected = lanes.connected && path.exists;
    const double bytes = 2 * all * (count - 1) / count;
    for (const uint32_t lane : path.lanes) {
      lanes.bytes[lane] += bytes;
      lanes.reduces[lane] = true;
      add_lane(busy, lane, bytes * network_.lane_seconds_per_byte[lane]);
    }
  }
  double seconds = 0;
  for (const auto& [lane, of] : busy) seconds = std::max(seconds, of);
  return seconds;
}

// Until the last device has done its part of a step. It begins when the first micro-batch has passed the stages before,
// and behind its last gradient are these stages' backward passes, and its updates. The reduction begins beside its last
// backward pass. messages: [p]: from place p to p + 1, and back.
double Scorer::step_seconds(const std::vector<Stage>& stages, const std::vector<std::vector<StagePlace>>& places,
                            const std::vector<double>& messages, Lanes& lanes) const {
  double longest = 0, before = messages[0], behind = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    const auto backward = [&](DeviceId device) {
      const std::vector<double>& of = backward_before_[device.index()];
      return of[stage.end] - of[stage.begin];
    };
    std::vector<StagePlace> members = places[s + 1];
    std::erase_if(members, [](const StagePlace& place) { return place.share == 0; });
    const double reduce = reduce_seconds(stage, members, lanes);
    double forward = never, back = never;  // of the fastest
    for (const StagePlace& member : members) {
      const double one = seconds(member.device, stage.begin, stage.end), of = backward(member.device);
      const double update = update_seconds(stage, member.device, nullptr, 0);
      const double rest = std::max(behind, std::max(0.0, reduce - of) + update);
      longest = std::max(longest, before + member.share * costs_.micro_batches * one + rest);
      forward = std::min(forward, one - of);
      back = std::min(back, of);
    }
    before += forward + messages[s + 1];
    behind += back + messages[s + 1];
  }
  return longest;
}

// [p]: bytes of one micro-batch from place p to p + 1: 0 is the source, then come the stages, the last is the sink.
std::vector<double> Scorer::step_bytes(const std::vector<Stage>& stages, const std::vector<Needed>& needed) const {
  std::vector<double> bytes(stages.size() + 1, 0);
  for (const Needed& need : needed) {
    if (need.to == need.from + 1) bytes[need.from] += need.bytes;
  }
  return bytes;
}

std::vector<Scorer::Needed> Scorer::needed_at(const std::vector<Stage>& stages) const {
  std::vector<size_t> stage_of(prefix_.front().size() - 1, stages.size());  // [node]
  for (size_t s = 0; s < stages.size(); ++s) {
    std::fill(stage_of.begin() + static_cast<std::ptrdiff_t>(stages[s].begin),
              stage_of.begin() + static_cast<std::ptrdiff_t>(stages[s].end), s);
  }
  const auto is_split = [&](size_t place) { return place > 0 && place <= stages.size() && stages[place - 1].split; };
  std::vector<Needed> needed;
  for (const Crossing& crossing : crossings_) {
    const size_t from = crossing.made < 0 ? 0 : stage_of[static_cast<size_t>(crossing.made)] + 1;
    const auto add = [&](size_t to) {
      needed.push_back({is_split(from) || is_split(to) ? crossing.part_bytes : crossing.bytes, from, to});
    };
    size_t last = from;
    for (const size_t n : crossing.read) {
      const size_t to = stage_of[n] + 1;
      if (to <= last) continue;
      add(to);
      last = to;
    }
    if (crossing.is_output) add(stages.size() + 1);
  }
  return needed;
}

// A device of the plan that is on this host, or the host alone.
StagePlace Scorer::endpoint(const std::vector<Stage>& stages, HostId host) const {
  for (const Stage& stage : stages) {
    for (const DeviceId device : stage.devices) {
      if (cluster_.device(device).host == host) return StagePlace{device, host, 1};
    }
  }
  return StagePlace{DeviceId(), host, 1};
}

// Seconds of one micro-batch by each of the stage's groups of devices, which are replicas. loads: of the groups.
void Scorer::time_groups(const Stage& stage, const std::vector<SplitLoad>* loads, std::vector<double>& groups) const {
  const size_t shards = shards_of(stage);
  std::vector<double> alone;  // all of it by each device of a group
  groups.clear();
  for (size_t d = 0; d + shards <= stage.devices.size(); d += shards) {
    if (loads != nullptr) {
      groups.push_back((*loads)[d / shards].seconds);
    } else if (shards == 1) {
      groups.push_back(seconds(stage.devices[d], stage.begin, stage.end));
    } else {
      alone.clear();
      for (size_t k = 0; k < shards; ++k) alone.push_back(seconds(stage.devices[d + k], stage.begin, stage.end));
      groups.push_back(shared_seconds(alone));
    }
  }
}

// What a micro-batch takes of the lanes to and from each group; none where that is no reason for shares.
void Scorer::find_ways(const std::vector<Stage>& stages, size_t s, const std::vector<SplitLoad>* loads,
                       Placed& placed) const {
  const Stage& stage = stages[s];
  placed.ways.clear();
  if (placed.groups.size() < 2 || (stage.split && loads == nullptr)) return;
  placed.ways.resize(placed.groups.size());
  const size_t shards = shards_of(stage);
  for (size_t i = 0; i < stage.devices.size(); ++i) {
    const SplitLoad* load = loads == nullptr ? nullptr : &(*loads)[i / shards];
    const double all = load == nullptr ? 1 : std::accumulate(load->compute.begin(), load->compute.end(), 0.0);
    const double part = load == nullptr || all <= 0 ? 1 : load->compute[i % shards] / all;
    const StagePlace place{stage.devices[i], cluster_.device(stage.devices[i]).host};
    LaneSeconds& way = placed.ways[i / shards];
    if (placed.places[s].size() == 1) add_way(way, network_, placed.places[s][0], place, placed.step_bytes[s] * part);
    if (s + 1 == stages.size()) add_way(way, network_, place, placed.places.back()[0], placed.step_bytes.back() * part);
  }
}

// A group's devices: what each computes, and what they send each other. first: seconds of the stage's fastest group.
void Scorer::place_group(const Stage& stage, size_t group, int jobs, double first, const SplitLoad* load,
                         Placed& placed, std::vector<StagePlace>& places) const {
  const size_t shards = shards_of(stage);
  const double seconds = placed.groups[group];
  const double all = load == nullptr ? seconds : std::accumulate(load->compute.begin(), load->compute.end(), 0.0);
  for (size_t k = 0; k < shards; ++k) {
    const double compute = load == nullptr ? seconds : load->compute[k];
    const DeviceId device = stage.devices[group * shards + k];
    const HostId host = cluster_.device(device).host;
    placed.device_seconds[device.index()] += jobs * compute + update_seconds(stage, device, load, k);
    placed.device_first[device.index()] += std::min(first, compute);
    places.push_back({device, host, static_cast<double>(jobs) / costs_.micro_batches, all > 0 ? compute / all : 1});
    for (size_t to = 0; load != nullptr && to < shards; ++to) {
      const double bytes = load->message_bytes[k * shards + to];
      const double once = load->sum_bytes.empty() ? 0 : load->sum_bytes[k * shards + to];
      if (bytes + once == 0) continue;
      for (const uint32_t lane : network_.path(host, cluster_.device(stage.devices[group * shards + to]).host).lanes) {
        placed.lanes.bytes[lane] += jobs * bytes + once;
        placed.lanes.first[lane] += bytes * network_.lane_seconds_per_byte[lane];
      }
    }
  }
}

void Scorer::place_stage(const std::vector<Stage>& stages, size_t s, const std::vector<SplitLoad>* loads,
                         Placed& placed) const {
  const Stage& stage = stages[s];
  time_groups(stage, loads, placed.groups);
  find_ways(stages, s, loads, placed);
  const std::vector<int> jobs = share_jobs(costs_.micro_batches, placed.groups, placed.ways);
  const double first = *std::min_element(placed.groups.begin(), placed.groups.end());
  placed.fill += first;
  for (size_t g = 0; g < jobs.size(); ++g) {
    if (stage.split && loads == nullptr)  // which of its devices is busy how long depends on the shares; no places
      placed.busiest = std::max(placed.busiest, jobs[g] * placed.groups[g] - first);
    else
      place_group(stage, g, jobs[g], first, loads == nullptr ? nullptr : &(*loads)[g], placed, placed.places[s + 1]);
  }
}

// The bytes of all messages, by lane. False: two places that must exchange data are not connected.
bool Scorer::add_messages(const std::vector<Needed>& needed, Placed& placed) const {
  for (const Needed& need : needed) {
    for (const StagePlace& x : placed.places[need.from]) {
      for (const StagePlace& y : placed.places[need.to]) {
        if (x.share * y.share == 0 || same_place(x, y)) continue;
        const Path& path = network_.path(x.host, y.host);
        if (!path.exists) return false;
        const double bytes = need.bytes * x.share * x.part * y.share * y.part * costs_.micro_batches;
        for (const uint32_t lane : path.lanes) placed.lanes.bytes[lane] += bytes;
        if (costs_.step == nullptr || need.from == 0) continue;
        for (const uint32_t lane : network_.path(y.host, x.host).lanes)
          placed.lanes.bytes[lane] += bytes;  // its gradient
      }
    }
  }
  return true;
}

// The fastest way of a micro-batch from a place to the next. None: no two of them are connected.
std::optional<Scorer::Passage> Scorer::fastest_passage(const Placed& placed, size_t p) const {
  const double bytes = placed.step_bytes[p];
  Passage fastest;
  for (const StagePlace& x : placed.places[p]) {
    for (const StagePlace& y : placed.places[p + 1]) {
      const Path* path = same_place(x, y) ? nullptr : &network_.path(x.host, y.host);
      const double time = path == nullptr ? 0
                          : path->exists  ? path->latency + bytes * x.part * y.part * path->seconds_per_byte
                                          : never;
      if (time >= fastest.seconds) continue;
      const bool has_gradient = path != nullptr && costs_.step != nullptr && p > 0;
      fastest = {time, path, has_gradient ? &network_.path(y.host, x.host) : nullptr};
    }
  }
  return fastest.seconds == never ? std::nullopt : std::optional(fastest);
}

// Messages from one place to the next are part of the fill. [p]: seconds of a micro-batch's from place p to p + 1;
// empty: two of these are not connected.
std::vector<double> Scorer::pass_messages(Placed& placed) const {
  std::vector<double> messages(placed.places.size(), 0);
  for (size_t p = 0; p + 1 < placed.places.size(); ++p) {
    if (placed.step_bytes[p] == 0 || placed.places[p].empty() || placed.places[p + 1].empty()) continue;
    const std::optional<Passage> fastest = fastest_passage(placed, p);
    if (!fastest) return {};
    const auto pass = [&](const Path& path) {
      placed.fill += fastest->seconds;
      for (const uint32_t lane : path.lanes) placed.lanes.first[lane] += fastest->seconds;
    };
    messages[p] = fastest->seconds;
    if (fastest->there != nullptr) pass(*fastest->there);
    if (fastest->back != nullptr && fastest->back->exists) pass(*fastest->back);
  }
  return messages;
}

Score Scorer::score(const std::vector<Stage>& stages, const PlanLoads* loads) const {
  constexpr Score not_connected = {never, never, 0};
  Placed placed;
  placed.places.resize(stages.size() + 2);
  placed.places.front() = {endpoint(stages, source_)};
  placed.places.back() = {endpoint(stages, sink_)};
  placed.device_seconds.assign(cluster_.devices.size(), 0);
  placed.device_first = placed.device_seconds;
  Lanes& lanes = placed.lanes;
  lanes.bytes.assign(network_.lane_seconds_per_byte.size(), 0);
  lanes.first = lanes.bytes;
  lanes.reduces.assign(lanes.bytes.size(), false);
  const std::vector<Needed> needed = needed_at(stages);
  placed.step_bytes = step_bytes(stages, needed);
  for (size_t s = 0; s < stages.size(); ++s)
    place_stage(stages, s, stages[s].split && loads != nullptr ? &(*loads)[s] : nullptr, placed);
  const std::vector<double>& of_device = placed.device_seconds;
  for (size_t d = 0; d < of_device.size(); ++d)
    placed.busiest = std::max(placed.busiest, of_device[d] - placed.device_first[d]);
  if (!add_messages(needed, placed)) return not_connected;
  const std::vector<double> messages = pass_messages(placed);
  if (messages.empty()) return not_connected;
  // In training devices have other work while they wait for the stages behind theirs, and messages that reduce
  // gradients have other ones before and behind them than those of micro-batches.
  const bool is_step = costs_.step != nullptr &&
                       std::ranges::none_of(stages, [](const Stage& stage) { return stage.split.has_value(); });
  double longest = is_step ? step_seconds(stages, placed.places, messages, lanes) : placed.fill + placed.busiest;
  if (!lanes.connected) return not_connected;
  for (size_t lane = 0; lane < lanes.bytes.size(); ++lane) {
    const double busy = lanes.bytes[lane] * network_.lane_seconds_per_byte[lane];
    longest = std::max(longest, lanes.reduces[lane] ? busy : placed.fill + std::max(0.0, busy - lanes.first[lane]));
  }
  return {longest, placed.fill, *std::max_element(of_device.begin(), of_device.end())};
}

}  // namespace nlsplit::inline partition

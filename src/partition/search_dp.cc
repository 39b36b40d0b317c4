#include "partition/search_dp.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "partition/cuts.h"
#include "partition/search_beam.h"

namespace nlsplit::inline partition {
namespace {

constexpr double few_sets = 256;           // device sets up to which all of them are states
constexpr double most_steps = 3e7;         // from state to state: beyond it cuts are left out
constexpr size_t most_labels = 1'000'000;  // partial plans in memory
constexpr size_t most_alike_labels = 256;  // of one state
constexpr size_t most_labels_in_order = 50'000, most_alike_in_order = 16;  // where nothing is proved anyway
constexpr double still_interesting = 1.05;                                 // times the best bound

// Is every value read in the layer after the one that makes it, or in the same? So are inputs and outputs at the ends.
bool is_chain(const std::vector<Crossing>& crossings, const std::vector<size_t>& cuts) {
  const auto layer = [&](size_t node) {
    return static_cast<size_t>(std::upper_bound(cuts.begin(), cuts.end(), node) - cuts.begin());
  };
  return std::all_of(crossings.begin(), crossings.end(), [&](const Crossing& c) {
    if (c.is_output && (c.made < 0 || layer(static_cast<size_t>(c.made)) + 1 != cuts.size())) return false;
    const size_t last = c.made < 0 ? 0 : layer(static_cast<size_t>(c.made)) + 1;
    return c.read.empty() || layer(c.read.back()) <= last;
  });
}

class Dp {
 public:
  explicit Dp(const SearchSpace& space)
      : in_(space),
        micro_batches_(space.costs->micro_batches),
        cuts_(space.cuts),
        crossings_(find_crossings(*space.graph, space.cluster->messages)) {
    exact_ = is_chain(crossings_, cuts_);
    for (size_t i = 0; i < in_.groups->size(); ++i) order_.push_back(i);
    std::sort(order_.begin(), order_.end(),
              [&](size_t a, size_t b) { return in_.groups->device(a) < in_.groups->device(b); });
    const double sets = in_.groups->sets();
    in_order_ = sets > few_sets;
    exact_ &= !in_order_;
    const double devices = static_cast<double>(order_.size());
    const double steps = in_order_ ? devices * devices * 4 : sets * static_cast<double>(in_.groups->after(0).size());
    size_t most_cuts = cuts_.size();
    while (most_cuts > 2 && static_cast<double>(most_cuts) * static_cast<double>(most_cuts) / 2 * steps > most_steps)
      most_cuts = most_cuts * 3 / 4;
    if (most_cuts < cuts_.size()) {
      cuts_ = thin_cuts(std::move(cuts_), in_.costs->cut_bytes, most_cuts);
      exact_ = false;
    }
    count_bytes();
    quickest_so_far_.push_back(0);
    for (size_t n = 0; n < in_.graph->nodes.size(); ++n) {
      double least = never;
      for (size_t i = 0; i < in_.groups->size(); ++i)
        least = std::min(least, in_.costs->node_seconds[in_.groups->device(i).index()][n]);
      quickest_so_far_.push_back(quickest_so_far_.back() + least);
    }
  }

  FoundPlans run() {
    states_.resize(cuts_.size());
    Label start;
    start.lanes.assign(in_.network->lane_seconds_per_byte.size(), 0);
    labels_.push_back(std::move(start));
    extend(0, 0);
    for (size_t at = 1; at < cuts_.size(); ++at) {
      for (const auto& [state, alive] : states_[at]) {
        if (in_.interrupted()) break;
        for (const uint32_t label : alive) extend(label, at);
      }
    }
    FoundPlans found;
    std::stable_sort(complete_.begin(), complete_.end(),
                     [](const Complete& a, const Complete& b) { return a.bound < b.bound; });
    complete_.resize(std::min(complete_.size(), std::max<size_t>(in_.wanted, 1)));
    for (const Complete& complete : complete_) found.plans.push_back(stages_of(complete));
    found.proved = exact_;
    return found;
  }

 private:
  struct Label {
    uint32_t parent = 0;
    size_t stages = 0, devices = 0;
    size_t at = 0;       // the last stage ends before cuts_[at - 1]; 0: nothing yet
    DeviceSet used = 0;  // may not be taken any more
    DeviceSet last = 0;
    bool at_sink = false;        // a device of the sink's host is taken
    double fill = 0;             // seconds of one micro-batch up to here
    double busiest = 0;          // of the devices: seconds beyond their parts of the fill
    std::vector<double> shares;  // of the micro-batches, by device of the last stage
    std::vector<double> lanes;   // the same of link directions
  };
  using State = std::tuple<DeviceSet, DeviceSet, bool, std::vector<double>>;  // used, last, at_sink, shares

  struct Complete {
    double bound = 0;
    uint32_t from = 0;  // label before the last stage
    DeviceSet last = 0;
  };

  size_t node_at(size_t at) const { return at == 0 ? 0 : cuts_[at - 1]; }

  // bytes_[at]: what the stage behind this cut gets from the one before it, or from the source; back: what goes to the
  // sink.
  void count_bytes() {
    bytes_.assign(cuts_.size() + 1, 0);
    for (const Crossing& crossing : crossings_) {
      if (crossing.is_output) bytes_.back() += crossing.bytes;
      if (crossing.made < 0) {
        bytes_[0] += crossing.bytes;
        continue;
      }
      for (size_t at = 1; at < cuts_.size(); ++at) {
        const size_t begin = node_at(at);
        if (static_cast<size_t>(crossing.made) < begin && !crossing.read.empty() && crossing.read.back() >= begin)
          bytes_[at] += crossing.bytes;
      }
    }
  }

  const std::vector<DeviceSet>& choices(DeviceSet used) {
    if (!in_order_) return in_.groups->after(used);
    const auto [at, added] = runs_.try_emplace(used);
    if (!added) return at->second;
    const auto most = static_cast<size_t>(in_.groups->most_replicas());
    for (size_t first = 0; first < order_.size(); ++first) {
      if ((used >> order_[first] & 1) != 0) continue;
      DeviceSet set = 0;
      for (size_t k = 1; first + k <= order_.size() && k <= most; ++k) {
        set |= DeviceSet{1} << order_[first + k - 1];
        if (std::has_single_bit(k)) at->second.push_back(set);
      }
    }
    return at->second;
  }

  // With devices in order none before the last one taken is free any more.
  DeviceSet taken(DeviceSet used, DeviceSet group) const {
    DeviceSet all = used | group;
    if (!in_order_) return all;
    bool below = false;
    for (size_t i = order_.size(); i-- > 0;) {
      below |= (all >> order_[i] & 1) != 0;
      if (below) all |= DeviceSet{1} << order_[i];
    }
    return all;
  }

  const std::vector<DeviceId>& members(DeviceSet set) {
    const auto [at, added] = members_.try_emplace(set);
    if (added) at->second = in_.groups->members(set);
    return at->second;
  }

  std::vector<StagePlace> places_of(const std::vector<DeviceId>& devices, const std::vector<double>& shares) const {
    std::vector<StagePlace> places;
    for (size_t i = 0; i < devices.size(); ++i)
      places.push_back({devices[i], in_.cluster->device(devices[i]).host, shares[i]});
    return places;
  }

  // An endpoint is the first device on its host, if there is one in this group.
  StagePlace endpoint(HostId host, const std::vector<DeviceId>& group) const {
    for (const DeviceId device : group) {
      if (in_.cluster->device(device).host == host) return {device, host, 1};
    }
    return {DeviceId(), host, 1};
  }

  // Adds what one message of each micro-batch takes, as Scorer::bound counts it. False: no way.
  bool send(const std::vector<StagePlace>& from, const std::vector<StagePlace>& to, double bytes, double& fill,
            std::vector<double>& lanes) const {
    if (bytes == 0) return true;
    double fastest = never;
    const Path* taken_path = nullptr;
    for (const StagePlace& x : from) {
      for (const StagePlace& y : to) {
        const bool here = x.device.valid() && x.device == y.device;
        const Path* path = here ? nullptr : &in_.network->path(x.host, y.host);
        const double time = here ? 0 : path->exists ? path->latency + bytes * path->seconds_per_byte : never;
        if (time < fastest) {
          fastest = time;
          taken_path = path;
        }
        if (here || x.share * y.share == 0) continue;
        if (!path->exists) return false;
        for (const uint32_t lane : path->lanes)
          lanes[lane] += bytes * x.share * y.share * micro_batches_ * in_.network->lane_seconds_per_byte[lane];
      }
    }
    if (fastest == never) return false;
    fill += fastest;
    if (taken_path != nullptr) {
      for (const uint32_t lane : taken_path->lanes) lanes[lane] -= fastest;
    }
    return true;
  }

  double least_memory(const std::vector<DeviceId>& devices) const {
    double least = never;
    for (const DeviceId device : devices)
      least = std::min(least, static_cast<double>(in_.cluster->device(device).memory.value()));
    return least;
  }

  void extend(uint32_t from_index, size_t at) {
    const std::vector<DeviceSet> groups = choices(labels_[from_index].used);
    for (const DeviceSet group : groups) {
      const size_t count = labels_[from_index].devices + static_cast<size_t>(std::popcount(group));
      if (count <= in_.max_devices) extend(from_index, at, group, count);
    }
  }

  void extend(uint32_t from_index, size_t at, DeviceSet group, size_t count) {
    const Label from = labels_[from_index];  // a copy: labels_ grows
    const size_t begin = node_at(at);
    const std::vector<DeviceId>& devices = members(group);
    const double memory = least_memory(devices);
    const std::vector<StagePlace> before =
        at == 0 ? std::vector<StagePlace>{endpoint(in_.source, devices)} : places_of(members(from.last), from.shares);
    const DeviceSet used = taken(from.used, group);
    const bool may_continue = from.stages + 1 < in_.max_stages && count < in_.max_devices && !choices(used).empty();
    const auto free = static_cast<double>(
        std::min(order_.size() - static_cast<size_t>(std::popcount(used)), in_.max_devices - count));
    std::vector<double> seconds_of(devices.size());
    std::vector<LaneSeconds> ways;
    for (size_t to = may_continue ? at + 1 : cuts_.size(); to <= cuts_.size(); ++to) {
      const bool last = to == cuts_.size();
      const size_t end = node_at(to);
      if (in_.weight_bytes[end] - in_.weight_bytes[begin] > memory) break;  // and longer stages have more
      for (size_t r = 0; r < devices.size(); ++r) seconds_of[r] = in_.scorer->seconds(devices[r], begin, end);
      if (devices.size() > 1) find_ways(before, devices, at, last ? sink_behind(from, devices) : std::nullopt, ways);
      const std::vector<int> jobs = share_jobs(static_cast<int>(micro_batches_), seconds_of, ways);
      const double first = *std::min_element(seconds_of.begin(), seconds_of.end());
      Label now;
      now.fill = from.fill + first;
      now.busiest = from.busiest;
      for (size_t r = 0; r < devices.size(); ++r) {
        now.busiest = std::max(now.busiest, jobs[r] * seconds_of[r] - first);
        now.shares.push_back(jobs[r] / micro_batches_);
      }
      const double quickest_rest = quickest_so_far_.back() - quickest_so_far_[end];
      if (now.fill + now.busiest > limit_) continue;
      if (!last && from.fill + first + micro_batches_ * quickest_rest / free > limit_) continue;
      now.lanes = from.lanes;
      if (!send(before, places_of(devices, now.shares), bytes_[at], now.fill, now.lanes)) continue;
      if (last) {
        finish(from_index, from, group, now);
        continue;
      }
      now.parent = from_index;
      now.stages = from.stages + 1;
      now.devices = count;
      now.at = to;
      now.used = used;
      now.last = group;
      now.at_sink = from.at_sink || endpoint(in_.sink, devices).device.valid();
      keep(std::move(now));
    }
  }

  // A device that an earlier stage has on the sink's host is the sink, and not one of these.
  std::optional<StagePlace> sink_behind(const Label& from, const std::vector<DeviceId>& devices) const {
    return from.at_sink ? StagePlace{DeviceId(), in_.sink, 1} : endpoint(in_.sink, devices);
  }

  // As Scorer::score has them.
  void find_ways(const std::vector<StagePlace>& before, const std::vector<DeviceId>& devices, size_t at,
                 const std::optional<StagePlace>& sink, std::vector<LaneSeconds>& ways) const {
    ways.assign(devices.size(), {});
    for (size_t r = 0; r < devices.size(); ++r) {
      const StagePlace place{devices[r], in_.cluster->device(devices[r]).host};
      if (before.size() == 1) add_way(ways[r], *in_.network, before[0], place, bytes_[at]);
      if (sink) add_way(ways[r], *in_.network, place, *sink, bytes_.back());
    }
  }

  void finish(uint32_t from_index, const Label& from, DeviceSet group, Label& now) {
    const std::vector<DeviceId>& devices = members(group);
    const StagePlace sink = *sink_behind(from, devices);
    if (!send(places_of(devices, now.shares), {sink}, bytes_.back(), now.fill, now.lanes)) return;
    double busiest = now.busiest;
    for (const double lane : now.lanes) busiest = std::max(busiest, lane);
    const double bound = now.fill + busiest;
    if (bound > limit_) return;
    limit_ = std::min(limit_, bound * still_interesting);
    complete_.push_back({bound, from_index, group});
    if (complete_.size() < 4 * in_.wanted + 1000) return;
    std::erase_if(complete_, [&](const Complete& c) { return c.bound > limit_; });
    if (complete_.size() < 2 * in_.wanted + 500) return;
    const auto middle = complete_.begin() + static_cast<std::ptrdiff_t>(in_.wanted);
    std::nth_element(complete_.begin(), middle, complete_.end(),
                     [](const Complete& a, const Complete& b) { return a.bound < b.bound; });
    complete_.erase(middle + 1, complete_.end());
  }

  bool no_worse(const Label& a, const Label& b) const {
    if (a.fill > b.fill || a.busiest > b.busiest || a.stages > b.stages || a.devices > b.devices) return false;
    for (size_t lane = 0; lane < a.lanes.size(); ++lane) {
      if (a.lanes[lane] > b.lanes[lane]) return false;
    }
    return true;
  }

  void keep(Label label) {
    std::vector<uint32_t>& alive = states_[label.at][{label.used, label.last, label.at_sink, label.shares}];
    for (const uint32_t other : alive) {
      if (no_worse(labels_[other], label)) return;
    }
    std::erase_if(alive, [&](uint32_t other) { return no_worse(label, labels_[other]); });
    const size_t few = in_order_ ? most_labels_in_order : most_labels;
    const size_t most = labels_.size() >= few ? 1 : in_order_ ? most_alike_in_order : most_alike_labels;
    if (alive.size() >= most) {
      exact_ = false;
      const auto score = [&](const Label& l) { return l.fill + l.busiest; };
      const auto worst = std::max_element(
          alive.begin(), alive.end(), [&](uint32_t a, uint32_t b) { return score(labels_[a]) < score(labels_[b]); });
      if (score(labels_[*worst]) <= score(label)) return;
      alive.erase(worst);
    }
    alive.push_back(static_cast<uint32_t>(labels_.size()));
    labels_.push_back(std::move(label));
  }

  std::vector<Stage> stages_of(const Complete& complete) {
    std::vector<Stage> stages = {{node_at(labels_[complete.from].at), cuts_.back(), members(complete.last)}};
    for (uint32_t at = complete.from; labels_[at].stages > 0; at = labels_[at].parent) {
      const Label& label = labels_[at];
      stages.push_back({node_at(labels_[label.parent].at), node_at(label.at), members(label.last)});
    }
    std::reverse(stages.begin(), stages.end());
    return stages;
  }

  const SearchSpace& in_;
  double micro_batches_;
  std::vector<size_t> cuts_;
  std::vector<Crossing> crossings_;
  bool exact_ = true, in_order_ = false;
  std::vector<size_t> order_;            // devices of the groups, in the cluster's order
  std::vector<double> bytes_;            // see count_bytes()
  std::vector<double> quickest_so_far_;  // [node]: seconds of the nodes before it, each on the device quickest at it
  std::vector<Label> labels_;
  std::vector<std::map<State, std::vector<uint32_t>>> states_;  // [at]
  std::vector<Complete> complete_;
  double limit_ = never;  // beyond it nothing is of interest
  std::map<DeviceSet, std::vector<DeviceSet>> runs_;
  std::map<DeviceSet, std::vector<DeviceId>> members_;
};

}  // namespace

Result<FoundPlans> search_dp(const SearchSpace& space) {
  FoundPlans found = Dp(space).run();
  std::set<std::vector<std::pair<size_t, std::vector<DeviceId>>>> seen;
  const auto is_new = [&](const std::vector<Stage>& stages) {
    std::vector<std::pair<size_t, std::vector<DeviceId>>> key;
    for (const Stage& stage : stages) key.emplace_back(stage.end, stage.devices);
    return seen.insert(std::move(key)).second;
  };
  for (const std::vector<Stage>& stages : found.plans) is_new(stages);
  ASSIGN_OR_RETURN(FoundPlans beam, search_beam(space));
  for (std::vector<Stage>& stages : beam.plans) {
    if (is_new(stages)) found.plans.push_back(std::move(stages));
  }
  return found;
}

}  // namespace nlsplit::inline partition

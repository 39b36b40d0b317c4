#include "partition/search_beam.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "base/random.h"

namespace nlsplit::inline partition {
namespace {

constexpr size_t most_expansions = 4'000'000;  // of partial plans, all layers together: what a search may cost
constexpr size_t least_width = 64;
constexpr double rounding = 1e-9;  // sums of seconds may be off by this part
constexpr size_t most_alike = 16;  // partial plans kept that have the same devices, last stage and cut

struct Partial {
  uint32_t parent = 0;  // index into the layer before
  DeviceSet used = 0;
  DeviceSet last = 0;
  size_t cut = 0;         // index into cuts: where the last stage ends
  double bottleneck = 0;  // seconds for a micro-batch: the busiest device or transfer so far
  double fill = 0;        // seconds of one micro-batch up to here
  double score = 0;       // what the whole batch takes at least
  uint64_t tie = 0;
};

bool better(const Partial& a, const Partial& b) { return a.score != b.score ? a.score < b.score : a.tie < b.tie; }

// How a byte gets from one stage to the next.
struct Transfer {
  double load = 0;     // seconds a byte keeps the busiest lane busy, micro-batches evenly spread over the replicas
  double latency = 0;  // of the nearest pair
  double per_byte = 0;
};

class Beam {
 public:
  explicit Beam(const SearchSpace& space) : in_(space), micro_batches_(space.costs->micro_batches) {
    for (size_t i = 0; i < in_.groups->size(); ++i) {
      const std::vector<double>& mine = in_.costs->node_seconds[in_.groups->device(i).index()];
      const auto known = std::ranges::find_if(
          speeds_, [&](size_t first) { return in_.costs->node_seconds[in_.groups->device(first).index()] == mine; });
      speed_of_.push_back(static_cast<size_t>(known - speeds_.begin()));
      if (known == speeds_.end()) devices_.push_back(0);
      devices_[speed_of_.back()] |= DeviceSet{1} << i;
      if (known != speeds_.end()) continue;
      speeds_.push_back(i);
      std::vector<double>& rates = rates_.emplace_back();
      std::vector<double>& before = before_.emplace_back(1, 0);
      for (const size_t cut : in_.cuts) {
        rates.push_back(1 / in_.scorer->seconds(in_.groups->device(i), cut, in_.cuts.back()));
        before.push_back(in_.scorer->seconds(in_.groups->device(i), 0, cut));
      }
    }
  }

  std::vector<std::vector<Stage>> run() {
    const size_t groups = in_.groups->after(0).size();
    const size_t expansions = std::max<size_t>(1, in_.max_stages * groups * (in_.cuts.size() / 2 + 1));
    width_ = std::max(least_width, std::min(in_.wanted, most_expansions / expansions));
    layers_.push_back({Partial{}});
    for (size_t layer = 0; layer < in_.max_stages && !layers_.back().empty(); ++layer) {
      std::vector<Partial> next;
      const bool may_continue = layer + 1 < in_.max_stages;
      front_limit_ = std::numeric_limits<double>::infinity();
      for (uint32_t p = 0; p < layers_[layer].size() && !in_.interrupted(); ++p) expand(layer, p, may_continue, next);
      keep_best(next);
      layers_.push_back(std::move(next));
    }
    // The exact score decides later; it differs from ours by what skip connections and shared links add.
    keep_best_complete();
    std::vector<std::vector<Stage>> plans;
    for (const Complete& complete : complete_) plans.push_back(stages_of(complete));
    return plans;
  }

 private:
  struct Complete {
    size_t layer = 0;
    Partial last;
  };

  void expand(size_t layer, uint32_t p, bool may_continue, std::vector<Partial>& next) {
    const Partial from = layers_[layer][p];
    const size_t begin = layer == 0 ? 0 : in_.cuts[from.cut];
    const double bytes = in_.costs->cut_bytes[begin];
    const std::vector<DeviceSet> groups = in_.groups->after(from.used);
    for (const DeviceSet group : groups) {
      const Transfer in = transfer(layer == 0 ? endpoint_place : from.last, group);
      const std::vector<Part>& devices = parts(group);
      Partial now = from;
      now.parent = p;
      now.used |= group;
      now.last = group;
      const double bottleneck = std::max(from.bottleneck, bytes * in.load);
      const double fill = from.fill + in.latency + bytes * in.per_byte;
      const std::vector<double>* rest = may_continue ? &rest_seconds(now.used) : nullptr;
      const size_t end = in_.cuts.size(), start = layer == 0 ? 0 : from.cut + 1;
      const double memory = least_memory(members(group));
      for (size_t c = start; c < end; ++c) {
        const bool last = c + 1 == end;
        if (!last && (!may_continue || std::isinf((*rest)[c]))) {
          c = end - 2;  // no devices left: straight to the end
          continue;
        }
        // A device has a stage's weights at least, so that longer ones do not fit either.
        if (in_.weight_bytes[in_.cuts[c]] - in_.weight_bytes[begin] > memory) break;
        double first = 0;
        const double seconds = stage_seconds(devices, start, c + 1, first);
        now.cut = c;
        now.bottleneck = std::max(bottleneck, seconds);
        now.fill = fill + first;
        const auto tie = [&] { return Random(in_.seed ^ (now.used * 0x9e3779b97f4a7c15ULL) ^ (from.tie + c)).next(); };
        if (last) {
          const Transfer out = transfer(group, endpoint_place);
          now.bottleneck = std::max(now.bottleneck, in_.costs->output_bytes * out.load);
          now.fill += out.latency + in_.costs->output_bytes * out.per_byte;
          now.score = micro_batches_ * now.bottleneck + now.fill - now.bottleneck;
          if (now.score > limit_) continue;
          now.tie = tie();
          complete_.push_back({layer, now});
          if (complete_.size() >= 4 * in_.wanted + 1000) keep_best_complete();
        } else {
          now.score = micro_batches_ * std::max(now.bottleneck, (*rest)[c]) + now.fill;
          const double most = std::min(limit_ + now.bottleneck, front_limit_);
          if (now.score > most) {
            // Longer stages are no better, whatever is left for others.
            if (micro_batches_ * now.bottleneck + now.fill > most * (1 + rounding)) c = end - 2;
            continue;
          }
          now.tie = tie();
          next.push_back(now);
          if (next.size() >= 4 * most_alike * width_) keep_front(next);
        }
      }
    }
  }

  // What is behind the last of those that are wanted needs no longer be looked at.
  void keep_best_complete() {
    const size_t kept = in_.wanted * 2;
    if (complete_.size() <= kept) return;
    const auto last = complete_.begin() + static_cast<std::ptrdiff_t>(kept);
    std::nth_element(complete_.begin(), last, complete_.end(),
                     [](const Complete& a, const Complete& b) { return better(a.last, b.last); });
    limit_ = last->last.score;
    complete_.erase(last, complete_.end());
  }

  // Those far behind are of use only where nearly all before them are alike.
  void keep_front(std::vector<Partial>& partials) {
    const size_t front = width_ * most_alike;
    if (partials.size() <= front) return;
    const auto last = partials.begin() + static_cast<std::ptrdiff_t>(front);
    std::nth_element(partials.begin(), last, partials.end(), better);
    front_limit_ = last->score;
    partials.erase(last, partials.end());
  }

  // The best, not too many of a kind.
  void keep_best(std::vector<Partial>& partials) {
    keep_front(partials);
    std::sort(partials.begin(), partials.end(), better);
    std::map<std::tuple<DeviceSet, DeviceSet, size_t>, size_t> alike;
    size_t kept = 0;
    for (size_t i = 0; i < partials.size() && kept < width_; ++i) {
      const Partial partial = partials[i];
      if (alike[{partial.used, partial.last, partial.cut}]++ < most_alike) partials[kept++] = partial;
    }
    partials.resize(kept);
  }

  double least_memory(const std::vector<DeviceId>& devices) const {
    double least = std::numeric_limits<double>::infinity();
    for (const DeviceId device : devices)
      least = std::min(least, static_cast<double>(in_.cluster->device(device).memory.value()));
    return least;
  }

  // Devices of a group that are as fast as each other.
  struct Part {
    size_t speed = 0;  // into speeds_
    double count = 0;
  };
  const std::vector<Part>& parts(DeviceSet set) {
    const auto [at, added] = parts_.try_emplace(set);
    if (!added) return at->second;
    std::vector<double> counts(speeds_.size(), 0);
    for (size_t i = 0; i < in_.groups->size(); ++i) counts[speed_of_[i]] += static_cast<double>(set >> i & 1);
    for (size_t s = 0; s < speeds_.size(); ++s) {
      if (counts[s] > 0) at->second.push_back({s, counts[s]});
    }
    return at->second;
  }

  // Of what is between two places of `before_`.
  double stage_seconds(const std::vector<Part>& group, size_t begin, size_t end, double& first) const {
    const auto seconds_of = [&](const Part& part) { return before_[part.speed][end] - before_[part.speed][begin]; };
    first = seconds_of(group[0]);
    if (group.size() == 1) return first / group[0].count;
    double rate = 0;
    for (const Part& part : group) {
      const double seconds = seconds_of(part);
      first = std::min(first, seconds);
      rate += part.count / seconds;  // no time at all: infinitely fast, which is right
    }
    return 1 / rate;
  }

  // [cut]: seconds of a micro-batch that the devices not in `used` take for what is behind the cut, work split as one
  // likes; infinite if there are none.
  const std::vector<double>& rest_seconds(DeviceSet used) {
    free_.assign(speeds_.size(), 0);
    for (size_t s = 0; s < speeds_.size(); ++s) free_[s] = std::popcount(devices_[s] & ~used);
    const auto [at, added] = rest_seconds_.try_emplace(free_);
    if (!added) return at->second;
    at->second.assign(in_.cuts.size(), 0);
    for (size_t s = 0; s < speeds_.size(); ++s) {
      if (free_[s] == 0) continue;
      for (size_t c = 0; c < in_.cuts.size(); ++c) at->second[c] += free_[s] * rates_[s][c];
    }
    for (double& rate : at->second) rate = 1 / rate;
    return at->second;
  }

  const std::vector<DeviceId>& members(DeviceSet set) {
    const auto [at, added] = members_.try_emplace(set);
    if (added) at->second = in_.groups->members(set);
    return at->second;
  }

  const Transfer& transfer(DeviceSet from, DeviceSet to) {
    const auto [at, added] = transfers_.try_emplace({from, to});
    if (added) at->second = find_transfer(from, to);
    return at->second;
  }

  std::vector<HostId> hosts_of(DeviceSet set, HostId endpoint) {
    if (set == endpoint_place) return {endpoint};
    std::vector<HostId> hosts;
    for (const DeviceId device : members(set)) hosts.push_back(in_.cluster->device(device).host);
    return hosts;
  }

  Transfer find_transfer(DeviceSet from, DeviceSet to) {
    const std::vector<HostId> x = hosts_of(from, in_.source), y = hosts_of(to, in_.sink);
    const bool endpoint = from == endpoint_place || to == endpoint_place;
    std::vector<double> load(in_.network->lane_seconds_per_byte.size(), 0);
    Transfer result;
    double nearest = std::numeric_limits<double>::infinity();
    for (const HostId a : x) {
      for (const HostId b : y) {
        const Path& path = in_.network->path(a, b);
        const bool here = a == b && endpoint;  // the device of that host is the endpoint
        if (here || !path.exists) {
          nearest = 0;
          result.latency = result.per_byte = 0;
          continue;
        }
        for (const uint32_t lane : path.lanes) {
          load[lane] += in_.network->lane_seconds_per_byte[lane] / static_cast<double>(x.size() * y.size());
        }
        if (path.latency < nearest) {
          nearest = path.latency;
          result.latency = path.latency;
          result.per_byte = path.seconds_per_byte;
        }
      }
    }
    for (const double seconds : load) result.load = std::max(result.load, seconds);
    return result;
  }

  std::vector<Stage> stages_of(const Complete& complete) {
    std::vector<Stage> stages;
    Partial at = complete.last;
    for (size_t layer = complete.layer;; --layer) {
      const Partial& before = layers_[layer][at.parent];
      stages.push_back({layer == 0 ? 0 : in_.cuts[before.cut], in_.cuts[at.cut], members(at.last)});
      if (layer == 0) break;
      at = before;
    }
    std::reverse(stages.begin(), stages.end());
    return stages;
  }

  static constexpr DeviceSet endpoint_place = 0;  // the source before the first stage, the sink behind the last

  const SearchSpace& in_;
  double micro_batches_;
  std::vector<std::vector<Partial>> layers_;
  std::vector<Complete> complete_;
  size_t width_ = 0;        // partial plans that are kept of each number of stages
  double front_limit_ = 0;  // score beyond which a partial plan of this number of stages is not kept
  double limit_ = std::numeric_limits<double>::infinity();  // score beyond which nothing is wanted
  std::vector<size_t> speed_of_, speeds_;    // [device of the groups]: index into speeds_; the first device of each
  std::vector<std::vector<double>> rates_;   // [speed][cut]: 1 / seconds of what is behind the cut
  std::vector<std::vector<double>> before_;  // [speed][1 + cut]: seconds of what is before the cut; 0: the beginning
  std::vector<DeviceSet> devices_;           // [speed]
  std::vector<int> free_;                    // [speed]: how many are not in use; of the last rest_seconds()
  std::map<std::vector<int>, std::vector<double>> rest_seconds_;  // by free_
  std::map<DeviceSet, std::vector<Part>> parts_;
  std::map<DeviceSet, std::vector<DeviceId>> members_;
  std::map<std::pair<DeviceSet, DeviceSet>, Transfer> transfers_;
};

}  // namespace

Result<FoundPlans> search_beam(const SearchSpace& space) { return FoundPlans{Beam(space).run(), false}; }

}  // namespace nlsplit::inline partition

#include "ranking/worlds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/cores.h"
#include "base/hash.h"
#include "base/random.h"
#include "sim/scale_transfer.h"

namespace nlsplit::inline ranking {
namespace {

// Of Student's t with 4 degrees of freedom: what half of all values stay within, and 9 of 10.
constexpr double half_within = 0.740697, nine_of_ten_within = 2.131847;
constexpr double degrees = 4;

constexpr size_t worlds_at_a_time = 64;  // their errors are kept

enum class Source : uint64_t { device, kernel, messages, route, plan, device_scale, messages_scale, plan_scale };

double scale_of(double spread, double within) { return std::log1p(spread) / within; }

class Errors {
 public:
  Errors(uint64_t seed, size_t world) : seed_(seed), world_(world) {}

  double normal(Source source, uint64_t what, uint64_t which = 0) const { return random(source, what, which).normal(); }
  // What makes normal values a t distribution: sqrt(4 / chi-squared of 4 degrees).
  double stretch(Source source, uint64_t what) const {
    Random random = this->random(source, what, 0);
    const double chi_squared = -2 * (std::log(1 - random.uniform()) + std::log(1 - random.uniform()));
    return std::sqrt(degrees / chi_squared);
  }

 private:
  Random random(Source source, uint64_t what, uint64_t which) const {
    const std::array<uint64_t, 5> key = {seed_, world_, static_cast<uint64_t>(source), what, which};
    return Random(hash_bytes(key.data(), sizeof key));
  }
  uint64_t seed_, world_;
};

struct DeviceErrors {
  uint64_t name = 0;
  double scale = 0;
};

std::vector<DeviceErrors> devices_of(const Scenario& scenario) {
  std::vector<DeviceErrors> devices;
  for (size_t d = 0; d < scenario.cluster.devices.size(); ++d) {
    const std::string& name = scenario.cluster.devices[d].name;
    double spread = 0;
    if (const auto known = scenario.spreads.computing.find(name); known != scenario.spreads.computing.end()) {
      spread = known->second;
    } else if (const Profile* profile = scenario.costs[d]->profile()) {
      spread = std::max(0.0, slowness_of(*profile) - 1);
    }
    devices.push_back({hash_text(name), scale_of(spread, half_within)});
  }
  return devices;
}

// The plan's own error is the sum over these of sqrt(share of the work) times a normal value.
struct Piece {
  uint64_t first = 0, how = 0;  // node; hash of devices, split, micro-batches and schedule
  double weight = 0;
};

uint64_t hash_of(const Plan& plan, const Stage& stage) {
  std::vector<uint64_t> words = {static_cast<uint64_t>(plan.micro_batches), hash_text(plan.schedule)};
  for (const DeviceId device : stage.devices) words.push_back(device.index());
  if (stage.split) {
    words.push_back(static_cast<uint64_t>(stage.split->axis) + 1);
    for (const int64_t share : stage.split->shares) words.push_back(static_cast<uint64_t>(share));
  }
  return hash_bytes(words.data(), words.size() * sizeof(uint64_t));
}

// [plan]. The network is cut wherever one of the plans cuts it.
std::vector<std::vector<Piece>> pieces_of(const std::vector<RankedPlan>& plans, const std::vector<double>& shares) {
  std::set<size_t> cuts;
  size_t nodes = 0;
  for (const RankedPlan& ranked : plans) {
    for (const Stage& stage : ranked.plan.stages) {
      cuts.insert(stage.begin);
      nodes = std::max(nodes, stage.end);
    }
  }
  std::vector<double> before(nodes + 1, 0);
  const bool timed = shares.size() == nodes;
  for (size_t n = 0; n < nodes; ++n) before[n + 1] = before[n] + (timed ? shares[n] : 1);
  std::vector<std::vector<Piece>> pieces;
  for (const RankedPlan& ranked : plans) {
    std::vector<Piece>& of_plan = pieces.emplace_back();
    for (const Stage& stage : ranked.plan.stages) {
      const uint64_t how = hash_of(ranked.plan, stage);
      for (auto cut = cuts.lower_bound(stage.begin); cut != cuts.end() && *cut < stage.end; ++cut) {
        const auto next = std::next(cut);
        const size_t end = next == cuts.end() ? stage.end : std::min(*next, stage.end);
        const double share = (before[end] - before[*cut]) / before[nodes];
        if (share > 0) of_plan.push_back({*cut, how, std::sqrt(share)});
      }
    }
  }
  return pieces;
}

// All plans' costs and ways, each once.
struct Catalogue {
  struct Kernel {
    DeviceId device;
    uint64_t name = 0;
    double scale = 0;
  };
  struct Way {
    uint64_t name = 0;
    double scale = 0;
  };
  std::vector<Kernel> kernels;
  std::vector<Way> ways;
  std::vector<std::vector<uint32_t>> kernels_of, ways_of;  // [plan][index into PlanParts::costs, route_names]
};

Catalogue catalogue_of(const std::vector<LoweredPlan>& plans) {
  Catalogue all;
  std::map<std::pair<DeviceId, uint64_t>, uint32_t> kernels;
  std::map<uint64_t, uint32_t> ways;
  for (const LoweredPlan& plan : plans) {
    const PlanParts& parts = plan.parts.value();
    std::vector<uint32_t>& kernels_of_plan = all.kernels_of.emplace_back();
    for (const PlanParts::DeviceCost& cost : parts.costs) {
      const auto [at, added] = kernels.try_emplace({cost.device, cost.name}, static_cast<uint32_t>(all.kernels.size()));
      kernels_of_plan.push_back(at->second);
      const double within = cost.origin == CostOrigin::predicted ? nine_of_ten_within : half_within;
      if (added) all.kernels.push_back({cost.device, cost.name, scale_of(cost.spread, within)});
    }
    std::vector<uint32_t>& ways_of_plan = all.ways_of.emplace_back();
    for (size_t r = 0; r < parts.route_names.size(); ++r) {
      const auto [at, added] = ways.try_emplace(parts.route_names[r], static_cast<uint32_t>(all.ways.size()));
      ways_of_plan.push_back(at->second);
      // The largest of some fifteen errors: what at least nine of ten stay within.
      if (added) all.ways.push_back({at->first, scale_of(plan.timed.routes[r].largest_error, nine_of_ten_within)});
    }
  }
  return all;
}

// Factors by which a world's times differ.
struct World {
  std::vector<double> kernels, ways, plans;
};

struct Draw {
  std::vector<DeviceErrors> devices;
  Catalogue catalogue;
  std::vector<std::vector<Piece>> pieces;  // [plan]
  double messages = 0, plans = 0;          // scales

  World world(const Errors& errors) const {
    World world;
    std::vector<double> common, stretch;
    for (const DeviceErrors& device : devices) {
      stretch.push_back(errors.stretch(Source::device_scale, device.name));
      common.push_back(device.scale * stretch.back() * errors.normal(Source::device, device.name));
    }
    for (const Catalogue::Kernel& kernel : catalogue.kernels) {
      const size_t d = kernel.device.index();
      const double own = kernel.scale > 0
                             ? kernel.scale * stretch[d] * errors.normal(Source::kernel, devices[d].name, kernel.name)
                             : 0;
      world.kernels.push_back(std::exp(common[d] + own));
    }
    const double all = messages * errors.normal(Source::messages, 0);
    const double longer = errors.stretch(Source::messages_scale, 0);
    for (const Catalogue::Way& way : catalogue.ways) {
      const double own = way.scale > 0 ? way.scale * errors.normal(Source::route, way.name) : 0;
      world.ways.push_back(std::exp(longer * (all + own)));
    }
    const double scale = plans * errors.stretch(Source::plan_scale, 0);
    for (const std::vector<Piece>& of_plan : pieces) {
      double error = 0;
      if (plans > 0) {
        for (const Piece& piece : of_plan) error += piece.weight * errors.normal(Source::plan, piece.first, piece.how);
      }
      world.plans.push_back(std::exp(scale * error));
    }
    return world;
  }
};

// A plan timed in world after world by the fast tier.
class WorldTimer {
 public:
  WorldTimer(const Cluster& cluster, const LoweredPlan& plan, const std::vector<uint32_t>& kernels,
             const std::vector<uint32_t>& ways)
      : cluster_(cluster), plan_(plan), parts_(*plan.parts), kernels_(kernels), ways_(ways), graph_(plan.timed) {}

  struct Times {
    double makespan = 0, latency = 0;
  };
  Times as_predicted() { return simulate(); }
  Times in(const World& world) {
    std::vector<double> stretch;
    for (const std::vector<PlanParts::Part>& kind : parts_.kinds) {
      double before = 0, after = 0;
      for (const PlanParts::Part& part : kind) {
        before += part.seconds;
        after += part.seconds * world.kernels[kernels_[part.cost]];
      }
      stretch.push_back(before > 0 ? after / before : 1);
    }
    for (size_t i = 0; i < graph_.activities.size(); ++i) {
      const Activity& predicted = plan_.timed.activities[i];
      Activity& activity = graph_.activities[i];
      if (parts_.kind_of[i] >= 0) {
        const double factor = stretch[static_cast<size_t>(parts_.kind_of[i])];
        activity.duration = predicted.duration * factor;
        activity.company = predicted.company * factor;
      } else if (predicted.route >= 0) {
        const double factor = world.ways[ways_[static_cast<size_t>(predicted.route)]];
        activity = predicted;
        scale_transfer(activity, factor, factor);
      }
    }
    return simulate();
  }

 private:
  Times simulate() {
    simulate_fast(graph_, timing_);
    const double busiest = load_of(graph_, cluster_, graph_.host_of_device.size()).busiest();
    return {std::max(timing_.makespan, busiest),
            latency_of(parts_.micro_batches, parts_.micro_batch_count, timing_).mean};
  }

  const Cluster& cluster_;
  const LoweredPlan& plan_;
  const PlanParts& parts_;
  const std::vector<uint32_t>&kernels_, &ways_;
  TimedGraph graph_;
  Timing timing_;
};

double ratio(double now, double before) { return before > 0 && std::isfinite(before) ? now / before : 1; }

}  // namespace

std::vector<DeviceId> without_spread(const Scenario& scenario) {
  std::vector<DeviceId> devices;
  for (size_t d = 0; d < scenario.cluster.devices.size(); ++d) {
    if (scenario.costs[d]->profile() == nullptr &&
        !scenario.spreads.computing.contains(scenario.cluster.devices[d].name))
      devices.emplace_back(d);
  }
  return devices;
}

std::vector<std::vector<double>> costs_in_worlds(const Scenario& scenario, const Goal& goal,
                                                 const std::vector<RankedPlan>& plans,
                                                 const std::vector<LoweredPlan>& lowered,
                                                 const std::vector<double>& node_shares, const WorldOptions& options) {
  const Draw draw = {devices_of(scenario), catalogue_of(lowered), pieces_of(plans, node_shares),
                     scale_of(scenario.spreads.messages.value_or(0), half_within),
                     scale_of(scenario.spreads.plans.value_or(usual_plan_spread), half_within)};
  std::vector<std::vector<double>> costs(plans.size(), std::vector<double>(options.count));
  for (size_t begin = 0; begin < options.count; begin += worlds_at_a_time) {
    std::vector<World> worlds(std::min(worlds_at_a_time, options.count - begin));
    on_all_cores(
        worlds.size(), [&](size_t w) { worlds[w] = draw.world(Errors(options.seed, begin + w)); }, options.workers);
    on_all_cores(
        plans.size(),
        [&](size_t p) {
          WorldTimer timer(scenario.cluster, lowered[p], draw.catalogue.kernels_of[p], draw.catalogue.ways_of[p]);
          const WorldTimer::Times before = timer.as_predicted();
          const Estimate& judged = plans[p].estimate;
          for (size_t w = 0; w < worlds.size(); ++w) {
            const WorldTimer::Times now = timer.in(worlds[w]);
            const double rest = worlds[w].plans[p];
            costs[p][begin + w] = score_of(goal, judged.makespan_s * ratio(now.makespan, before.makespan) * rest,
                                           judged.latency_mean_s * ratio(now.latency, before.latency) * rest);
          }
        },
        options.workers);
  }
  return costs;
}

}  // namespace nlsplit::inline ranking

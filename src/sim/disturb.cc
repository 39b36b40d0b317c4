#include "sim/disturb.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "base/hash.h"
#include "base/random.h"
#include "sim/scale_transfer.h"

namespace nlsplit::inline sim {
namespace {

enum class Draw : uint64_t { jitter, straggler, background, degradation };

uint64_t combine(std::initializer_list<uint64_t> parts) {
  return hash_bytes(parts.begin(), parts.size() * sizeof(uint64_t));
}

class Draws {
 public:
  Draws(const Noise& noise, int run) : seed_(noise.seed), run_(static_cast<uint64_t>(run)) {}

  uint64_t seed(Draw what, uint64_t key) const { return combine({seed_, run_, static_cast<uint64_t>(what), key}); }
  bool happens(double chance, Draw what, uint64_t key) const {
    return chance >= 1 || Random(seed(what, key)).uniform() < chance;
  }
  // ln X is normal with variance ln(1 + deviation^2) and such a mean that X has mean 1.
  double jitter(double deviation, uint64_t key) const {
    const double variance = std::log1p(deviation * deviation);
    return std::exp(std::sqrt(variance) * Random(seed(Draw::jitter, key)).normal() - variance / 2);
  }

 private:
  uint64_t seed_, run_;
};

void jitter(TimedGraph& graph, const Noise& noise, const NoiseKeys& keys, const Draws& draws) {
  for (size_t i = 0; i < graph.activities.size(); ++i) {
    Activity& activity = graph.activities[i];
    const double deviation = activity.is_transfer ? noise.link_jitter : noise.compute_jitter;
    if (deviation <= 0) continue;
    const double factor = draws.jitter(deviation, keys.activities[i]);
    if (activity.is_transfer) {
      scale_transfer(activity, factor, factor);
    } else {
      activity.duration *= factor;
      activity.company *= factor;
      for (uint32_t m = 0; m < activity.count; ++m) graph.member_offset[activity.first_instance + m] *= factor;
    }
  }
}

}  // namespace

Weather weather_of(const Noise& noise, const Cluster& cluster, int run) {
  const Draws draws(noise, run);
  Weather weather;
  weather.devices.resize(cluster.devices.size());
  for (size_t s = 0; s < noise.stragglers.size(); ++s) {
    const Straggler& straggler = noise.stragglers[s];
    for (size_t d = 0; d < cluster.devices.size(); ++d) {
      if (straggler.device.valid() && straggler.device != DeviceId(d)) continue;
      if (!draws.happens(straggler.chance, Draw::straggler, combine({s, hash_text(cluster.devices[d].name)}))) continue;
      slow_down(weather.devices[d], straggler.slowdown, straggler.from, straggler.until);
    }
  }
  const auto course = [&](LinkId link) -> LinkCourse& {
    const auto known = std::ranges::find(weather.courses, link, &LinkCourse::link);
    return known != weather.courses.end() ? *known : weather.courses.emplace_back(link);
  };
  const auto key = [&](size_t number, LinkId link) {
    return combine({number, hash_text(cluster.links[link.index()].name)});
  };
  for (size_t i = 0; i < noise.background.size(); ++i) {
    const Background& background = noise.background[i];
    course(background.link).add(background, draws.seed(Draw::background, key(i, background.link)));
  }
  for (size_t i = 0; i < noise.degradations.size(); ++i) {
    const Degradation& degradation = noise.degradations[i];
    if (!draws.happens(degradation.chance, Draw::degradation, key(i, degradation.link))) continue;
    course(degradation.link).add(degradation, cluster.links[degradation.link.index()].bandwidth);
  }
  return weather;
}

NoiseKeys noise_keys(const Program& program, const Dependencies& dependencies, const TimedGraph& graph,
                     const Cluster& cluster) {
  NoiseKeys keys;
  std::vector<uint64_t> names;
  std::vector<std::vector<uint64_t>> which;  // [device][slot]: how many slots of its micro-batch came before it
  for (const DeviceProgram& device : program.devices) {
    keys.devices.push_back(device.kind == DeviceKind::host ? DeviceId() : cluster.find_device(device.name));
    names.push_back(hash_text(device.name));
    std::map<int, uint64_t> seen;
    which.emplace_back();
    for (const Slot& slot : device.order) which.back().push_back(seen[slot.micro_batch]++);
  }
  std::map<std::tuple<int, int, int>, uint64_t> messages;  // from, to, micro-batch: how many so far
  keys.activities.reserve(graph.activities.size());
  for (const Activity& activity : graph.activities) {
    const uint32_t instance = activity.is_transfer ? activity.first_instance : graph.members[activity.first_instance];
    const Instance& at = dependencies.instances[instance];
    const auto device = static_cast<size_t>(at.device), slot = static_cast<size_t>(at.slot);
    const int micro_batch = program.devices[device].order[slot].micro_batch;
    const auto number = static_cast<uint64_t>(static_cast<int64_t>(micro_batch));
    if (activity.is_transfer) {
      keys.activities.push_back(combine({1, names[device], names[static_cast<size_t>(activity.peer)], number,
                                         messages[{activity.device, activity.peer, micro_batch}]++}));
    } else {
      keys.activities.push_back(combine({0, names[device], number, which[device][slot]}));
    }
  }
  return keys;
}

void disturb(TimedGraph& graph, const Noise& noise, const Cluster& cluster, const NoiseKeys& keys, int run) {
  CHECK(keys.activities.size() == graph.activities.size(), "keys of another graph");
  jitter(graph, noise, keys, Draws(noise, run));
  Weather weather = weather_of(noise, cluster, run);
  for (size_t d = 0; d < keys.devices.size(); ++d) {
    if (!keys.devices[d].valid() || weather.devices[keys.devices[d].index()].empty()) continue;
    graph.slowness.resize(keys.devices.size());
    graph.slowness[d] = weather.devices[keys.devices[d].index()];
  }
  graph.courses = std::move(weather.courses);
}

}  // namespace nlsplit::inline sim

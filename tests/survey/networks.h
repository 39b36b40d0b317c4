// Paths as they would be measured in networks of known links.
#pragma once

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "survey/survey.h"

namespace nlsplit::testing {

struct TrueWire {
  double latency_s = 0, gbps = 0;
  size_t rack = 0;
  bool half_duplex = false;
};

// All pairs that are measured; noise: relative, at most, of each figure.
inline std::vector<Path> measured(const std::vector<TrueWire>& hosts, const std::vector<TrueWire>& racks = {},
                                  double noise = 0) {
  Random random(1);
  const auto noisy = [&](double value) { return value * (1 + noise * (2 * random.uniform() - 1)); };
  std::vector<Path> paths;
  for (const auto& [a, b] : pairs_to_measure(hosts.size())) {
    double latency = hosts[a].latency_s + hosts[b].latency_s, gbps = std::min(hosts[a].gbps, hosts[b].gbps);
    if (hosts[a].rack != hosts[b].rack) {
      for (const size_t rack : {hosts[a].rack, hosts[b].rack}) {
        latency += racks[rack].latency_s;
        gbps = std::min(gbps, racks[rack].gbps);
      }
    }
    const auto both = [&](size_t host) { return hosts[host].half_duplex ? hosts[host].gbps / 2 : hosts[host].gbps; };
    const auto rate = [&](double of) { return bytes_per_second(noisy(of) * 1e9 / 8); };
    paths.push_back({a, b, seconds(noisy(latency)), rate(gbps), rate(gbps), rate(std::min({gbps, both(a), both(b)}))});
  }
  return paths;
}

}  // namespace nlsplit::testing

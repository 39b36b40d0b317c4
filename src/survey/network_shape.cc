#include "survey/network_shape.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

namespace nlsplit::inline survey {
namespace {

constexpr double latency_floor = 5e-6;  // seconds: latencies that differ by less are taken as equal

double rate_of(const Path& path) { return (path.bandwidth.value() + path.back.value()) / 2; }

// Each direction gets half of what one alone had, or not much more.
bool is_half_duplex(const Path& path) {
  constexpr double most = 0.6;
  return path.both_ways.value() < most * rate_of(path);
}

// Latencies: those of the hosts' wires, then of the racks' uplinks.
std::vector<double> fit_latencies(size_t hosts, size_t racks, const std::vector<size_t>& rack_of,
                                  std::span<const Path> paths) {
  constexpr int most_sweeps = 2000;
  constexpr double settled = 1e-10;  // seconds
  std::vector<double> latency(hosts + racks, 0);
  for (size_t host = 0; host < hosts; ++host) {
    double least = std::numeric_limits<double>::infinity();
    for (const Path& path : paths)
      if (path.a == host || path.b == host) least = std::min(least, path.latency.value());
    if (std::isfinite(least)) latency[host] = least / 2;
  }
  std::vector<std::vector<size_t>> crosses(hosts + racks);  // paths
  std::vector<double> off, weight;
  for (size_t p = 0; p < paths.size(); ++p) {
    std::vector<size_t> over = {paths[p].a, paths[p].b};
    if (racks > 1 && rack_of[paths[p].a] != rack_of[paths[p].b])
      over.insert(over.end(), {hosts + rack_of[paths[p].a], hosts + rack_of[paths[p].b]});
    double sum = 0;
    for (const size_t wire : over) {
      crosses[wire].push_back(p);
      sum += latency[wire];
    }
    const double whole = std::max(paths[p].latency.value(), latency_floor);
    off.push_back(paths[p].latency.value() - sum);
    weight.push_back(1 / (whole * whole));
  }
  // Gauss-Seidel: each in turn as is best for the others as they are.
  for (int sweep = 0; sweep < most_sweeps; ++sweep) {
    double moved = 0;
    for (size_t wire = 0; wire < latency.size(); ++wire) {
      double wanted = 0, weights = 0;
      for (const size_t p : crosses[wire]) {
        wanted += weight[p] * off[p];
        weights += weight[p];
      }
      if (weights == 0) continue;
      const double step = std::max(wanted / weights, -latency[wire]);
      latency[wire] += step;
      for (const size_t p : crosses[wire]) off[p] -= step;
      moved = std::max(moved, std::abs(step));
    }
    if (moved < settled) break;
  }
  return latency;
}

struct Rates {
  std::vector<double> hosts, racks;
};

// The most that a path has, and the mean of all that have as much.
double most_of(const std::vector<double>& rates) {
  if (rates.empty()) return 0;
  const double most = std::ranges::max(rates);
  double sum = 0;
  int count = 0;
  for (const double rate : rates) {
    if (rate < (1 - alike) * most) continue;
    sum += rate;
    ++count;
  }
  return sum / count;
}

Rates fit_rates(size_t hosts, size_t racks, const std::vector<size_t>& rack_of, std::span<const Path> paths) {
  std::vector<std::vector<double>> of_host(hosts), of_rack(racks);
  const auto crosses = [&](const Path& path) { return racks > 1 && rack_of[path.a] != rack_of[path.b]; };
  for (const Path& path : paths) {
    if (crosses(path)) {
      of_rack[rack_of[path.a]].push_back(rate_of(path));
      of_rack[rack_of[path.b]].push_back(rate_of(path));
      continue;
    }
    of_host[path.a].push_back(rate_of(path));
    of_host[path.b].push_back(rate_of(path));
  }
  for (const Path& path : paths) {  // of a host alone in its rack
    for (const size_t end : {path.a, path.b})
      if (crosses(path) && std::ranges::count(rack_of, rack_of[end]) == 1) of_host[end].push_back(rate_of(path));
  }
  Rates rates;
  for (const auto& each : of_host) rates.hosts.push_back(most_of(each));
  for (const auto& each : of_rack) rates.racks.push_back(most_of(each));
  return rates;
}

// Gives wires that are alike the same kind and figures. Answers how many kinds there are.
size_t gather_kinds(std::vector<Wire>& wires) {
  struct Sum {
    double latency = 0, bandwidth = 0;
    int count = 0;
    bool half_duplex = false;
  };
  std::vector<Sum> kinds;
  for (Wire& wire : wires) {
    const double latency = wire.latency.value(), bandwidth = wire.bandwidth.value();
    const auto same = std::ranges::find_if(kinds, [&](const Sum& kind) {
      const double its = kind.latency / kind.count;
      return kind.half_duplex == wire.half_duplex &&
             std::abs(bandwidth - kind.bandwidth / kind.count) <= alike * bandwidth &&
             std::abs(latency - its) <= std::max(latency_floor, alike * std::min(latency, its));
    });
    wire.kind = static_cast<size_t>(same - kinds.begin());
    if (same == kinds.end()) kinds.push_back({0, 0, 0, wire.half_duplex});
    Sum& kind = kinds[wire.kind];
    kind.latency += latency;
    kind.bandwidth += bandwidth;
    ++kind.count;
  }
  for (Wire& wire : wires) {
    const Sum& kind = kinds[wire.kind];
    wire.latency = seconds(kind.latency / kind.count);
    wire.bandwidth = bytes_per_second(kind.bandwidth / kind.count);
  }
  return kinds.size();
}

// A wire is half duplex if all paths are that it, and no slower wire, bounds.
void find_half_duplex(std::vector<Wire>& wires, std::span<const Path> paths) {
  for (size_t host = 0; host < wires.size(); ++host) {
    int bound = 0, half = 0;
    for (const Path& path : paths) {
      if ((path.a != host && path.b != host) || rate_of(path) < (1 - alike) * wires[host].bandwidth.value()) continue;
      ++bound;
      half += is_half_duplex(path) ? 1 : 0;
    }
    wires[host].half_duplex = bound > 0 && half == bound;
  }
}

double error_of(const NetworkShape& shape) { return std::max(shape.latency_error, shape.bandwidth_error); }

// rack_of: racks are numbered from 0; one: a single switch.
NetworkShape with_switches(size_t hosts, const std::vector<size_t>& rack_of, std::span<const Path> paths) {
  const size_t racks = std::ranges::max(rack_of) + 1;
  NetworkShape shape;
  shape.kind = racks > 1 ? NetworkShape::Kind::racks : NetworkShape::Kind::one_switch;
  shape.rack_of = rack_of;
  const std::vector<double> latencies = fit_latencies(hosts, racks, rack_of, paths);
  const Rates rates = fit_rates(hosts, racks, rack_of, paths);
  for (size_t host = 0; host < hosts; ++host)
    shape.wires.push_back({seconds(latencies[host]), bytes_per_second(rates.hosts[host])});
  for (size_t rack = 0; rack < racks && racks > 1; ++rack)
    shape.uplinks.push_back({seconds(latencies[hosts + rack]), bytes_per_second(rates.racks[rack])});
  find_half_duplex(shape.wires, paths);
  shape.kinds = gather_kinds(shape.wires);
  gather_kinds(shape.uplinks);
  for (const Path& path : paths) {
    const Wire &a = shape.wires[path.a], &b = shape.wires[path.b];
    Seconds latency = a.latency + b.latency;
    BytesPerSecond rate = std::min(a.bandwidth, b.bandwidth);
    if (racks > 1 && rack_of[path.a] != rack_of[path.b]) {
      for (const size_t rack : {rack_of[path.a], rack_of[path.b]}) {
        latency = latency + shape.uplinks[rack].latency;
        rate = std::min(rate, shape.uplinks[rack].bandwidth);
      }
    }
    const double whole = std::max(path.latency.value(), latency_floor);
    const double off = std::max(0.0, std::abs(latency.value() - path.latency.value()) - latency_floor);
    shape.latency_error = std::max(shape.latency_error, off / whole);
    shape.bandwidth_error = std::max(shape.bandwidth_error, std::abs(rate.value() - rate_of(path)) / rate_of(path));
  }
  return shape;
}

// Racks: hosts that `near` paths join, directly or over others.
std::vector<size_t> racks_by(size_t hosts, std::span<const Path> paths, const auto& near) {
  std::vector<size_t> rack(hosts);
  std::iota(rack.begin(), rack.end(), size_t{0});
  for (bool changes = true; changes;) {
    changes = false;
    for (const Path& path : paths) {
      const size_t lower = std::min(rack[path.a], rack[path.b]);
      if (!near(path) || (rack[path.a] == lower && rack[path.b] == lower)) continue;
      rack[path.a] = rack[path.b] = lower;
      changes = true;
    }
  }
  std::vector<size_t> names;  // by number
  for (size_t& one : rack) {
    auto found = std::ranges::find(names, one);
    if (found == names.end()) found = names.insert(names.end(), one);
    one = static_cast<size_t>(found - names.begin());
  }
  return rack;
}

// Where sorted values have their widest gaps, a limit in each; relative gaps below 1.2 are none.
std::vector<double> gaps_in(std::vector<double> values) {
  constexpr double least = 1.2;
  constexpr size_t most_gaps = 4;
  std::ranges::sort(values);
  std::vector<std::pair<double, double>> gaps;  // how wide, and where
  for (size_t i = 1; i < values.size(); ++i)
    if (values[i] > least * values[i - 1])
      gaps.emplace_back(values[i] / values[i - 1], (values[i] + values[i - 1]) / 2);
  std::ranges::sort(gaps, std::greater<>());
  std::vector<double> limits;
  for (size_t i = 0; i < std::min(gaps.size(), most_gaps); ++i) limits.push_back(gaps[i].second);
  return limits;
}

NetworkShape of_paths(size_t hosts, std::span<const Path> paths) {
  NetworkShape shape;
  shape.kind = NetworkShape::Kind::paths;
  shape.rack_of.assign(hosts, 0);
  for (const Path& path : paths)
    shape.wires.push_back({path.latency, bytes_per_second(rate_of(path)), is_half_duplex(path)});
  shape.kinds = gather_kinds(shape.wires);
  return shape;
}

}  // namespace

bool explains(const NetworkShape& shape) { return error_of(shape) <= fits; }

NetworkShape network_shape(size_t hosts, std::span<const Path> paths) {
  if (hosts < 2 || paths.empty()) return {};
  if (hosts == 2) return of_paths(hosts, paths);
  NetworkShape best = with_switches(hosts, std::vector<size_t>(hosts, 0), paths);
  if (!explains(best)) {
    std::vector<double> latencies, rates;
    for (const Path& path : paths) {
      latencies.push_back(path.latency.value());
      rates.push_back(rate_of(path));
    }
    std::set<std::vector<size_t>> candidates;
    for (const double limit : gaps_in(latencies))
      candidates.insert(racks_by(hosts, paths, [&](const Path& path) { return path.latency.value() < limit; }));
    for (const double limit : gaps_in(rates))
      candidates.insert(racks_by(hosts, paths, [&](const Path& path) { return rate_of(path) > limit; }));
    for (const std::vector<size_t>& racks : candidates) {
      const size_t count = std::ranges::max(racks) + 1;
      if (count < 2 || count == hosts) continue;
      NetworkShape shape = with_switches(hosts, racks, paths);
      if (error_of(shape) < error_of(best)) best = std::move(shape);
    }
  }
  if (!explains(best) && paths.size() == hosts * (hosts - 1) / 2) best = of_paths(hosts, paths);
  return best;
}

}  // namespace nlsplit::inline survey

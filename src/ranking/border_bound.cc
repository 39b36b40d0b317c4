#include "ranking/border_bound.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/cores.h"
#include "ranking/min_cut.h"
#include "ranking/weighted_devices.h"

namespace nlsplit::inline ranking {
namespace {

// The seconds that any way over these links keeps them busy for a byte. All are as wide as they can be together.
double seconds_per_byte(const Cluster& cluster, const std::vector<std::pair<HostId, HostId>>& ways, bool leaves,
                        std::set<size_t>& lanes) {
  double least = 1;  // of what a byte counts for, where messages were measured to be faster than the links say
  double width = 0;
  for (const auto& [from, to] : ways) {
    const auto found = find_route(cluster, from, to);
    if (!found) continue;  // no plan sends anything this way
    const Route& route = *found;
    if (route.hops.empty()) return 0.0;
    const Hop& hop = leaves ? route.hops.front() : route.hops.back();
    const Link& link = cluster.links[hop.link.index()];
    if (!link.shared) return 0.0;  // never busy
    const double alone = std::max(route.eager.bandwidth.value(), route.rendezvous.bandwidth.value());
    least = std::min(least, route.narrowest.value() / alone);
    if (lanes.insert(lane_of(cluster, hop)).second) width += link.bandwidth.value();
  }
  return width > 0 ? least / width : 0.0;
}

// Which nodes are on the host (the source's side of the cut, as vertex 0) and which beyond (as vertex 1), for changing
// weights. Vertices of the cut are also, of each value with several readers, its two ways over the border.
class Cut {
 public:
  Cut(const BorderProblem& problem, const Border& border) : cut_(2 + problem.graph->nodes.size()) {
    const Graph& graph = *problem.graph;
    cut_.set_vertex(0, infinite, 0);
    cut_.set_vertex(1, 0, infinite);
    std::map<ValueId, std::vector<size_t>> readers;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (!problem.sends[n]) continue;
      for (const ValueId read : reads_of(graph.nodes[n])) readers[read].push_back(node(n));
    }
    for (const ValueId output : graph.outputs) {
      if (problem.outputs_are_sent) readers[output].push_back(border.sink_inside ? 0 : 1);
    }
    std::vector<size_t> made_by(graph.values.size(), border.source_inside ? 0 : 1);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const ValueId made : graph.nodes[n].outputs) made_by[made.index()] = node(n);
    }
    for (auto& [value, reading] : readers) {
      const double bytes = problem.value_bytes[value.index()];
      if (bytes <= 0) continue;
      Message message;
      message.out_s = bytes * border.out_s_per_byte;
      message.in_s = bytes * border.in_s_per_byte;
      message.maker = made_by[value.index()];
      message.readers = std::move(reading);
      if (message.maker <= 1) end_seconds_ += message.maker == 0 ? message.out_s : message.in_s;
      add_edges(message);
      messages_.push_back(std::move(message));
    }
  }

  void node_costs(size_t n, double on_host, double beyond) { cut_.set_vertex(node(n), beyond, on_host); }
  // Of a second in which the links are busy.
  void message_costs(double out, double in) {
    for (const Message& message : messages_) {
      const double there = out * message.out_s, back = in * message.in_s;
      if (message.readers.size() == 1) {
        cut_.set_edge(message.out, there, back);
      } else {
        cut_.set_edge(message.out, there, 0);
        cut_.set_edge(message.in, back, 0);
      }
    }
  }
  // The least sum of costs; the sides are those of on_host() afterwards.
  double least() { return cut_.solve(); }
  bool on_host(size_t n) const { return cut_.on_source_side(node(n)); }

  // In which the links are busy with the inputs and outputs of a batch if all is computed on their other side.
  double end_seconds() const { return end_seconds_; }

  struct Busy {
    double out = 0, in = 0;
  };
  Busy links() const {
    Busy busy;
    for (const Message& message : messages_) {
      const bool here = cut_.on_source_side(message.maker);
      const auto other = [&](size_t reader) { return cut_.on_source_side(reader) != here; };
      if (!std::ranges::any_of(message.readers, other)) continue;
      (here ? busy.out : busy.in) += here ? message.out_s : message.in_s;
    }
    return busy;
  }

 private:
  static constexpr double infinite = 1e30;
  struct Message {
    double out_s = 0, in_s = 0;
    size_t maker = 0;
    std::vector<size_t> readers;
    size_t out = 0, in = 0;  // edges that cost what sending it costs; with one reader `out` both ways
  };

  static size_t node(size_t n) { return n + 2; }

  // However many of several readers are on the other side, a message is sent there once.
  void add_edges(Message& message) {
    if (message.readers.size() == 1) {
      message.out = cut_.add_edge(message.maker, message.readers[0]);
      return;
    }
    const size_t leaves = cut_.add_vertex(), comes = cut_.add_vertex();
    message.out = cut_.add_edge(message.maker, leaves);
    message.in = cut_.add_edge(comes, message.maker);
    for (const size_t reader : message.readers) {
      cut_.set_edge(cut_.add_edge(leaves, reader), infinite, 0);
      cut_.set_edge(cut_.add_edge(reader, comes), infinite, 0);
    }
  }

  MinCut cut_;
  std::vector<Message> messages_;
  double end_seconds_ = 0;
};

}  // namespace

Border border_of(const Cluster& cluster, HostId host, HostId source, HostId sink) {
  Border border;
  border.source_inside = source == host;
  border.sink_inside = sink == host;
  std::set<HostId> others = {source, sink};
  for (const Device& device : cluster.devices) {
    border.inside.push_back(device.host == host);
    others.insert(device.host);
  }
  others.erase(host);
  std::vector<std::pair<HostId, HostId>> out, in;
  for (const HostId other : others) {
    out.emplace_back(host, other);
    in.emplace_back(other, host);
  }
  std::set<size_t> leaving, coming;
  border.out_s_per_byte = seconds_per_byte(cluster, out, true, leaving);
  border.in_s_per_byte = seconds_per_byte(cluster, in, false, coming);
  border.both_ways = leaving == coming;
  return border;
}

namespace {

// The sides and what they cost, for weights that get better from round to round.
class Weighing {
 public:
  Weighing(const BorderProblem& problem, const Border& border, const std::vector<WeightedKind>& kinds, Cut& cut)
      : problem_(problem), border_(border), kinds_(kinds), cut_(cut), here_(nodes()), beyond_(nodes()) {}

  double best(std::vector<double> weights, double link_weight, double enough) {
    double best = 0, out = link_weight, in = link_weight;
    for (int round = 0; round < rounds_a_start && best < enough; ++round) {
      const double sum = largest_sum(kinds_, weights, most()) + (border_.both_ways ? out : out + in);
      for (double& weight : weights) weight /= sum;
      out /= sum;
      in = border_.both_ways ? out : in / sum;
      const double bound = least(weights, out, in);
      best = std::max(best, bound);
      if (bound <= 0) break;
      const std::vector<double> load = loads();
      for (size_t k = 0; k < kinds_.size(); ++k) weights[k] *= better_weight(round, load[k] / kinds_[k].count, bound);
      const Cut::Busy links = cut_.links();
      out *= better_weight(round, border_.both_ways ? links.out + links.in : links.out, bound);
      in *= better_weight(round, links.in, bound);
    }
    return best;
  }

 private:
  static constexpr int rounds_a_start = 30;
  struct Cheapest {
    double cost = 0;
    size_t kind = 0;
  };
  size_t nodes() const { return problem_.graph->nodes.size(); }
  double most() const {
    return static_cast<double>(problem_.most_devices == 0 ? problem_.seconds.size() : problem_.most_devices);
  }

  double least(const std::vector<double>& weights, double out, double in) {
    for (size_t n = 0; n < nodes(); ++n) {
      here_[n].cost = beyond_[n].cost = std::numeric_limits<double>::infinity();
      for (size_t k = 0; k < kinds_.size(); ++k) {
        const double cost = weights[k] * (*kinds_[k].seconds)[n];
        Cheapest& cheapest = (kinds_[k].inside ? here_ : beyond_)[n];
        if (cost < cheapest.cost) cheapest = {cost, k};
      }
      cut_.node_costs(n, here_[n].cost, beyond_[n].cost);
    }
    cut_.message_costs(out, in);
    return cut_.least();
  }

  std::vector<double> loads() const {
    std::vector<double> load(kinds_.size(), 0);
    for (size_t n = 0; n < nodes(); ++n) {
      const size_t k = (cut_.on_host(n) ? here_ : beyond_)[n].kind;
      load[k] += (*kinds_[k].seconds)[n];
    }
    return load;
  }

  const BorderProblem& problem_;
  const Border& border_;
  const std::vector<WeightedKind>& kinds_;
  Cut& cut_;
  std::vector<Cheapest> here_, beyond_;  // [node]
};

}  // namespace

double border_bound(const BorderProblem& problem, const Border& border, double enough, size_t cores) {
  const std::vector<WeightedKind> kinds = weighted_kinds(problem.seconds, border.inside);
  const auto on_side = [&](bool inside) { return std::ranges::count(kinds, inside, &WeightedKind::inside) > 0; };
  const std::vector<double> fair = fair_weights(kinds);
  if (fair.empty() || !on_side(true) || !on_side(false)) return 0;
  // Where links are slow, devices beyond them are worth little: beginning with that saves most of the rounds.
  constexpr std::array<double, 3> worths = {1.0, 0.1, 0.001};
  std::array<double, worths.size()> found{};
  std::atomic<size_t> last = worths.size() - 1;  // the first that is enough, or the last of all
  on_all_cores(
      worths.size(),
      [&](size_t i) {
        if (i > last) return;
        Cut cut(problem, border);
        if (cut.end_seconds() <= 0) return;
        std::vector<double> weights = fair;
        for (size_t k = 0; k < kinds.size(); ++k) weights[k] *= kinds[k].inside ? 1 : worths[i];
        // To send what comes in and goes out then costs as much as to compute all of it on a device of the host.
        found[i] = Weighing(problem, border, kinds, cut).best(weights, 1 / cut.end_seconds(), enough);
        for (size_t known = last; found[i] >= enough && i < known && !last.compare_exchange_weak(known, i);) {
        }
      },
      cores);
  return *std::max_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(last) + 1);
}

}  // namespace nlsplit::inline ranking

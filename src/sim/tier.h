// Tier: what times a TimedGraph. sim/tiers/tiers.cc lists them.
//
//   const Tier& tier = *find_tier("simgrid");
//   ASSIGN_OR_RETURN(const std::vector<Timing> timings, simulate_all(tier, cluster, {&graph_a, &graph_b}));
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "cost/cluster.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

struct Simulation {
  const TimedGraph* graph = nullptr;
  const Cluster* cluster = nullptr;               // that the graph was built for
  std::function<void(TimedGraph&)> disturb = {};  // what to do to a copy of the graph first; may be empty
};

class Tier {
 public:
  virtual ~Tier() = default;
  virtual std::string_view name() const = 0;   // what users write
  virtual std::string_view title() const = 0;  // what tables say
  // Whether messages on one link slow each other down. If not, TimedGraph::courses change nothing.
  virtual bool shares_links() const = 0;

  // Applies `disturb`, then fills all of `timing`, by the rules of timed_graph.h: edges, FIFOs, cards, overheads,
  // contention on a machine (company), slowness, online decisions. A tier's header says which rules the tier leaves
  // out. The same graph gives the same times, also on several threads at once, which simulate_each uses. Tests
  // (tests/sim) compare the tiers where they must agree.
  // Errors: an online policy left every device waiting; whatever the tier itself refuses.
  virtual Status simulate(const Simulation& simulation, Timing& timing) const = 0;

  // Calls simulation(0) … simulation(count-1) in this order, and `take` with each timing in the same order. If `take`
  // returns false, waits for the simulations in progress and discards them. Errors are of the first simulation that
  // failed. The default runs simulate() on all cores at once.
  virtual Status simulate_each(size_t count, const std::function<Simulation(size_t)>& simulation,
                               const std::function<bool(size_t, Timing)>& take) const;
};

Result<std::vector<Timing>> simulate_all(const Tier& tier, const Cluster& cluster,
                                         const std::vector<const TimedGraph*>& graphs);

}  // namespace nlsplit::inline sim

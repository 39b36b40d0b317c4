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

  // Fills all of `timing`, as its comments say, with times that keep the rules of timed_graph.h: edges, FIFOs, cards,
  // overheads, company, the slowness and online decisions of the graph, `disturb` first. What a tier leaves out of them
  // its header says. The same graph gives the same times, also on several threads at once: simulate_each asks so. The
  // tests of tests/sim hold tiers against each other where they must agree.
  // Errors: an online policy left every device waiting; what the tier itself refuses.
  virtual Status simulate(const Simulation& simulation, Timing& timing) const = 0;

  // Asks for simulations 0 … count-1 in this order, and gives each timing to `take`, in this order too. `take` answers
  // whether to go on; if not, those under way are waited for and forgotten. Errors name the first simulation that
  // failed. Unless a tier says otherwise: simulate() on all cores at once.
  virtual Status simulate_each(size_t count, const std::function<Simulation(size_t)>& simulation,
                               const std::function<bool(size_t, Timing)>& take) const;
};

Result<std::vector<Timing>> simulate_all(const Tier& tier, const Cluster& cluster,
                                         const std::vector<const TimedGraph*>& graphs);

}  // namespace nlsplit::inline sim

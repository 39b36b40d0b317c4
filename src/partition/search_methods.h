// The search methods: one row for each, selected by name (`nlsim rank --method dp`, `search: {method: dp}`).
//
//   for (const SearchMethod& method : search_methods()) …   // auto, exhaustive, dp, orders, beam, anneal
//
// All of them look at the same space: runs of layers between cuts, each on one device or on several replicas,
// and order it by the same bound (partition/score.h). They differ in how much of it they see.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "partition/device_groups.h"
#include "partition/score.h"

namespace nlsplit::inline partition {

// The plans there are at one micro-batch count. Borrows everything.
struct SearchSpace {
  const Graph* graph = nullptr;
  const Cluster* cluster = nullptr;
  const Network* network = nullptr;
  HostId source, sink;
  const SearchCosts* costs = nullptr;
  const Scorer* scorer = nullptr;
  DeviceGroups* groups = nullptr;    // of the first most_grouped_devices of `devices`
  std::vector<DeviceId> devices;     // all there are, fastest first
  size_t most_replicas = 1;          // of a stage
  std::vector<size_t> cuts;          // where a stage may end, ascending; the last is the end of the graph
  std::vector<double> weight_bytes;  // PlanScorer::weight_bytes
  size_t max_stages = 1;
  size_t max_devices = 0;  // of one plan
  size_t wanted = 0;       // how many plans to answer; more may come
  double plans = 0;        // in the space
  uint64_t seed = 1;
  const std::function<bool()>* stop = nullptr;  // SearchOptions::interrupted

  bool interrupted() const { return stop != nullptr && *stop && (*stop)(); }
};

struct FoundPlans {
  std::vector<std::vector<Stage>> plans;  // their order means nothing
  bool proved = false;                    // nothing in the space has a better bound than the best of them
};

struct SearchMethod {
  std::string_view name;
  std::string_view what;  // in a few words
  Result<FoundPlans> (*find)(const SearchSpace& space);
  size_t most_devices;  // that it looks at, the fastest
};
std::span<const SearchMethod> search_methods();
const SearchMethod* find_search_method(std::string_view name);  // nullptr: there is none

// Each method by itself. Errors: exhaustive, if the space holds more than most_exhaustive plans.
inline constexpr double most_exhaustive = 4e6;
Result<FoundPlans> search_exhaustive(const SearchSpace& space);
Result<FoundPlans> search_dp(const SearchSpace& space);      // partition/search_dp.h
Result<FoundPlans> search_orders(const SearchSpace& space);  // partition/search_orders.h
Result<FoundPlans> search_beam(const SearchSpace& space);    // partition/search_beam.h
Result<FoundPlans> search_anneal(const SearchSpace& space);  // partition/anneal.h

}  // namespace nlsplit::inline partition

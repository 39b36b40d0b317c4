// Search for candidate plans. The ranking (ranking/ranking.h) times them.
// Scores are the bottleneck bound: the busiest device or link per micro-batch, which no schedule can beat
// (PipeDream, Narayanan et al., SOSP 2019, section 3.1, extended to unequal devices and links).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cost/cost_table.h"
#include "partition/network.h"
#include "partition/plan.h"

namespace nlsplit::inline partition {

struct SearchOptions {
  bool layers = true;                   // pipelines: layers over devices
  bool replicate = true;                // whole-model replication, and replicated stages
  size_t max_candidates = 2000;         // for each micro-batch count; more finds better plans and takes longer
  size_t max_stages = 0;                // 0: as many as there are devices
  size_t max_devices = 0;               // of one plan; 0: all
  uint64_t seed = 1;                    // only for ties and sampling when the space is larger than max_candidates
  std::string method = "auto";          // of search_methods()
  std::vector<SplitAxis> axes = {};     // on which stages may be split inside their layers; none: not at all
  std::vector<DeviceId> left_out = {};  // devices that no plan may use but those of `seeds`
  // True: stop with the plans found so far, which then depend on timing. May be empty; called by several threads.
  std::function<bool()> interrupted = {};
};

// Of a training step: node_seconds by its parts, and what is done once.
struct StepCosts {
  // [device][node], of one micro-batch: forward (twice with recomputation), gradients by inputs, and by weights.
  std::vector<std::vector<double>> forward, inputs, weights;
  std::vector<std::vector<double>> updates;  // [device][node]: of the weights that the node is the first to read
  std::vector<double> gradient_bytes;        // [node]: of the sums of gradients by the same weights
  std::vector<bool> trained;                 // [value]
  double held_bytes = 0;           // for a byte of a trained weight: itself, its gradient, what the optimizer keeps
  std::vector<double> kept_bytes;  // [node]: of its results, from the forward pass until gradients have read them
};

// What search needs to know about one micro-batch size: the time of every node on every device and the bytes over every
// cut.
struct SearchCosts {
  int micro_batches = 1;
  std::vector<std::vector<double>> node_seconds;  // [device][node], for one micro-batch
  std::vector<double> cut_bytes;  // [i]: bytes of values made before node i and read at or after it; size nodes+1
  double input_bytes = 0;         // of one micro-batch
  double output_bytes = 0;
  std::shared_ptr<const StepCosts> step = nullptr;  // of training
};
// [device]: the first that takes as long for every node. node_seconds: [device][node].
std::vector<DeviceId> device_kinds(const std::vector<std::vector<double>>& node_seconds);
Result<SearchCosts> search_costs(const Graph& at_micro_batch, int micro_batches, const Cluster& cluster,
                                 const CostTable& costs);

struct ScoredPlan {
  Plan plan;
  double bound_seconds = 0;    // lower bound of the time a whole batch takes
  double latency_seconds = 0;  // of one micro-batch that nothing holds up
  double busiest_seconds = 0;  // in which the busiest device computes, of a whole batch
  // Of the stage that needs the most: its weights, and what its largest layer reads and writes; with StepCosts also
  // gradients, what the optimizer keeps, and what one micro-batch keeps for its gradients.
  double memory_bytes = 0;
  // Of a step: the same with all its micro-batches under way, and with one for each stage from there to the last.
  double memory_bytes_of_all = 0, memory_bytes_of_chain = 0;
  // Of stages split inside their layers, messages counted: nodes of the expanded graph, instructions of a whole batch.
  double inner_nodes = 0, inner_instructions = 0;
};

// Number of plans that an interrupted search keeps, besides whole models and baselines: far more than are timed
// afterwards.
inline constexpr size_t most_after_interrupt = 1000;

// Methods that keep sets of devices (all but `orders`) use this many devices, the fastest.
inline constexpr size_t most_grouped_devices = 64;

struct SearchResult {
  std::vector<ScoredPlan>
      plans;  // best bound first; always contains every single device and, if asked for, plain replication;
              // of more than 8 devices one of each kind, copies that take less time than fewer, and as many as can be
  double space = 0;     // how many plans the space holds; plans.size() < space: it was pruned
  size_t devices = 0;   // that were looked at: the fastest, if the cluster has more than the method can look at
  bool proved = false;  // nothing in the space has a better bound than the first plan
  std::vector<size_t> class_of;  // interchangeable_devices
};

// Does a plan keep to options.layers, replicate, max_stages and max_devices?
bool within_limits(const std::vector<Stage>& stages, const SearchOptions& options);

// All devices in any order and subset, contiguous stages, one micro-batch count, by options.method. Deterministic. The
// plans of `seeds` that are within the limits are always in the answer, unless two of their devices that exchange data
// cannot talk to each other.
// Errors: no such method; exhaustive, and the space is too large (says how large).
// network: make_network(cluster, source, sink); who searches for several micro-batch counts makes it once.
Result<SearchResult> search_layers(const Graph& graph, const Cluster& cluster, const Network& network, HostId source,
                                   HostId sink, const SearchCosts& costs, const SearchOptions& options,
                                   const std::vector<std::vector<Stage>>& seeds = {});
Result<SearchResult> search_layers(const Graph& graph, const Cluster& cluster, HostId source, HostId sink,
                                   const SearchCosts& costs, const SearchOptions& options,
                                   const std::vector<std::vector<Stage>>& seeds = {});

}  // namespace nlsplit::inline partition

// Plan: which device runs which layers, in how many micro-batches, under which schedule.
//
//   [..layer2@A, ..layer3.4@B+C, rest@D]      layers up to and including layer2 on A, then up to layer3.4 on B and C
//                                             (micro-batches round-robin), the rest on D
//
// A name means the last node called so or below it (name, "name.…", "name/…"); fused nodes keep all their names. A cut
// that falls inside a fused node moves behind it, with a note. "..=conv1@A" means the node called exactly so, where
// others are below it.
//
//   [..layer2@height(A:2+B), rest@tensor(C+D)]   A and B share each micro-batch of the first stage, A two thirds of the
//                                                rows; C and D share the products of the rest
//   rest@height(A+B)+height(C+D)                 two groups, micro-batches round-robin
//   rest@height-recompute(A+B)                   nothing is exchanged in between: both also compute the rows around
//                                                their own
//   [..layer2@A recomputed, rest@B]              of a training plan: A keeps only what it was given, and computes the
//                                                rest again before its gradients
//   [prefill: rest@A, ..layer2@B, rest@C]        of a plan that generates: A computes prompts, B and C make tokens
//                                                (compile/hand_over.h)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cost/cluster.h"
#include "graph/graph.h"

namespace nlsplit::inline partition {

// How a stage is split inside its layers. batch: samples. height, width: rows or columns of images. channels: output
// channels, from whole inputs. tensor: output columns of one product, then input rows of the next, whose partial sums
// are added. sequence: tokens. What each operator does with such pieces is in partition/split_rules.h.
enum class SplitAxis : uint8_t { batch, height, width, channels, tensor, sequence };
inline constexpr size_t split_axis_count = 6;
std::string_view name_of(SplitAxis axis);  // the words above
std::optional<SplitAxis> parse_split_axis(std::string_view word);

// How the devices of a stage share each micro-batch.
struct Split {
  SplitAxis axis{};
  bool recompute_halo = false;  // height, width: each shard computes the rows it needs of the layers before it, instead
                                // of taking them from its neighbours
  std::vector<int64_t> shares;  // of each shard, > 0, relative: {2, 1}: the first does twice as much; two or more
  friend bool operator==(const Split&, const Split&) = default;
};

struct Stage {
  size_t begin = 0;  // nodes [begin, end) of the graph, in its topological order
  size_t end = 0;
  std::vector<DeviceId> devices;  // one; or several data-parallel replicas, micro-batches round-robin; or with `split`
                                  // the devices of its shards, shares.size() of them, and as many again for each
                                  // further group, replicas (no device twice)
  std::optional<Split> split = {};  // inside its layers
  bool recompute = false;           // training: it runs forward again before its gradients
  int part_of = -1;                 // after expand_splits: the number of the stage it is a part of
  friend bool operator==(const Stage&, const Stage&) = default;
};

struct Plan {
  std::string name;                    // empty for plans found by search
  std::vector<Stage> stages;           // cover all nodes in order
  int micro_batches = 1;               // divides the batch
  std::string schedule = "streaming";  // a policy of schedule/schedules.h
  std::vector<Stage> prefill = {};     // of a plan that generates: what computes prompts; empty: `stages`, as tokens
  friend bool operator==(const Plan&, const Plan&) = default;
};

bool has_splits(const Plan& plan);
bool is_of_one_device(const Stage& stage);

struct PlanNote {  // something the user should know: "conv2 is fused with relu2; the cut is after relu2"
  std::string text;
};

// The stages of one plan text, resolved against a graph and cluster. Errors name the layer or device, with the nearest
// known name: unknown names, layers out of order, `rest` missing or not last, empty stages, a device twice in a stage;
// axes that do not exist, a bracket that is missing, shares that are not from 1 to a million, groups unlike each other.
Result<std::vector<Stage>> parse_stages(const std::vector<std::string>& parts, const Graph& graph,
                                        const Cluster& cluster, std::vector<PlanNote>* notes);

// The same where parts may begin with "prefill: ": those are Plan::prefill. Both or none are given. Errors: as above.
struct PlanStages {
  std::vector<Stage> stages, prefill;
};
Result<PlanStages> parse_plan_stages(const std::vector<std::string>& parts, const Graph& graph, const Cluster& cluster,
                                     std::vector<PlanNote>* notes);

// The shortest name that means exactly this cut: "layer2", "layer3.4", "conv1".
std::string cut_name(const Graph& graph, size_t end);
// "A ..layer2.3 | B+C ..layer3.4 | height(D:2+E) rest" (names without dots kept as they are);
// "prefill A all; decode B ..layer2.3 | C rest"
std::string to_string(const Plan& plan, const Graph& graph, const Cluster& cluster);
// The parts parse_plan_stages reads: {"..layer2@A", "..layer3.4@height(B:2+C)", "rest@D"}.
std::vector<std::string> stage_parts(const Plan& plan, const Graph& graph, const Cluster& cluster);

// Stages cover the graph from node `first` on, devices exist, micro_batches divides the batch, shares fit the devices.
// So do those of `prefill`. The error names the stage.
Status check_plan(const Plan& plan, const Graph& graph, const Cluster& cluster, int64_t batch, size_t first = 0);

}  // namespace nlsplit::inline partition

// Plan: which device runs which layers, in how many micro-batches, under which schedule.
//
//   [..layer2@A, ..layer3.4@B+C, rest@D]      layers up to and including layer2 on A, then up to layer3.4 on B and C
//                                             (taking turns on micro-batches), the rest on D
//
// A name means the last node called so or below it (name, "name.…", "name/…"); fused nodes keep all their names. A cut
// that falls inside a fused node moves behind it, with a note. "..=conv1@A" means the node called exactly so, where
// others are below it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cost/cluster.h"
#include "graph/graph.h"

namespace nlsplit {

struct Stage {
  size_t begin = 0;  // nodes [begin, end) of the graph, in its topological order
  size_t end = 0;
  std::vector<DeviceId> devices;  // one; or several replicas that take turns on micro-batches (no device twice)
  friend bool operator==(const Stage&, const Stage&) = default;
};

struct Plan {
  std::string name;                    // empty for plans found by search
  std::vector<Stage> stages;           // cover all nodes in order
  int micro_batches = 1;               // divides the batch
  std::string schedule = "streaming";  // a policy of schedule/schedules.h
  friend bool operator==(const Plan&, const Plan&) = default;
};

struct PlanNote {  // something the user should know: "conv2 is fused with relu2; the cut is after relu2"
  std::string text;
};

// The stages of one plan text, resolved against a graph and cluster. Errors name the layer or device, with the nearest
// known name: unknown names, layers out of order, `rest` missing or not last, empty stages, a device twice in a stage.
Result<std::vector<Stage>> parse_stages(const std::vector<std::string>& parts, const Graph& graph,
                                        const Cluster& cluster, std::vector<PlanNote>* notes);

// The shortest name that means exactly this cut: "layer2", "layer3.4", "conv1".
std::string cut_name(const Graph& graph, size_t end);
// "A ..layer2.3 | B+C ..layer3.4 | D rest" (names without dots kept as they are)
std::string to_string(const Plan& plan, const Graph& graph, const Cluster& cluster);
// The parts parse_stages reads: {"..layer2@A", "..layer3.4@B+C", "rest@D"}.
std::vector<std::string> stage_parts(const Plan& plan, const Graph& graph, const Cluster& cluster);

// Stages cover the graph, devices exist, micro_batches divides the batch. Error names the stage.
Status check_plan(const Plan& plan, const Graph& graph, const Cluster& cluster, int64_t batch);

}  // namespace nlsplit

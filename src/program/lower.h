// lower(): a Graph cut by a Plan becomes a Program. The only place where kernels, buffers, banks, orders and messages are decided.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cost/cluster.h"
#include "cost/cost_table.h"
#include "partition/plan.h"
#include "program/program.h"
#include "schedule/schedules.h"

namespace nlsplit {

// A graph at its micro-batch size with a kernel chosen for every node, at every level the cluster has.
struct KernelGraph {
  Graph graph;                                        // optimized, axis 0 is the micro-batch
  std::map<Isa, std::vector<ComputeDesc>> descs;      // [node]; views have an empty kernel
};
Result<KernelGraph> choose_kernels(Graph at_micro_batch, const std::vector<Isa>& levels);

struct Endpoints {
  HostId source;   // where inputs come from
  HostId sink;     // where outputs must go
};

// costs decide only the order of slots (a replica twice as fast takes more turns), never results; nullptr: all alike.
// Errors: the plan does not fit the graph; unknown schedule. Memory is verify's business.
Result<Program> lower(const KernelGraph& graph, const Plan& plan, const Cluster& cluster, const Endpoints& endpoints,
                      const CostTable* costs);

// The whole graph on one device, source and sink there too: what --check compares with, and what profiling measures.
Result<Program> lower_unsplit(const KernelGraph& graph, int micro_batches, const Device& device, const std::string& host);

}  // namespace nlsplit

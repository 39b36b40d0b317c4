// compile(): a graph cut by a plan becomes a Program. The only place where kernels, buffers, instances, orders and
// messages are decided. The passes (lowering.h has their results):
//
//   Graph → choose_kernels (kernel_graph.h), in training of the graph with its gradients (step_graph.h) → KernelGraph
//         → split → place → schedule → exchange → allocate → Program
//
//   ASSIGN_OR_RETURN(KernelGraph graph, choose_kernels(std::move(at_micro_batch), {Isa::v3}));
//   ASSIGN_OR_RETURN(Compiled compiled, compile(graph, plan, cluster, {source, sink}, &costs));
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compile/holders.h"
#include "compile/kernel_graph.h"
#include "compile/split.h"
#include "cost/cost_table.h"
#include "partition/plan.h"
#include "program/online.h"
#include "program/program.h"
#include "schedule/schedules.h"

namespace nlsplit::inline compiler {

struct Compiled {
  Program program;
  std::vector<WeightSlice> slices;           // of a plan that splits layers: what its weights are cut to (add_slices)
  std::shared_ptr<const Training> training;  // of such a plan in training: its nodes' constants are the WeightStore's
  std::vector<PlanNote> notes;               // of such a plan
  Promise promise;                           // how near to the unsplit results it comes
  std::optional<Online> online;              // of an online plan: the policy; the simulator fills in its remaining_s
};

struct CompileOptions {
  const SlotTable* table = nullptr;                    // instead of the table of the plan's schedule
  std::optional<CollectiveAlgorithm> all_reduce = {};  // of gradients; none: the fastest (compile/collectives.h)
  std::optional<int> buckets = {};  // that gradients are reduced in, at most; none: the fastest number (buckets.cc)
  // Collectives of gradients are the transport's own (program/collective.h), written out by native_algorithm
  // (compile/collective_costs.h); without `all_reduce` and `exact`.
  bool native = false;
  // The stage of ZeRO (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
  // 2020). 0: none. 1: of a stage's weights each replica updates a share, and keeps the optimizer's
  // tensors of that alone. 2: also the sums of gradients; those of each micro-batch are reduced by themselves. 3: also
  // the weights; each phase of each micro-batch gathers those it uses.
  int zero = 0;
  // With `zero` 3, of a session: the devices that keep each weight which a Program compiled before trains.
  const Holders* holders = nullptr;
  bool exact = false;  // gradients are summed in a fixed order: by replica, and within a replica by micro-batch;
                       // without `all_reduce`
  bool verify = true;  // of a session; false: only its sizes are needed, it will not run
  // Of a session: device 0 has the inputs and gets the outputs, even if no state requires that.
  bool inputs_on_first = false;
  // Of a session whose Programs have plans of their own: the Program also has these devices, after the plan's, without
  // work.
  std::vector<DeviceId> idle = {};
  bool row_major_messages = false;  // as between devices of different levels, whatever the devices
  bool convert_always = false;      // values that cross stages are converted as if the stages were on different devices
  // Called after each pass with its name and its result as text.
  std::function<void(std::string_view pass, const std::string& text)> after_pass = {};
};

// The Program's devices are the plan's in order of first use, then options.idle, then an endpoint for the source or
// sink host if none of them is on it. costs decide only the order of slots (a replica twice as fast takes more turns)
// and the kernels of shards, never results; nullptr: all devices alike. In training there are no outputs to deliver:
// the execution ends with the last update.
//
// Errors: the plan does not fit the graph; what expand_plan says; unknown schedule, or one that does not exist for this
// plan; of a training under a plan with splits what check_split_training says; `exact` with a schedule that adds in
// another order, or with an online policy; with `zero` above 1 different numbers of micro-batches on
// the replicas of a stage, and slots in which these would deadlock; a table
// that is not of this plan (a micro-batch that runs nowhere or twice, a slot on a device that does not have the stage);
// an output that is a constant; in training, a weight that two stages share. verify() checks the memory.
Result<Compiled> compile(const KernelGraph& graph, const Plan& plan, const Cluster& cluster, const Endpoints& endpoints,
                         const CostTable* costs, const CompileOptions& options = {});

// A cluster of this device alone, and the plan of the whole graph on it.
Cluster cluster_of_one(const Device& device, const std::string& host);
Plan unsplit_plan(const KernelGraph& graph, int micro_batches);
// The whole graph on one device, which is also source and sink: the reference of --check, and measured by profiles.
Result<Program> compile_unsplit(const KernelGraph& graph, int micro_batches, const Device& device,
                                const std::string& host);

// The input of the plan's schedule: stages, devices (numbered in order of first use), times, in training also the bytes
// kept for gradients and the memory left for them; of a plan with splits, of the plan it expands to.
Result<ScheduleInput> schedule_input(const KernelGraph& graph, const Plan& plan, const Cluster& cluster,
                                     const CostTable* costs);

}  // namespace nlsplit::inline compiler

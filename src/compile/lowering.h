// The passes of compile(), in their order, and their results. Each pass reads the results of the passes before it, and
// fills in its own part of a Lowering. print.h prints a Lowering after each pass.
//
//   place      which device has which stage; which nodes a stage computes in which phase; which values cross stages
//   schedule   the order of each device's slots (schedule/schedules.h)
//   exchange   the messages of each slot, in an order that both ends agree on
//   allocate   each device's buffers, instructions, buffer instances and places in its arena: the Program
#pragma once

#include <boost/container/small_vector.hpp>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/grid.h"
#include "base/index.h"
#include "compile/collective_rounds.h"
#include "compile/holders.h"
#include "compile/kernel_graph.h"
#include "cost/cluster.h"
#include "cost/cost_table.h"
#include "partition/plan.h"
#include "program/online.h"
#include "program/program.h"
#include "schedule/schedules.h"

namespace nlsplit::inline compiler {

// Stages are numbered from 0. The source of inputs and the sink of outputs stand at both ends as pseudo-stages; the
// sink has the number of stages.
inline constexpr int source_stage = -1;
inline constexpr int ahead_stage = -2;  // a slot that only receives a message early, for a later slot
inline constexpr int every_stage = -3;  // of a node that each device computes, whatever its stages

// The nodes of each stage, in order, without views and without nodes whose results are not used.
struct StageNodes {
  std::vector<int> of_node;  // [node]: a stage; source_stage: a part of an input; every_stage
  std::vector<std::vector<size_t>> forward, input, weight, step;  // [stage]: by phase; all but forward in training only
  std::vector<std::vector<size_t>> again;  // [stage]: of forward, those that recomputation repeats for input, weight
  std::vector<std::vector<size_t>> sums;   // [stage]: indices of StepNodes::sums
};

// A *flow* is a value (the root of its views) that is needed beyond the stage that makes it. Each micro-batch of it
// becomes a message to every other device that needs it.
struct Flow {
  ValueId root;
  int producer = source_stage;  // stage
  std::vector<int> consumers;   // stages, ascending
  bool backward = false;        // a gradient: it goes from later stages to earlier ones
  DType travels_as = {};        // its messages' (cost/messages.h); the value's own: they are the value as it is stored
};

// Micro-batch m + in_flight may enter the first stage when m has left the last one. If these are on different devices a
// *credit* signals it: a message without a value, numbered like a flow after the last one.
struct Port {    // one end of a message
  int flow = 0;  // the number of flows: a credit
  int peer = 0;  // device
  friend bool operator==(const Port&, const Port&) = default;
};

using Ports = boost::container::small_vector<Port, 2>;  // most slots have one or two: no allocation

struct OrderedSlot {
  int stage = 0;  // or source_stage, ahead_stage, or the number of stages for the sink
  Phase phase = Phase::forward;
  int micro_batch = 0;
  double time = 0;                  // its place in a possible execution of all slots (play.cc)
  Ports recvs;                      // before the work; per peer in the order the peer sends
  std::vector<double> received_at;  // in training, of each recv: the sender's `time`
  Ports sends;                      // in the order in which they are made
  bool joint = false;               // W: the slot of I is in it (Lowering::joint)
  bool reduces = false;             // W: the stage's gradients are reduced in it, not in its step
};

struct ExpandedCollective {
  Collective collective;
  Rounds rounds;
  std::vector<Rounds> of_members;  // of each device of the group
};

// Gradients of a stage that its replicas reduce at once: a range of the buffer in which all of them lie.
struct Bucket {
  int64_t begin = 0;          // element
  size_t completed_by = 0;    // node of the backward pass
  ExpandedCollective reduce;  // all-reduce; or, where each replica updates a share of the weights, reduce-scatter
  std::optional<ExpandedCollective> gather;  // then the new weights, put where their gradients were
  int64_t end() const { return begin + value_elements(reduce.collective); }
};

// One step of a bucket's reduction on a replica: it adds what arrived in the previous round, then posts the sends and
// receives of `round`. Only the addition waits for messages. All replicas do these steps in the same order, so they do
// not deadlock.
struct ReductionTurn {
  static constexpr size_t at_the_end = ~size_t{0};
  size_t bucket = 0;
  size_t round = 0;            // equal to the number of rounds: only the last addition
  size_t behind = at_the_end;  // the node of the last backward pass after which this step runs
};

// Of a stage's gradients, in a step.
struct Reduction {
  std::vector<int> group;            // the devices that had a micro-batch of the stage
  std::vector<Bucket> buckets;       // in the order in which the backward pass completes them; none: one device
  std::vector<ReductionTurn> turns;  // in order; each after the same node as the one before, or a later one
  std::map<ValueId, int64_t> begin;  // of each sum of a gradient (a state): an element
  bool sharded = false;              // each replica updates a share of the weights (CompileOptions::zero)
  bool keeps_share = false;          // and keeps only that share of the sums: every W reduces (compile/shares.h)
  bool keeps_weights = false;        // and only that share of the weights: every phase gathers (compile/gathers.h)
  int64_t elements = 0;
};

// Of a stage whose replicas keep shares of the weights: the weights that each phase gathers, and when.
struct Gathers {
  struct Group {                   // weights that are gathered together, while those of the group before are used
    std::vector<ValueId> weights;  // roots, in the order in which the phase begins to use them
    size_t last = 0;               // node that uses one
  };
  std::map<ValueId, ExpandedCollective> broadcasts;  // of each weight; the first member is the one that keeps it
  std::map<Phase, std::vector<Group>> groups;        // of phases that use any
};

// Of clipping. Each device of the stage with the ClipFactor computes it, of all stages' sums of squares. The first
// device of that stage sends the factor to all that update other stages only, and the norm to the sink.
struct Clipping {
  struct Sums {                        // of a stage
    std::vector<size_t> nodes;         // by trained weight; of a sharded stage by who has the gradients' sums
    std::map<ValueId, int64_t> place;  // of each node's result: an element of one buffer
  };
  // Sums that a device sends to those that compute the factor and have not these sums.
  struct Part {
    int stage = 0, device = 0;
    int64_t begin = 0, end = 0;  // elements of the stage's buffer
    std::vector<int> to;
  };
  int stage = 0;
  ValueId norm, factor;
  std::vector<Sums> sums;   // [stage]
  std::vector<Part> parts;  // of a sharded stage one of each replica that has any, of the others one
};

// A weight that several stages read: each updates a copy of its own, by the same parts of its gradient. The first
// device of a part's stage sends it to all that update the weight and have not that stage.
struct Tied {
  struct Part {
    ValueId sum;     // a state
    int stage = 0;   // where it is added up
    int number = 0;  // of all such parts
  };
  std::vector<int> stages;  // ascending
  std::vector<Part> parts;
  std::vector<size_t> adds;  // nodes that add the parts
};

struct Lowering {
  // Given. Nothing is owned; costs may be missing.
  const KernelGraph* network = nullptr;
  const Plan* plan = nullptr;
  const Cluster* cluster = nullptr;
  const CostTable* costs = nullptr;
  Endpoints endpoints;
  std::span<const DeviceId> idle;  // CompileOptions
  bool row_major_messages = false;
  bool convert_always = false;                    // CompileOptions
  std::optional<CollectiveAlgorithm> all_reduce;  // none: the fastest
  bool native = false;                            // CompileOptions
  std::optional<int> buckets;                     // of gradients; none: as many as are fastest
  int zero = 0;                                   // CompileOptions
  const Holders* holders = nullptr;               // CompileOptions
  bool exact = false;                             // sums of gradients: CompileOptions

  // place
  const KernelGraph* graph = nullptr;  // what is computed: the network, or the graph of its training step
  const Training* training = nullptr;  // none: inference
  StageNodes nodes;
  std::optional<Clipping> clipping;
  std::vector<Tied> tied;
  std::vector<DeviceId> devices;                // of the plan, in order of first use: those of the Program begin so
  std::vector<std::vector<int>> stage_devices;  // [stage][replica]: index of `devices`
  int source = 0, sink = 0;                     // devices of the Program
  std::vector<Flow> flows;                      // inputs first, then by the node that makes them
  std::vector<int> flow_of;                     // [value]: the flow whose root it is, or -1
  Program program;                              // its devices, empty; `allocate` fills them in

  // schedule
  ScheduleInput schedule;
  std::optional<Online> online;         // the policy, if the plan's schedule is an online policy
  SlotTable table;                      // in training with its recomputations
  std::vector<std::vector<int>> needs;  // [stage]: earlier stages whose results it takes
  Grid<int> stage_device;               // [stage][micro-batch]
  Grid<char> whole;                     // [stage][micro-batch]: its gradient leaves with W, not with I
  std::vector<bool> joint;              // [stage]: I and W are one slot, each W behind the I it goes with
  std::vector<Reduction> reductions;    // [stage]
  std::vector<Gathers> gathers;         // [stage]

  // exchange
  std::vector<size_t> copied_outputs;           // outputs that the sink copies: another output has their storage
  std::vector<std::vector<OrderedSlot>> slots;  // [device of the Program]

  int stages() const { return static_cast<int>(plan->stages.size()); }
  int micro_batches() const { return plan->micro_batches; }
  int device_of(int stage, int m) const {
    if (stage == source_stage) return source;
    if (stage == stages()) return sink;
    return stage_device[at(stage)][at(m)];
  }
  // Whether its messages have another type than the value, and so buffers of their own.
  bool is_converted(const Flow& flow) const { return flow.travels_as != graph->graph.value(flow.root).type.dtype; }
  // Whether the device that computes `stage` with micro-batch m receives the value. Else it was made on this device.
  bool is_sent_to(const Flow& flow, int stage, int m) const {
    return convert_always || device_of(flow.producer, m) != device_of(stage, m);
  }
  size_t member_of(int stage, int device) const;  // its place in the group
  // Devices that had a micro-batch of the stage, and so update it.
  const std::vector<int>& group(int stage) const { return reductions[at(stage)].group; }
  // Who computes the factor of clipped gradients; who updates other stages only.
  bool has_factor(int device) const;
  std::vector<int> factor_goes_to() const;
  // Whether the device has the sums of squares, and computes them.
  bool has_part(const Clipping::Part& part, int device) const;
  // Whether the norm of gradients goes to the sink in a message.
  bool sends_norm() const { return clipping && !has_factor(sink); }
  // Messages of a step: tags behind those of flows, credits and reductions.
  int squares_tag(int stage) const { return static_cast<int>(flows.size()) + stages() + stage; }
  int factor_tag() const { return static_cast<int>(flows.size()) + 2 * stages(); }
  int norm_tag() const { return factor_tag() + 1; }
  int part_tag(int number) const { return norm_tag() + 1 + number; }
  int weights_tag(int stage) const;
  // Whether the stages of a device are updated one after the other, as its last slots: they wait for other devices.
  bool steps_together() const { return clipping || !tied.empty(); }
  std::vector<int> part_goes_to(const Tied& tied, const Tied::Part& part) const;  // devices
  // The weights of a sharded stage that a bucket has the gradients of: indices of StepNodes::trained, by gradient.
  std::vector<size_t> weights_of(int stage, const Bucket& bucket) const;
  // The place in the group of who updates a weight of a bucket that has a `gather`.
  size_t owner_of(int stage, const Bucket& bucket, size_t weight) const;
  // The nodes of a stage's backward pass that a W slot computes, in order.
  std::vector<size_t> backward_nodes(int stage) const;
  bool recomputes(int stage) const {
    return training != nullptr && (training->options.recompute == Recompute::full || plan->stages[at(stage)].recompute);
  }
  NodePhase phase_of(ValueId root) const {  // of an input or a weight: forward
    const Value& value = graph->graph.value(root);
    return training != nullptr && value.kind == ValueKind::node ? training->nodes.phases[value.producer.index()]
                                                                : NodePhase::forward;
  }
};

// Errors of each pass: those of compile().
Status place(Lowering& lowering);
// Adds a device without work, after the Program's other devices.
void add_device(const Device& device, const Cluster& cluster, Program& program);
// table: instead of the table of the plan's schedule; nullptr: none.
Status schedule(Lowering& lowering, const SlotTable* table);
Status exchange(Lowering& lowering);
void allocate(Lowering& lowering);

// ---- Parts of passes

// Of `schedule`. all_times: also where the order does not depend on them.
Result<ScheduleInput> make_schedule_input(const Lowering& lowering, bool all_times);
// Seconds of each node on a device; the Lowering has costs. Error: one without a cost.
Result<std::vector<double>> node_seconds(const Lowering& lowering, DeviceId device, const std::vector<size_t>& nodes);
// Seconds of a message: one micro-batch of a flow from a device to another one, alone on its route.
Result<double> flow_seconds(const Lowering& lowering, const Flow& flow, int from, int to);
// Of `schedule`, training under a plan that splits layers (group_schedule.cc): the schedule's input instead of `input`,
// and the table for all devices of a group. None: there is nothing to group, or devices that share a stage are replicas
// in another one; schedules then get the stages of the expanded plan.
Result<std::optional<ScheduleInput>> grouped_input(const Lowering& lowering, const ScheduleInput& input);
SlotTable written_out(const Lowering& lowering, const SlotTable& table);
// Of `schedule`: checks the table, and fills in table, stage_device, whole and the groups of reductions. In training a
// recomputation before every I if the workload recomputes and the table does not say where, and no step where there is
// nothing to update. Errors: every micro-batch must go once through every stage, in training through its F, I and W,
// all on one device that has the stage, and every such device must step it once.
Status complete_table(Lowering& lowering, SlotTable table);
// Of `schedule`, where sums are exact. Error: a device adds the gradients of a stage in another order than that of the
// micro-batches, or the order is not known yet (online).
Status check_sums(const Lowering& lowering);
// Of `schedule`, where steps_together: a device updates its stages one after the other, ascending, when all else is
// done: no weight is updated before all gradients are there.
void steps_last(SlotTable& table);
// Of `schedule`: the stages without a message between I and W. No stage waits for their gradients, so each W directly
// follows its I: its operands are then in the cache, and values that only W reads are freed sooner.
void find_joint_stages(Lowering& lowering);
// Of `schedule`, where replicas keep shares of gradients. Error: they cannot reduce those of each micro-batch.
Status check_shares(const Lowering& lowering, int stage);
// Of `schedule`: the gradients that are reduced, and the algorithms.
Status choose_reductions(Lowering& lowering);
// Of `schedule`, where replicas keep shares of weights: sets `gathers`. Errors: a weight that cannot be shared; another
// Program of the session trains a weight that no replica keeps; of routes.
Status choose_gathers(Lowering& lowering);
// Of `schedule`, with clipping, after choose_reductions: which device adds which squares.
void deal_out_squares(Lowering& lowering);
// How the replicas reduce gradients of which the elements before `end` are complete behind a node, by ascending node.
// Sets buckets and turns. backward: the nodes of the last backward pass. Without costs the default is one bucket.
// Errors: of routes.
struct Completed {
  size_t node;
  int64_t end;  // elements
};
struct BackwardTime {
  size_t node;
  double seconds;
};
struct CollectiveCosts;
Status choose_buckets(const Lowering& lowering, std::span<const Completed> completed,
                      std::span<const BackwardTime> backward, const CollectiveCosts& costs, Reduction& reduction);
std::string slot_text(const ScheduledSlot& slot);  // "stage 1 F of micro-batch 3", "the step of stage 1"

// Of `exchange`: a simulation of the table, every slot as soon as its device is free and its data is there.
struct Played {
  // [device][slot]: in inference its end in seconds. In training its number, from 1, in a topological order of all
  // slots: they are numbered in the order of their ends, and of slots that end at the same time those that free memory
  // come first.
  std::vector<std::vector<double>> ends;
  Grid<double> forward_start, forward_end;  // [stage][micro-batch]: as `ends`
  std::vector<double> source;  // [micro-batch]: when its inputs are sent, as `ends`; NaN: they are not sent
};
// Error: the slots wait for each other.
Result<Played> play(const Lowering& lowering);

}  // namespace nlsplit::inline compiler

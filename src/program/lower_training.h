// Lowering of a training step. lower_training.cc plays the table through and orders slots and messages;
// lower_training_device.cc writes each device's part.
#pragma once

#include <vector>

#include "program/lower_flows.h"

namespace nlsplit {

// Which nodes of the step a stage of the plan computes, in order.
struct StepStages {
  std::vector<int> of_node;                                 // [node]: a stage
  std::vector<std::vector<size_t>> forward, input, weight;  // [stage]: by phase; updates: see StepNodes
  std::vector<std::vector<size_t>> trained;                 // [stage]: indices of StepNodes::trained
};
// Error: a weight that two stages train.
Result<StepStages> step_stages(const Training& training, const Plan& plan);

struct TrainingInput {
  const KernelGraph* graph = nullptr;  // with its training
  const Plan* plan = nullptr;
  const SlotTable* table = nullptr;
  const ScheduleInput* schedule = nullptr;  // its times decide only how far ahead messages can be received
  const StepStages* stages = nullptr;
  int source = 0;  // device that has the inputs
};

// Values that cross stages: inputs, what goes forward, gradients on their way back. In the order of the nodes that make
// them.
std::vector<Flow> step_flows(const TrainingInput& input);
NodePhase phase_of(const Training& training, ValueId root);  // of an input: forward

struct TrainingSlot {
  int stage = 0;  // or source_stage, ahead_stage
  Phase phase = Phase::forward;
  int micro_batch = 0;
  double time = 0;                  // its place in an execution of all slots one by one
  std::vector<Port> recvs;          // before the work; per peer in the order the peer sends
  std::vector<double> received_at;  // of each recv: the sender's `time`
  std::vector<Port> sends;          // in the order in which they are made
};

struct TrainingOrders {
  std::vector<std::vector<TrainingSlot>> devices;  // of the Program
  std::vector<std::vector<int>> stage_device;      // [stage][micro-batch]
  std::vector<std::vector<bool>> whole;            // [stage][micro-batch]: its gradient leaves with W, not with I
  std::vector<std::vector<int>> rings;             // [stage]: devices that reduce its gradients, in the ring's order
};

using SlotLists = std::vector<std::vector<ScheduledSlot>>;  // [device of the plan]
std::string slot_text(const ScheduledSlot& slot);           // "stage 1 F of micro-batch 3", "the step of stage 1"

// The table, with a recomputation before every I if the workload recomputes and the table does not say where, and no
// step where there is nothing to update. Fills in stage_device, whole and rings. Errors: every micro-batch must go once
// through F, I and W of each stage, all on one device that has the stage, and every such device must step it once.
Result<SlotLists> complete_table(const TrainingInput& input, TrainingOrders& orders);

// [device][slot]: its number in a sequence of all slots, from 1, in which each comes behind all it needs: every slot is
// played as soon as its device is free and its data is there, and they are numbered as they end; of those that end
// together the ones that free memory go first. Error: they wait for each other.
Result<std::vector<std::vector<int>>> play_training(const TrainingInput& input, const TrainingOrders& orders,
                                                    const SlotLists& table);

// Errors: those of the two.
Result<TrainingOrders> order_training(const TrainingInput& input, const std::vector<Flow>& flows, int devices);

// Fills in program.devices, whose names, kinds, hosts, isas and memories are set, and program.descs. `stages` is made.
Status lower_training(TrainingInput input, Program& program);

// Of one device; interned[isa][node] as in lower_device.
void lower_training_device(const TrainingInput& input, const std::vector<Flow>& flows, const TrainingOrders& orders,
                           int d, std::map<Isa, std::vector<int>>& interned, Program& program);

// Of one slot: its place in the sequence, and of what it receives, the buffer and the sender's place.
struct SlotTimes {
  double time = 0;
  std::vector<std::pair<BufferId, double>> arrivals;
};
// The bank of every buffer in `banked`, for each micro-batch: one that is free from when the value is there (a message:
// from when it is sent) to its last use. There are as many as lives overlap, and two at least where a message leaves,
// so that the next can be made while it is under way; and at least `room`, for as many micro-batches. Also those of
// inputs, one a micro-batch.
void assign_training_banks(DeviceProgram& device, const std::vector<SlotTimes>& times, const std::vector<bool>& banked,
                           int room);

// What training needs of a device's memory whatever the schedule (weights, their gradients, the optimizer's state), and
// what one micro-batch keeps there.
struct StageMemory {
  Bytes weights;             // trained or not, with gradients and state
  Bytes kept_until_input;    // of one micro-batch, from F until I
  Bytes kept_until_weights;  // and from then until W, output gradients too
};
StageMemory stage_memory(const KernelGraph& graph, const Stage& stage);

}  // namespace nlsplit

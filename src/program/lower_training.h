// Lowering of a training step. lower_training.cc plays the table through and orders slots and messages;
// lower_training_device.cc writes each device's part.
#pragma once

#include <vector>

#include "program/lower_flows.h"

namespace nlsplit {

struct TrainingInput {
  const KernelGraph* graph = nullptr;
  const Plan* plan = nullptr;
  const SlotTable* table = nullptr;
  const ScheduleInput* schedule = nullptr;  // its times decide only how far ahead messages can be received
  int source = 0;                           // device that has the inputs
};

// A message between slots: a flow's value on its way forward, or (of >= 0) the gradient by it on its way back from
// stage `of` to the stage that made it.
struct TrainingPort {
  int flow = 0;
  int of = -1;
  int peer = 0;
  friend bool operator==(const TrainingPort&, const TrainingPort&) = default;
};

struct TrainingSlot {
  int stage = 0;  // or source_stage, ahead_stage
  Phase phase = Phase::forward;
  int micro_batch = 0;
  double time = 0;                  // its place in an execution of all slots one by one
  std::vector<TrainingPort> recvs;  // before the work; per peer in the order the peer sends
  std::vector<double> received_at;  // of each recv: the sender's `time`
  std::vector<TrainingPort> sends;  // in the order in which they are made
};

struct TrainingOrders {
  std::vector<std::vector<TrainingSlot>> devices;  // of the Program
  std::vector<std::vector<int>> stage_device;      // [stage][micro-batch]
  std::vector<std::vector<int>> rings;             // [stage]: devices that reduce its gradients, in the ring's order
};

// Errors: a table that is not of this plan; orders that wait for each other.
Result<TrainingOrders> order_training(const TrainingInput& input, const std::vector<Flow>& flows, int devices);

// Fills in program.devices, whose names, kinds, hosts, isas and memories are set, and program.descs.
Status lower_training(const TrainingInput& input, Program& program);

// Of one device; interned[isa][node] as in lower_device.
struct InternedDescs {
  std::map<Isa, std::vector<int>> forward;
  std::vector<int> input_gradients, weight_gradients;
};
void lower_training_device(const TrainingInput& input, const std::vector<Flow>& flows, const TrainingOrders& orders,
                           int d, InternedDescs& interned, Program& program);

// What training needs of a device's memory whatever the schedule (weights, their gradients, the optimizer's state), and
// what one micro-batch keeps there.
struct StageMemory {
  Bytes weights;             // trained or not, with gradients and state
  Bytes kept_until_input;    // of one micro-batch, from F until I
  Bytes kept_until_weights;  // and from then until W, output gradients too
};
StageMemory stage_memory(const KernelGraph& graph, const Stage& stage);

}  // namespace nlsplit

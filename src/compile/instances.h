// Which instance of each buffer every slot of a device uses.
#pragma once

#include <utility>
#include <vector>

#include "program/program.h"

namespace nlsplit::inline compiler {

struct InstanceRules {
  struct SlotTime {
    double time = 0;                                    // its place among the slots
    std::vector<std::pair<BufferId, double>> arrivals;  // of what it receives: when that was sent; else `time`
  };
  std::vector<SlotTime> slots;   // [slot]
  std::vector<bool> instanced;   // [buffer]: micro-batches have instances of it
  bool as_many_as_live = false;  // else as many as Buffer::instances says, or more where the order of slots needs them
  int room = 0;                  // where as many as live: at least so many
};

// What the slots of a device touch.
struct Touched {
  // [segment]: by buffer; whole: inputs, outputs and states that each micro-batch has one of
  std::vector<std::vector<BufferId>> instanced, whole;
  std::vector<bool> leaves;  // [buffer]: it is sent
};
Touched find_touched(const DeviceProgram& device, const std::vector<bool>& instanced);

// An instance holds one micro-batch's value from when the value is there to its last use. Where there are as many as
// live at once, there are two at least of what leaves, so that the next can be made while it is under way. Inputs and
// outputs have one for each micro-batch. Sets Buffer::instances and Slot::instances.
void assign_instances(const InstanceRules& rules, const Touched& touched, int micro_batches, DeviceProgram& device);

}  // namespace nlsplit::inline compiler

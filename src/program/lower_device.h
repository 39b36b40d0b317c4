// One device's part of a Program: its buffers, segments, banks and places in the arena.
#pragma once

#include <vector>

#include "program/lower_flows.h"

namespace nlsplit {

// What all devices of one lowering share.
struct LowerInput {
  const KernelGraph* graph = nullptr;
  const Plan* plan = nullptr;
  const Placement* placement = nullptr;
  const std::vector<Flow>* flows = nullptr;
  std::vector<int> flow_block;         // [flow]: the layout its messages are stored in
  std::vector<int> flow_of;            // [value]: index of the flow whose root it is, or -1
  std::vector<size_t> copied_outputs;  // the outputs that have to be copied at the sink: their root is stored elsewhere
  int banks = 1;                       // of comm buffers, as the schedule says
};

// Fills in program.devices[d], whose name, kind, host, isa and memory are set, and adds its computations to
// program.descs. interned[isa][node]: index of the node's desc in the program, or -1.
void lower_device(const LowerInput& input, const std::vector<OrderedSlot>& order, int d,
                  std::map<Isa, std::vector<int>>& interned, Program& program);

// The bank of every buffer that a slot touches and that has one for each micro-batch in flight.
void assign_banks(DeviceProgram& device, int micro_batches);

// Where everything goes: what is needed all the time first, then messages, then the scratch of the stages, which share
// one region because the slots of a device run one after another (so computations never reuse the bytes of a message,
// nor wait for one because of them). lifetimes[stage]: (buffer, first and last moment that touches it).
struct ScratchLifetime {
  BufferId buffer;
  int64_t first = 0, last = 0;
};
// A computation may write `result` on the bytes of `held` (program/in_place.h). It does if that is the end of one and
// the beginning of the other, and the arena is no larger for it.
struct InPlace {
  BufferId result, held;
};
void place_buffers(DeviceProgram& device, const std::vector<std::vector<ScratchLifetime>>& lifetimes,
                   const std::vector<InPlace>& in_place);

}  // namespace nlsplit

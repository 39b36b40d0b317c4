// How much of each device's memory a Program uses, by purpose: computed from the Program, independently of the planner
// that made it.
//
//   for (const DeviceFootprint& device : footprints(program)) device.total();   // the device's arena, to the byte
#pragma once

#include <string>
#include <vector>

#include "program/program.h"

namespace nlsplit::inline program {

// Of the computations of one stage on one device. Stages of a device share weights they both read, workspace, and the
// region of activations, so these do not add up to the device's.
struct StageFootprint {
  int stage = 0;
  Bytes weights;      // constants and states it reads, as its kernels want them
  Bytes messages;     // what it sends and receives, all instances
  Bytes stash;        // what it keeps for later slots, all instances
  Bytes activations;  // the region of the arena that its scratch lies in
  Bytes bound;        // the most of its scratch that lives at once: no plan of the same computations takes less
  std::string peak;   // the first computation where that is so: "conv1, relu1"
  Bytes workspace;    // of its most demanding kernel
};

// Parts of the arena of a Program that lower made. Everything is counted as it lies there: all instances, each rounded
// up to arena_alignment.
struct DeviceFootprint {
  std::string name;
  Bytes weights, states, inputs, outputs, stash, messages;
  Bytes workspace;
  Bytes activations;                   // the region that all its stages share
  std::vector<StageFootprint> stages;  // ascending

  Bytes total() const { return weights + states + inputs + outputs + stash + messages + workspace + activations; }
};

std::vector<DeviceFootprint> footprints(const Program& program);

}  // namespace nlsplit::inline program

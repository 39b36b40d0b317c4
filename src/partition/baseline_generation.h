// Baselines of text generation (baselines.h): the rules of programs that generate text. All of them give whole blocks
// of the network to devices in the cluster's order, and none considers the links between the devices.
//
//   llama.cpp          blocks in proportion to free memory: block i of n goes to the first device whose
//                      cumulative share is above i / (n + 1), the output layer counted (src/llama-model.cpp,
//                      load_tensors)
//   exo                in proportion to available memory, by largest remainders, at least one each
//                      (src/exo/master/placement_utils.py, allocate_layers_proportionally)
//   cake               in proportion to FLOP/s, here to the speed with the model, rounded, the last one takes the rest
//   distributed-llama  every matrix evenly over 2^n devices, no more than there are heads of keys
//   halda              what prima.cpp's scheduler minimizes without its network term, which is 0, and without
//                      disks: the time of a token. As many blocks as fit on the fastest device, then on the next
//   parallax           water-filling: blocks in proportion to speed, no device above its memory
//   megatron           tensor evenly within a host, or a switch where all hosts have one device; as many blocks in each
//                      (Narayanan et al., SC 2021, takeaway 1)
#pragma once

#include <span>

#include "partition/baselines.h"

namespace nlsplit::inline partition {

// even-layers and those above.
std::span<const Baseline> generation_baselines();

// Those of baselines() and megatron: of a training whose stages may be split inside their layers.
std::span<const Baseline> training_baselines();

}  // namespace nlsplit::inline partition

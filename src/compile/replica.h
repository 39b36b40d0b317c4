// A device's part of a Program, written after that of a device with the same work: replicas differ in their peers, in
// what of the gradients they add up when, and in their micro-batches. All else is copied, and planned once.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/arena.h"
#include "compile/collectives.h"
#include "compile/instances.h"
#include "compile/lowering.h"

namespace nlsplit::inline compiler {

// Instructions [begin, end) of a segment that are the device's own: a message of its slot, or a turn of a reduction.
struct PeerMark {
  enum class Kind : uint8_t { recv, send, turn };
  struct Turn {
    int stage = 0;
    ReductionTurn turn;
    CollectivePlaces places;
    int collective = -1;  // of the segment
  };
  Kind kind{};
  size_t begin = 0, end = 0;
  size_t port = 0;  // of OrderedSlot::recvs or sends
  Turn turn;
};

// What was found of a device while its part was written.
struct WrittenDevice {
  int device = 0;
  std::vector<std::vector<PeerMark>> marks;  // [segment]: in order
  std::vector<bool> first;                   // [slot]: it begins its stage's sums
  InstanceRules rules;
  Touched touched;
  std::vector<std::vector<ScratchLifetime>> scratch;
  std::vector<InPlace> in_place;
};

// Whether write_replica can write device d, in training, after `like`. If not DeviceWriter does.
bool is_replica(const Lowering& lowering, const WrittenDevice& like, int d);
// What DeviceWriter would write.
void write_replica(Lowering& lowering, const WrittenDevice& like, int d);

}  // namespace nlsplit::inline compiler

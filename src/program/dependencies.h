// What must happen before what, in a Program: the one function that verify, the dry run, exec and sim share.
//
// An *instance* is one instruction of one slot. Each belongs to a stream of its device: compute (in order), or the FIFO
// of a (source, destination) pair (in order, and the same order at both ends). Edges are
//   stream   the instance before it on its stream
//   data     it reads what the other wrote
//   reuse    it overwrites what the other read or wrote (same buffer instance)
// and every send has its recv. Edges between two instances of the compute stream are implied by the stream and not
// listed again.
//
// A native collective (program/collective.h) is run as one step: dependencies() has its instructions, for who times
// them, and dependencies_of() and dependencies_as_run() that step, for who runs it. It is its first instruction there,
// on a stream of its group, and the same at all members: it takes the value and gives the result. The others stand for
// nothing.
//
// A Program has an order of slots for each device. free_dependencies() leaves open every other order with the same
// results, and says in FreeSlot what binds the slots of a device among themselves. From this freedom an online policy
// chooses (schedule/online.h), in the simulator as in the executor. A device still runs one slot at a time, from its
// first computation to its last. Bound are
//   - the order within a slot
//   - data: what is read is what the Program's order would have read there; reuse: nothing is overwritten that somebody
//     still has to read. Scratch is each slot's own, unless some slot reads what it has not written.
//   - the order of the messages of one tag from one device to another. Messages of different tags may overtake each
//     other: their ends are told apart by the tag.
//   - the place of a slot that is part of a collective, which waits in its middle for what depends on its beginning:
//   all
//     slots of the device before it come before it, and those behind it after it. All others have all that comes from
//     outside before they begin, so they end by themselves.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "program/program.h"
#include "schedule/schedules.h"

namespace nlsplit::inline program {

struct Instance {
  int device = 0;
  int slot = 0;   // index into DeviceProgram::order
  int instr = 0;  // index into the slot's segment
  friend bool operator==(const Instance&, const Instance&) = default;
};

enum class EdgeKind : uint8_t { stream, data, reuse };

struct Edge {
  uint32_t from = 0;
  EdgeKind kind{};
};

inline constexpr uint32_t no_instance = ~0u;

struct FreeSlot {
  std::vector<int> after;  // slots of its device that end before it begins, ascending
  bool computes = false;   // else it has messages only, and no turn
  bool fixed = false;      // keeps its place
  bool chosen = false;     // F, I or W without a fixed place: a policy is asked. Others go as soon as they can
  ScheduledSlot slot;      // of stages: what a policy is told
};

struct Dependencies {
  std::vector<Instance> instances;     // device by device, slot by slot, in order
  std::vector<uint32_t> device_begin;  // [d]: first instance of device d; one more at the end
  // Of a send its recv and the reverse; of a native collective run as one step the next member's, in a circle; else
  // no_instance.
  std::vector<uint32_t> match;
  std::vector<uint32_t> edge_begin;  // edges[edge_begin[i] … edge_begin[i+1]) end at instance i
  std::vector<Edge> edges;
  // As run: [instance] of a native collective: its first one on the device; of others no_instance. Empty: there is
  // none.
  std::vector<uint32_t> native;
  // Of free_dependencies: [device][slot], else empty. Stream edges are then those between the computations of a slot
  // and between the messages of a tag, and edges between computations of different slots stand in `after`.
  std::vector<std::vector<FreeSlot>> free_slots;

  bool is_native(uint32_t i) const { return !native.empty() && native[i] != no_instance; }
  std::span<const Edge> into(uint32_t i) const {
    return std::span(edges).subspan(edge_begin[i], edge_begin[i + 1] - edge_begin[i]);
  }
};

const Instr& instr_of(const Program& program, const Instance& instance);
// "device B slot 3 (F1.1) `recv in from A tag 1`": how every message names an instance.
std::string describe_instance(const Program& program, const Instance& instance);

// Which accesses wait for each other.
enum class Reuse : uint8_t {
  of_buffers,  // those of one buffer's instance: enough within an execution, where verify keeps others apart
  of_bytes,    // of all buffers that have bytes in common: across executions (program/session.h)
};

// Error: the FIFOs of a pair differ at their ends (a send without recv, other tag, other size); names device, slot,
// instruction.
Result<Dependencies> dependencies(const Program& program, Reuse reuse = Reuse::of_buffers);

// The same, as run. Error also: members of a group that begin other native collectives, or in another order.
Result<Dependencies> dependencies_as_run(const Program& program);

// Of one device alone, as run: its instances and what they wait for there. Nothing is said of what its messages match.
Dependencies dependencies_of(const Program& program, size_t device, Reuse reuse = Reuse::of_buffers);

// Of a Program that verify accepts; reuse is of bytes. Errors also: native collectives; it recomputes, and a schedule
// has no place for that; slots that wait for each other unless they run in the Program's order.
Result<Dependencies> free_dependencies(const Program& program);

}  // namespace nlsplit::inline program

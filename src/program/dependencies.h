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
// The executor runs a native collective (program/collective.h) as one step. The simulator times its instructions: these
// are in dependencies(). The step is in dependencies_of() and dependencies_as_run(): the collective's first instruction
// stands for all of them, reads the value, writes the result, and is on a stream of its group. Its other instructions
// have no edges.
//
// A Program fixes the order of each device's slots. free_dependencies() has only the edges that every order with the
// same results must keep; FreeSlot has those between slots of one device. An online policy (schedule/online.h) chooses
// among the remaining orders, in the simulator and in the executor. A device still runs one slot at a time, from its
// first computation to its last. Every order keeps
//   - the order within a slot
//   - data: an instruction reads the value that it would read in the Program's order; reuse: no value is overwritten
//     before its last reader. Each slot has its own scratch, unless some slot reads scratch that it has not written.
//   - the order of the messages of one tag from one device to another. Messages of different tags may overtake each
//     other: the tag tells the receiver which message it is.
//   - the place of a slot that is part of a collective. Such a slot waits in its middle for messages that depend on
//     the messages that it has sent. So the slots before it on its device stay before it, and the slots after it stay
//     after it. Any other slot begins when all its inputs from other slots are there, and then ends without
//     waiting.
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
  std::vector<int> after;  // slots of its device that must end before it begins, ascending
  bool computes = false;   // false: it has messages only, which need no place in the device's order
  bool fixed = false;      // keeps its place in the Program's order
  bool chosen = false;     // F, I or W that is not fixed: the policy chooses when. Other slots run once they are ready
  ScheduledSlot slot;      // of a stage: the slot that the policy sees
};

struct Dependencies {
  std::vector<Instance> instances;     // device by device, slot by slot, in order
  std::vector<uint32_t> device_begin;  // [d]: first instance of device d; one more at the end
  // Of a send its recv, of a recv its send; of a native collective run as one step that of the group's next member
  // (the first after the last); of others no_instance.
  std::vector<uint32_t> match;
  std::vector<uint32_t> edge_begin;  // edges[edge_begin[i] … edge_begin[i+1]) end at instance i
  std::vector<Edge> edges;
  // As run: [instance] of a native collective: the collective's first instance on the device; of others no_instance.
  // Empty: there are no native collectives.
  std::vector<uint32_t> native;
  // [device][slot], by free_dependencies only. Stream edges are then only those between computations of one slot and
  // between messages of one tag; FreeSlot::after has the edges between computations of different slots.
  std::vector<std::vector<FreeSlot>> free_slots;

  bool is_native(uint32_t i) const { return !native.empty() && native[i] != no_instance; }
  std::span<const Edge> into(uint32_t i) const {
    return std::span(edges).subspan(edge_begin[i], edge_begin[i + 1] - edge_begin[i]);
  }
};

const Instr& instr_of(const Program& program, const Instance& instance);
// "device B slot 3 (F1.1) `recv in from A tag 1`": how every message names an instance.
std::string describe_instance(const Program& program, const Instance& instance);

// Which accesses to memory are ordered by reuse edges.
enum class Reuse : uint8_t {
  of_buffers,  // accesses to one instance of one buffer: enough within an execution, where verify separates buffers
  of_bytes,    // accesses to the same bytes, whatever the buffer: needed across executions (program/session.h)
};

// Error: the FIFOs of a pair differ at their ends (a send without recv, other tag, other size); names device, slot,
// instruction.
Result<Dependencies> dependencies(const Program& program, Reuse reuse = Reuse::of_buffers);

// The same, with native collectives as steps. Error also: members of a group that begin them in different orders.
Result<Dependencies> dependencies_as_run(const Program& program);

// Of one device alone, as run: its instances and the edges between them. `match` is not set.
Dependencies dependencies_of(const Program& program, size_t device, Reuse reuse = Reuse::of_buffers);

// Expects a Program that verify accepts; reuse is of bytes. Errors also: native collectives; recomputation, which an
// online policy has no slots for; slots that would deadlock in another order than the Program's.
Result<Dependencies> free_dependencies(const Program& program);

}  // namespace nlsplit::inline program

// DeviceIndex: the dependencies of one device, prepared once from dependencies() for fast lookup during a run.
//
//   const DeviceIndex index(program, dependencies, 0);
//   for (uint32_t s = index.successor_begin[i]; s < index.successor_begin[i + 1]; ++s) … index.successors[s]
//
// Instances are counted from the device's first one here. Edges that a stream's order implies are left out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "program/dependencies.h"

namespace nlsplit::inline exec {

struct DeviceIndex {
  // Everything is borrowed and must outlive this. The run is online if the dependencies leave the order free.
  DeviceIndex(const Program& program, const Dependencies& dependencies, int device);

  const Program& program;
  const Dependencies& deps;
  const DeviceProgram& device;
  int device_number;
  uint32_t begin, count;
  std::span<const FreeSlot> online_slots;

  uint32_t ends = 0;  // instances that end: all but those for which the first one of their native collective stands

  std::vector<uint32_t> computes;         // in order
  std::vector<uint32_t> computes_of;      // computes[computes_of[s] … computes_of[s + 1]): of slot s
  std::vector<uint32_t> successor_begin;  // successors[successor_begin[i] …]: who waits for the end of i
  std::vector<uint32_t> successors;
  // The number of ends that an instance waits for; of a recv also the posting of the recv before it.
  std::vector<int> waits_for_at_start;
  // FIFOs: one direction of traffic with one peer; online that of one tag; the native collectives of one group, whose
  // peer is the member after this device.
  std::vector<uint32_t> next_on_fifo;  // of a transfer; no_instance: it is the last
  std::vector<uint32_t> fifo_index;    // of a transfer
  std::vector<int> fifo_peers;
  // Online: the number of ends that a slot waits for: all its inputs from other slots; of a fixed slot only slots.
  std::vector<int> slot_waits_at_start;
  std::vector<std::vector<int>> slots_after;  // who waits for the end of a slot

  const Instr& instr(uint32_t i) const { return instr_of(program, deps.instances[begin + i]); }
  int slot_of(uint32_t i) const { return deps.instances[begin + i].slot; }
  const Slot& slot(uint32_t i) const { return device.order[static_cast<size_t>(slot_of(i))]; }
  bool is_native(uint32_t i) const { return deps.is_native(begin + i); }
  // Part of a native collective for which its first instruction stands.
  bool is_covered(uint32_t i) const { return is_native(i) && deps.native[begin + i] != begin + i; }
  // The native collective that instance i is part of.
  const Collective& native(uint32_t i) const;
  // Owned by the transport while under way.
  bool transfers(uint32_t i) const { return is_native(i) ? !is_covered(i) : is_transfer(instr(i).opcode); }
  std::string describe(uint32_t i) const;

  // Whether the whole slot of instance `to` waits for the end, not only this instance.
  bool holds_slot(uint32_t to) const {
    return !online_slots.empty() && !transfers(to) && !online_slots[static_cast<size_t>(slot_of(to))].fixed;
  }
};

}  // namespace nlsplit::inline exec

// How a run's conditions differ from the scenario's (one machine, a CPU in a GPU's place, …), and the memory of its
// processes. Under such conditions the difference from the prediction is not only the prediction's error.
//
//   text += conditions_text(conditions_of(program, result.ran_on, emulates));
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/units.h"
#include "exec/run.h"
#include "program/saved.h"

namespace nlsplit::inline tools {

// The most that a process held, all but a GPU's memory: arenas, the program itself, and what a run needs to be
// prepared.
struct ProcessMemory {
  std::vector<std::string> devices;  // that it computed
  Bytes peak, arenas;
};

struct Conditions {
  std::vector<std::string> stand_ins;    // devices of kind cuda in whose place a CPU computed
  std::vector<std::string> one_machine;  // devices of several hosts that ran on one machine; of several such machines
                                         // the first
  bool own_compute = false;              // those computed at that machine's speed: nothing emulated the scenario's
  std::vector<ProcessMemory> processes;  // none: the system does not say

  // Whether times can be held against predicted ones at all.
  bool comparable() const { return stand_ins.empty(); }
};
// `clocks`: of the Program's emulated compute; empty: there is none.
Conditions conditions_of(const Program& program, const RanOn& ran_on, const Clocks& clocks);

// One line a difference, "note        …", and one of memory, "memory      …".
std::string conditions_text(const Conditions& conditions);
// {"cpu_in_place_of_gpu": ["G"], "on_one_machine": ["A", "B"], "processes": [{"devices": ["A"], "peak_bytes": …,
// "arena_bytes": …}]}; empty lists where nothing differs.
nlohmann::json conditions_json(const Conditions& conditions);

}  // namespace nlsplit::inline tools

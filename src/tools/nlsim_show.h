// `nlsim show`: its arguments, and all outputs other than the text of a network. One file each.
#pragma once

#include <string>

#include "graph/graph.h"
#include "planning/load.h"
#include "tools/nlsim_model.h"

namespace nlsplit::inline tools {

struct ShowArguments {
  ModelArguments model;
  bool fused = false, costs = false, memory = false, dot = false;
  std::string passes = {};  // empty: not asked for
  std::string loss = {};    // of --differentiate; empty: no gradients
  std::string json;         // of costs or memory: a file, - for standard output
  std::string code = {};    // the node whose kernel's code is asked for; empty: none
  std::string isa;          // of memory and code: the level whose kernels are meant
  PlanChoice choice;        // of memory, where the model is a scenario
};

// The table of every layer's FLOPs, bytes, intensity and shares.
Status show_costs(const ShowArguments& arguments, const Graph& graph);

// What the network takes of one device's memory; of a scenario, what a plan takes of every device's.
Status show_memory(const ShowArguments& arguments);

// What is generated for a node's computation: loops, LLVM's IR, assembly.
Status show_code(const ShowArguments& arguments);

// The level that the arguments name, else the best of this machine.
Result<Level> level_of(const ShowArguments& arguments);

// A text, or its figures as JSON, where the user wants them.
Status print_or_save(const std::string& text, const std::string& json, const std::string& file);

}  // namespace nlsplit::inline tools

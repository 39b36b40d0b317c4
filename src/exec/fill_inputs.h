// Random valid inputs, for runs without inputs of the user.
//
//   ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, wanted_inputs(program));
//   fill_inputs(program, seed, inputs);
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exec/run.h"

namespace nlsplit::inline exec {

// By the name of each input of integers that points into something: the smallest extent of what is gathered by it, the
// number of classes for labels, one more than its declared maximum.
std::map<std::string, int64_t> extents_pointed_into(const Program& program);

// Whether a step drops elements: its input called samples_name (graph/differentiate/training_network.h) then has the
// numbers of its samples. Else such an input is the network's own.
bool numbers_samples(const Program& program);

// Gives every input that has no values yet seeded ones: normal floats; integers that point into whatever they index
// (below the extent of every table that is gathered by them), from 0 to 1 where they index nothing; random truth
// values.
void fill_inputs(const Program& program, uint64_t seed, std::vector<NamedTensor>& inputs);

// Gives every integer input that has a maximum (program/scalars.h) that part of it, rounded, in all elements. `part` is
// from 0 to 1. Sequences lie in pages of their own, as far as there are any. Answers whether there is such an input.
bool fill_scalars(const Program& program, double part, std::vector<NamedTensor>& inputs);

}  // namespace nlsplit::inline exec

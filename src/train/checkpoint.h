// A training's state: weights, the optimizer's states, and the position in the data. The folder is replaced as a whole:
// the old one stays until all of the new one is on disk.
//
//   checkpoint.json         steps, samples, seed, the data, states of whole numbers
//   weights.safetensors     what is trained, by the model's names
//   optimizer.safetensors   its tensors (absent: it keeps none)
//
// Nothing in it depends on the plan: a training resumes under another plan, on other machines.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "exec/run.h"

namespace nlsplit::inline train {

struct Checkpoint {
  std::string model;      // as the scenario names it
  int64_t steps = 0;      // done
  int64_t samples = 0;    // taken by them, over all epochs
  uint64_t seed = 0;      // of the order of samples
  bool shuffled = false;  // in that order
  uint64_t data = 0;      // DataSet::fingerprint
  std::vector<StateTensor> states;
};

// weights: the states that are the model's.
Status write_checkpoint(const std::string& dir, const Checkpoint& checkpoint, const std::set<std::string>& weights);
// Errors name the file: missing, damaged, or of another version.
Result<Checkpoint> read_checkpoint(const std::string& dir);

}  // namespace nlsplit::inline train

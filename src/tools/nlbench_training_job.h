// What `nlbench train` brings to its session: Programs, weights, data, and where a training before has ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "program/saved.h"
#include "tools/nlbench_job.h"
#include "train/checkpoint.h"
#include "train/data_set.h"
#include "train/training_run.h"

namespace CLI {
class App;
}

namespace nlsplit::inline tools {

struct TrainArguments {
  JobArguments plan;
  std::vector<std::string> data, validation;  // files
  int64_t steps = 0, epochs = 0;              // in all; at most one is given, or none: one epoch
  int64_t evaluate_every = 0, save_every = 0;
  std::string checkpoint;
  bool resume = false, in_order = false;
  uint64_t seed = 0;
};
// All of it, with WHAT, --plan, --plan-file and --nlsim.
void add_training_options(CLI::App& command, TrainArguments& arguments);

struct TrainingJob {
  LoadedSession loaded;
  WeightFile weights;  // its mapping outlives the folder
  TrainingForm form;
  DataSet data;
  std::optional<DataSet> validation;
  bool drawn = false;  // the data: there are no files
  TrainingPlan plan;
  std::vector<NamedTensor> inputs;
  std::vector<StateTensor> states;  // of the checkpoint it goes on from

  const Session& session() const { return loaded.saved.session; }
  const SavedTraining& made_for() const { return *loaded.saved.training; }
  Job job() const;  // borrowed from this
};

// Errors: load_session's; the session does not train; data that do not fit it; a checkpoint of another model, of other
// data, or that is there without --resume.
Result<TrainingJob> read_training_job(const TrainArguments& arguments);

}  // namespace nlsplit::inline tools

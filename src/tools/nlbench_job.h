// What rank 0 brings to a run: the Program, its weights, and the inputs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "exec/run.h"
#include "measure/child.h"
#include "program/saved.h"

namespace CLI {
class App;
}

namespace nlsplit::inline tools {

struct JobArguments {
  std::string what;             // a saved folder, a scenario, or a model
  std::string plan, plan_file;  // of a scenario
  std::string nlsim;
  int64_t batch = 0;                // of a model; 0: the input file's, else 1
  std::string isa;                  // of a model; empty: this machine's
  std::string precision = {};       // of a model; empty: its own
  std::vector<std::string> inputs;  // FILE or NAME=FILE
  uint64_t seed = 1;                // of the default inputs
  ChildLimits planning = {};        // of nlsim, which plans
};

struct LoadedJob {
  SavedProgram saved;
  WeightFile weights;  // its mapping outlives the folder
  std::vector<NamedTensor> inputs;

  ContentLookup contents() const {
    return [this](ContentId id) { return weights.bytes(id); };
  }
  ChecksumLookup checksums() const {
    return [this](ContentId id) { return weights.checksum(id); };
  }
};

// `folder` holds what nlsim wrote while this runs; afterwards nobody needs it.
Result<LoadedJob> load_job(const JobArguments& arguments, std::optional<TemporaryFolder>& folder);

bool is_scenario(const std::string& what);

// A session's text, a folder saved by `nlsim lower --session --save`, or a scenario, which is lowered into `folder`.
struct LoadedSession {
  SavedSession saved;
  std::string weights;  // the folder that has them; empty: none
};
// for_training: of a scenario the session that `nlbench train` runs.
Result<LoadedSession> load_session(const JobArguments& arguments, std::optional<TemporaryFolder>& folder,
                                   bool for_training = false);

// Whether a file may have an axis more in front than its input: exec/session_inputs.h.
enum class Entries : uint8_t { one, of_executions };

// WHAT, as `what` says, --plan, --plan-file, --nlsim.
void add_session_options(CLI::App& command, JobArguments& arguments, const std::string& what);

// The inputs of a Program: from files, and seeded values for the others (fill_inputs).
Result<std::vector<NamedTensor>> make_inputs(const Program& program, const std::vector<std::string>& files,
                                             uint64_t seed, Entries entries = Entries::one);

// Rank r belongs on the host in line r. places: of a device behind a bus its own place in an emulated cluster.
void print_hosts(const Program& program, bool places);

// One file an output; of several the second and later have their name in the file's: y.npy, y.scores.npy.
Status write_outputs(const std::string& path, const std::vector<OutputTensor>& outputs);

}  // namespace nlsplit::inline tools

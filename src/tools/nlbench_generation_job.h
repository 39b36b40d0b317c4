// What commands bring to a session that generates text: `nlbench generate`, `nlbench serve`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exec/generation.h"
#include "program/saved.h"
#include "tools/nlbench_job.h"

namespace CLI {
class App;
}

namespace nlsplit::inline tools {

struct GenerationJob {
  LoadedSession loaded;
  WeightFile weights;  // its mapping outlives the folder
  GenerationForm form;
  std::vector<NamedTensor> inputs;

  const Session& session() const { return loaded.saved.session; }
  // Of the model; empty: it has none.
  std::string tokenizer_path() const { return loaded.saved.generation ? loaded.saved.generation->tokenizer : ""; }
  Job job() const;  // borrowed from this
};

// Errors: load_session's; the session generates no text, or has no weights.
Result<GenerationJob> read_generation_job(const JobArguments& arguments);

// WHAT, --plan, --plan-file, --nlsim.
void add_generation_job_options(CLI::App& command, JobArguments& arguments);

// For who starts the ranks: print_hosts of the session.
Status print_session_hosts(const JobArguments& arguments, bool places);

}  // namespace nlsplit::inline tools

// What commands bring to a session that generates text: `nlbench generate`, `nlbench serve`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exec/generation.h"
#include "program/saved.h"
#include "tools/nlbench_job.h"

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

}  // namespace nlsplit::inline tools

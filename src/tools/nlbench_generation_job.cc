#include "tools/nlbench_generation_job.h"

#include <fmt/format.h>

#include <utility>

#include "base/temporary_folder.h"

namespace nlsplit::inline tools {

Job GenerationJob::job() const {
  Job job;
  job.contents = [this](ContentId id) { return weights.bytes(id); };
  job.checksums = [this](ContentId id) { return weights.checksum(id); };
  job.inputs = inputs;
  job.clocks = loaded.saved.clocks;
  return job;
}

Result<GenerationJob> read_generation_job(const JobArguments& arguments) {
  std::optional<TemporaryFolder> folder;  // its weights are mapped, and nobody needs it afterwards
  ASSIGN_OR_RETURN(LoadedSession loaded, load_session(arguments, folder));
  RETURN_IF_ERROR(verify_session(loaded.saved.session));
  ASSIGN_OR_RETURN(const GenerationForm form, generation_form(loaded.saved.session));
  if (loaded.weights.empty())
    return invalid_input(fmt::format("{}: a session's text alone has no weights", arguments.what));
  ASSIGN_OR_RETURN(WeightFile weights, WeightFile::open(loaded.weights));
  ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, generation_inputs(loaded.saved.session));
  return GenerationJob{std::move(loaded), std::move(weights), form, std::move(inputs)};
}

}  // namespace nlsplit::inline tools

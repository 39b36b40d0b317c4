// The Programs of a scenario as a session under one plan.
//
//   ASSIGN_OR_RETURN(CompiledSession compiled, session_of(scenario, model, plan));
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compile/session.h"
#include "ranking/ranking.h"

namespace nlsplit::inline ranking {

inline constexpr std::string_view prefill_name = "prefill", decode_name = "decode";
// Of a decode of fewer sequences, for caches in pages: decode_1 and so on.
std::string decode_name_of(int64_t sequences);

// The plan is one of the first Program's; the others have its stages. A scenario without `programs` makes a session of
// one, called `train` or `infer`; one that generates `prefill`, which takes a chunk of a prompt (none if that is one
// token), and `decode`, which takes one token. model.weights then knows all that the Programs name. Errors: an online
// plan; prepare_model's and compile_session's.
Result<CompiledSession> session_of(const Scenario& scenario, Model& model, const Plan& plan);

// The same Programs unsplit: each on one device of this level, whatever its memory, in the same micro-batches. It is
// compared with, not planned for. Errors: as session_of's; the scenario generates: its tokens are its own next inputs.
Result<CompiledSession> unsplit_session(const Scenario& scenario, Model& model, const Plan& plan, const Device& like);

inline constexpr std::string_view train_name = "train", evaluate_name = "evaluate";

// The session of `nlbench train`: the scenario's training step under the plan (`train`), and the network's outputs for
// as many samples with the weights as they are (`evaluate`). Device 0 has the data: the inputs are written there before
// each execution, and losses and outputs come back there, whatever the scenario's sink. Errors: as session_of's; the
// scenario does not train.
Result<CompiledSession> training_session(const Scenario& scenario, Model& model, const Plan& plan);
// Seconds from the end of one step to the end of the next, where several are chosen at once and each gets new inputs as
// soon as those of the one before are read.
Result<double> time_steps(const Scenario& scenario, const Session& session, const Tier& tier);

// The network of a scenario that generates, for each of its Programs.
struct GenerationModels {
  PreparedModel decode;
  std::optional<PreparedModel> prefill;         // none: prompts are taken token by token
  std::map<int64_t, PreparedModel> fewer = {};  // decodes of so many sequences; rankings need none
};
// Powers of two below the number of sequences, of caches in pages: a server decodes only the sequences that run.
std::vector<int64_t> fewer_sequences(const Scenario& scenario);
// Adds the decodes of fewer sequences.
Status add_fewer(const Scenario& scenario, const Graph& optimized, GenerationModels& models);
// optimized: the network for a token. weights: gets the contents of the other networks; nullptr: not needed.
Result<GenerationModels> prepare_generation(const Scenario& scenario, const Graph& optimized, int micro_batches,
                                            WeightStore* weights);
// The plan's stages for prompts, its `prefill` or the same stages, on the network for prompts. Error: the two networks
// have different nodes.
Result<Plan> plan_of_prompts(const GenerationModels& models, const Plan& plan);
// Prompts are computed by the plan's `prefill`, if it has one, and their keys and values go to where tokens are
// (compile/hand_over.h). verify: as CompileOptions'.
Result<CompiledSession> generation_session(const Scenario& scenario, const GenerationModels& models, const Plan& plan,
                                           bool verify = true);

// [execution]: when its last instruction ended. Choices are none.
std::vector<double> execution_ends(const Sequence& sequence, const Trace& trace);

}  // namespace nlsplit::inline ranking

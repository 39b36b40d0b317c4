// Sequences that go on token by token: what a session with the Programs `prefill` and `decode` (ranking/session.h) runs
// next, and with which inputs.
//
//   ASSIGN_OR_RETURN(const GenerationForm form, generation_form(session));
//   GenerationRun text(form, {prompt}, 64, hooks);
//   run_session(&session, job, text.choices(), transport, options);
//   text.sequences()[0].tokens
//
// First each Program runs once for nobody: what only a first execution does (touching memory, laying out its order)
// delays no token. Prompts are taken in chunks, all sequences' side by side; then each execution makes one token of
// every sequence that has not ended.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <vector>

#include "exec/run_session.h"

namespace nlsplit::inline exec {

// What the session's inputs say of it.
struct GenerationForm {
  int64_t sequences = 1, chunk = 1, candidates = 1;  // `chunk`: tokens of a prompt in one execution
  int64_t context = 0;                               // positions that are kept of a sequence
  int64_t vocabulary = 0;                            // tokens there are
  int prefill = -1, decode = 0;                      // Programs; -1: prompts go through decode
};
// Error: it is no session that generates text.
Result<GenerationForm> generation_form(const Session& session);
// Zeros for all its inputs: they are written before each execution.
Result<std::vector<NamedTensor>> generation_inputs(const Session& session);
// Error: a sequence would have more positions than are kept, or there are more prompts than sequences; a prompt is
// empty, or has a token that is none.
Status check_prompts(const GenerationForm& form, std::span<const std::vector<int32_t>> prompts, int64_t tokens);

struct GenerationHooks {
  // Which of the candidates, whose scores stand best first, follows at this position.
  std::function<size_t(size_t sequence, std::span<const float> scores, uint64_t position)> pick;
  // Told each token as it comes. true: the sequence ends with it.
  std::function<bool(size_t sequence, int32_t token)> ends;
};

struct GeneratedSequence {
  std::vector<int32_t> tokens;  // behind the prompt
  std::vector<double> at_s;     // when each was there, since the prompts were
  bool ended = false;           // with its last token; or nobody asked for it
};

class GenerationRun {
 public:
  // tokens: of each sequence, at most. Expects what check_prompts accepts.
  GenerationRun(const GenerationForm& form, std::vector<std::vector<int32_t>> prompts, int64_t tokens,
                GenerationHooks hooks);

  ChooseNext choices() {
    return [this](const SessionState& state) { return next(state); };
  }
  const std::vector<GeneratedSequence>& sequences() const { return made_; }

 private:
  Choice next(const SessionState& state);
  void take_tokens(const SessionState& state);
  Choice warm_up(const SessionState& state);
  Choice run(int program, const SessionState& state);
  void write_inputs(int program, const SessionState& state, const std::vector<int64_t>& ids,
                    const std::vector<int64_t>& begins, const std::vector<int64_t>& lengths,
                    const std::vector<int64_t>& last) const;

  GenerationForm form_;
  std::vector<std::vector<int32_t>> prompts_;  // [sequence]; empty: nobody has it
  int64_t tokens_;
  GenerationHooks hooks_;
  std::vector<GeneratedSequence> made_;
  std::vector<int64_t> length_;  // [sequence]: positions that are kept so far
  std::vector<bool> due_;        // [sequence]: the execution makes a token of it
  size_t warm_ = 0;              // Programs that have run for nobody
  int ran_ = -1;                 // the Program before, of those that ran for somebody
  std::chrono::steady_clock::time_point begun_;
};

}  // namespace nlsplit::inline exec

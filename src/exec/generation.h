// Text generation by a session with the Programs `prefill` and `decode` (ranking/session.h): which execution runs next,
// and with which inputs. serving/batch.h chooses the execution; this writes its inputs and reads its tokens.
//
//   ASSIGN_OR_RETURN(const GenerationForm form, generation_form(session));
//   GenerationRun text(form, {prompt}, 64, hooks);
//   run_session(&session, job, text.choices(), transport, options);
//   text.sequences()[0].tokens
//
// Before the first prompt each Program runs with idle slots, as often as it will be chosen at once, so that work of a
// first execution (touching memory, preparing its order) delays no token.
//
// Several executions are chosen at once where this lets the stages of a plan compute at the same time: chunks of a
// prompt are pipelined through the stages, and so are micro-batches of sequences, each of which begins its next token
// once its last one is drawn. The slot of a sequence that ends stays idle until these executions have ended.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "exec/run_session.h"
#include "serving/batch.h"

namespace nlsplit::inline exec {

// The sizes of a generation session, read from its inputs.
struct GenerationForm {
  int64_t sequences = 1, chunk = 1, candidates = 1;  // `chunk`: tokens of a prompt in one execution
  int micro_batches = 1;                             // of the sequences, in their order
  int64_t context = 0;                               // positions that are kept of a sequence
  int64_t vocabulary = 0;                            // tokens there are
  int prefill = -1, decode = 0;                      // Programs; -1: prompts go through decode
  // All states are caches in which each position has its place, so what is kept of a sequence can be cut to any length.
  bool keeps_positions = false;
  std::vector<int> groups = {};  // [sequence]: as BatchForm's
  // Caches in pages: as BatchForm's; 0: there are none. Then prefill is of one sequence, and beside decode there are
  // Programs for fewer sequences, `decode_1` and so on.
  int64_t page = 0, pages = 0;
  struct Decode {
    int64_t sequences = 1;
    int program = 0;
  };
  std::vector<Decode> fewer = {};  // ascending
  // Prompts are computed elsewhere (compile/hand_over.h). Where they are, what decode adds to a sequence is not known:
  // a sequence that has had a decode takes no part in prefill any more.
  bool hands_over = false;

  BatchForm batch() const {
    return {.slots = sequences,
            .chunk = prefill >= 0 ? chunk : 1,
            .context = context,
            .groups = groups,
            .page = page,
            .pages = pages};
  }
};
// Error: it is no session that generates text.
Result<GenerationForm> generation_form(const Session& session);
// Zeros for all its inputs: they are written before each execution.
Result<std::vector<NamedTensor>> generation_inputs(const Session& session);
// Error: the sequence would have more positions than are kept; the prompt is empty, or has a token that is none.
Status check_prompt(const GenerationForm& form, std::span<const int32_t> prompt, int64_t tokens);
// And: there are more prompts than sequences.
Status check_prompts(const GenerationForm& form, std::span<const std::vector<int32_t>> prompts, int64_t tokens);

// The executions of a batch: writes their inputs and reads the candidates for the next tokens. A slot has one sequence
// after the other. Other slots do not change its tokens.
class GenerationBatch {
 public:
  // Of an execution, for each slot that gives a token: the scores of the candidates, best first, and the position of
  // the token that was seen last. The answer: which of them follows.
  using Pick = std::function<size_t(size_t slot, std::span<const float> scores, uint64_t position)>;

  explicit GenerationBatch(const GenerationForm& form);

  // Expects what check_prompt accepts. The caller owns the batch, and lets sequences join and leave it. A prefix from
  // another slot is copied before the next execution.
  void begin(const SlotChoice& taken, std::vector<int32_t> prompt);
  // All tokens of the sequence that the slot has or had last.
  const std::vector<int32_t>& tokens(size_t slot) const { return tokens_[slot]; }
  // How many of the first tokens are those of the slot's sequence, also after that has left.
  int64_t common_prefix(size_t slot, std::span<const int32_t> prompt) const;
  // Warm-up executions without sequences, as many of each Program as will be chosen at once; nothing: they have all
  // run.
  struct AtOnce {
    int prefill = 1, decode = 1;
  };
  std::optional<Chosen> warm_up(const SessionState& state, AtOnce at_once);
  // Writes the inputs of a step that runs something. The next choice.
  Chosen run(const BatchStep& step, const SessionState& state);
  struct Token {
    size_t slot = 0;
    int32_t token = 0;
  };
  // What the execution before this choice made, by slot; nothing if there was none.
  std::vector<Token> take(const SessionState& state, const Pick& pick);

  // Called with each token of executions in a row, except those of the last one; updates the batch.
  using OnToken = std::function<void(const Token& token)>;
  // The same for executions in a row: each micro-batch begins the next one once it can. The batch, the state and this
  // must outlive them; pick and on_token are called by any thread, one call at a time.
  Chosen run_row(Batch& batch, const BatchRow& row, const SessionState& state, const Pick& pick,
                 const OnToken& on_token);

 private:
  struct Slots {
    size_t begin, end;
  };
  GenerationForm form_;
  std::vector<std::vector<int32_t>> tokens_;  // [slot]: the prompt, and what came
  std::vector<CacheCopy> copies_;             // to be made
  BatchStep ran_;
  int program_ = -1;            // that ran
  std::vector<size_t> placed_;  // of caches in pages: [sample]: the slot that ran there
  int warm_ = 0;                // Programs that have been warmed up

  Slots of_micro_batch(int micro_batch) const;
  std::vector<size_t> slots_of(int micro_batch) const;
  int program_of(const BatchStep& step);
  void write(const BatchStep& step, int micro_batch, const SessionState& state) const;
  Choice write(const BatchStep& step, const SessionState& state);
  void begin_next(Batch& batch, int micro_batch, const SessionState& state);
  void take_of(int micro_batch, const SessionState& state, const Pick& pick, std::vector<Token>& made);
};

// Called by any thread of the device, one call at a time.
struct GenerationHooks {
  // Which of the candidates, whose scores stand best first, follows at this position.
  std::function<size_t(size_t sequence, std::span<const float> scores, uint64_t position)> pick;
  // Told each token as it comes. true: the sequence ends with it.
  std::function<bool(size_t sequence, int32_t token)> ends;
};

struct GeneratedSequence {
  std::vector<int32_t> tokens;  // behind the prompt
  std::vector<double> at_s;     // when each was there, since the prompts were
  bool ended = false;           // with its last token; or there is no such sequence
};

// When the last of several sequences had its first token; 0: none has one.
double first_token_s(const std::vector<GeneratedSequence>& sequences);

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
  Chosen next(const SessionState& state);
  void add(const GenerationBatch::Token& made);

  GenerationHooks hooks_;
  int at_once_;  // executions that make tokens
  GenerationBatch::AtOnce first_;
  GenerationBatch executions_;
  Batch batch_;
  std::vector<GeneratedSequence> made_;  // [sequence]
  std::chrono::steady_clock::time_point begun_;
  bool runs_ = false;
};

}  // namespace nlsplit::inline exec

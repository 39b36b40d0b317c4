// Sequences of a language model that join a batch and leave it while it goes on (continuous batching: Yu et al.,
// "Orca", OSDI 2022). Which execution comes next, and what each sequence does in it, is decided here and nowhere else:
// for the real server and for the simulated one.
//
//   Batch batch({.slots = 4, .chunk = 16, .context = 512});
//   const auto taken = batch.slot_for(prompt.size(), common);   // where the prompt's beginning may lie already
//   batch.join(*taken, prompt.size(), 64);                      // …copy what a lender keeps of it
//   const BatchStep step = batch.step();     // …run it; for each slot whose step gives a token:
//   if (batch.made(slot)) batch.leave(slot);
//
// The rule: while a sequence has more than one token that the model has not seen, `prefill` runs, else `decode`.
// Prefill takes a chunk of every such sequence, and the last token of all others. So each execution makes one token of
// every sequence whose prompt has been read, and none waits for another's prompt longer than one execution takes
// (Agrawal et al., "Sarathi-Serve", OSDI 2024).
//
// Prefix reuse: a slot keeps the keys and values of its sequence after the sequence has left. A later prompt with the
// same first tokens reuses them, in place or as a copy from another slot, free or busy (which *lends* them). Copies are
// made in the order in which sequences join, before the next execution.
//
// Caches in pages (Kwon et al., "Efficient memory management for large language model serving with PagedAttention",
// SOSP 2023) belong to no slot. A sequence gets pages for its prompt when it joins, and one more whenever its pages are
// full. Slots share whole pages of a common prefix without copies. If no page is free, pages that only free slots keep
// are evicted, least recently used first. Then the sequence that joined last is preempted: it waits again, and its
// recomputed tokens are the same.
//
// With pages an execution has only the sequences that need it. So prompts are computed one after the other, which
// delays none of them, and a sequence joins once the prompt before it has been computed: it can reuse that prompt's
// pages. Chunks of the prompt alternate with tokens of the other sequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "serving/page_pool.h"

namespace nlsplit::inline serving {

struct BatchForm {
  int64_t slots = 1;    // sequences at once
  int64_t chunk = 1;    // tokens of a sequence that prefill takes; 1: there is no prefill
  int64_t context = 1;  // positions that are kept of a sequence
  // [slot]: slots with the same number may share prefixes; empty: all may.
  std::vector<int> groups = {};
  // Caches in pages: positions of a page, a divisor of the context, and pages for all sequences, at least the
  // context's. 0: each slot has its own `context` positions.
  int64_t page = 0, pages = 0;
};

// Positions that a sequence needs: its last token is never seen by the model.
int64_t positions_of(int64_t prompt, int64_t tokens);

enum class Execution : uint8_t { none, prefill, decode };

// What a slot does in an execution. Near the end of the context a chunk may begin with tokens that were computed
// before: they get the same keys and values again.
struct SlotStep {
  int64_t begin = 0;            // position of the first token that is taken; what is there and behind is overwritten
  int64_t tokens = 0;           // so many; 0: the slot does nothing
  bool gives_token = false;     // one comes behind the last of them
  std::vector<int> pages = {};  // of caches in pages: where its positions lie
};

// A preempted sequence: it waits as a prompt of all its tokens so far.
struct Preempted {
  size_t slot = 0;
  int64_t known = 0, left = 0;  // its tokens, those that are still to be made
};

struct BatchStep {
  Execution execution = Execution::none;
  std::vector<SlotStep> slots;            // [slot]
  std::vector<Preempted> preempted = {};  // before it
};

// The most executions chosen at once: chunks of prompts, or tokens of several micro-batches. Between two choices the
// pipeline drains once; until then nothing else can be chosen.
inline constexpr int executions_at_once = 16;

// Executions in a row.
struct BatchRow {
  Execution execution = Execution::none;
  int times = 0;
  bool gives_tokens = false;  // before the last one
};

// Whether prompts reuse the prefixes that slots keep.
enum class PrefixReuse : uint8_t { off, on };

// The slot of a request, and the number of its prompt's tokens that are reused.
struct SlotChoice {
  size_t slot = 0;
  int64_t reused = 0;
  std::optional<size_t> lender = {};  // the slot that keeps them; none: the slot itself
};
// Number of first tokens that a prompt has in common with the last sequence of a slot. Empty function: nothing is
// reused.
using CommonPrefix = std::function<int64_t(size_t slot)>;

class Batch {
 public:
  explicit Batch(BatchForm form);

  const BatchForm& form() const { return form_; }
  // The free slot for a prompt of so many tokens. Nothing: none is free. It is the one that keeps the longest prefix of
  // the prompt, if that is at least as long as what the slot keeps besides, which is lost: else users who share nothing
  // but the first tokens of a template would take each other's slots in turn. Otherwise it is the slot that was left
  // least recently. Where another slot of the group, busy or free, keeps more of the prompt, that one lends it. The
  // last token of a prompt is always seen anew: its successor is wanted. With caches in pages also nothing: another
  // prompt is being computed, or pages for this one and one more for each sequence that runs are not to be had.
  std::optional<SlotChoice> slot_for(int64_t prompt, const CommonPrefix& common) const;
  bool is_free(size_t slot) const { return slots_[slot].most == 0; }
  int64_t running() const;

  // A sequence with a prompt of so many tokens, of which at most so many are made. The slot is free, both are at least
  // 1, and there is room: positions_of(prompt, tokens) <= context. What is reused is there, as slot_for says; from now
  // on the slot keeps that and nothing else.
  void join(const SlotChoice& taken, int64_t prompt, int64_t tokens);
  // The next execution; what it takes counts as seen from now on.
  BatchStep step();
  // Not with caches in pages: the executions that may be chosen at once: chunks of prompts until the first prompt ends,
  // or `most` tokens of each sequence if none needs prefill before.
  BatchRow row(int most) const;
  // What slots [begin, end) do in the next of them.
  std::vector<SlotStep> step(Execution execution, size_t begin, size_t end);
  // The slot's token came. true: it was the last one that was asked for.
  bool made(size_t slot);
  // What the model has seen of the sequence stays, until another one joins.
  void leave(size_t slot);
  // And nothing stays.
  void leave_nothing(size_t slot);

 private:
  struct Slot {
    int64_t known = 0, seen = 0;  // tokens; those that the model has seen, and, of a free slot, keeps
    int64_t made = 0, most = 0;   // 0: the slot is free
    uint64_t left = 0;            // how many sequences had left when its last one did; 0: it had none
    uint64_t joined = 0;          // how many had joined when this one did
    std::vector<int> pages = {};  // what it has seen lies there
  };

  bool may_lend(size_t from, size_t to) const { return form_.groups.empty() || form_.groups[from] == form_.groups[to]; }

  bool is_paged() const { return form_.page > 0; }
  SlotStep step_of(size_t slot, int64_t room);
  // batch_pages.cc
  bool has_pages_for(const SlotChoice& taken, int64_t prompt) const;
  void take_pages(const SlotChoice& taken, int64_t prompt);
  void cut_pages(Slot& slot, int64_t pages);
  bool drop_kept_page();
  void grow(size_t slot, BatchStep& step);
  BatchStep step_in_pages();

  BatchForm form_;
  std::vector<Slot> slots_;
  PagePool pool_;
  uint64_t left_ = 0, joined_ = 0;
  Execution before_ = Execution::none;
};

}  // namespace nlsplit::inline serving

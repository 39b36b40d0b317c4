#include "serving/batch.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nlsplit::inline serving {

int64_t positions_of(int64_t prompt, int64_t tokens) { return prompt + tokens - 1; }

Batch::Batch(BatchForm form) : form_(std::move(form)), slots_(static_cast<size_t>(form_.slots)), pool_(form_.pages) {
  CHECK(
      !is_paged() || (form_.chunk > 1 && form_.context % form_.page == 0 && form_.pages * form_.page >= form_.context),
      "pages without room for a sequence");
}

std::optional<SlotChoice> Batch::slot_for(int64_t prompt, const CommonPrefix& common) const {
  const auto computes_prompt = [](const Slot& slot) { return slot.known - slot.seen > 1; };
  if (is_paged() && std::ranges::any_of(slots_, computes_prompt)) return std::nullopt;
  std::vector<int64_t> shared(slots_.size(), 0);
  std::optional<size_t> oldest, longest;
  for (size_t s = 0; s < slots_.size(); ++s) {
    const int64_t kept = slots_[s].seen;
    if (common && kept > 0) shared[s] = std::min({common(s), kept, prompt - 1});
    if (is_paged()) shared[s] -= shared[s] % form_.page;
    if (!is_free(s)) continue;
    const auto is_older = [&](const auto& than) { return !than || slots_[s].left < slots_[*than].left; };
    if (is_older(oldest)) oldest = s;
    if (shared[s] == 0 || shared[s] < kept - shared[s]) continue;
    if (!longest || shared[s] > shared[*longest] || (shared[s] == shared[*longest] && is_older(longest))) longest = s;
  }
  if (!oldest) return std::nullopt;
  SlotChoice taken{.slot = longest.value_or(*oldest)};
  taken.reused = shared[taken.slot];
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (shared[s] > taken.reused && may_lend(s, taken.slot)) taken = {taken.slot, shared[s], s};
  }
  if (is_paged() && !has_pages_for(taken, prompt)) return std::nullopt;
  return taken;
}

int64_t Batch::running() const {
  return std::ranges::count_if(slots_, [](const Slot& slot) { return slot.most != 0; });
}

void Batch::join(const SlotChoice& taken, int64_t prompt, int64_t tokens) {
  const auto& [slot, reused, lender] = taken;
  CHECK(is_free(slot), "two sequences in one slot");
  CHECK(reused >= 0 && reused < prompt && reused <= slots_[lender.value_or(slot)].seen, "a prefix that is not there");
  CHECK(prompt > 0 && tokens > 0 && positions_of(prompt, tokens) <= form_.context, "a sequence without room");
  slots_[slot] = {.known = prompt,
                  .seen = reused,
                  .made = 0,
                  .most = tokens,
                  .left = 0,
                  .joined = ++joined_,
                  .pages = std::move(slots_[slot].pages)};
  if (is_paged()) take_pages(taken, prompt);
}

BatchRow Batch::row(int most) const {
  CHECK(!is_paged(), "pages are given out for one execution at a time");
  BatchRow row;
  int64_t most_new = 0, least_chunks = 0, tokens = 0;
  for (const Slot& slot : slots_) {
    const int64_t unseen = slot.known - slot.seen;
    if (unseen == 0) continue;
    const int64_t chunks = (unseen + form_.chunk - 1) / form_.chunk;
    least_chunks = least_chunks == 0 ? chunks : std::min(least_chunks, chunks);
    most_new = std::max(most_new, unseen);
    tokens = std::max(tokens, slot.most - slot.made);
  }
  if (most_new == 0) return row;
  if (most_new > 1 && form_.chunk > 1)
    return {Execution::prefill, static_cast<int>(std::min<int64_t>(least_chunks, executions_at_once)), false};
  // One by one while a prompt is taken so: the last token of one is not that of another.
  const int64_t times = most_new > 1 ? 1 : std::min<int64_t>(most, tokens);
  return {Execution::decode, static_cast<int>(times), times > 1};
}

std::vector<SlotStep> Batch::step(Execution execution, size_t begin, size_t end) {
  const int64_t room = execution == Execution::prefill ? form_.chunk : 1;
  std::vector<SlotStep> steps(end - begin);
  for (size_t s = begin; s < end; ++s) {
    Slot& slot = slots_[s];
    // The execution writes behind what a free slot keeps, wherever that means nothing.
    if (is_free(s)) slot.seen = slot.known = std::min(slot.seen, form_.context - room);
    steps[s - begin] = step_of(s, room);
  }
  return steps;
}

SlotStep Batch::step_of(size_t s, int64_t room) {
  Slot& slot = slots_[s];
  SlotStep does;
  does.begin = std::min(slot.seen, form_.context - room);
  does.pages = slot.pages;
  if (slot.seen == slot.known) return does;
  does.tokens = std::min(room, slot.known - does.begin);
  slot.seen = does.begin + does.tokens;
  does.gives_token = slot.seen == slot.known;
  return does;
}

BatchStep Batch::step() {
  if (is_paged()) return step_in_pages();
  const Execution execution = row(1).execution;
  if (execution == Execution::none) return {execution, std::vector<SlotStep>(slots_.size())};
  return {execution, step(execution, 0, slots_.size())};
}

bool Batch::made(size_t slot) {
  ++slots_[slot].known;
  return ++slots_[slot].made >= slots_[slot].most;
}

void Batch::leave(size_t slot) {
  Slot& of = slots_[slot];
  of.known = of.seen;
  of.made = of.most = 0;
  of.left = ++left_;
  if (is_paged()) cut_pages(of, pages_for(of.seen, form_.page));
}

void Batch::leave_nothing(size_t slot) {
  leave(slot);
  slots_[slot].known = slots_[slot].seen = 0;
  cut_pages(slots_[slot], 0);
}

}  // namespace nlsplit::inline serving

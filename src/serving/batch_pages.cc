// Caches in pages: which sequence has which, and who gives some back.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "serving/batch.h"

namespace nlsplit::inline serving {

// Pages that no running sequence has can be had, but those which are reused.
bool Batch::has_pages_for(const SlotChoice& taken, int64_t prompt) const {
  const int64_t reused = taken.reused / form_.page;
  std::vector<bool> held(static_cast<size_t>(form_.pages), false);
  const auto hold = [&](size_t slot, int64_t most) {
    const std::vector<int>& pages = slots_[slot].pages;
    for (size_t i = 0; i < pages.size() && std::cmp_less(i, most); ++i) held[static_cast<size_t>(pages[i])] = true;
  };
  for (size_t s = 0; s < slots_.size(); ++s) hold(s, is_free(s) ? 0 : form_.pages);
  hold(taken.lender.value_or(taken.slot), reused);
  return pages_for(prompt, form_.page) - reused + running() <= std::ranges::count(held, false);
}

// For the prompt, what is reused of it first. The slot is not free any more.
void Batch::take_pages(const SlotChoice& taken, int64_t prompt) {
  std::vector<int>& own = slots_[taken.slot].pages;
  std::vector<int> pages = slots_[taken.lender.value_or(taken.slot)].pages;
  pages.resize(static_cast<size_t>(taken.reused / form_.page));
  for (const int page : pages) pool_.share(page);
  for (const int page : own) pool_.give_back(page);
  own = std::move(pages);
  while (std::ssize(own) < pages_for(prompt, form_.page)) {
    while (pool_.free() == 0) CHECK(drop_kept_page(), "a sequence without pages");
    own.push_back(pool_.take());
  }
}

void Batch::cut_pages(Slot& slot, int64_t pages) {
  for (; std::ssize(slot.pages) > pages; slot.pages.pop_back()) pool_.give_back(slot.pages.back());
}

// The last one of what the free slot keeps that was left least recently; others may have it, too. false: none keeps
// anything.
bool Batch::drop_kept_page() {
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    if (slot.most == 0 && !slot.pages.empty() && (oldest == nullptr || slot.left < oldest->left)) oldest = &slot;
  }
  if (oldest == nullptr) return false;
  cut_pages(*oldest, std::ssize(oldest->pages) - 1);
  oldest->seen = oldest->known = std::min(oldest->seen, std::ssize(oldest->pages) * form_.page);
  return true;
}

// So that there is room for the slot's next position; or the sequence is preempted itself.
void Batch::grow(size_t slot, BatchStep& step) {
  if (slots_[slot].seen < std::ssize(slots_[slot].pages) * form_.page) return;
  while (pool_.free() == 0) {
    if (drop_kept_page()) continue;
    size_t youngest = slot;
    for (size_t s = 0; s < slots_.size(); ++s) {
      if (!is_free(s) && slots_[s].joined > slots_[youngest].joined) youngest = s;
    }
    const Slot& loses = slots_[youngest];
    step.preempted.push_back({youngest, loses.known, loses.most - loses.made});
    leave(youngest);
    if (youngest == slot) return;
  }
  slots_[slot].pages.push_back(pool_.take());
}

BatchStep Batch::step_in_pages() {
  BatchStep step;
  step.slots.resize(slots_.size());
  std::vector<size_t> tokens;  // who goes on with one, those that joined first in front
  std::optional<size_t> prompt;
  for (size_t s = 0; s < slots_.size(); ++s) {
    const int64_t unseen = slots_[s].known - slots_[s].seen;
    if (unseen == 1) tokens.push_back(s);
    if (unseen > 1) prompt = s;
  }
  if (prompt && (tokens.empty() || before_ != Execution::prefill)) {
    step.execution = Execution::prefill;
    step.slots[*prompt] = step_of(*prompt, form_.chunk);
  } else if (!tokens.empty()) {
    step.execution = Execution::decode;
    std::ranges::sort(tokens, {}, [&](size_t s) { return slots_[s].joined; });
    for (const size_t s : tokens) {
      if (!is_free(s)) grow(s, step);
      if (!is_free(s)) step.slots[s] = step_of(s, 1);
    }
  }
  before_ = step.execution;
  return step;
}

}  // namespace nlsplit::inline serving

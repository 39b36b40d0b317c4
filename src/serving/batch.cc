#include "serving/batch.h"

#include <algorithm>

#include "base/check.h"

namespace nlsplit::inline serving {

int64_t positions_of(int64_t prompt, int64_t tokens) { return prompt + tokens - 1; }

Batch::Batch(BatchForm form) : form_(form), slots_(static_cast<size_t>(form.slots)) {}

std::optional<size_t> Batch::free_slot() const {
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (is_free(s)) return s;
  }
  return std::nullopt;
}

int64_t Batch::running() const {
  return std::ranges::count_if(slots_, [](const Slot& slot) { return slot.most != 0; });
}

void Batch::join(size_t slot, int64_t prompt, int64_t tokens) {
  CHECK(is_free(slot), "two sequences in one slot");
  CHECK(prompt > 0 && tokens > 0 && positions_of(prompt, tokens) <= form_.context, "a sequence without room");
  slots_[slot] = {.known = prompt, .seen = 0, .made = 0, .most = tokens};
}

BatchStep Batch::step() {
  BatchStep step;
  step.slots.resize(slots_.size());
  int64_t most_new = 0;
  for (const Slot& slot : slots_) most_new = std::max(most_new, slot.known - slot.seen);
  if (most_new == 0) return step;
  step.execution = most_new > 1 && form_.chunk > 1 ? Execution::prefill : Execution::decode;
  const int64_t room = step.execution == Execution::prefill ? form_.chunk : 1;
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    if (slot.seen == slot.known) continue;
    SlotStep& does = step.slots[s];
    does.begin = std::min(slot.seen, form_.context - room);
    does.tokens = std::min(room, slot.known - does.begin);
    slot.seen = does.begin + does.tokens;
    does.gives_token = slot.seen == slot.known;
  }
  return step;
}

bool Batch::made(size_t slot) {
  ++slots_[slot].known;
  return ++slots_[slot].made >= slots_[slot].most;
}

void Batch::leave(size_t slot) { slots_[slot] = {}; }

}  // namespace nlsplit::inline serving

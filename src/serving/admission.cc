#include "serving/admission.h"

namespace nlsplit::inline serving {

bool Admission::offer(const WaitingRequest& request) {
  if (waiting() + batch_.running() >= most_waiting_ + batch_.form().slots) return false;
  waiting_.push_back(request);
  return true;
}

std::optional<JoinedRequest> Admission::admit(const CommonPrefixOf& common) {
  if (waiting_.empty()) return std::nullopt;
  const WaitingRequest first = waiting_.front();
  CommonPrefix of_first;
  if (common) of_first = [&](size_t slot) { return common(first.id, slot); };
  const auto taken = batch_.slot_for(first.prompt, of_first);
  if (!taken) return std::nullopt;
  batch_.join(*taken, first.prompt, first.tokens);
  in_slot_[taken->slot] = first.id;
  waiting_.pop_front();
  return JoinedRequest{first.id, *taken};
}

BatchStep Admission::step() {
  BatchStep step = batch_.step();
  for (const auto& [slot, known, left] : step.preempted) waiting_.push_front({in_slot_[slot], known, left});
  return step;
}

bool Admission::withdraw(uint64_t id) {
  return std::erase_if(waiting_, [id](const WaitingRequest& request) { return request.id == id; }) > 0;
}

}  // namespace nlsplit::inline serving

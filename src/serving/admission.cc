#include "serving/admission.h"

namespace nlsplit::inline serving {

bool Admission::offer(const WaitingRequest& request) {
  if (waiting() + batch_.running() >= most_waiting_ + batch_.form().slots) return false;
  waiting_.push_back(request);
  return true;
}

std::vector<JoinedRequest> Admission::admit(const CommonPrefixOf& common) {
  std::vector<JoinedRequest> joined;
  while (!waiting_.empty()) {
    const WaitingRequest& first = waiting_.front();
    CommonPrefix of_first;
    if (common) of_first = [&](size_t slot) { return common(first.id, slot); };
    const auto taken = batch_.slot_for(first.prompt, of_first);
    if (!taken) break;
    batch_.join(taken->slot, first.prompt, first.tokens, taken->reused);
    joined.push_back({first.id, taken->slot, taken->reused});
    waiting_.pop_front();
  }
  return joined;
}

bool Admission::withdraw(uint64_t id) {
  return std::erase_if(waiting_, [id](const WaitingRequest& request) { return request.id == id; }) > 0;
}

}  // namespace nlsplit::inline serving

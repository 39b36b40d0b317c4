#include "serving/admission.h"

namespace nlsplit::inline serving {

bool Admission::offer(const WaitingRequest& request) {
  if (waiting() + batch_.running() >= most_waiting_ + batch_.form().slots) return false;
  waiting_.push_back(request);
  return true;
}

std::vector<JoinedRequest> Admission::admit() {
  std::vector<JoinedRequest> joined;
  while (!waiting_.empty()) {
    const auto slot = batch_.free_slot();
    if (!slot) break;
    const WaitingRequest& first = waiting_.front();
    batch_.join(*slot, first.prompt, first.tokens);
    joined.push_back({first.id, *slot});
    waiting_.pop_front();
  }
  return joined;
}

bool Admission::withdraw(uint64_t id) {
  return std::erase_if(waiting_, [id](const WaitingRequest& request) { return request.id == id; }) > 0;
}

}  // namespace nlsplit::inline serving

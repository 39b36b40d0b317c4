#include "serving/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace nlsplit::inline serving {
namespace {

// The smallest execution that has room for the sequences of the step.
DecodeTime time_of(const BatchStep& step, const BatchForm& form, const ServerTimes& times) {
  if (step.execution == Execution::prefill) return {form.page > 0 ? 1 : form.slots, times.prefill};
  const int64_t take = std::ranges::count_if(step.slots, [](const SlotStep& slot) { return slot.tokens > 0; });
  for (const DecodeTime& fewer : times.fewer) {
    if (fewer.sequences >= take) return fewer;
  }
  return {form.slots, times.decode};
}

double seconds_of(const BatchStep& step, const BatchForm& form, const ServerTimes& times) {
  const auto& [sequences, time] = time_of(step, form, times);
  const int64_t row = step.execution == Execution::prefill ? form.chunk : 1;
  int64_t seen = 0;
  for (const SlotStep& slot : step.slots) seen += slot.tokens > 0 ? slot.begin + row : 0;
  return time.at_none_s + time.per_position_s * static_cast<double>(seen) / static_cast<double>(sequences);
}

}  // namespace

std::vector<ServedRequest> simulate_serving(const RequestTrace& trace, const BatchForm& form, int64_t most_waiting,
                                            const ServerTimes& times, PrefixReuse reuse) {
  const std::vector<ArrivingRequest>& requests = trace.requests;
  std::vector<ServedRequest> served(requests.size());
  Admission admission(form, most_waiting);
  std::vector<std::optional<size_t>> in_slot(static_cast<size_t>(form.slots));  // also after it has left
  CommonPrefixOf common;
  if (reuse == PrefixReuse::on)
    common = [&](uint64_t id, size_t slot) -> int64_t {
      if (!in_slot[slot]) return 0;
      if (*in_slot[slot] == id) return std::numeric_limits<int64_t>::max();  // it was preempted there
      return common_prefix(requests[id], requests[*in_slot[slot]]);
    };
  double now = 0;
  size_t next = 0;  // to arrive
  const auto arrive = [&] {
    const ArrivingRequest& request = requests[next];
    ServedRequest& one = served[next];
    one.at_s = request.at_s;
    one.prompt = request.prompt;
    if (positions_of(request.prompt, request.tokens) > form.context)
      one.why = fmt::format("prompt and answer do not fit the context of {} positions", form.context);
    else if (!admission.offer({next, request.prompt, request.tokens}))
      one.outcome = Outcome::turned_away;
    ++next;
  };
  while (true) {
    while (next < requests.size() && requests[next].at_s <= now) arrive();
    int64_t copied = 0;
    while (const auto joined = admission.admit(common)) {
      const auto& [slot, reused, lender] = joined->taken;
      in_slot[slot] = static_cast<size_t>(joined->id);
      if (served[joined->id].preempted == 0) served[joined->id].cached = reused;
      copied += lender && form.page == 0 ? reused : 0;
    }
    const BatchStep step = admission.step();
    for (const Preempted& sequence : step.preempted) ++served[*in_slot[sequence.slot]].preempted;
    if (step.execution == Execution::none) {
      if (next == requests.size()) return served;
      now = requests[next].at_s;
      continue;
    }
    const double end = now + seconds_of(step, form, times) + times.copied_position_s * static_cast<double>(copied);
    while (next < requests.size() && requests[next].at_s < end) arrive();  // meanwhile
    now = end;
    for (size_t s = 0; s < step.slots.size(); ++s) {
      if (!step.slots[s].gives_token) continue;
      ServedRequest& one = served[*in_slot[s]];
      if (one.tokens++ == 0) one.first_s = now;
      one.last_s = now;
      if (!admission.batch().made(s)) continue;
      one.outcome = Outcome::answered;
      admission.batch().leave(s);
    }
  }
}

}  // namespace nlsplit::inline serving

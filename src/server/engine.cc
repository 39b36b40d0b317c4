#include "server/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace nlsplit::inline server {
namespace {

// While nobody asks for anything: how often it is looked whether the user has had enough, and rank 0 is said to live.
constexpr std::chrono::milliseconds between_idle_looks(100);

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Engine::Engine(const GenerationForm& form, int64_t most_waiting, PrefixReuse reuse)
    : form_(form),
      reuses_(reuse == PrefixReuse::on && form.keeps_positions),
      executions_(form),
      admission_(form.batch(), most_waiting),
      in_slot_(static_cast<size_t>(form.sequences)) {
  counts_.slots = form.sequences;
}

std::optional<uint64_t> Engine::submit(EngineRequest request) {
  const std::lock_guard lock(mutex_);
  const uint64_t id = next_id_;
  if (stops_ || !admission_.offer({id, std::ssize(request.prompt), request.tokens})) {
    ++counts_.turned_away;
    return std::nullopt;
  }
  ++next_id_;
  ++counts_.accepted;
  counts_.prompt_tokens += request.prompt.size();
  active_.emplace(id, Active{std::move(request), Clock::now(), {}, {}, 0, 0});
  condition_.notify_one();
  return id;
}

void Engine::cancel(uint64_t id) {
  const std::lock_guard lock(mutex_);
  if (active_.erase(id) == 0) return;
  ++counts_.cancelled;
  admission_.withdraw(id);
  for (size_t s = 0; s < in_slot_.size(); ++s) {
    if (in_slot_[s] != id) continue;
    in_slot_[s].reset();
    admission_.batch().leave(s);
  }
}

bool Engine::ended() const {
  const std::lock_guard lock(mutex_);
  return stops_;
}

ServingCounts Engine::counts() const {
  const std::lock_guard lock(mutex_);
  ServingCounts counts = counts_;
  counts.running = admission_.batch().running();
  counts.waiting = admission_.waiting();
  return counts;
}

double Engine::retry_after_s() const {
  const std::lock_guard lock(mutex_);
  if (counts_.finished == 0) return 1;
  const double each = counts_.request_s / static_cast<double>(counts_.finished);
  const double ahead = static_cast<double>(admission_.waiting() + 1) / static_cast<double>(form_.sequences);
  return std::max(1.0, std::ceil(each * ahead));
}

// With the lock.
void Engine::finish(uint64_t id, Finish how) {
  const auto found = active_.find(id);
  const Active& active = found->second;
  if (how == Finish::stop || how == Finish::length) {
    ++counts_.finished;
    counts_.request_s += seconds_between(active.arrived, active.latest);
    if (active.made > 1)
      counts_.next_token.add(seconds_between(active.first, active.latest) / static_cast<double>(active.made - 1));
  } else {
    ++counts_.failed;
  }
  active.request.on_finish(how, active.cached);
  active_.erase(found);
}

void Engine::finish_all(Finish how) {
  const std::lock_guard lock(mutex_);
  stops_ = true;
  while (!active_.empty()) finish(active_.begin()->first, how);
}

void Engine::take_tokens(const SessionState& state) {
  const std::lock_guard lock(mutex_);
  // A sequence whose slot was given up while it ran: its token is nobody's.
  std::vector<size_t> no_numbers;  // slots whose scores are none
  const auto pick = [&](size_t slot, std::span<const float> scores, uint64_t position) -> size_t {
    if (!in_slot_[slot]) return 0;
    const Result<TokenId> drawn = sample(scores, active_.at(*in_slot_[slot]).request.sampling, position);
    if (!drawn.ok()) no_numbers.push_back(slot);
    return drawn.ok() ? static_cast<size_t>(*drawn) : 0;
  };
  const auto made = executions_.take(state, pick);
  const Clock::time_point now = Clock::now();
  if (ran_ == Execution::prefill) {
    ++counts_.prefills;
    counts_.prefill_s += seconds_between(began_, now);
  } else if (ran_ == Execution::decode) {
    ++counts_.decodes;
    counts_.decode_s += seconds_between(began_, now);
  }
  ran_ = Execution::none;
  for (const auto& [slot, token] : made) {
    if (!in_slot_[slot]) continue;
    const uint64_t id = *in_slot_[slot];
    if (std::ranges::find(no_numbers, slot) != no_numbers.end()) {
      admission_.batch().leave_nothing(slot);
      in_slot_[slot].reset();
      finish(id, Finish::failed);
      continue;
    }
    Active& active = active_.at(id);
    active.latest = now;
    if (active.made++ == 0) {
      active.first = now;
      counts_.first_token.add(seconds_between(active.arrived, now));
    }
    ++counts_.answer_tokens;
    const bool last = admission_.batch().made(slot), ends = active.request.on_token(token);
    if (!ends && !last) continue;
    admission_.batch().leave(slot);
    in_slot_[slot].reset();
    finish(id, ends ? Finish::stop : Finish::length);
  }
}

// With the lock.
void Engine::admit() {
  CommonPrefixOf common;
  if (reuses_)
    common = [this](uint64_t id, size_t slot) {
      return executions_.common_prefix(slot, active_.at(id).request.prompt);
    };
  while (const auto joined = admission_.admit(common)) {
    const auto& [slot, reused, lender] = joined->taken;
    Active& active = active_.at(joined->id);
    in_slot_[slot] = joined->id;
    executions_.begin(joined->taken, active.request.prompt);
    if (active.preempted) continue;
    active.cached = reused;
    counts_.cached_tokens += static_cast<uint64_t>(reused);
    if (lender && form_.page == 0) counts_.copied_tokens += static_cast<uint64_t>(reused);
  }
}

// With the lock. Those that lost their slots wait with all their tokens so far as prompts.
BatchStep Engine::step() {
  BatchStep step = admission_.step();
  for (const Preempted& sequence : step.preempted) {
    Active& active = active_.at(*in_slot_[sequence.slot]);
    active.request.prompt = executions_.tokens(sequence.slot);
    active.preempted = true;
    in_slot_[sequence.slot].reset();
    ++counts_.preempted;
  }
  return step;
}

Chosen Engine::next(const SessionState& state, bool (*cancelled)()) {
  if (const auto warm = executions_.warm_up(state, {})) return *warm;
  take_tokens(state);
  std::unique_lock lock(mutex_);
  while (true) {
    if (stops_ || (cancelled != nullptr && cancelled())) {
      lock.unlock();
      finish_all(Finish::shutdown);
      return Choice{0, 0};
    }
    admit();
    if (const BatchStep now = step(); now.execution != Execution::none) {
      ran_ = now.execution;
      began_ = Clock::now();
      return executions_.run(now, state);
    }
    state.still_here();
    // The system clock: see exec/waker.h.
    condition_.wait_until(lock, std::chrono::system_clock::now() + between_idle_looks);
  }
}

}  // namespace nlsplit::inline server

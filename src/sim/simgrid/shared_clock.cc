#include "sim/simgrid/shared_clock.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "sim/fast.h"

namespace nlsplit::inline sim {
namespace {

uint64_t payload_of(double bytes) {
  return std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(bytes * parts_of_a_byte)));
}

}  // namespace

double time_unit(const TimedGraph& graph, const Cluster& cluster, Timing& timing) {
  simulate_fast(graph, timing);
  const double bound = std::max(timing.makespan, load_of(graph, cluster, graph.host_of_device.size()).busiest());
  return bound > 0 && std::isfinite(bound) ? std::exp2(std::ceil(std::log2(bound))) : 1;
}

SharedClock::SharedClock(const TimedGraph& graph, const Cluster& cluster, Timing& timing, SharedFlows& flows,
                         double unit, const std::vector<LinkId>& changing)
    : EvenClock(graph, cluster, timing, changing), flows_(flows), unit_(unit), links_change_(!changing.empty()) {}

void SharedClock::begin() {
  EvenClock::begin();
  after_steps();
}

void SharedClock::begin_shared() {
  shared_ += waiting_.size();
  for (const auto& [activity, rest] : waiting_) flows_.move(activity, payload_of(rest));
  waiting_.clear();
}

void SharedClock::flow_ended(uint32_t activity) {
  --shared_;
  lone_.end(activity);
  now_ = clock();
  runner_.step(activity, Step::flow_done, now_);
  after_steps();
}

void SharedClock::on_alarm(Alarm alarm) {
  switch (alarm) {
    case Alarm::step:
      now_ = *std::exchange(step_due_, std::nullopt);
      begin_shared();
      take_steps(now_);
      break;
    case Alarm::admission:
      admission_is_set_ = false;
      now_ = clock();
      runner_.admit(now_);
      break;
  }
  after_steps();
}

// While flows have nothing to move and no link changes, time is the queue's.
void SharedClock::go_on_without() {
  if (!needs_flows()) {
    cancel_step();
    if (admission_is_set_) flows_.cancel(Alarm::admission);
    admission_is_set_ = false;
    go_on();
  }
  arm();
}

void SharedClock::cancel_step() {
  if (step_due_) flows_.cancel(Alarm::step);
  step_due_.reset();
}

// One alarm, for messages that wait for the clock of flows, or else for the next step.
void SharedClock::arm() {
  const double next = waiting_.empty() ? next_time() : now_;
  if (std::isinf(next)) return;
  if (step_due_ && *step_due_ <= next) return;
  cancel_step();
  step_due_ = next;
  flows_.set(Alarm::step, std::max(next / unit_, flows_.clock()));
}

// The clock of flows is at the moment of the last steps.
void SharedClock::after_steps() {
  if (needs_flows()) begin_shared();
  if (runner_.has_asked() && needs_flows()) admit_after_this_moment();
  go_on_without();
}

// A card takes messages after all steps of one time, so that their order does not depend on whether a flow or an alarm
// of that time comes first. The next larger double comes after all steps of this time.
void SharedClock::admit_after_this_moment() {
  if (admission_is_set_) return;
  admission_is_set_ = true;
  flows_.set(Alarm::admission, std::nextafter(flows_.clock(), std::numeric_limits<double>::infinity()));
}

}  // namespace nlsplit::inline sim

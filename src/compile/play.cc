// Of pass `exchange`: simulates the table. In inference a slot starts only when each receiver of its messages has a
// free instance of the buffer (backpressure), so that no schedule needs more instances than it declares. A training
// schedule itself determines how many micro-batches are in flight.
//
// The result is a possible execution in which every message passes at once. Orders taken from it cannot deadlock.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/readiness.h"
#include "compile/lowering.h"

namespace nlsplit::inline compiler {
namespace {

constexpr double not_yet = std::numeric_limits<double>::quiet_NaN();
constexpr size_t no_event = std::numeric_limits<size_t>::max();

class Play {
 public:
  explicit Play(const Lowering& lowering)
      : l_(lowering),
        training_(lowering.training != nullptr),
        stages_(at(lowering.stages())),
        micro_batches_(at(lowering.micro_batches())) {
    const size_t devices = l_.table.devices.size();
    const size_t work = (training_ ? work_phases : 1) * stages_ * micro_batches_;
    done_.assign(work + (training_ ? stages_ * devices : 0), not_yet);
    sleepers_.reset(done_.size(), devices);
    next_.assign(devices, 0);
    busy_.assign(devices, false);
    played_.forward_start = Grid<double>(stages_, micro_batches_, not_yet);
    played_.forward_end = played_.forward_start;
    played_.source.assign(micro_batches_, not_yet);
    find_consumers();
    if (!training_) find_freed();
  }

  Result<Played> run() {
    size_t left = 0;
    for (const std::vector<ScheduledSlot>& order : l_.table.devices) {
      played_.ends.emplace_back(order.size(), 0);
      left += order.size();
    }
    for (size_t d = 0; d < busy_.size(); ++d) try_start(d, 0);
    while (!running_.empty()) {
      const Running slot = running_.top();
      running_.pop();
      --left;
      ++number_;
      finish(slot);
    }
    if (left > 0) return waiting();
    if (training_) send_inputs_ahead();
    if (passes_through()) send_inputs_with_first_stage();
    return std::move(played_);
  }

 private:
  static constexpr size_t work_phases = 4;
  static size_t number_of(Phase phase) {
    switch (phase) {
      case Phase::forward:
        return 0;
      case Phase::recompute:
        return 1;
      case Phase::input_gradient:
        return 2;
      case Phase::weight_gradient:
        return 3;
      case Phase::step:
      case Phase::init:
        break;
    }
    CHECK(false, "not a phase of a micro-batch");
  }

  struct Running {
    double finish;
    int takes;  // among slots that end together those that free memory come first
    size_t device, index;
    bool operator>(const Running& other) const {
      return std::tie(finish, takes, device, index) > std::tie(other.finish, other.takes, other.device, other.index);
    }
  };

  // ---- Events: the end of a slot; a device's arrival at the step of a stage.
  size_t end_of(Phase phase, int stage, int m) const {
    return (number_of(phase) * stages_ + at(stage)) * micro_batches_ + at(m);
  }
  size_t arrival_of(int stage, size_t device) const {
    return work_phases * stages_ * micro_batches_ + at(stage) * busy_.size() + device;
  }
  bool is_done(size_t event) const { return done_[event] >= 0; }
  void set_done(size_t event, double now) {
    done_[event] = now;
    sleepers_.wake(event, [this](uint32_t device) { woken_.push_back(device); });
  }

  // ---- What a slot waits for

  // The first of the events that has not come yet.
  template <class... Events>
  size_t missing(Events... events) const {
    size_t first = no_event;
    ((first == no_event && events != no_event && !is_done(events) ? first = events : first), ...);
    return first;
  }

  size_t forward_waits(const ScheduledSlot& slot) const {
    const int m = slot.micro_batch;
    if (slot.stage == 0 && l_.table.in_flight > 0 && m >= l_.table.in_flight) {
      const size_t left = missing(end_of(Phase::forward, l_.stages() - 1, m - l_.table.in_flight));
      if (left != no_event) return left;
    }
    for (const int before : l_.needs[at(slot.stage)]) {
      if (const size_t event = missing(end_of(Phase::forward, before, m)); event != no_event) return event;
    }
    if (training_) return no_event;
    if (needs_source(slot)) {
      if (const size_t event = buffer_waits(input_consumers_, l_.source, m); event != no_event) return event;
    }
    return buffer_waits(consumers_[at(slot.stage)], l_.device_of(slot.stage, m), m);
  }

  // For an instance of the buffer at all who receive micro-batch m.
  size_t buffer_waits(const std::vector<int>& consumers, int from, int m) const {
    for (const int c : consumers) {
      const int frees = freed_by_[at(c)][at(m)];
      if (frees < 0 || l_.device_of(c, m) == from) continue;
      if (const size_t event = missing(end_of(Phase::forward, c, frees)); event != no_event) return event;
    }
    return no_event;
  }

  // Of a backward in one piece the gradient leaves with W.
  size_t gradient_of(int stage, int m) const {
    return end_of(l_.whole[at(stage)][at(m)] != 0 ? Phase::weight_gradient : Phase::input_gradient, stage, m);
  }

  // All who reduce the stage's gradients have come to their step, and have nothing of the stage left to do. Steps that
  // wait for each other are a device's last slots, so that all have come when no stage has anything left to do.
  size_t step_waits(int stage) const {
    if (l_.steps_together()) {
      for (int s = 0; s < l_.stages(); ++s) {
        for (int m = 0; m < l_.micro_batches(); ++m) {
          if (const size_t event = missing(end_of(Phase::weight_gradient, s, m)); event != no_event) return event;
        }
      }
      return no_event;
    }
    for (const int device : l_.reductions[at(stage)].group) {
      if (const size_t event = missing(arrival_of(stage, at(device))); event != no_event) return event;
    }
    for (int m = 0; m < l_.micro_batches(); ++m) {
      if (const size_t event = missing(end_of(Phase::weight_gradient, stage, m)); event != no_event) return event;
    }
    return no_event;
  }

  size_t waits(const ScheduledSlot& slot) const {
    const int s = slot.stage, m = slot.micro_batch;
    switch (slot.phase) {
      case Phase::forward:
        return forward_waits(slot);
      case Phase::recompute:
        return missing(end_of(Phase::forward, s, m));
      case Phase::input_gradient:
        return missing(end_of(Phase::forward, s, m), s + 1 == l_.stages() ? no_event : gradient_of(s + 1, m),
                       l_.recomputes(s) ? end_of(Phase::recompute, s, m) : no_event);
      case Phase::weight_gradient:
        return missing(end_of(Phase::input_gradient, s, m));
      case Phase::step:
        return step_waits(s);
      case Phase::init:
        break;
    }
    CHECK(false, "no schedule has an init slot");
  }

  // ---- Time

  double seconds_of(size_t d, const ScheduledSlot& slot) const {
    const std::vector<int>& devices = l_.stage_devices[at(slot.stage)];
    const auto r = static_cast<size_t>(std::ranges::find(devices, static_cast<int>(d)) - devices.begin());
    const double forward = l_.schedule.stage_seconds[at(slot.stage)][r];
    switch (slot.phase) {
      case Phase::forward:
      case Phase::recompute:
        return forward;
      case Phase::input_gradient: {  // as in schedules' inputs, recomputation counts as part of I
        const double whole = l_.schedule.input_gradient_seconds[at(slot.stage)][r];
        return l_.recomputes(slot.stage) ? std::max(0.0, whole - forward) : whole;
      }
      case Phase::weight_gradient:
        return l_.schedule.weight_gradient_seconds[at(slot.stage)][r];
      case Phase::step:
      case Phase::init:
        break;
    }
    return 0;
  }

  void try_start(size_t device, double now) {
    woken_.push_back(device);
    while (!woken_.empty()) {
      const size_t d = woken_.back();
      woken_.pop_back();
      if (busy_[d] || next_[d] == l_.table.devices[d].size()) continue;
      const ScheduledSlot& slot = l_.table.devices[d][next_[d]];
      if (slot.phase == Phase::step && !is_done(arrival_of(slot.stage, d))) set_done(arrival_of(slot.stage, d), now);
      if (const size_t event = waits(slot); event != no_event) {
        sleepers_.sleep(static_cast<uint32_t>(d), event);
        continue;
      }
      start(d, slot, now);
    }
  }

  // As Played counts: in training by the slots that have ended.
  double moment(double now) const { return training_ ? number_ : now; }

  void start(size_t d, const ScheduledSlot& slot, double now) {
    busy_[d] = true;
    if (slot.phase == Phase::forward) {
      played_.forward_start[at(slot.stage)][at(slot.micro_batch)] = moment(now);
      if (!training_ && needs_source(slot)) played_.source[at(slot.micro_batch)] = inputs_sent(slot.micro_batch);
    }
    const bool takes = slot.phase == Phase::forward || slot.phase == Phase::recompute;
    running_.push({now + seconds_of(d, slot), takes ? 1 : 0, d, next_[d]});
  }

  void finish(const Running& running) {
    const size_t d = running.device;
    const ScheduledSlot& slot = l_.table.devices[d][running.index];
    busy_[d] = false;
    ++next_[d];
    played_.ends[d][running.index] = moment(running.finish);
    if (slot.phase == Phase::forward)
      played_.forward_end[at(slot.stage)][at(slot.micro_batch)] = moment(running.finish);
    if (slot.phase != Phase::step) set_done(end_of(slot.phase, slot.stage, slot.micro_batch), running.finish);
    try_start(d, running.finish);
  }

  // ---- Inputs

  void find_consumers() {
    consumers_.resize(stages_);
    for (const Flow& flow : l_.flows) {
      std::vector<int>& known = flow.producer == source_stage ? input_consumers_ : consumers_[at(flow.producer)];
      for (const int c : flow.consumers) {
        if (c < l_.stages() && std::ranges::find(known, c) == known.end()) known.push_back(c);
      }
    }
  }

  // freed_by_[stage][m]: the micro-batch whose end frees the buffer that m needs at this stage on its device.
  void find_freed() {
    freed_by_ = Grid<int>(stages_, micro_batches_, -1);
    std::vector<std::vector<int>> done(stages_);
    for (const std::vector<ScheduledSlot>& order : l_.table.devices) {
      for (std::vector<int>& list : done) list.clear();
      for (const ScheduledSlot& slot : order) {
        std::vector<int>& list = done[at(slot.stage)];
        if (list.size() >= at(l_.table.instances))
          freed_by_[at(slot.stage)][at(slot.micro_batch)] = list[list.size() - at(l_.table.instances)];
        list.push_back(slot.micro_batch);
      }
    }
  }

  // Whether a forward slot is sent an input.
  bool needs_source(const ScheduledSlot& slot) const {
    return l_.device_of(slot.stage, slot.micro_batch) != l_.source &&
           std::ranges::find(input_consumers_, slot.stage) != input_consumers_.end();
  }

  // In inference, as soon as all who need them have room.
  double inputs_sent(int m) const {
    double when = -1;  // before everything else
    for (const int c : input_consumers_) {
      const int frees = freed_by_[at(c)][at(m)];
      if (frees >= 0 && l_.device_of(c, m) != l_.source) when = std::max(when, done_[end_of(Phase::forward, c, frees)]);
    }
    return when;
  }

  // In training one micro-batch ahead of their use on the receiving device: they can arrive while the one before is
  // computed with.
  void send_inputs_ahead() {
    constexpr double just_before = 0.5;  // slots have whole numbers
    for (size_t d = 0; d < l_.table.devices.size(); ++d) {
      std::vector<double> before(stages_, 0);  // the number of the forward slot before; none: 0
      for (size_t i = 0; i < l_.table.devices[d].size(); ++i) {
        const ScheduledSlot& slot = l_.table.devices[d][i];
        if (slot.phase != Phase::forward) continue;
        double& sent = played_.source[at(slot.micro_batch)];
        const double when = before[at(slot.stage)] - just_before;
        if (needs_source(slot)) sent = sent <= when ? sent : when;  // NaN: no slot so far
        before[at(slot.stage)] = played_.ends[d][i];
      }
    }
  }

  // Whether an input is also an output, and has to be sent from source to sink.
  bool passes_through() const {
    return l_.source != l_.sink && std::ranges::any_of(l_.flows, [&](const Flow& flow) {
             return flow.producer == source_stage && flow.consumers.back() == l_.stages();
           });
  }
  void send_inputs_with_first_stage() {
    for (size_t m = 0; m < micro_batches_; ++m) {
      double& sent = played_.source[m];
      if (!(sent == sent)) sent = played_.forward_start[0][m];
    }
  }

  Error waiting() const {
    std::string who;
    for (size_t d = 0; d < l_.table.devices.size(); ++d) {
      if (next_[d] == l_.table.devices[d].size()) continue;
      who += fmt::format("{}device {} waits at slot {} for what {} needs", who.empty() ? "" : "; ", d, next_[d],
                         slot_text(l_.table.devices[d][next_[d]]));
    }
    return invalid_input(fmt::format("schedule {}: its orders wait for each other: {}", l_.plan->schedule, who));
  }

  const Lowering& l_;
  const bool training_;
  const size_t stages_, micro_batches_;
  std::vector<double> done_;   // [event]: when; not a number: not yet
  Sleepers sleepers_;          // devices, each on an event
  std::vector<size_t> next_;   // [device]: slot
  std::vector<bool> busy_;     // [device]
  std::vector<size_t> woken_;  // devices
  int number_ = 0;             // of slots that have ended
  TimeQueue<Running> running_;
  std::vector<std::vector<int>> consumers_;  // [stage]: stages that read what it makes
  std::vector<int> input_consumers_;
  Grid<int> freed_by_;
  Played played_;
};

}  // namespace

Result<Played> play(const Lowering& lowering) { return Play(lowering).run(); }

}  // namespace nlsplit::inline compiler

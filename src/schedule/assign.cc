#include "schedule/assign.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/index.h"
#include "partition/score.h"

namespace nlsplit::inline schedules {
namespace {

// The slots that one device still has to run of one stage, micro-batches ascending.
struct Queue {
  int device = 0;
  int stage = 0;
  double seconds = 0;
  std::vector<int> micro_batches;
  size_t next = 0;
};

std::vector<Queue> queues_of(const ScheduleInput& input, const std::vector<std::vector<int>>& replica) {
  std::vector<Queue> queues;
  for (size_t s = 0; s < input.stage_devices.size(); ++s) {
    const size_t first = queues.size();
    for (size_t r = 0; r < input.stage_devices[s].size(); ++r) {
      queues.push_back({input.stage_devices[s][r], static_cast<int>(s), input.stage_seconds[s][r], {}, 0});
    }
    for (int m = 0; m < input.micro_batches; ++m) queues[first + at(replica[s][at(m)])].micro_batches.push_back(m);
  }
  return queues;
}

// When micro-batch m has left all of these stages; infinite: not known yet.
double ready_at(const std::vector<int>& stages, const std::vector<std::vector<double>>& finished, int m) {
  double ready = 0;
  for (const int stage : stages) ready = std::max(ready, finished[at(stage)][at(m)]);
  return ready;
}

// The link directions (lanes) on the routes of one stage's replicas. A message does not occupy a link while it waits
// for another one.
class Lanes {
 public:
  // The arrival of an input that may leave at `leaves`. Inputs leave in the order in which the replicas take them, so a
  // link is busy until the last one has passed.
  double arrival(const Way& way, double leaves) const {
    return end(way, leaves, [&](uint32_t lane) { return std::max(leaves, value_of(busy_until_, lane)); });
  }
  void take_input(const Way& way, double leaves) {
    for (const auto& [lane, seconds] : way.lanes)
      busy_until_[lane] = std::max(leaves, value_of(busy_until_, lane)) + seconds;
    add_load(way);
  }

  // The arrival at the sink of an output made at `made`. Outputs are made in any order, so only the sum of all messages
  // on a link counts.
  double delivery(const Way& way, double made) const {
    return end(way, made, [&](uint32_t lane) { return value_of(load_, lane); });
  }
  void take_output(const Way& way) { add_load(way); }

 private:
  static double value_of(const std::map<uint32_t, double>& of, uint32_t lane) {
    const auto known = of.find(lane);
    return known == of.end() ? 0 : known->second;
  }
  void add_load(const Way& way) {
    for (const auto& [lane, seconds] : way.lanes) load_[lane] += seconds;
  }
  template <class FreeFrom>
  double end(const Way& way, double leaves, const FreeFrom& free_from) const {
    double last = 0, longest = 0;
    for (const auto& [lane, seconds] : way.lanes) {
      last = std::max(last, free_from(lane) + seconds);
      longest = std::max(longest, seconds);
    }
    return std::max(leaves + way.seconds, last + way.seconds - longest);
  }

  std::map<uint32_t, double> busy_until_, load_;
};

// A stage whose replicas are equal and reached alike has none.
const Way& way_of(const std::vector<std::vector<Way>>& ways, size_t stage, size_t replica) {
  static const Way none;
  return stage < ways.size() && !ways[stage].empty() ? ways[stage][replica] : none;
}

// How many micro-batches each replica of a stage takes at most. Of equal ones each takes what links carry in all:
// messages to several replicas share a link, so the first of them arrive together. Of unequal ones each may take all:
// one may be so slow that another is always done sooner.
std::vector<int> most_each(const ScheduleInput& input, size_t stage) {
  const std::vector<double>& seconds = input.stage_seconds[stage];
  std::vector<LaneSeconds> ways;
  for (size_t r = 0; r < seconds.size(); ++r) {
    LaneSeconds& both = ways.emplace_back(way_of(input.ways_in, stage, r).lanes);
    for (const auto& [lane, busy] : way_of(input.ways_out, stage, r).lanes) add_lane(both, lane, busy);
  }
  const bool equal = std::ranges::all_of(seconds, [&](double of) { return of == seconds[0]; });
  if (equal && std::ranges::any_of(ways, [](const LaneSeconds& way) { return !way.empty(); }))
    return share_jobs(input.micro_batches, seconds, ways);
  return std::vector<int>(seconds.size(), input.micro_batches);
}

// Again and again the slot that can start first; of those that can start together the one of the latest stage. What a
// device would run next is remembered until something changes for it.
class ListScheduler {
 public:
  ListScheduler(const ScheduleInput& input, int in_flight)
      : in_flight_(in_flight),
        micro_batches_(at(input.micro_batches)),
        needs_(stage_needs(input)),
        queues_(queues_of(input, assign_replicas(input))),
        ready_(queues_.size(), never),
        queues_of_stage_(needs_.size()),
        queues_of_device_(at(input.devices)),
        needed_by_(needs_.size()),
        missing_(needs_.size()),
        finished_(needs_.size(), std::vector<double>(micro_batches_, never)),
        stages_left_(micro_batches_, needs_.size()),
        entered_(needs_.size(), 0),
        device_free_(at(input.devices), 0),
        next_(at(input.devices)),
        changed_(at(input.devices), true) {
    for (size_t q = 0; q < queues_.size(); ++q) {
      queues_of_stage_[at(queues_[q].stage)].push_back(q);
      queues_of_device_[at(queues_[q].device)].push_back(q);
    }
    for (size_t s = 0; s < needs_.size(); ++s) {
      for (const int before : needs_[s]) needed_by_[at(before)].push_back(s);
      missing_[s].assign(micro_batches_, needs_[s].size());
      for (const size_t q : queues_of_stage_[s]) look_at(q);
    }
  }

  SlotTable run() {
    SlotTable table;
    table.devices.resize(device_free_.size());
    for (size_t slots = needs_.size() * micro_batches_; slots > 0; --slots) {
      Choice best;
      for (size_t d = 0; d < next_.size(); ++d) {
        if (changed_[d]) next_[d] = choose(d);
        changed_[d] = false;
        if (next_[d].before(best)) best = next_[d];
      }
      CHECK(best.start < never, "list scheduling found nothing to run");
      Queue& queue = queues_[best.queue];
      const int m = queue.micro_batches[queue.next++];
      table.devices[at(queue.device)].push_back({queue.stage, Phase::forward, m});
      device_free_[at(queue.device)] = best.start + queue.seconds;
      changed_[at(queue.device)] = true;
      look_at(best.queue);
      finish(at(queue.stage), at(m), best.start + queue.seconds);
    }
    return table;
  }

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();

  struct Choice {
    double start = never;
    int stage = -1;
    size_t queue = 0;
    bool before(const Choice& other) const {
      if (start != other.start) return start < other.start;
      return stage != other.stage ? stage > other.stage : queue < other.queue;
    }
  };

  // When the input of its first slot is there.
  void look_at(size_t q) {
    const Queue& queue = queues_[q];
    ready_[q] = never;
    if (queue.next == queue.micro_batches.size()) return;
    const int m = queue.micro_batches[queue.next];
    if (missing_[at(queue.stage)][at(m)] > 0) return;
    ready_[q] = ready_at(needs_[at(queue.stage)], finished_, m);
    changed_[at(queue.device)] = true;
  }

  Choice choose(size_t device) const {
    Choice best;
    for (const size_t q : queues_of_device_[device]) {
      if (ready_[q] == never) continue;
      const Queue& queue = queues_[q];
      double start = std::max(device_free_[device], ready_[q]);
      if (needs_[at(queue.stage)].empty()) {
        const int m = queue.micro_batches[queue.next];
        if (m != entered_[at(queue.stage)]) continue;  // they enter in order, so that "in flight" is a window
        if (m >= in_flight_) {
          if (left_.size() <= at(m - in_flight_)) continue;
          start = std::max(start, left_[at(m - in_flight_)]);
        }
      }
      if (const Choice choice{start, queue.stage, q}; choice.before(best)) best = choice;
    }
    return best;
  }

  void finish(size_t stage, size_t m, double time) {
    finished_[stage][m] = time;
    for (const size_t next : needed_by_[stage]) {
      if (--missing_[next][m] > 0) continue;
      for (const size_t q : queues_of_stage_[next]) look_at(q);
    }
    if (needs_[stage].empty()) ++entered_[stage];
    if (--stages_left_[m] == 0) {
      double last = 0;
      for (const std::vector<double>& of : finished_) last = std::max(last, of[m]);
      left_.insert(std::upper_bound(left_.begin(), left_.end(), last), last);
    } else if (!needs_[stage].empty()) {
      return;
    }
    for (size_t s = 0; s < needs_.size(); ++s) {  // another micro-batch may enter
      if (!needs_[s].empty()) continue;
      for (const size_t q : queues_of_stage_[s]) changed_[at(queues_[q].device)] = true;
    }
  }

  int in_flight_;
  size_t micro_batches_;
  std::vector<std::vector<int>> needs_;
  std::vector<Queue> queues_;
  std::vector<double> ready_;  // [queue]: time of its first slot's input; infinite: not known yet
  std::vector<std::vector<size_t>> queues_of_stage_, queues_of_device_, needed_by_;
  std::vector<std::vector<size_t>> missing_;   // [stage][micro-batch]: needs that have not finished
  std::vector<std::vector<double>> finished_;  // [stage][micro-batch]
  std::vector<size_t> stages_left_;            // [micro-batch]
  std::vector<double> left_;                   // when the i-th micro-batch left all stages, ascending
  std::vector<int> entered_;                   // [stage]: of those that need no other
  std::vector<double> device_free_;
  std::vector<Choice> next_;   // [device]
  std::vector<bool> changed_;  // [device]: its choice may be another
};

}  // namespace

std::vector<std::vector<int>> stage_needs(const ScheduleInput& input) {
  if (!input.needs.empty()) return input.needs;
  std::vector<std::vector<int>> needs(input.stage_devices.size());
  for (size_t s = 1; s < needs.size(); ++s) needs[s] = {static_cast<int>(s) - 1};
  return needs;
}

namespace {

struct Assigned {                // the micro-batches of a stage, over its replicas
  std::vector<int> replica;      // [micro-batch]
  std::vector<int> taken;        // [replica]: so many micro-batches
  std::vector<double> finished;  // [micro-batch]: seconds
  double last = 0;               // when the last output has been delivered
};

enum class Aim : uint8_t {
  deliver,  // each to where its output is delivered first
  compute,  // each to where it is computed first, among equals to the replica with the longest route to the sink
};

// ready: of each micro-batch. most: so many for each replica at most.
Assigned assign_stage(const ScheduleInput& input, size_t s, const std::vector<double>& ready,
                      const std::vector<int>& most, Aim aim) {
  const std::vector<double>& seconds = input.stage_seconds[s];
  Assigned assigned{{}, std::vector<int>(seconds.size(), 0), {}, 0};
  std::vector<double> free(seconds.size(), 0);
  Lanes lanes;
  for (const double from : ready) {
    size_t best = 0;
    double best_end = std::numeric_limits<double>::infinity(), best_finish = 0;
    for (size_t r = 0; r < seconds.size(); ++r) {
      if (assigned.taken[r] == most[r] || std::max(free[r], from) + seconds[r] > best_end) continue;
      const Way& out = way_of(input.ways_out, s, r);
      const double finish = std::max(free[r], lanes.arrival(way_of(input.ways_in, s, r), from)) + seconds[r];
      const double end = aim == Aim::deliver ? lanes.delivery(out, finish) : finish;
      const bool rather = aim == Aim::deliver ? assigned.taken[r] < assigned.taken[best]
                                              : out.seconds > way_of(input.ways_out, s, best).seconds;
      if (end < best_end || (end == best_end && rather)) {
        best = r;
        best_end = end;
        best_finish = finish;
      }
    }
    assigned.last = std::max(assigned.last, lanes.delivery(way_of(input.ways_out, s, best), best_finish));
    lanes.take_input(way_of(input.ways_in, s, best), from);
    lanes.take_output(way_of(input.ways_out, s, best));
    free[best] = best_finish;
    ++assigned.taken[best];
    assigned.replica.push_back(static_cast<int>(best));
    assigned.finished.push_back(best_finish);
  }
  return assigned;
}

}  // namespace

std::vector<std::vector<int>> assign_replicas(const ScheduleInput& input) {
  std::vector<std::vector<int>> replica;
  const std::vector<std::vector<int>> needs = stage_needs(input);
  std::vector<std::vector<double>> finished;
  for (size_t s = 0; s < input.stage_devices.size(); ++s) {
    std::vector<double> ready;
    for (int m = 0; m < input.micro_batches; ++m) ready.push_back(ready_at(needs[s], finished, m));
    Assigned best = assign_stage(input, s, ready, most_each(input, s), Aim::deliver);
    // Only the last output's delivery counts: the replica nearest to the sink should take the last micro-batch.
    if (s < input.ways_out.size() && !input.ways_out[s].empty()) {
      Assigned other = assign_stage(input, s, ready, best.taken, Aim::compute);
      if (other.last < best.last) best = std::move(other);
    }
    replica.push_back(std::move(best.replica));
    finished.push_back(std::move(best.finished));
  }
  return replica;
}

bool shares_devices(const ScheduleInput& input) {
  std::vector<int> stages(at(input.devices), 0);
  for (const std::vector<int>& devices : input.stage_devices) {
    for (const int device : devices) {
      if (++stages[at(device)] > 1) return true;
    }
  }
  return false;
}

Result<SlotTable> forward_table(const ScheduleInput& input, int in_flight) {
  RETURN_IF_ERROR(check_schedule_input(input));
  if (shares_devices(input)) return ListScheduler(input, in_flight).run();
  SlotTable table;
  table.devices.resize(at(input.devices));
  for (Queue& queue : queues_of(input, assign_replicas(input))) {
    for (const int m : queue.micro_batches) table.devices[at(queue.device)].push_back({queue.stage, Phase::forward, m});
  }
  return table;
}

Status check_schedule_input(const ScheduleInput& input) {
  if (input.micro_batches < 1) return invalid_input("a schedule needs at least one micro-batch");
  if (input.stage_devices.empty()) return invalid_input("a schedule needs at least one stage");
  if (input.stage_seconds.size() != input.stage_devices.size())
    return invalid_input("a schedule needs the times of every stage");
  if (input.in_flight < 0) return invalid_input("a schedule cannot have fewer than no micro-batches in flight");
  const size_t stages = input.stage_devices.size();
  if (!input.needs.empty() && input.needs.size() != stages)
    return invalid_input("a schedule needs to know of every stage which others it needs, or of none");
  for (size_t s = 0; s < input.needs.size(); ++s) {
    for (const int before : input.needs[s]) {
      if (before < 0 || at(before) >= s) return invalid_input(fmt::format("stage {} needs stage {}", s, before));
    }
  }
  const bool training = input.training();
  if ((training && (input.input_gradient_seconds.size() != stages || input.weight_gradient_seconds.size() != stages)) ||
      (!input.step_seconds.empty() && input.step_seconds.size() != stages) ||
      (!input.message_seconds.empty() && input.message_seconds.size() != stages) ||
      (!input.kept_until_input_gradient.empty() && input.kept_until_input_gradient.size() != stages) ||
      (!input.kept_until_weight_gradient.empty() && input.kept_until_weight_gradient.size() != stages))
    return invalid_input("a schedule for training needs the times and bytes of every stage");
  if (!input.device_memory.empty() && input.device_memory.size() != at(input.devices))
    return invalid_input("a schedule needs the memory of every device, or of none");
  for (size_t s = 0; s < stages; ++s) {
    const std::vector<int>& devices = input.stage_devices[s];
    if (devices.empty()) return invalid_input(fmt::format("stage {} has no device", s));
    for (size_t r = 0; r < devices.size(); ++r) {
      if (devices[r] < 0 || devices[r] >= input.devices)
        return invalid_input(fmt::format("stage {}: no device {}", s, devices[r]));
      if (std::count(devices.begin(), devices.end(), devices[r]) > 1) {
        return invalid_input(fmt::format("stage {}: device {} twice", s, devices[r]));
      }
      for (const auto* times :
           {&input.stage_seconds, &input.input_gradient_seconds, &input.weight_gradient_seconds, &input.step_seconds}) {
        if (times->empty()) continue;
        if ((*times)[s].size() != devices.size()) {
          return invalid_input(
              fmt::format("stage {} has {} devices, but times for {}", s, devices.size(), (*times)[s].size()));
        }
        if (!((*times)[s][r] >= 0) || !std::isfinite((*times)[s][r]))
          return invalid_input(fmt::format("stage {}: impossible time {}", s, (*times)[s][r]));
      }
    }
  }
  return ok_status();
}

}  // namespace nlsplit::inline schedules

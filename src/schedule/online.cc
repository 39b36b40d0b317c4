#include "schedule/online.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/index.h"
#include "base/random.h"
#include "base/readiness.h"
#include "schedule/assign.h"
#include "schedule/evaluate.h"
#include "schedule/placement.h"

namespace nlsplit::inline schedules {
namespace {

double mean(const std::vector<double>& seconds) {
  double sum = 0;
  for (const double one : seconds) sum += one;
  return sum / static_cast<double>(seconds.size());
}

// [stage]: seconds from the start of a phase to the end of the step if nothing has to wait. "Upward rank" of Topcuoglu
// et al., "Performance-effective and low-complexity task scheduling for heterogeneous computing", IEEE TPDS 13 (2002),
// section 4.1.
struct Remaining {
  std::vector<double> forward, input_gradient, weight_gradient;

  explicit Remaining(const ScheduleInput& input) {
    const size_t stages = input.stage_devices.size();
    forward.assign(stages, 0);
    input_gradient.assign(stages, 0);
    weight_gradient.assign(stages, 0);
    const auto message = [&](size_t boundary) {
      const bool apart = input.stage_devices[boundary] != input.stage_devices[boundary + 1];
      return apart && !input.message_seconds.empty() ? input.message_seconds[boundary] : 0;
    };
    for (size_t s = 0; s < stages && input.training(); ++s) {
      const double step = input.step_seconds.empty() ? 0 : mean(input.step_seconds[s]);
      weight_gradient[s] = mean(input.weight_gradient_seconds[s]) + step;
      const double back = s > 0 ? message(s - 1) + input_gradient[s - 1] : 0;
      input_gradient[s] = mean(input.input_gradient_seconds[s]) + std::max(back, weight_gradient[s]);
    }
    for (size_t s = stages; s-- > 0;) {
      const double on = s + 1 < stages ? message(s) + forward[s + 1] : 0;
      forward[s] = mean(input.stage_seconds[s]) + std::max(on, input_gradient[s]);
    }
  }
  double of(const ScheduledSlot& slot) const {
    return (slot.phase == Phase::forward          ? forward
            : slot.phase == Phase::input_gradient ? input_gradient
                                                  : weight_gradient)[at(slot.stage)];
  }
};

class Loop {
 public:
  Loop(const ScheduleInput& input, const OnlinePolicy& policy, const OnlineOptions& options)
      : input_(input), policy_(policy), options_(options), remaining_(input), player_(input), random_(options.seed) {
    devices_.resize(at(input.devices));
    run_.table.devices.resize(at(input.devices));
    run_.slot_seconds.resize(at(input.devices));
    run_.slot_starts.resize(at(input.devices));
    window_ = options.window > 0 ? options.window : input.micro_batches;
    for (const std::vector<int>& on : input.stage_devices) {
      load_.emplace_back(on.size(), 0.0);
      hosts_.emplace_back(at(input.micro_batches), -1);
    }
  }

  Result<OnlineRun> run() {
    for (int m = 0; m < input_.micro_batches; ++m) forward_comes(0, m, 0, -1);
    const size_t all = input_.stage_devices.size() * at(input_.micro_batches) * (input_.training() ? 3 : 1);
    size_t done = 0;
    while (done < all) {
      for (int d = 0; d < input_.devices; ++d) ask(d);
      if (events_.empty()) return stuck();
      now_ = events_.top().when;
      // All events of one time are processed before the policy is called.
      while (!events_.empty() && events_.top().when == now_) {
        const Event event = events_.top();
        events_.pop();
        if (event.arrives) {
          devices_[at(event.device)].ready.push_back({event.slot, event.when, remaining_.of(event.slot)});
        } else {
          finish(event.slot, event.device);
          ++done;
        }
      }
    }
    run_.makespan = now_;
    if (input_.training()) {
      finish_training_table(input_, run_.table);
      for (size_t d = 0; d < devices_.size(); ++d) add_steps(d);
    } else {
      run_.table.instances = instances_of(input_, run_.table);
    }
    return std::move(run_);
  }

 private:
  struct Event {
    double when = 0;
    uint64_t number = 0;  // events of one moment come in the order they were made
    int device = 0;
    ScheduledSlot slot;
    bool arrives = false;  // else it is finished
    bool operator>(const Event& other) const { return when != other.when ? when > other.when : number > other.number; }
  };
  struct Device {
    std::vector<ReadySlot> ready;
    bool busy = false;
    int64_t kept = 0;
  };

  double message(int boundary, int from, int to) const {
    return from < 0 || from == to || input_.message_seconds.empty() ? 0 : input_.message_seconds[at(boundary)];
  }
  int64_t kept_forward(int stage) const {
    return input_.kept_until_input_gradient.empty() ? 0 : input_.kept_until_input_gradient[at(stage)].value();
  }
  int64_t kept_backward(int stage) const {
    return input_.kept_until_weight_gradient.empty() ? 0 : input_.kept_until_weight_gradient[at(stage)].value();
  }

  void comes(const ScheduledSlot& slot, int device, double when) {
    events_.push({when, ++number_, device, slot, true});
  }
  // To the replica that would be done with it first, were everything given to it before done in one go.
  void forward_comes(int stage, int micro_batch, double when, int from) {
    const std::vector<int>& hosts = input_.stage_devices[at(stage)];
    size_t best = 0;
    double earliest = std::numeric_limits<double>::infinity();
    for (size_t r = 0; r < hosts.size(); ++r) {
      const double there = when + message(stage - 1, from, hosts[r]);
      const double done = std::max(load_[at(stage)][r], there) + input_.stage_seconds[at(stage)][r];
      if (done < earliest) {
        earliest = done;
        best = r;
      }
    }
    load_[at(stage)][best] = earliest;
    if (input_.training()) {
      load_[at(stage)][best] +=
          input_.input_gradient_seconds[at(stage)][best] + input_.weight_gradient_seconds[at(stage)][best];
    }
    hosts_[at(stage)][at(micro_batch)] = hosts[best];
    comes({stage, Phase::forward, micro_batch}, hosts[best], when + message(stage - 1, from, hosts[best]));
  }

  bool may_start(const ScheduledSlot& slot, const Device& device, int d) const {
    if (slot.phase != Phase::forward) return true;
    if (slot.stage == 0 && under_way_ >= window_) return false;
    if (input_.device_memory.empty()) return true;
    return device.kept + std::max(kept_forward(slot.stage), kept_backward(slot.stage)) <=
           input_.device_memory[at(d)].value();
  }

  void ask(int d) {
    Device& device = devices_[at(d)];
    if (device.busy) return;
    std::vector<ReadySlot> ready;
    for (const ReadySlot& one : device.ready) {
      if (may_start(one.slot, device, d)) ready.push_back(one);
    }
    if (ready.empty()) return;
    std::vector<ScheduledSlot>& order = run_.table.devices[at(d)];
    const std::optional<size_t> chosen = policy_.next(ready, {d, now_, order, device.kept});
    if (!chosen) return;
    CHECK(*chosen < ready.size(), "an online policy chose a slot that is not there");
    const ScheduledSlot slot = ready[*chosen].slot;
    std::erase_if(device.ready, [&](const ReadySlot& one) { return one.slot == slot; });
    if (slot.phase == Phase::forward) {
      device.kept += kept_forward(slot.stage);
      if (slot.stage == 0) ++under_way_;
    }
    device.busy = true;
    const double stretch = options_.stretch      ? options_.stretch(d, slot)
                           : options_.jitter > 0 ? 1 + random_.uniform(0, options_.jitter)
                                                 : 1;
    const double seconds = player_.seconds(d, slot) * stretch;
    order.push_back(slot);
    run_.slot_seconds[at(d)].push_back(seconds);
    run_.slot_starts[at(d)].push_back(now_);
    events_.push({now_ + seconds, ++number_, d, slot, false});
  }

  void finish(const ScheduledSlot& slot, int d) {
    const auto last = static_cast<int>(input_.stage_devices.size()) - 1;
    Device& device = devices_[at(d)];
    device.busy = false;
    if (slot.phase == Phase::forward) {
      if (slot.stage < last)
        forward_comes(slot.stage + 1, slot.micro_batch, now_, d);
      else if (input_.training())
        comes({slot.stage, Phase::input_gradient, slot.micro_batch}, d, now_);
    } else if (slot.phase == Phase::input_gradient) {
      device.kept += kept_backward(slot.stage) - kept_forward(slot.stage);
      comes({slot.stage, Phase::weight_gradient, slot.micro_batch}, d, now_);
      if (slot.stage > 0) {
        const int to = hosts_[at(slot.stage - 1)][at(slot.micro_batch)];
        comes({slot.stage - 1, Phase::input_gradient, slot.micro_batch}, to, now_ + message(slot.stage - 1, d, to));
      }
    } else {
      device.kept -= kept_backward(slot.stage);
      if (slot.stage == 0) --under_way_;
    }
  }

  void add_steps(size_t d) {
    const std::vector<ScheduledSlot>& order = run_.table.devices[d];
    double end = run_.slot_starts[d].empty() ? 0 : run_.slot_starts[d].back() + run_.slot_seconds[d].back();
    for (size_t i = run_.slot_seconds[d].size(); i < order.size(); ++i) {
      const double seconds = player_.seconds(static_cast<int>(d), order[i]);
      run_.slot_starts[d].push_back(end);
      run_.slot_seconds[d].push_back(seconds);
      end += seconds;
    }
    run_.makespan = std::max(run_.makespan, end);
  }

  Error stuck() const {
    for (size_t d = 0; d < devices_.size(); ++d) {
      if (devices_[d].ready.empty()) continue;
      const ScheduledSlot& slot = devices_[d].ready.front().slot;
      if (may_start(slot, devices_[d], static_cast<int>(d)) || input_.device_memory.empty()) continue;
      return unsupported(
          fmt::format("memory: with {} micro-batches under way device {} keeps {} of {} and cannot take {}", under_way_,
                      d, to_string(bytes(devices_[d].kept)), to_string(input_.device_memory[d]), to_string(slot)));
    }
    return unsupported(fmt::format("online policy {} left every device waiting", policy_.name));
  }

  const ScheduleInput& input_;
  const OnlinePolicy& policy_;
  const OnlineOptions& options_;
  Remaining remaining_;
  SlotPlayer player_;
  Random random_;
  OnlineRun run_;
  std::vector<Device> devices_;
  std::vector<std::vector<double>> load_;  // [stage][replica]
  std::vector<std::vector<int>> hosts_;    // [stage][micro-batch]
  TimeQueue<Event> events_;
  uint64_t number_ = 0;
  double now_ = 0;
  int window_ = 0;
  int under_way_ = 0;
};

// The first of those for which nothing speaks more.
template <class Better>
std::optional<size_t> best_of(std::span<const ReadySlot> ready, const Better& better) {
  size_t best = 0;
  for (size_t i = 1; i < ready.size(); ++i) {
    if (better(ready[i], ready[best])) best = i;
  }
  return best;
}

std::optional<size_t> longest_path(std::span<const ReadySlot> ready, const DeviceState&) {
  return best_of(ready, [](const ReadySlot& a, const ReadySlot& b) {
    if (a.remaining != b.remaining) return a.remaining > b.remaining;
    if (a.slot.micro_batch != b.slot.micro_batch) return a.slot.micro_batch < b.slot.micro_batch;
    return a.slot.stage > b.slot.stage;
  });
}

std::optional<size_t> backward_first(std::span<const ReadySlot> ready, const DeviceState& state) {
  std::vector<ReadySlot> gradients;
  std::vector<size_t> places;
  for (size_t i = 0; i < ready.size(); ++i) {
    if (ready[i].slot.phase != Phase::input_gradient) continue;
    gradients.push_back(ready[i]);
    places.push_back(i);
  }
  if (gradients.empty()) return longest_path(ready, state);
  return places[*longest_path(gradients, state)];
}

std::optional<size_t> follow_table(std::span<const ReadySlot> ready, const DeviceState& state) {
  if (state.done.size() >= state.table.size()) return std::nullopt;
  const auto next = std::ranges::find(ready, state.table[state.done.size()], &ReadySlot::slot);
  if (next == ready.end()) return std::nullopt;
  return static_cast<size_t>(next - ready.begin());
}

constexpr std::array<OnlinePolicy, 2> online_policies = {{
    {"longest_path", "the slot with the longest way to the end of the step", longest_path},
    {"backward_first", "input gradients first, among equals the longest way: memory is free sooner", backward_first},
}};

constexpr OnlinePolicy replay = {"replay", "the order of a table", follow_table};

}  // namespace

std::span<const OnlinePolicy> all_online_policies() { return online_policies; }

const OnlinePolicy& replay_policy() { return replay; }

Result<const OnlinePolicy*> find_online_policy(std::string_view name) {
  if (name == replay.name) return &replay;
  std::vector<std::string_view> names;
  for (const OnlinePolicy& policy : online_policies) {
    if (policy.name == name) return &policy;
    names.push_back(policy.name);
  }
  return invalid_input(fmt::format("unknown online policy '{}' (there are {})", name, fmt::join(names, ", ")));
}

Result<OnlineRun> run_online(const ScheduleInput& input, const OnlinePolicy& policy, const OnlineOptions& options) {
  RETURN_IF_ERROR(check_schedule_input(input));
  if (options.window > 0 && !input.training())
    return invalid_input("a window is for training: its end is a weight gradient, and inference has none");
  return Loop(input, policy, options).run();
}

}  // namespace nlsplit::inline schedules

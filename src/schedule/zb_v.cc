// ZB-V: stages in a V, so that a device's first forward and last backward meet the same end of the network; weight
// gradients fill the gaps. Qi et al., "Zero bubble pipeline parallelism", ICLR 2024 (arXiv 2401.10241), section 6,
// figure 7, and "Pipeline parallelism with controllable memory", NeurIPS 2024 (arXiv 2405.15362). For equal
// T_F = T_I = T_W the bubble is 0 (what a device idles between its first slot and its last) and no device keeps more
// than 2p micro-batches of one stage, as much as 1F1B's p of twice as large stages.
//
// For other times the order is found as the paper does, by playing forward greedily with the real durations: rounds of
// one input gradient and one forward on every device; a weight gradient goes in between where it fits into the wait,
// where memory asks for it, or where this device may not fall further behind. Four variants, the best is taken.
#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <optional>

#include "base/index.h"
#include "schedule/placement.h"
#include "schedule/policies.h"

namespace nlsplit::inline schedules {
namespace {

// A micro-batch comes down the devices in leg 0 and up again in leg 1, forward and then once more backward.
enum Way { forward_way = 0, backward_way = 1 };

struct Variant {
  bool fill_before_forward = true;
  bool fill_before_backward = true;
};

class Builder {
 public:
  Builder(const Line& line, int micro_batches, Variant variant, std::vector<double> allowed)
      : line_(line), p_(line.devices), m_(micro_batches), variant_(variant), allowed_(std::move(allowed)) {
    devices_.resize(at(p_));
    for (auto& way : finish_) {
      for (auto& leg : way) leg.assign(at(p_), std::vector<double>(at(m_), -1));
    }
    for (int s = 0; s < line.stages; ++s) largest_ = std::max(largest_, kept_from_forward(s));
    limit_ = 2 * p_ * largest_;
    if (!allowed_.empty()) allowed_most_ = *std::ranges::max_element(allowed_);
  }

  // False: with these times a device came to a slot whose input had no place yet. The rounds suit equal stages.
  bool build() {
    warm_up();
    for (int round = 0; round < 2 * m_ && !stuck_; ++round) {
      backwards();
      forwards();
    }
    if (stuck_) return false;
    for (int d = 0; d < p_; ++d) {
      while (!devices_[at(d)].late.empty()) weight_gradient(d);
    }
    return true;
  }

  std::vector<double> idle() const {
    std::vector<double> of;
    for (const Device& device : devices_) of.push_back(device.idle);
    return of;
  }
  Orders take() {
    Orders orders;
    for (Device& device : devices_) orders.push_back(std::move(device.order));
    return orders;
  }

 private:
  struct Device {
    double clock = 0;
    double idle = 0;  // since its first slot
    int64_t kept = 0;
    std::array<std::array<int, 2>, 2> done{};  // [way][leg]
    std::deque<ScheduledSlot> late;
    std::vector<ScheduledSlot> order;
  };

  int stage(Way way, int leg, int d) const { return leg == static_cast<int>(way) ? d : line_.stages - 1 - d; }
  double seconds(Way way, int stage) const {
    return way == forward_way ? line_.forward_seconds[at(stage)] : line_.input_gradient_seconds[at(stage)];
  }
  // Without bytes to go by a stage keeps one of something from F until W.
  int64_t kept_from_forward(int stage) const {
    return line_.kept_until_input_gradient.empty() ? 1 : line_.kept_until_input_gradient[at(stage)].value();
  }
  int64_t kept_from_backward(int stage) const {
    return line_.kept_until_weight_gradient.empty() ? kept_from_forward(stage)
                                                    : line_.kept_until_weight_gradient[at(stage)].value();
  }
  int count(Way way, int leg, int d) const { return devices_[at(d)].done[way][at(leg)]; }

  // When the next micro-batch of this leg comes from another device; nothing if it does not come from one.
  std::optional<double> arrival(Way way, int leg, int d) const {
    const int from = leg == 0 ? d - 1 : d + 1;
    if (from < 0 || from >= p_ || count(way, leg, d) >= m_) return std::nullopt;
    const double finish = finish_[way][at(leg)][at(from)][at(count(way, leg, d))];
    if (finish < 0) return std::nullopt;
    const int boundary = std::min(stage(way, leg, d), stage(way, leg, from));
    return finish + line_.message_seconds[at(boundary)];
  }
  // How many micro-batches a device has finished of what comes before this leg there: every leg needs the one before,
  // where the V turns because of its input, elsewhere because it is so.
  int before_leg(Way way, int leg, int d) const {
    if (leg == 1) return count(way, 0, d);
    return way == backward_way ? count(forward_way, 1, d) : m_;
  }
  // Whether whatever the next micro-batch of leg 1 needs has been given its place.
  bool comes_up(Way way, int d) const { return d == p_ - 1 || finish_[way][1][at(d + 1)][at(count(way, 1, d))] >= 0; }

  void put(Way way, int leg, int d) {
    Device& device = devices_[at(d)];
    const int m = count(way, leg, d);
    const int s = stage(way, leg, d);
    const int from = leg == 0 ? d - 1 : d + 1;
    stuck_ = stuck_ || m >= m_ || (from >= 0 && from < p_ && finish_[way][at(leg)][at(from)][at(m)] < 0) ||
             count(way, leg, d) >= before_leg(way, leg, d);
    if (stuck_) return;
    double start = device.clock;
    if (const auto comes = arrival(way, leg, d)) start = std::max(start, *comes);
    if (!device.order.empty()) device.idle += start - device.clock;
    device.clock = start + seconds(way, s);
    finish_[way][at(leg)][at(d)][at(m)] = device.clock;
    ++device.done[way][at(leg)];
    if (way == forward_way) {
      device.kept += kept_from_forward(s);
      add_forward(device.order, s, m);
    } else {
      device.kept += kept_from_backward(s) - kept_from_forward(s);
      add_input_gradient(device.order, s, m);
      device.late.push_back({s, Phase::weight_gradient, m});
    }
  }
  void weight_gradient(int d) {
    Device& device = devices_[at(d)];
    const ScheduledSlot slot = device.late.front();
    device.late.pop_front();
    device.clock += line_.weight_gradient_seconds[at(slot.stage)];
    device.kept -= kept_from_backward(slot.stage);
    device.order.push_back(slot);
  }

  double idle_allowed(int d) const {
    double most = 0;
    for (const Device& device : devices_) most = std::max(most, device.idle);
    if (!allowed_.empty()) most = std::max(most, allowed_most_ - allowed_[at(d)]);
    return most;
  }
  // Weight gradients before a slot that arrives then: those that fit, and one that does not where the wait would put
  // this device behind all others.
  void fill(int d, std::optional<double> arrives, bool one_more) {
    Device& device = devices_[at(d)];
    if (!arrives) return;
    while (!device.late.empty() &&
           *arrives >= device.clock + line_.weight_gradient_seconds[at(device.late.front().stage)])
      weight_gradient(d);
    if (one_more && !device.late.empty() && *arrives - device.clock > idle_allowed(d) - device.idle) weight_gradient(d);
  }

  // The first micro-batch goes down and up; while a device waits for it to come up, it and those before take more.
  // Then later devices catch up, so that all have begun as many forwards when the first backward comes down.
  void warm_up() {
    for (int d = 0; d < p_; ++d) put(forward_way, 0, d);
    for (int d = p_ - 1; d >= 0; --d) {
      if (d < p_ - 1) {
        const double up = arrival(forward_way, 1, d).value_or(0);
        const Device& device = devices_[at(d)];
        while (!stuck_ && device.kept + largest_ * (2 + 2 * d) <= limit_ &&
               device.clock + seconds(forward_way, d) <= up && count(forward_way, 0, d) < m_) {
          for (int before = 0; before <= d; ++before) put(forward_way, 0, before);
        }
      }
      put(forward_way, 1, d);
    }
    int leg = 0;
    for (int d = 1; d < p_; ++d) {
      const auto begun = [&](int of) { return count(forward_way, 0, of) + count(forward_way, 1, of); };
      while (!stuck_ && (begun(d) < begun(d - 1) || (count(forward_way, 1, d) <= count(forward_way, 1, d - 1) &&
                                                     count(forward_way, 1, d - 1) < m_))) {
        for (int later = p_ - 1; later >= d; --later) {
          if (count(forward_way, leg, later) < m_) put(forward_way, leg, later);
        }
        leg = 1 - leg;
      }
    }
  }

  void backwards() {
    std::vector<int> down, up;
    for (int d = 0; d < p_; ++d) {
      const bool first = count(backward_way, 1, d) < count(backward_way, 0, d) &&
                         (comes_up(backward_way, d) || count(backward_way, 0, d) >= m_);
      (first ? up : down).push_back(d);
    }
    std::ranges::reverse(up);
    const auto give = [&](int d, int leg) {
      fill(d, arrival(backward_way, leg, d), leg == 1 || variant_.fill_before_backward);
      put(backward_way, leg, d);
    };
    for (const int d : up) give(d, 1);
    for (const int d : down) give(d, 0);
  }

  void forwards() {
    for (int d = 0; d < p_; ++d) {
      if (count(forward_way, 1, d) >= m_) continue;
      std::optional<int> leg;
      if (count(forward_way, 1, d) >= count(forward_way, 0, d))
        leg = 0;
      else if (comes_up(forward_way, d))
        leg = 1;
      else if (count(forward_way, 0, d) < m_ &&
               (d == 0 || finish_[forward_way][0][at(d - 1)][at(count(forward_way, 0, d))] >= 0))
        leg = 0;
      if (!leg) continue;
      Device& device = devices_[at(d)];
      while (device.kept + kept_from_forward(stage(forward_way, *leg, d)) > limit_ && !device.late.empty())
        weight_gradient(d);
      fill(d, arrival(forward_way, *leg, d), variant_.fill_before_forward);
      put(forward_way, *leg, d);
    }
  }

  const Line& line_;
  int p_, m_;
  Variant variant_;
  std::vector<double> allowed_;  // [device]: what it idled in the attempt before
  double allowed_most_ = 0;
  bool stuck_ = false;
  int64_t largest_ = 0, limit_ = 0;
  std::vector<Device> devices_;
  std::array<std::array<std::vector<std::vector<double>>, 2>, 2> finish_;  // [way][leg][device][micro-batch]
};

// The best of the variants; nothing if none came to its end.
Orders best_variant(const Line& line, int micro_batches) {
  Orders best;
  double least = std::numeric_limits<double>::infinity();
  for (const bool before_backward : {true, false}) {
    for (const bool before_forward : {true, false}) {
      // Again while knowing what every device idled makes it better.
      std::vector<double> allowed;
      for (double before = std::numeric_limits<double>::infinity();;) {
        Builder builder(line, micro_batches, {before_forward, before_backward}, allowed);
        if (!builder.build()) break;
        allowed = builder.idle();
        const double idle = *std::ranges::max_element(allowed);
        if (idle < least) {
          least = idle;
          best = builder.take();
        }
        if (idle >= before) break;
        before = idle;
      }
    }
  }
  return best;
}

void level(std::vector<double>& seconds) {
  double sum = 0;
  for (const double one : seconds) sum += one;
  std::ranges::fill(seconds, sum / static_cast<double>(seconds.size()));
}

Result<Orders> make_zb_v(const Line& line) {
  // Fewer micro-batches than fill the V are the first of that many.
  const int micro_batches = std::max(line.micro_batches, 2 * line.devices);
  Orders best = best_variant(line, micro_batches);
  if (best.empty()) {  // stages too unlike: the order of equal ones with the same sum
    Line equal = line;
    for (auto* seconds : {&equal.forward_seconds, &equal.input_gradient_seconds, &equal.weight_gradient_seconds,
                          &equal.message_seconds})
      level(*seconds);
    best = best_variant(equal, micro_batches);
  }
  if (best.empty()) return unsupported("schedule zb_v finds no order for these times");
  for (std::vector<ScheduledSlot>& order : best)
    std::erase_if(order, [&](const ScheduledSlot& slot) { return slot.micro_batch >= line.micro_batches; });
  return best;
}

}  // namespace

Result<SlotTable> schedule_zb_v(const ScheduleInput& input) {
  return schedule_lines("zb_v", StagePlacement::v, input, make_zb_v);
}

}  // namespace nlsplit::inline schedules

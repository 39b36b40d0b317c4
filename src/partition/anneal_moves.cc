#include "partition/anneal_moves.h"

#include <algorithm>
#include <set>

#include "partition/expand.h"
#include "partition/split_shares.h"

namespace nlsplit::inline partition {
namespace {

constexpr int64_t largest_share = 16;

template <class T>
size_t pick(const std::vector<T>& from, Random& random) {
  return static_cast<size_t>(random.below(from.size()));
}

bool heads(Random& random) { return random.below(2) == 0; }

void insert_sorted(std::vector<DeviceId>& devices, DeviceId device) {
  devices.insert(std::upper_bound(devices.begin(), devices.end(), device), device);
}

bool has(const Stage& stage, DeviceId device) {
  return std::ranges::find(stage.devices, device) != stage.devices.end();
}

}  // namespace

const std::vector<SplitAxis>& AnnealMoves::axes_of(const Stage& stage) {
  const auto [at, added] = axes_.try_emplace({stage.begin, stage.end});
  if (added) at->second = applicable_axes(*space_.graph, stage.begin, stage.end, space_.axes);
  return at->second;
}

std::vector<DeviceId> AnnealMoves::free_devices(const Plan& plan) const {
  std::vector<DeviceId> free;
  for (const DeviceId device : space_.devices) {
    if (std::ranges::none_of(plan.stages, [&](const Stage& stage) { return has(stage, device); }))
      free.push_back(device);
  }
  return free;
}

void AnnealMoves::renew(Stage& stage) const {
  if (!stage.split) return;
  if (stage.devices.size() < 2)
    stage.split.reset();
  else
    stage.split->shares = space_.shares(stage);
}

bool AnnealMoves::may_be(const Plan& plan) {
  if (plan.stages.size() > space_.max_stages) return false;
  std::set<DeviceId> used, with_a_split, again;
  for (const Stage& stage : plan.stages) {
    for (const DeviceId device : stage.devices) {
      if (!used.insert(device).second) again.insert(device);
      if (stage.split) with_a_split.insert(device);
    }
    if (stage.devices.size() < 2) continue;
    if (stage.split) {
      const std::vector<SplitAxis>& axes = axes_of(stage);
      if (std::ranges::find(axes, stage.split->axis) == axes.end()) return false;
    } else if (!space_.replicate || stage.devices.size() > static_cast<size_t>(plan.micro_batches)) {
      return false;
    }
  }
  // A replica, or a device with a stage of its own, has no other: search knows no such plans, and they need not be able
  // to run.
  return used.size() <= space_.max_devices && std::ranges::includes(with_a_split, again);
}

bool AnnealMoves::shift_cut(Plan& plan, Random& random) const {
  if (plan.stages.size() < 2) return false;
  const size_t s = static_cast<size_t>(random.below(plan.stages.size() - 1));
  const std::vector<size_t>& cuts = space_.cuts;
  const auto at = static_cast<size_t>(std::lower_bound(cuts.begin(), cuts.end(), plan.stages[s].end) - cuts.begin());
  const size_t reach = heads(random) ? 1 : std::max<size_t>(1, cuts.size() / 8);
  const size_t by = 1 + static_cast<size_t>(random.below(reach));
  const bool forward = heads(random);
  if (forward ? at + by >= cuts.size() : at < by) return false;
  const size_t end = cuts[forward ? at + by : at - by];
  if (end <= plan.stages[s].begin || end >= plan.stages[s + 1].end) return false;
  plan.stages[s].end = plan.stages[s + 1].begin = end;
  return true;
}

bool AnnealMoves::swap_devices(Plan& plan, Random& random) {
  const size_t s = pick(plan.stages, random);
  Stage& stage = plan.stages[s];
  const DeviceId mine = stage.devices[pick(stage.devices, random)];
  const DeviceId other = space_.devices[pick(space_.devices, random)];
  if (other == mine) return false;
  for (Stage& each : plan.stages) {
    bool changed = false;
    for (DeviceId& device : each.devices) {
      if (device != mine && device != other) continue;
      device = device == mine ? other : mine;
      changed = true;
    }
    if (!changed) continue;
    std::sort(each.devices.begin(), each.devices.end());
    renew(each);
  }
  return true;
}

bool AnnealMoves::add_device(Plan& plan, Random& random) {
  const std::vector<DeviceId> free = free_devices(plan);
  if (free.empty()) return false;
  Stage& stage = plan.stages[pick(plan.stages, random)];
  insert_sorted(stage.devices, free[pick(free, random)]);
  if (stage.split || stage.devices.size() > 2) {
    renew(stage);
    return true;
  }
  const std::vector<SplitAxis>& axes = axes_of(stage);
  if (axes.empty() || (space_.replicate && heads(random))) return space_.replicate;
  stage.split = Split{axes[pick(axes, random)], false, {}};
  renew(stage);
  return true;
}

bool AnnealMoves::drop_device(Plan& plan, Random& random) {
  Stage& stage = plan.stages[pick(plan.stages, random)];
  if (stage.devices.size() < 2) return false;
  stage.devices.erase(stage.devices.begin() + static_cast<std::ptrdiff_t>(pick(stage.devices, random)));
  renew(stage);
  return true;
}

bool AnnealMoves::move_device(Plan& plan, Random& random) {
  if (plan.stages.size() < 2) return false;
  const size_t from = pick(plan.stages, random), to = pick(plan.stages, random);
  if (from == to || plan.stages[from].devices.size() < 2) return false;
  std::vector<DeviceId>& devices = plan.stages[from].devices;
  const size_t which = pick(devices, random);
  if (has(plan.stages[to], devices[which])) return false;
  insert_sorted(plan.stages[to].devices, devices[which]);
  devices.erase(devices.begin() + static_cast<std::ptrdiff_t>(which));
  renew(plan.stages[from]);
  renew(plan.stages[to]);
  return true;
}

bool AnnealMoves::merge_stages(Plan& plan, Random& random) {
  if (plan.stages.size() < 2) return false;
  const size_t s = static_cast<size_t>(random.below(plan.stages.size() - 1));
  Stage &first = plan.stages[s], &second = plan.stages[s + 1];
  const bool both = heads(random);
  if (!both && heads(random)) {
    first.devices = second.devices;
    first.split = second.split;
  }
  first.end = second.end;
  if (both) {
    for (const DeviceId device : second.devices) {
      if (!has(first, device)) insert_sorted(first.devices, device);
    }
    if (!first.split && second.split) first.split = second.split;
  }
  plan.stages.erase(plan.stages.begin() + static_cast<std::ptrdiff_t>(s) + 1);
  renew(plan.stages[s]);
  return true;
}

bool AnnealMoves::cut_stage(Plan& plan, Random& random) {
  const size_t s = pick(plan.stages, random);
  std::vector<size_t> inside;
  for (const size_t cut : space_.cuts) {
    if (cut > plan.stages[s].begin && cut < plan.stages[s].end) inside.push_back(cut);
  }
  if (inside.empty()) return false;
  Stage first = plan.stages[s], second = plan.stages[s];
  first.end = second.begin = inside[pick(inside, random)];
  Stage& other = heads(random) ? first : second;
  const std::vector<DeviceId> free = free_devices(plan);
  const bool take_free = !free.empty() && (first.devices.size() < 2 || heads(random));
  if (take_free) {
    other.devices = {free[pick(free, random)]};
  } else if (other.devices.size() < 2) {
    return false;              // twice the same device would be one stage
  } else if (heads(random)) {  // each side its part
    const size_t half = 1 + static_cast<size_t>(random.below(first.devices.size() - 1));
    const auto middle = first.devices.begin() + static_cast<std::ptrdiff_t>(half);
    second.devices.assign(middle, first.devices.end());
    first.devices.erase(middle, first.devices.end());
  } else {  // one of them goes on alone, or begins alone
    other.devices = {other.devices[pick(other.devices, random)]};
  }
  renew(first);
  renew(second);
  plan.stages[s] = std::move(first);
  plan.stages.insert(plan.stages.begin() + static_cast<std::ptrdiff_t>(s) + 1, std::move(second));
  return true;
}

bool AnnealMoves::change_axis(Plan& plan, Random& random) {
  Stage& stage = plan.stages[pick(plan.stages, random)];
  if (stage.devices.size() < 2) return false;
  const std::vector<SplitAxis>& axes = axes_of(stage);
  const size_t choice = static_cast<size_t>(random.below(axes.size() + (space_.replicate ? 1 : 0) + 1));
  if (choice < axes.size()) {
    const SplitAxis axis = axes[choice];
    const bool rows = axis == SplitAxis::height || axis == SplitAxis::width;
    stage.split = Split{axis, rows && heads(random), {}};
    renew(stage);
    return true;
  }
  if (choice > axes.size() || !space_.replicate) return false;
  stage.split.reset();
  return true;
}

bool AnnealMoves::change_shares(Plan& plan, Random& random) const {
  Stage& stage = plan.stages[pick(plan.stages, random)];
  if (!stage.split) return false;
  std::vector<int64_t>& shares = stage.split->shares;
  // 2 : 1 is 4 : 2, which has closer neighbours.
  if (*std::ranges::max_element(shares) <= largest_share / 2 && heads(random)) {
    for (int64_t& share : shares) share *= 2;
  }
  int64_t& share = shares[pick(shares, random)];
  share += heads(random) ? 1 : -1;
  if (share < 1 || share > largest_share) return false;
  reduce(shares);
  return true;
}

bool AnnealMoves::change_micro_batches(Plan& plan, Random& random) const {
  if (space_.micro_batches.size() < 2) return false;
  const int count = space_.micro_batches[pick(space_.micro_batches, random)];
  if (count == plan.micro_batches) return false;
  plan.micro_batches = count;
  return true;
}

bool AnnealMoves::change(Plan& plan, Random& random) {
  bool changed = false;
  switch (random.below(12)) {
    case 0:
    case 1:
    case 2:  // most plans are one cut away from a better one
      changed = shift_cut(plan, random);
      break;
    case 3:
      changed = swap_devices(plan, random);
      break;
    case 4:
      changed = add_device(plan, random);
      break;
    case 5:
      changed = drop_device(plan, random);
      break;
    case 6:
      changed = move_device(plan, random);
      break;
    case 7:
      changed = merge_stages(plan, random);
      break;
    case 8:
      changed = cut_stage(plan, random);
      break;
    case 9:
      changed = change_axis(plan, random);
      break;
    case 10:
      changed = change_shares(plan, random);
      break;
    default:
      changed = change_micro_batches(plan, random);
      break;
  }
  return changed && may_be(plan);
}

}  // namespace nlsplit::inline partition

#include "partition/device_groups.h"

#include <algorithm>
#include <bit>

namespace nlsplit::inline partition {
namespace {

constexpr double few_groups = 64;    // all groups of the free devices are looked at up to here
constexpr int few_replicas = 8;      // groups of more have a size that equal replicas profit from
constexpr double few_states = 4096;  // sets of used devices up to which sequences are counted exactly

}  // namespace

DeviceGroups::DeviceGroups(std::vector<DeviceId> devices, const std::vector<size_t>& class_of, int micro_batches,
                           int most_replicas, size_t most_devices)
    : devices_(std::move(devices)),
      micro_batches_(micro_batches),
      most_replicas_(most_replicas),
      most_devices_(most_devices) {
  CHECK(devices_.size() <= 64, "more devices than a DeviceSet holds");
  std::vector<size_t> representative;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const size_t cls = class_of[devices_[i].index()];
    const auto found = std::find(representative.begin(), representative.end(), cls);
    const auto index = static_cast<size_t>(found - representative.begin());
    if (found == representative.end()) {
      representative.push_back(cls);
      classes_.emplace_back();
    }
    classes_[index].push_back(i);
  }
}

const std::vector<DeviceSet>& DeviceGroups::after(DeviceSet used) {
  const auto [at, added] = after_.try_emplace(used);
  std::vector<DeviceSet>& groups = at->second;
  if (!added) return groups;
  const auto taken = static_cast<size_t>(std::popcount(used));
  if (taken >= most_devices_) return groups;
  const int most_here = static_cast<int>(std::min(static_cast<size_t>(most_replicas_), most_devices_ - taken));
  std::vector<std::vector<size_t>> free;
  double count = 1;
  for (const std::vector<size_t>& members : classes_) {
    std::vector<size_t> left;
    for (const size_t i : members) {
      if ((used >> i & 1) == 0) left.push_back(i);
    }
    if (left.empty()) continue;
    count *= static_cast<double>(left.size()) + 1;
    free.push_back(std::move(left));
  }
  for (const std::vector<size_t>& left : free) groups.push_back(DeviceSet{1} << left[0]);
  if (most_here < 2) return groups;
  const auto busiest = [&](int replicas) { return (micro_batches_ + replicas - 1) / replicas; };
  const bool few = count - 1 <= few_groups;
  const auto add = [&](DeviceSet set) {
    const int size = std::popcount(set);
    if (size < 2 || size > most_here) return;
    if ((!few || size > few_replicas) && busiest(size) == busiest(size - 1)) return;
    if (std::find(groups.begin(), groups.end(), set) == groups.end()) groups.push_back(set);
  };
  if (few) {
    std::vector<size_t> take(free.size(), 0);  // an odometer: how many of each class
    for (bool more = true; more;) {
      DeviceSet set = 0;
      for (size_t c = 0; c < free.size(); ++c) {
        for (size_t k = 0; k < take[c]; ++k) set |= DeviceSet{1} << free[c][k];
      }
      add(set);
      more = false;
      for (size_t c = 0; c < free.size() && !more; ++c) {
        if (take[c] < free[c].size()) {
          ++take[c];
          more = true;
        } else {
          take[c] = 0;
        }
      }
    }
    return groups;
  }
  for (const std::vector<size_t>& left : free) {
    DeviceSet set = 0;
    for (const size_t i : left) add(set |= DeviceSet{1} << i);
  }
  DeviceSet set = 0;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if ((used >> i & 1) == 0) add(set |= DeviceSet{1} << i);
  }
  return groups;
}

double DeviceGroups::sets() const {
  double count = 1;
  for (const std::vector<size_t>& members : classes_) count *= static_cast<double>(members.size()) + 1;
  return count;
}

std::vector<double> DeviceGroups::sequences(size_t longest) {
  if (sets() <= few_states) return sequences_after(0, longest);
  std::vector<double> counts(longest, 0);
  double count = 1;
  for (size_t k = 0; k < longest && k < most_devices_ && k < devices_.size(); ++k)
    counts[k] = count *= static_cast<double>(devices_.size() - k);
  return counts;
}

const std::vector<double>& DeviceGroups::sequences_after(DeviceSet used, size_t longest) {
  if (const auto known = sequences_.find(used); known != sequences_.end()) return known->second;
  std::vector<double> counts(longest, 0);
  const std::vector<DeviceSet> groups = after(used);  // a copy: the recursion below adds to the table
  for (const DeviceSet group : groups) {
    counts[0] += 1;
    const std::vector<double>& rest = sequences_after(used | group, longest);
    for (size_t k = 0; k + 1 < longest; ++k) counts[k + 1] += rest[k];
  }
  return sequences_[used] = std::move(counts);
}

std::vector<DeviceId> DeviceGroups::members(DeviceSet set) const {
  std::vector<DeviceId> devices;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if ((set >> i & 1) != 0) devices.push_back(devices_[i]);
  }
  std::sort(devices.begin(), devices.end());
  return devices;
}

}  // namespace nlsplit::inline partition

// The groups of devices that the next stage may take; of interchangeable groups only one.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cost/cluster.h"

namespace nlsplit::inline partition {

using DeviceSet = uint64_t;  // bit i: the i-th of DeviceGroups' devices

class DeviceGroups {
 public:
  // `devices` in the order they are taken within a class; class_of as interchangeable_devices() answers it. At most 64
  // devices. No stage has more than `most_replicas`; 1: no replication. No plan has more than `most_devices`.
  DeviceGroups(std::vector<DeviceId> devices, const std::vector<size_t>& class_of, int micro_batches, int most_replicas,
               size_t most_devices);

  // The groups a stage may take when those of `used` are taken, single devices first. Of a class always the first free
  // ones. All of them while they are few; else single devices, groups within a class, and the first free ones of all
  // classes. Then, and of more than 8 devices, only sizes that leave the busiest of equal replicas fewer micro-batches
  // than one replica less would.
  const std::vector<DeviceSet>& after(DeviceSet used);

  // [k]: how many sequences of k+1 groups there are after `used`. With many unlike devices only sequences of single
  // ones are counted.
  std::vector<double> sequences(size_t longest);

  std::vector<DeviceId> members(DeviceSet set) const;  // ascending
  double sets() const;  // how many sets of used devices there are, alike ones counted once
  int most_replicas() const { return most_replicas_; }
  size_t size() const { return devices_.size(); }
  DeviceId device(size_t i) const { return devices_[i]; }

 private:
  const std::vector<double>& sequences_after(DeviceSet used, size_t longest);

  std::vector<DeviceId> devices_;
  std::vector<std::vector<size_t>> classes_;  // indices into devices_
  int micro_batches_, most_replicas_;
  size_t most_devices_;
  std::unordered_map<DeviceSet, std::vector<DeviceSet>> after_;
  std::unordered_map<DeviceSet, std::vector<double>> sequences_;
};

}  // namespace nlsplit::inline partition

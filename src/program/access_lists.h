// Finds the earlier accesses to a device's memory that a later access must wait for, by the bytes they touch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "program/dependencies.h"

namespace nlsplit::inline program {

// One access to some bytes, kept while a later access may have to wait for it.
struct Access {
  uint32_t instance;
  int slot;
  InstanceUse of;
  int64_t begin, end;                    // bytes within the instance; with Reuse::of_bytes within the arena
  int64_t instance_begin, instance_end;  // of all of its instance, counted alike
  bool writes;
  bool transfer;  // on a FIFO rather than the compute stream
  bool own;       // free_dependencies: scratch of one slot, which orders no other slot
};

// Accesses to one instance, or to all instances of buffers that share bytes. Accesses in different lists are never
// ordered by reuse.
class AccessList {
 public:
  // many: accesses to several instances. Only accesses to instances that overlap in memory are then compared.
  explicit AccessList(bool many = false) : many_(many) {}

  // Calls take(earlier) for each earlier access that overlaps the instance of `now`, the earliest first; true removes
  // that access from the list. Then adds `now`.
  template <class Take>
  void add(const Access& now, const Take& take) {
    if (!many_) return add_to_one(now, take);
    find(now);
    for (Found& found : found_) {
      if (take(static_cast<const Access&>(found.entry->access))) found.entry->access.instance = no_instance;
    }
    remove_found();
    insert(now);
  }

 private:
  struct Entry {
    Access access;
    uint64_t order = 0;
  };
  // Instances between 2^n and 2^(n+1) bytes long, by where they begin: what overlaps begins less than 2^(n+1) before.
  using OfLength = std::map<int64_t, std::vector<Entry>>;
  struct Found {
    Entry* entry;
    OfLength* length;
    OfLength::iterator at;
  };

  struct Range {
    int64_t begin, end;
  };
  static constexpr Range gone{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};

  // A buffer of all gradients has hundreds of accesses, and consecutive ones are mostly to neighbouring bytes. So a
  // whole group is skipped if `now` overlaps none of its range.
  static constexpr size_t group_size = 16;

  template <class Take>
  void add_to_one(const Access& now, const Take& take) {
    const auto apart = [&](const Range& range) { return range.begin > now.end || range.end < now.begin; };
    for (size_t g = 0; g * group_size < ranges_.size(); ++g) {
      if (g < groups_.size() && apart(groups_[g])) continue;
      const size_t end = std::min(ranges_.size(), (g + 1) * group_size);
      for (size_t i = g * group_size; i < end; ++i) {
        if (apart(ranges_[i]) || !take(std::as_const(accesses_[i]))) continue;
        ranges_[i] = gone;
        ++gone_;
      }
    }
    if (gone_ > ranges_.size() / 2) forget_gone();
    ranges_.push_back({now.begin, now.end});
    accesses_.push_back(now);
    if (ranges_.size() % group_size == 0) note_group();
  }

  void forget_gone();
  void note_group();  // the last one
  void find(const Access& now);
  void remove_found();
  void insert(const Access& now);

  bool many_ = false;
  std::vector<Access> accesses_;     // to one instance, the earliest first
  std::vector<Range> ranges_;        // the bytes of each
  std::vector<Range> groups_;        // of each full group, from its first byte to its last
  size_t gone_ = 0;                  // of these
  std::map<int, OfLength> lengths_;  // to several, by n
  uint64_t added_ = 0;
  std::vector<Found> found_;
};

// Which list of accesses an instance of a buffer has.
class AccessLists {
 public:
  AccessLists(const DeviceProgram& device, Reuse reuse);

  AccessList& list(const InstanceUse& of) {
    const size_t buffer = of.buffer.index();
    return lists_[first_[buffer] + (per_instance_[buffer] ? static_cast<size_t>(of.instance) : 0)];
  }
  // Where an instance begins, as its list counts bytes; and how many it has.
  int64_t origin(const InstanceUse& of) const {
    if (reuse_ == Reuse::of_buffers) return 0;
    return device_.buffer(of.buffer).offset + of.instance * strides_[of.buffer.index()];
  }
  int64_t stride(BufferId buffer) const { return strides_[buffer.index()]; }
  // Buffers that share a list with one of these.
  std::vector<bool> with_neighbours(const std::vector<bool>& buffers) const;

 private:
  void group_by_bytes();

  const DeviceProgram& device_;
  Reuse reuse_;
  std::vector<int64_t> strides_;  // [buffer]
  std::vector<size_t> first_;     // [buffer]: the list of its instance 0
  std::vector<bool> per_instance_;
  std::vector<AccessList> lists_;
};

}  // namespace nlsplit::inline program

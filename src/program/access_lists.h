// Earlier accesses to a device's bytes that a later one may have to wait for, found by the bytes they take.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "program/dependencies.h"

namespace nlsplit::inline program {

// One access to some bytes, kept while a later access may have to wait for it.
struct Access {
  uint32_t instance;
  int slot;
  BankUse of;
  int64_t begin, end;            // bytes within the bank; with Reuse::of_bytes within the arena
  int64_t bank_begin, bank_end;  // of all of its bank, counted alike
  bool writes;
  bool transfer;  // on a FIFO rather than the compute stream
  bool own;       // any order: scratch of which only its slot's values are looked at
};

// Accesses to one bank, or to all banks of buffers that share bytes: accesses of different lists never wait for each
// other.
class AccessList {
 public:
  // many: to several banks. Then only those whose banks have bytes in common are looked at.
  explicit AccessList(bool many = false) : many_(many) {}

  // take(earlier): for each that shares bytes with `now`'s bank, the earliest first; true: it stands for itself no
  // longer. Then `now` is there too.
  template <class Take>
  void add(const Access& now, const Take& take) {
    if (!many_) {
      std::erase_if(accesses_, take);
      accesses_.push_back(now);
      return;
    }
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
  // Banks between 2^n and 2^(n+1) bytes long, by where they begin: what overlaps begins less than 2^(n+1) before.
  using OfLength = std::map<int64_t, std::vector<Entry>>;
  struct Found {
    Entry* entry;
    OfLength* length;
    OfLength::iterator at;
  };

  void find(const Access& now);
  void remove_found();
  void insert(const Access& now);

  bool many_ = false;
  std::vector<Access> accesses_;     // to one bank, the earliest first
  std::map<int, OfLength> lengths_;  // to several, by n
  uint64_t added_ = 0;
  std::vector<Found> found_;
};

// Which list of accesses a bank of a buffer has.
class AccessLists {
 public:
  AccessLists(const DeviceProgram& device, Reuse reuse);

  AccessList& list(const BankUse& of) {
    const size_t buffer = of.buffer.index();
    return lists_[first_[buffer] + (per_bank_[buffer] ? static_cast<size_t>(of.bank) : 0)];
  }
  // Where a bank begins, as its list counts bytes; and how many it has.
  int64_t origin(const BankUse& of) const {
    if (reuse_ == Reuse::of_buffers) return 0;
    return device_.buffer(of.buffer).offset + of.bank * strides_[of.buffer.index()];
  }
  int64_t stride(BufferId buffer) const { return strides_[buffer.index()]; }
  // Buffers that share a list with one of these.
  std::vector<bool> with_neighbours(const std::vector<bool>& buffers) const;

 private:
  void group_by_bytes();

  const DeviceProgram& device_;
  Reuse reuse_;
  std::vector<int64_t> strides_;  // [buffer]
  std::vector<size_t> first_;     // [buffer]: the list of its bank 0
  std::vector<bool> per_bank_;
  std::vector<AccessList> lists_;
};

}  // namespace nlsplit::inline program

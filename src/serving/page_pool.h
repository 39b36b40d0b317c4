// Pages of caches: which are free, and how many sequences have each of the others.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace nlsplit::inline serving {

// That so many positions take.
inline int64_t pages_for(int64_t positions, int64_t page) { return (positions + page - 1) / page; }

class PagePool {
 public:
  explicit PagePool(int64_t pages) : users_(static_cast<size_t>(pages), 0) {
    for (int64_t page = pages; page > 0; --page) free_.push_back(static_cast<int>(page - 1));
  }

  int64_t free() const { return std::ssize(free_); }
  // One that nobody has. Expects that there is one.
  int take() {
    CHECK(!free_.empty(), "no page is free");
    const int page = free_.back();
    free_.pop_back();
    users_[static_cast<size_t>(page)] = 1;
    return page;
  }
  // One more sequence has it.
  void share(int page) { ++users_[static_cast<size_t>(page)]; }
  // One fewer.
  void give_back(int page) {
    if (--users_[static_cast<size_t>(page)] == 0) free_.push_back(page);
  }

 private:
  std::vector<int> users_, free_;
};

}  // namespace nlsplit::inline serving

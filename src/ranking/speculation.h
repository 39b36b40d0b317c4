// Speculative execution in parallel: items are taken one after the other, and the results so far say which of the next
// are wanted. Other cores compute ahead the next items that look wanted by now. Results that are not taken are wasted.
// Which items are taken, and their results, are the same as with one core.
//
//   Speculation<Timed> speculation(plans.size(), workers, 256, worth, time);
//   for (size_t i = 0; i < plans.size(); ++i) {
//     if (!worth(i)) continue;
//     const Timed timed = speculation.take(i);
//     speculation.change([&] { learn_from(timed); });   // whatever worth() looks at
//   }
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace nlsplit::inline ranking {

template <class Made>
class Speculation {
 public:
  // wanted: does not depend on items before the last that was taken. farthest: how many items ahead of that are
  // computed at most. make: is called on several threads at once.
  Speculation(size_t count, size_t workers, size_t farthest, std::function<bool(size_t)> wanted,
              std::function<Made(size_t)> make)
      : count_(count), workers_(workers), farthest_(farthest), wanted_(std::move(wanted)), make_(std::move(make)) {
    for (size_t t = 1; t < workers; ++t) threads_.emplace_back([this] { work(); });
  }
  Speculation(const Speculation&) = delete;
  Speculation& operator=(const Speculation&) = delete;
  ~Speculation() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    moved_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // i: larger than in all calls before.
  Made take(size_t i) {
    std::unique_lock lock(mutex_);
    next_ = i + 1;
    std::erase_if(begun_, [i](const auto& item) { return item.first < i && item.second; });
    moved_.notify_all();
    const auto [item, is_new] = begun_.try_emplace(i);
    if (is_new) {
      begun_.erase(item);
      lock.unlock();
      return make_(i);
    }
    while (!item->second) {
      if (!make_one(lock)) made_.wait(lock);
    }
    Made made = *std::move(item->second);
    begun_.erase(item);
    return made;
  }

  template <class Change>
  void change(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      if (!make_one(lock)) moved_.wait(lock);
    }
  }

  // False: there is nothing to do now. At most as many items as cores are made ahead: more would be wasted more often.
  bool make_one(std::unique_lock<std::mutex>& lock) {
    if (static_cast<size_t>(std::distance(begun_.lower_bound(next_), begun_.end())) >= workers_) return false;
    const size_t end = std::min(count_, next_ + farthest_);
    size_t i = next_;
    while (i < end && (begun_.contains(i) || !wanted_(i))) ++i;
    if (i == end) return false;
    std::optional<Made>& made = begun_[i];
    lock.unlock();
    Made result = make_(i);
    lock.lock();
    made = std::move(result);
    made_.notify_all();
    return true;
  }

  const size_t count_, workers_, farthest_;
  const std::function<bool(size_t)> wanted_;
  const std::function<Made(size_t)> make_;
  std::mutex mutex_;  // of what is below and of what wanted_ looks at
  std::condition_variable moved_, made_;
  size_t next_ = 0;                              // the first that may be made ahead
  std::map<size_t, std::optional<Made>> begun_;  // and not taken
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace nlsplit::inline ranking

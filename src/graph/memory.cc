#include "graph/memory.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "base/random.h"

namespace nlsplit::inline graph {
namespace {

int64_t aligned(Bytes size) { return (size.value() + arena_alignment - 1) / arena_alignment * arena_alignment; }

using Order = std::vector<uint32_t>;  // in which buffers are placed

// Among the gaps below the buffers that are placed already.
enum class Fit : uint8_t { smallest_gap, lowest_gap };

class ArenaPlanner {
 public:
  explicit ArenaPlanner(std::span<const Lifetime> lifetimes)
      : lives_(lifetimes), offsets_(lifetimes.size(), 0), bound_(live_bound(lifetimes).value()) {
    sizes_.reserve(lifetimes.size());
    for (const Lifetime& life : lifetimes) sizes_.push_back(aligned(life.size));
    if (lives_.size() > few) list_neighbours();
  }

  void first_try() { attempt(by(&ArenaPlanner::sizes_), Fit::smallest_gap); }

  bool found() const { return best_.end == bound_; }

  void search() {
    if (!listed_) list_neighbours();
    for (size_t i = 0; i < lives_.size(); ++i)
      areas_.push_back(static_cast<double>(sizes_[i]) * static_cast<double>(lives_[i].last - lives_[i].first + 1));
    Order by_start = by(&ArenaPlanner::sizes_);
    std::ranges::stable_sort(by_start, {}, [&](uint32_t i) { return lives_[i].first; });
    const Order orders[] = {by(&ArenaPlanner::sizes_), by(&ArenaPlanner::areas_), std::move(by_start)};
    for (const Order& order : orders) {
      for (const Fit fit : {Fit::smallest_gap, Fit::lowest_gap}) {
        if (found()) return;
        if (&order != &orders[0] || fit != Fit::smallest_gap) attempt(order, fit);
      }
    }
    repair();
  }

  ArenaPlan result() && { return {std::move(best_.offsets), bytes(best_.end), bytes(bound_)}; }

 private:
  // So few are looked through as fast as listed.
  static constexpr size_t few = 128;
  // Above these lists take more time than they save: pairs, and as a share of all there could be.
  static constexpr size_t most_pairs = size_t{1} << 21;
  static constexpr double most_crowded = 0.125;
  static constexpr int round_repairs = 32, most_repairs = 3 * round_repairs;
  // Neighbours looked at for each buffer, all tries together: some tenths of a second for 10,000 of them.
  static constexpr int64_t most_work = 500;

  struct Attempt {
    Order order;
    Fit fit{};
    std::vector<bool> high;
    std::vector<int64_t> offsets;
    int64_t end = -1;  // none yet
  };
  struct Range {
    int64_t begin, end;
  };
  struct Placed {
    int64_t begin, end;   // bytes
    int64_t first, last;  // moments
  };

  bool spent() const { return work_ >= most_work * std::ssize(lives_); }

  // Largest first; buffers without bytes need no place.
  template <class T>
  Order by(std::vector<T> ArenaPlanner::*key) const {
    Order order;
    for (uint32_t i = 0; i < sizes_.size(); ++i) {
      if (sizes_[i] > 0) order.push_back(i);
    }
    std::ranges::stable_sort(order, std::greater<>(), [&](uint32_t i) { return (this->*key)[i]; });
    return order;
  }

  // Who lives at the same time as each.
  void list_neighbours() {
    Order by_first = by(&ArenaPlanner::sizes_);
    std::ranges::stable_sort(by_first, {}, [&](uint32_t i) { return lives_[i].first; });
    std::vector<std::pair<uint32_t, uint32_t>> pairs;
    std::vector<uint32_t> live;
    const auto all = static_cast<double>(lives_.size()) * static_cast<double>(lives_.size()) / 2;
    const size_t most = std::min(most_pairs, static_cast<size_t>(all * most_crowded));
    for (const uint32_t next : by_first) {
      std::erase_if(live, [&](uint32_t i) { return lives_[i].last < lives_[next].first; });
      if (pairs.size() + live.size() > most) return;
      for (const uint32_t other : live) pairs.emplace_back(next, other);
      live.push_back(next);
    }
    neighbour_begin_.assign(lives_.size() + 1, 0);
    for (const auto& [a, b] : pairs) ++neighbour_begin_[a + 1], ++neighbour_begin_[b + 1];
    std::partial_sum(neighbour_begin_.begin(), neighbour_begin_.end(), neighbour_begin_.begin());
    std::vector<size_t> at(neighbour_begin_.begin(), neighbour_begin_.end() - 1);
    neighbours_.resize(2 * pairs.size());
    for (const auto& [a, b] : pairs) neighbours_[at[a]++] = b, neighbours_[at[b]++] = a;
    listed_ = true;
  }

  // What is placed already and lives at the same time, from the bottom up.
  void find_busy(uint32_t next) {
    busy_.clear();
    if (!listed_) {
      const auto [size, first, last] = lives_[next];
      for (const Placed& other : placed_) {
        if (other.first <= last && first <= other.last) busy_.push_back({other.begin, other.end});
      }
      work_ += static_cast<int64_t>(placed_.size());
      return;
    }
    for (size_t n = neighbour_begin_[next]; n < neighbour_begin_[next + 1]; ++n) {
      const uint32_t other = neighbours_[n];
      if (offsets_[other] >= 0) busy_.push_back({offsets_[other], offsets_[other] + sizes_[other]});
    }
    work_ += static_cast<int64_t>(neighbour_begin_[next + 1] - neighbour_begin_[next]);
    std::ranges::sort(busy_, {}, &Range::begin);
  }

  // `bounded`: what is left below the bound is a gap like others, and whoever is `high` goes to the top of its gap.
  int64_t find_place(int64_t size, Fit fit, bool bounded, bool high) const {
    int64_t best = -1, best_gap = std::numeric_limits<int64_t>::max(), free_from = 0;
    const auto look = [&](int64_t gap_end) {
      const int64_t gap = gap_end - free_from;
      if (gap < size || gap >= best_gap) return;
      best = high ? gap_end - size : free_from;
      best_gap = gap;
    };
    for (const Range& range : busy_) {
      look(range.begin);
      if (best >= 0 && fit == Fit::lowest_gap) return best;
      free_from = std::max(free_from, range.end);
    }
    if (bounded) look(bound_);
    return best >= 0 ? best : free_from;  // behind the last of them
  }

  // Places all in this order. The arena's end.
  int64_t place(const Order& order, Fit fit) {
    for (const uint32_t i : order) offsets_[i] = -1;
    placed_.clear();
    int64_t end = 0;
    for (const uint32_t next : order) {
      find_busy(next);
      offsets_[next] = find_place(sizes_[next], fit, !high_.empty(), !high_.empty() && high_[next]);
      end = std::max(end, offsets_[next] + sizes_[next]);
      if (listed_) continue;
      const auto behind = std::ranges::upper_bound(placed_, offsets_[next], {}, &Placed::begin);
      placed_.insert(behind, {offsets_[next], offsets_[next] + sizes_[next], lives_[next].first, lives_[next].last});
    }
    return end;
  }

  void attempt(const Order& order, Fit fit) {
    if (best_.end >= 0 && spent()) return;
    const int64_t end = place(order, fit);
    if (best_.end < 0 || end < best_.end) best_ = {order, fit, high_, offsets_, end};
  }

  // Those that stick out are placed first of all, or in turns in half as late a place. In the later rounds they, and
  // some of those beside them, also change to the other end of their gaps. Every round begins at the best so far.
  void repair() {
    Random random(1);
    Order order;
    for (int tries = 0; tries < most_repairs && !found() && !spent(); ++tries) {
      const bool both_ends = tries >= round_repairs;
      if (tries % round_repairs == 0) {
        order = best_.order;
        high_ = best_.high;
        if (both_ends) high_.resize(lives_.size(), false);
        offsets_ = best_.offsets;
      }
      const auto sticks_out = [&](uint32_t i) { return offsets_[i] + sizes_[i] > bound_; };
      for (const uint32_t i : order) {
        if (both_ends && sticks_out(i)) change_ends(i, random);
      }
      if (tries % 2 == 0) {
        std::stable_partition(order.begin(), order.end(), sticks_out);  // clang 14 cannot read the other one
      } else {
        for (size_t i = 0; i < order.size(); ++i) {
          const auto from = order.begin() + static_cast<std::ptrdiff_t>(i);
          if (sticks_out(*from)) std::rotate(order.begin() + static_cast<std::ptrdiff_t>(i / 2), from, from + 1);
        }
      }
      attempt(order, best_.fit);
    }
  }

  void change_ends(uint32_t i, Random& random) {
    const auto change = [&](uint32_t one) {
      if (random.below(10) < 3) high_[one] = !high_[one];
    };
    change(i);
    for (size_t n = listed_ ? neighbour_begin_[i] : 0; listed_ && n < neighbour_begin_[i + 1]; ++n)
      change(neighbours_[n]);
  }

  std::span<const Lifetime> lives_;
  std::vector<int64_t> sizes_;    // rounded up
  std::vector<double> areas_;     // bytes times moments
  std::vector<int64_t> offsets_;  // of the try under way; -1: not placed yet
  std::vector<bool> high_;        // of the current try: buffers that go to the top of their gap; empty: none
  int64_t bound_;
  bool listed_ = false;
  std::vector<size_t> neighbour_begin_;  // neighbours_[neighbour_begin_[i] … neighbour_begin_[i + 1]): of i
  std::vector<uint32_t> neighbours_;
  std::vector<Placed> placed_;  // by offset; where nothing is listed
  std::vector<Range> busy_;
  int64_t work_ = 0;
  Attempt best_;
};

}  // namespace

Bytes live_bound(std::span<const Lifetime> lifetimes) {
  std::vector<std::pair<int64_t, int64_t>> changes;  // moment, bytes more; at one moment the ends come first
  changes.reserve(2 * lifetimes.size());
  for (const Lifetime& life : lifetimes) {
    const int64_t size = aligned(life.size);
    changes.emplace_back(life.first, size);
    changes.emplace_back(life.last + 1, -size);
  }
  std::ranges::sort(changes);
  int64_t live = 0, most = 0;
  for (const auto& [moment, more] : changes) {
    live += more;
    most = std::max(most, live);
  }
  return bytes(most);
}

ArenaPlan plan_arena(std::span<const Lifetime> lifetimes) {
  ArenaPlanner planner(lifetimes);
  planner.first_try();
  if (planner.found()) return std::move(planner).result();
  // Devices that share a stage, and plans that differ elsewhere, ask the same again and again.
  struct Known {
    std::vector<Lifetime> lifetimes;
    ArenaPlan plan;
  };
  constexpr size_t most_known = 64;
  thread_local std::deque<Known> latest;
  const auto same =
      std::ranges::find_if(latest, [&](const Known& one) { return std::ranges::equal(one.lifetimes, lifetimes); });
  if (same != latest.end()) return same->plan;
  planner.search();
  latest.push_front({{lifetimes.begin(), lifetimes.end()}, std::move(planner).result()});
  if (latest.size() > most_known) latest.pop_back();
  return latest.front().plan;
}

ArenaPlan plan_arena_by_size(std::span<const Lifetime> lifetimes) {
  ArenaPlanner planner(lifetimes);
  planner.first_try();
  return std::move(planner).result();
}

}  // namespace nlsplit::inline graph

#include "sim/slowness.h"

#include <algorithm>
#include <limits>

namespace nlsplit::inline sim {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

double end_of_change(const Slowness& slowness, size_t i) {
  return i + 1 < slowness.size() ? slowness[i + 1].from : never;
}

// The one that holds at `time`.
size_t change_at(const Slowness& slowness, double time) {
  const auto after = std::ranges::upper_bound(slowness, time, {}, &SpeedChange::from);
  return after == slowness.begin() ? 0 : static_cast<size_t>(after - slowness.begin()) - 1;
}

// Makes a change at `time` that changes nothing yet; its index.
size_t cut_at(Slowness& slowness, double time) {
  const size_t at = change_at(slowness, time);
  if (slowness[at].from == time) return at;
  slowness.insert(slowness.begin() + static_cast<std::ptrdiff_t>(at) + 1, {time, slowness[at].slowness});
  return at + 1;
}

}  // namespace

double end_of(const Slowness& slowness, double now, double work) {
  if (slowness.empty()) return now + work;
  for (size_t i = change_at(slowness, now);; ++i) {
    const double end = now + work * slowness[i].slowness;
    if (end <= end_of_change(slowness, i)) return end;
    work = std::max(0.0, work - (end_of_change(slowness, i) - now) / slowness[i].slowness);
    now = end_of_change(slowness, i);
  }
}

double done_between(const Slowness& slowness, double from, double to) {
  if (slowness.empty()) return to - from;
  double done = 0;
  for (size_t i = change_at(slowness, from); from < to; ++i) {
    const double end = std::min(to, end_of_change(slowness, i));
    done += (end - from) / slowness[i].slowness;
    from = end;
  }
  return done;
}

void slow_down(Slowness& slowness, double slowdown, double from, double until) {
  if (!(from < until)) return;
  if (slowness.empty()) slowness.push_back({});
  const size_t first = cut_at(slowness, from);
  const size_t last = until == never ? slowness.size() : cut_at(slowness, until);
  for (size_t i = first; i < last; ++i) slowness[i].slowness *= slowdown;
}

}  // namespace nlsplit::inline sim

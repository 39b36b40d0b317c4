#include "kernels/generated/space.h"

#include <algorithm>

#include "base/check.h"

namespace nlsplit::inline kernels {
namespace {

// start + step i for all of them?
bool is_line(const std::vector<int64_t>& places, AxisMap& line) {
  line = {places.empty() ? 0 : places[0], places.size() < 2 ? 0 : places[1] - places[0], {}};
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] != line.start + line.step * static_cast<int64_t>(i)) return false;
  }
  return true;
}

// Every place `run` times, one behind the other, the first of each on a line: a nearest neighbour by a whole factor.
bool is_repeated(const std::vector<int64_t>& places, int64_t run, AxisMap& line) {
  std::vector<int64_t> firsts;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto within = static_cast<int64_t>(i) % run;
    if (within == 0)
      firsts.push_back(places[i]);
    else if (places[i] != firsts.back())
      return false;
  }
  return is_line(firsts, line);
}

// The first `period` again and again: a tile.
bool is_periodic(const std::vector<int64_t>& places, int64_t period, AxisMap& line) {
  for (size_t i = static_cast<size_t>(period); i < places.size(); ++i) {
    if (places[i] != places[i - static_cast<size_t>(period)]) return false;
  }
  return is_line({places.begin(), places.begin() + period}, line);
}

}  // namespace

std::vector<int64_t> row_major_strides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

Space::Space(const Shape& result, size_t operands) : starts_(operands, 0), where_(result.size(), -1) {
  for (size_t i = 0; i < result.size(); ++i)
    axes_.push_back({.extent = result[i], .maps = std::vector<AxisMap>(operands), .origin = i});
}

void Space::broadcast(size_t operand, const Shape& shape) {
  CHECK(shape.size() <= axes_.size(), "broadcasting never drops axes");
  const std::vector<int64_t> strides = row_major_strides(shape);
  const size_t shift = axes_.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == axes_[shift + i].extent) along(operand, shift + i).step = strides[i];
  }
}

void Space::simplify() {
  for (Axis& axis : axes_) {
    for (AxisMap& map : axis.maps) {
      AxisMap line;
      if (!map.table.empty() && is_line(map.table, line)) map = line;
    }
  }
  drop_single();
  split_tables();
  drop_single();
  merge();
  if (axes_.empty()) axes_.push_back({.extent = 1, .maps = std::vector<AxisMap>(starts_.size())});
  for (size_t i = 0; i < axes_.size(); ++i) {
    extents_.push_back(axes_[i].extent);
    if (axes_[i].apart) where_[axes_[i].origin] = static_cast<int>(i);
    for (size_t k = 0; k < starts_.size(); ++k) {
      starts_[k] += axes_[i].maps[k].start;
      axes_[i].maps[k].start = 0;
    }
  }
}

// What has one position adds where it starts.
void Space::drop_single() {
  std::erase_if(axes_, [&](const Axis& axis) {
    if (axis.extent != 1) return false;
    for (size_t k = 0; k < starts_.size(); ++k)
      starts_[k] += axis.maps[k].table.empty() ? axis.maps[k].start : axis.maps[k].table[0];
    return true;
  });
}

// An axis of one operand whose table repeats itself becomes two axes without.
void Space::split_tables() {
  if (starts_.empty()) return;
  for (size_t i = 0; i < axes_.size(); ++i) {
    const auto tables = std::ranges::count_if(axes_[i].maps, [](const AxisMap& map) { return !map.table.empty(); });
    if (tables != 1 || axes_[i].apart) continue;
    const auto k =
        static_cast<size_t>(std::ranges::find_if(axes_[i].maps, [](const AxisMap& map) { return !map.table.empty(); }) -
                            axes_[i].maps.begin());
    const std::vector<int64_t>& places = axes_[i].maps[k].table;
    const int64_t extent = axes_[i].extent;
    int64_t run = 1, period = 1;
    while (run < extent && places[static_cast<size_t>(run)] == places[0]) ++run;
    while (period < extent && (period < run || places[static_cast<size_t>(period)] != places[0])) ++period;
    AxisMap outer, inner;
    int64_t inner_extent = 0;
    if (run > 1 && run < extent && extent % run == 0 && is_repeated(places, run, outer)) {
      inner_extent = run;
    } else if (period < extent && extent % period == 0 && is_periodic(places, period, inner)) {
      outer = {};
      inner_extent = period;
    } else {
      continue;
    }
    Axis first = axes_[i], second = axes_[i];
    first.extent = extent / inner_extent;
    second.extent = inner_extent;
    for (size_t other = 0; other < starts_.size(); ++other) {
      first.maps[other].step *= inner_extent;
      second.maps[other].start = 0;
    }
    first.maps[k] = outer;
    second.maps[k] = inner;
    axes_[i] = first;
    axes_.insert(axes_.begin() + static_cast<std::ptrdiff_t>(i) + 1, second);
    ++i;
  }
}

// Two neighbours of which the outer one's step is the inner one's whole length, for every operand.
void Space::merge() {
  for (size_t i = axes_.size(); i-- > 1;) {
    Axis &outer = axes_[i - 1], &inner = axes_[i];
    if (outer.apart || inner.apart) continue;
    bool fits = true;
    for (size_t k = 0; k < starts_.size(); ++k) {
      const AxisMap &a = outer.maps[k], &b = inner.maps[k];
      fits = fits && a.table.empty() && b.table.empty() && a.step == b.step * inner.extent;
    }
    if (!fits) continue;
    for (size_t k = 0; k < starts_.size(); ++k) {
      outer.maps[k].step = inner.maps[k].step;
      outer.maps[k].start += inner.maps[k].start;
    }
    outer.extent *= inner.extent;
    axes_.erase(axes_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

int Space::place(LoopWriter& w) const {
  int place = w.integer(0);
  int64_t stride = 1;
  for (size_t i = axes_.size(); i-- > 0;) {
    if (axes_[i].extent != 1) place = w.add(w.multiply(w.axis(static_cast<int>(i)), w.integer(stride)), place);
    stride *= axes_[i].extent;
  }
  return place;
}

int Space::index(LoopWriter& w, size_t operand) const {
  int index = w.integer(starts_[operand]);
  for (size_t i = 0; i < axes_.size(); ++i) {
    const AxisMap& map = axes_[i].maps[operand];
    const int at = w.axis(static_cast<int>(i));
    if (!map.table.empty())
      index = w.add(index, w.entry(w.add_table(map.table), at));
    else if (map.step != 0 && axes_[i].extent != 1)
      index = w.add(index, w.multiply(at, w.integer(map.step)));
  }
  return index;
}

}  // namespace nlsplit::inline kernels

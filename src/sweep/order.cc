#include "sweep/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

namespace nlsplit::inline sweeps {
namespace {

constexpr double equal_within = 1e-9;  // relative; what sums in another order differ by
constexpr auto any = static_cast<size_t>(-1);

bool is_choice(const Experiment& experiment, AxisKind kind) {
  if (kind == AxisKind::micro_batches) return !experiment.pipeline;  // of a pipeline more of them are more work
  return kind == AxisKind::schedule || kind == AxisKind::plan || kind == AxisKind::placement;
}

// Counts of micro-batches are x only where nothing else can be.
std::optional<size_t> x_of(const Experiment& experiment) {
  std::optional<size_t> x;
  for (const bool choices : {false, true}) {
    for (size_t a = 0; a < experiment.axes.size() && !(choices && x); ++a) {
      const Axis& axis = experiment.axes[a];
      if (axis.kind == AxisKind::seed || !is_numeric(axis.kind) || axis.values.size() < 2) continue;
      if (is_choice(experiment, axis.kind) != choices) continue;
      if (!x || axis.values.size() > experiment.axes[*x].values.size()) x = a;
    }
  }
  return x;
}

// Those with several values; where there are none, schedules.
std::vector<size_t> series_of(const Experiment& experiment, std::optional<size_t> x) {
  std::vector<size_t> series;
  for (size_t a = 0; a < experiment.axes.size(); ++a) {
    if (a != x && experiment.axes[a].values.size() > 1 && is_choice(experiment, experiment.axes[a].kind))
      series.push_back(a);
  }
  for (size_t a = 0; a < experiment.axes.size() && series.empty(); ++a) {
    if (experiment.axes[a].kind == AxisKind::schedule) series.push_back(a);
  }
  return series;
}

struct Mean {
  double sum = 0;
  int count = 0;
};

// What is compared, and where, by place on the axes; `any` where an axis does not count.
using Place = std::vector<size_t>;

std::string text_of(const Experiment& experiment, const Place& place, bool with_names) {
  std::string text;
  for (size_t a = 0; a < place.size(); ++a) {
    const Axis& axis = experiment.axes[a];
    if (place[a] == any || (with_names && axis.values.size() < 2)) continue;
    if (!text.empty()) text += with_names ? ", " : " · ";
    text += with_names ? fmt::format("{} {}", axis.column, axis.values[place[a]].text) : axis.values[place[a]].text;
  }
  return text;
}

OrderChange change_between(const OrderAt& before, const OrderAt& after) {
  OrderChange change{before.x, after.x, {}};
  const auto time_at = [](const OrderAt& at, const std::string& series) -> std::optional<double> {
    const auto found = std::ranges::find(at.placed, series, &Placed::series);
    if (found == at.placed.end()) return std::nullopt;
    return found->makespan_s;
  };
  for (size_t i = 0; i < after.placed.size(); ++i) {
    for (size_t j = i + 1; j < after.placed.size(); ++j) {
      const Placed& faster = after.placed[i];
      const Placed& slower = after.placed[j];
      const auto faster_before = time_at(before, faster.series), slower_before = time_at(before, slower.series);
      if (!faster_before || !slower_before) continue;
      if (*faster_before > *slower_before * (1 + equal_within) &&
          faster.makespan_s * (1 + equal_within) < slower.makespan_s)
        change.passes.emplace_back(faster.series, slower.series);
    }
  }
  return change;
}

}  // namespace

std::string series_title(const Experiment& experiment, const SweepOrders& orders) {
  std::string title;
  for (const size_t a : orders.series) title += (title.empty() ? "" : ", ") + experiment.axes[a].column;
  return title;
}

SweepOrders orders_of(const Experiment& experiment, const Sweep& sweep) {
  SweepOrders orders;
  orders.x = x_of(experiment);
  orders.series = series_of(experiment, orders.x);
  const size_t makespan = column_of(sweep, "makespan_s");
  const auto in_series = [&](size_t a) { return std::ranges::find(orders.series, a) != orders.series.end(); };
  // Slices in the order of the grid; in each, means by x and series.
  std::vector<Place> places;
  std::map<Place, std::map<std::pair<size_t, Place>, Mean>> means;
  for (size_t i = 0; i < sweep.points.size(); ++i) {
    if (sweep.rows[i].empty() || sweep.rows[i][makespan].empty()) continue;
    const std::string& text = sweep.rows[i][makespan];
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    const Place& at = sweep.points[i].at;
    Place place = at, series(at.size(), any);
    for (size_t a = 0; a < place.size(); ++a) {
      if (in_series(a)) series[a] = at[a];
      if (in_series(a) || a == orders.x || experiment.axes[a].kind == AxisKind::seed) place[a] = any;
    }
    if (!means.contains(place)) places.push_back(place);
    Mean& mean = means[place][{orders.x ? at[*orders.x] : 0, series}];
    mean.sum += value;
    ++mean.count;
  }
  for (const Place& place : places) {
    OrderSlice slice{text_of(experiment, place, true), {}, {}};
    std::optional<size_t> current;
    for (const auto& [key, mean] : means[place]) {
      if (current != key.first) {
        current = key.first;
        slice.along.push_back({orders.x ? experiment.axes[*orders.x].values[key.first].text : "", {}});
      }
      slice.along.back().placed.push_back({text_of(experiment, key.second, false), mean.sum / mean.count});
    }
    for (OrderAt& at : slice.along) std::ranges::stable_sort(at.placed, {}, &Placed::makespan_s);
    for (size_t i = 1; i < slice.along.size(); ++i) {
      OrderChange change = change_between(slice.along[i - 1], slice.along[i]);
      if (!change.passes.empty()) slice.changes.push_back(std::move(change));
    }
    orders.slices.push_back(std::move(slice));
  }
  return orders;
}

}  // namespace nlsplit::inline sweeps

// The order of the choices of a sweep, and where it changes.
//
// Some axes are choices (schedule, plan, placement; in a scenario micro-batches too): a compared item has one value of
// each. The other axes are circumstances. One of them is x, along which the order may change; each combination of the
// rest is a comparison of its own. Several seeds count as their mean.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sweep/sweep.h"

namespace nlsplit::inline sweeps {

struct Placed {
  std::string series;  // "zb_v · quarters"
  double makespan_s = 0;
};

struct OrderAt {
  std::string x;
  std::vector<Placed> placed;  // best first; who is impossible there is missing
};

// From one value of x to the next, as the axis has them: the first of each pair was slower and now is faster.
struct OrderChange {
  std::string from, to;
  std::vector<std::pair<std::string, std::string>> passes;
};

struct OrderSlice {
  std::string fixed;  // "device_speed_factor_A 0.5"; empty: there is but one
  std::vector<OrderAt> along;
  std::vector<OrderChange> changes;
};

struct SweepOrders {
  std::vector<size_t> series;  // axes of the experiment
  std::optional<size_t> x;     // the numeric axis with the most values; none: there is none with several
  std::vector<OrderSlice> slices;
};
SweepOrders orders_of(const Experiment& experiment, const Sweep& sweep);

// "schedule, plan"
std::string series_title(const Experiment& experiment, const SweepOrders& orders);

}  // namespace nlsplit::inline sweeps

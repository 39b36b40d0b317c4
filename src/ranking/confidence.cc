#include "ranking/confidence.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "ranking/noise_runs.h"

namespace nlsplit::inline ranking {
namespace {

using Costs = std::vector<std::vector<double>>;

double quantile(std::vector<double> values, double part) {
  const size_t at = nearest_rank(values.size(), part);
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(at));
  return values[at];
}

std::vector<double> least_of(const Costs& costs) {
  std::vector<double> least(costs[0].size(), std::numeric_limits<double>::infinity());
  for (const std::vector<double>& plan : costs) {
    for (size_t w = 0; w < least.size(); ++w) least[w] = std::min(least[w], plan[w]);
  }
  return least;
}

// [world]: whether no plan is better.
std::vector<bool> wins_of(const std::vector<double>& plan, const std::vector<double>& least) {
  std::vector<bool> wins(plan.size());
  for (size_t w = 0; w < plan.size(); ++w) wins[w] = plan[w] <= least[w] * as_good;
  return wins;
}

class Cover {
 public:
  Cover(const std::vector<std::vector<bool>>& wins, size_t wanted) : wins_(wins), wanted_(wanted) {
    times_.resize(wins[0].size());
  }

  std::vector<size_t> find() {
    std::vector<size_t> chosen;
    while (covered_ < wanted_) {
      size_t best = 0, most = 0;
      for (size_t p = 0; p < wins_.size(); ++p) {
        size_t more = 0;
        for (size_t w = 0; w < times_.size(); ++w) more += wins_[p][w] && times_[w] == 0 ? 1 : 0;
        if (more > most) {
          most = more;
          best = p;
        }
      }
      CHECK(most > 0, "in every world some plan is the best");
      add(best, 1);
      chosen.push_back(best);
    }
    std::ranges::sort(chosen);
    for (size_t i = chosen.size(); i-- > 0;) {
      add(chosen[i], -1);
      if (covered_ >= wanted_)
        chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
      else
        add(chosen[i], 1);
    }
    return chosen;
  }
  double covered() const { return static_cast<double>(covered_) / static_cast<double>(times_.size()); }

 private:
  void add(size_t plan, int times) {
    for (size_t w = 0; w < times_.size(); ++w) {
      if (!wins_[plan][w]) continue;
      const bool before = times_[w] > 0;
      times_[w] += times;
      const bool now = times_[w] > 0;
      if (now && !before) ++covered_;
      if (before && !now) --covered_;
    }
  }

  const std::vector<std::vector<bool>>& wins_;
  size_t wanted_, covered_ = 0;
  std::vector<int> times_;  // [world]: plans chosen that are the best there
};

}  // namespace

Confidence confidence_of(const Costs& costs, double level) {
  CHECK(!costs.empty() && !costs[0].empty(), "neither plans nor worlds");
  Confidence confidence;
  confidence.level = level;
  confidence.worlds = costs[0].size();
  const auto worlds = static_cast<double>(confidence.worlds);
  const std::vector<double> least = least_of(costs);
  std::vector<std::vector<bool>> wins;
  size_t rank = 0;
  for (size_t p = 0; p < costs.size(); ++p) {
    wins.push_back(wins_of(costs[p], least));
    std::vector<double> difference(costs[p].size());
    size_t worse = 0;
    for (size_t w = 0; w < difference.size(); ++w) {
      difference[w] = costs[p][w] / costs[0][w] - 1;
      worse += costs[p][w] > costs[rank][w] * as_good ? 1 : 0;
    }
    if (static_cast<double>(worse) >= level * worlds) rank = p;
    ErrorBar& bar = confidence.plans.emplace_back();
    bar.low = quantile(costs[p], bar_low);
    bar.high = quantile(costs[p], bar_high);
    bar.difference_low = quantile(difference, bar_low);
    bar.difference_high = quantile(difference, bar_high);
    bar.best = static_cast<double>(std::ranges::count(wins[p], true)) / worlds;
    bar.rank = rank;
  }
  Cover cover(wins, static_cast<size_t>(std::ceil(level * worlds - 1e-9)));
  confidence.set = cover.find();
  confidence.covered = cover.covered();
  return confidence;
}

}  // namespace nlsplit::inline ranking

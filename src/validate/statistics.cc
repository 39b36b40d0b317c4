#include "validate/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/random.h"

namespace nlsplit::inline validation {
namespace {

// 1 for the smallest; equal values share the mean of their places.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + 1 + end) / 2;
  }
  return ranks;
}

template <class Asked>
Agreement agreement_of(std::span<const Outcome> outcomes, const Asked& asked) {
  Agreement agreement;
  double sum = 0;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Outcome &a = outcomes[i], &b = outcomes[j];
      const Figure &x = a.score, &y = b.score;
      if (!asked(a) || !asked(b) || std::abs(x.measured - y.measured) <= x.spread + y.spread) continue;
      ++agreement.pairs;
      const double product = (x.measured - y.measured) * (x.predicted - y.predicted);
      sum += product > 0 ? 1 : product < 0 ? -1 : 0;
    }
  }
  if (agreement.pairs > 0) agreement.tau = sum / static_cast<double>(agreement.pairs);
  return agreement;
}

// Scores in the predicted order.
double regret(std::span<const double> scores, size_t first) {
  return std::ranges::min(scores.subspan(0, std::min(first, scores.size()))) / std::ranges::min(scores) - 1;
}

// In the predicted order.
std::optional<Range> regret_range(const std::vector<const Outcome*>& order) {
  constexpr size_t least_runs = 3, draws = 1000;
  if (std::ranges::any_of(order, [](const Outcome* o) { return o->scores.size() < least_runs; })) return std::nullopt;
  Random random(1);
  std::vector<double> regrets, scores(order.size()), drawn;
  for (size_t draw = 0; draw < draws; ++draw) {
    for (size_t i = 0; i < order.size(); ++i) {
      const std::vector<double>& runs = order[i]->scores;
      drawn.clear();
      for (size_t r = 0; r < runs.size(); ++r) drawn.push_back(runs[random.below(runs.size())]);
      scores[i] = quantile(drawn, 0.5);
    }
    regrets.push_back(regret(scores, 1));
  }
  return Range{quantile(regrets, 0.05), quantile(regrets, 0.95)};
}

}  // namespace

double quantile(std::vector<double> values, double q) {
  CHECK(!values.empty(), "a quantile of nothing");
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

Quantiles quantiles_of(const std::vector<double>& values) {
  return {quantile(values, 0.5), quantile(values, 0.9), quantile(values, 1)};
}

double spearman(std::span<const double> a, std::span<const double> b) {
  CHECK(a.size() == b.size(), "one of the two has more values");
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  const double mean = static_cast<double>(x.size() + 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

std::optional<Quality> quality_of(std::span<const Outcome> outcomes) {
  if (outcomes.size() < 2) return std::nullopt;
  Quality q;
  q.plans = outcomes.size();
  std::vector<double> throughput, latency, spread, predicted, measured;
  for (const Outcome& o : outcomes) {
    // throughput = batch / seconds: (1 / predicted - 1 / measured) / (1 / measured)
    throughput.push_back(std::abs(o.makespan.measured / o.makespan.predicted - 1));
    latency.push_back(std::abs(o.latency.predicted - o.latency.measured) / o.latency.measured);
    spread.push_back(o.score.spread / o.score.measured);
    predicted.push_back(o.score.predicted);
    measured.push_back(o.score.measured);
  }
  q.throughput_error = quantiles_of(throughput);
  q.latency_error = quantiles_of(latency);
  q.spread = quantile(spread, 0.5);
  q.spearman = spearman(predicted, measured);
  const double best = std::ranges::min(measured);
  q.all = agreement_of(outcomes, [](const Outcome&) { return true; });
  q.near_best = agreement_of(outcomes, [&](const Outcome& o) { return o.score.measured <= best * (1 + near_best); });

  std::vector<const Outcome*> order;
  for (const Outcome& o : outcomes) order.push_back(&o);
  std::ranges::stable_sort(order, {}, [](const Outcome* o) { return o->score.predicted; });
  std::vector<double> ordered;
  for (const Outcome* o : order) ordered.push_back(o->score.measured);
  q.regret_1 = regret(ordered, 1);
  q.regret_5 = regret(ordered, 5);
  q.regret_range = regret_range(order);
  const Figure& first = order[0]->score;
  const Figure& winner =
      std::ranges::min_element(outcomes, {}, [](const Outcome& o) { return o.score.measured; })->score;
  q.best_first = first.measured - winner.measured <= first.spread + winner.spread;
  return q;
}

}  // namespace nlsplit::inline validation

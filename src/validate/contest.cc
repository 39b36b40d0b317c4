#include "validate/contest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/check.h"
#include "validate/statistics.h"

namespace nlsplit::inline validation {
namespace {

using ByRound = std::map<int, double>;  // logarithm of the score; the mean of several runs

std::vector<ByRound> scores_of(const PlanSet& set, const std::vector<PlanRun>& runs) {
  std::map<std::string, size_t> plan_of;
  for (size_t p = 0; p < set.plans.size(); ++p) plan_of.emplace(set.plans[p].fingerprint, p);
  std::vector<ByRound> scores(set.plans.size());
  for (const PlanRun& run : runs) {
    const auto plan = plan_of.find(run.fingerprint);
    if (run.control || !run.error.empty() || plan == plan_of.end()) continue;
    scores[plan->second][run.round] = std::log(set.judge.score(quantile(run.makespans_s, 0.5), run.latency_mean_s));
  }
  return scores;
}

// Over the rounds that both plans have: how much worse `plan` is than the leader.
Contestant compare(const std::vector<ByRound>& scores, size_t plan, size_t leader, double tail) {
  Contestant contestant{plan, 0, 0, std::numeric_limits<double>::infinity()};
  std::vector<double> differences;
  for (const auto& [round, score] : scores[plan]) {
    const auto other = scores[leader].find(round);
    if (other != scores[leader].end()) differences.push_back(score - other->second);
  }
  const auto n = static_cast<double>(differences.size());
  contestant.pairs = differences.size();
  if (differences.empty()) return contestant;
  const double mean = std::accumulate(differences.begin(), differences.end(), 0.0) / n;
  contestant.worse_by = mean;
  if (differences.size() < least_pairs) return contestant;
  double squares = 0;
  for (const double difference : differences) squares += (difference - mean) * (difference - mean);
  contestant.uncertainty = student_quantile(1 - tail, n - 1) * std::sqrt(squares / (n - 1) / n);
  return contestant;
}

double mean_of(const ByRound& scores) {
  double sum = 0;
  for (const auto& [round, score] : scores) sum += score;
  return sum / static_cast<double>(scores.size());
}

// Over the rounds that all of them have, if there are any, the plan with the least mean; else each over its own.
size_t find_leader(const std::vector<ByRound>& scores, const std::vector<size_t>& plans) {
  std::map<int, size_t> seen;
  for (const size_t plan : plans) {
    for (const auto& [round, score] : scores[plan]) ++seen[round];
  }
  const bool shared = std::ranges::any_of(seen, [&](const auto& it) { return it.second == plans.size(); });
  const auto mean = [&](size_t plan) {
    if (!shared) return mean_of(scores[plan]);
    ByRound common;
    for (const auto& [round, score] : scores[plan]) {
      if (seen.at(round) == plans.size()) common[round] = score;
    }
    return mean_of(common);
  };
  return *std::ranges::min_element(plans, {}, mean);
}

}  // namespace

double student_quantile(double p, double degrees) {
  CHECK(p >= 0.5 && p < 1 && degrees >= 1, "Student's t of this is not asked for");
  const double t = std::sqrt(-2 * std::log(1 - p));
  const double z =
      t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  const double z2 = z * z;
  const double first = z * (z2 + 1) / 4;
  const double second = z * (z2 * (5 * z2 + 16) + 3) / 96;
  const double third = z * (z2 * (z2 * (3 * z2 + 19) + 17) - 15) / 384;
  const double fourth = z * (z2 * (z2 * (z2 * (79 * z2 + 776) + 1482) - 1920) - 945) / 92160;
  return z + (first + (second + (third + fourth / degrees) / degrees) / degrees) / degrees;
}

bool Contest::ends() const {
  return std::ranges::all_of(left,
                             [&](const Contestant& it) { return it.plan == leader || it.most() <= equal_within; });
}

std::optional<Contest> hold_contest(const PlanSet& set, const std::vector<PlanRun>& runs,
                                    const ContestOptions& options) {
  const std::vector<ByRound> scores = scores_of(set, runs);
  std::vector<size_t> plans;
  for (size_t p = 0; p < scores.size(); ++p) {
    if (!scores[p].empty()) plans.push_back(p);
  }
  if (plans.empty()) return std::nullopt;
  const double tail =
      (1 - options.confidence) / static_cast<double>(std::max<size_t>(1, plans.size() - 1)) / options.looks;
  Contest contest;
  // Who was out early has few rounds, and the least mean of those may be his: the leader is one of those left.
  for (std::vector<size_t> candidates = plans;;) {
    contest = {};
    contest.confidence = options.confidence;
    contest.leader = find_leader(scores, candidates);
    std::vector<size_t> next;
    for (const size_t plan : plans) {
      if (plan == contest.leader) {
        contest.left.push_back({plan, scores[plan].size(), 0, 0});
        next.push_back(plan);
        continue;
      }
      const Contestant contestant = compare(scores, plan, contest.leader, tail);
      const bool is_out = contestant.least() > 0;
      (is_out ? contest.out : contest.left).push_back(contestant);
      if (!is_out) next.push_back(plan);
    }
    if (next.size() >= candidates.size()) break;
    candidates = std::move(next);
  }
  const auto order = [&](const Contestant& it) { return it.plan == contest.leader ? -1e300 : it.worse_by; };
  std::ranges::stable_sort(contest.left, {}, order);
  std::ranges::stable_sort(contest.out, {}, order);
  return contest;
}

}  // namespace nlsplit::inline validation

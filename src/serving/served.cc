#include "serving/served.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

namespace nlsplit::inline serving {
namespace {

nlohmann::ordered_json json_of(const Percentiles& of) {
  return {{"p50_s", of.p50}, {"p95_s", of.p95}, {"p99_s", of.p99}, {"mean_s", of.mean}, {"count", of.count}};
}

}  // namespace

Percentiles percentiles(std::vector<double> values) {
  Percentiles made;
  made.count = std::ssize(values);
  if (values.empty()) return made;
  std::ranges::sort(values);
  const auto at = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::max<size_t>(rank, 1) - 1];
  };
  made.p50 = at(0.5);
  made.p95 = at(0.95);
  made.p99 = at(0.99);
  made.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  return made;
}

ServingSummary summary_of(const std::vector<ServedRequest>& served) {
  ServingSummary summary;
  summary.requests = std::ssize(served);
  std::vector<double> first, next;
  double begin = 0, end = 0;
  int64_t tokens = 0;
  for (const ServedRequest& one : served) {
    if (&one == &served.front()) begin = one.at_s;
    summary.turned_away += one.outcome == Outcome::turned_away ? 1 : 0;
    if (one.outcome == Outcome::failed) {
      ++summary.failed;
      ++summary.failures[one.why];
    }
    if (one.outcome != Outcome::answered) continue;
    ++summary.answered;
    tokens += one.tokens;
    summary.prompt_tokens += one.prompt;
    summary.cached_tokens += one.cached;
    summary.preempted += one.preempted;
    end = std::max(end, one.last_s);
    first.push_back(one.first_s - one.at_s);
    if (one.tokens > 1) next.push_back((one.last_s - one.first_s) / static_cast<double>(one.tokens - 1));
  }
  summary.first_token = percentiles(std::move(first));
  summary.next_token = percentiles(std::move(next));
  summary.seconds = std::max(0.0, end - begin);
  if (summary.seconds > 0) {
    summary.tokens_per_s = static_cast<double>(tokens) / summary.seconds;
    summary.requests_per_s = static_cast<double>(summary.answered) / summary.seconds;
  }
  return summary;
}

std::string summary_json(const ServingSummary& summary) {
  const nlohmann::ordered_json all = {{"requests", summary.requests},
                                      {"answered", summary.answered},
                                      {"turned_away", summary.turned_away},
                                      {"failed", summary.failed},
                                      {"failures", summary.failures},
                                      {"first_token", json_of(summary.first_token)},
                                      {"next_token", json_of(summary.next_token)},
                                      {"seconds", summary.seconds},
                                      {"prompt_tokens", summary.prompt_tokens},
                                      {"cached_tokens", summary.cached_tokens},
                                      {"preempted", summary.preempted},
                                      {"tokens_per_s", summary.tokens_per_s},
                                      {"requests_per_s", summary.requests_per_s}};
  return all.dump(2);
}

}  // namespace nlsplit::inline serving

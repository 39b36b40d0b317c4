#include "text/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/check.h"
#include "base/random.h"

namespace nlsplit::inline text {
namespace {

struct Candidate {
  float logit;
  TokenId token;
  double weight = 0;  // probability, as a multiple of the likeliest token's
};

// Of two equal ones the lower number is the likelier.
bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// e^x for x <= 0, to a few units in the last place. libm's differs between libraries; every step here is exactly
// rounded.
double portable_exp(double x) {
  if (x < -700) return 0;
  const double halvings = std::nearbyint(x / std::numbers::ln2);
  const double rest = std::fma(-halvings, std::numbers::ln2, x);  // at most 0.35: 17 terms of the series reach 2^-53
  double series = 1;
  for (int k = 17; k >= 1; --k) series = std::fma(series, rest / k, 1.0);
  return std::ldexp(series, static_cast<int>(halvings));
}

// A number of [0, 1) by seed and position.
double drawn(uint64_t seed, uint64_t position) {
  Random stream(seed);
  Random place(stream.next() + position);
  return place.uniform();
}

Result<Candidate> likeliest(std::span<const float> logits) {
  if (logits.empty() || logits.size() > static_cast<size_t>(most_tokens))
    return invalid_input(fmt::format("{} logits are not a vocabulary", logits.size()));
  Candidate best{logits[0], 0, 1};
  for (size_t at = 0; at < logits.size(); ++at) {
    if (std::isnan(logits[at])) return failed(fmt::format("the logit of token {} is not a number", at));
    if (logits[at] > best.logit) best = {logits[at], static_cast<TokenId>(at), 1};
  }
  if (std::isinf(best.logit))
    return failed(fmt::format("the largest logit, of token {}, is {}", best.token, best.logit));
  return best;
}

double total_weight(const std::vector<Candidate>& candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

// The likeliest that together have this share, in their order.
void keep_top_p(std::vector<Candidate>& candidates, double top_p) {
  const double total = total_weight(candidates), most_left = (1 - top_p) * total;
  // All tokens lighter than this may go: together they have no more than what is left out. What stays is soon sorted.
  const double least = most_left / static_cast<double>(candidates.size());
  std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.weight < least; });
  std::sort(candidates.begin(), candidates.end(), likelier);
  double sum = 0;
  size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || sum < top_p * total)) sum += candidates[kept++].weight;
  candidates.resize(kept);
}

}  // namespace

Status check(const Sampling& sampling) {
  if (!(sampling.temperature >= 0) || std::isinf(sampling.temperature))
    return invalid_input(fmt::format("temperature {}: it is a number from 0 on", sampling.temperature));
  if (sampling.top_k < 0) return invalid_input(fmt::format("top-k {}: it is a number from 0 on", sampling.top_k));
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    return invalid_input(fmt::format("top-p {}: it is above 0 and at most 1", sampling.top_p));
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1))
    return invalid_input(fmt::format("min-p {}: it is from 0 to 1", sampling.min_p));
  return ok_status();
}

Result<TokenId> sample(std::span<const float> logits, const Sampling& sampling, uint64_t position) {
  RETURN_IF_ERROR(check(sampling));
  ASSIGN_OR_RETURN(const Candidate best, likeliest(logits));
  if (sampling.temperature == 0) return best.token;
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t at = 0; at < logits.size(); ++at) candidates.push_back({logits[at], static_cast<TokenId>(at), 0});
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + sampling.top_k, candidates.end(), likelier);
    candidates.resize(static_cast<size_t>(sampling.top_k));
    std::sort(candidates.begin(), candidates.end(), likelier);
  }
  for (Candidate& candidate : candidates)
    candidate.weight = portable_exp((static_cast<double>(candidate.logit) - best.logit) / sampling.temperature);
  if (sampling.top_p < 1) keep_top_p(candidates, sampling.top_p);
  std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.weight < sampling.min_p; });
  double left = drawn(sampling.seed, position) * total_weight(candidates);
  TokenId last = best.token;
  for (const Candidate& candidate : candidates) {
    if (candidate.weight == 0) continue;
    last = candidate.token;
    left -= candidate.weight;
    if (left < 0) break;
  }
  return last;
}

}  // namespace nlsplit::inline text

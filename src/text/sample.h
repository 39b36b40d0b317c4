// The next token from a network's logits: the most likely one, or one drawn by its probability.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "text/vocabulary.h"

namespace nlsplit::inline text {

// Applied in this order. The defaults draw from all tokens by the network's own probabilities.
struct Sampling {
  double temperature = 1;  // 0: the most likely token, of several the one with the lowest number
  int top_k = 0;           // of so many likeliest tokens; 0: of all
  double top_p = 1;        // of the fewest likeliest tokens that have this share of the probability
  double min_p = 0;        // of the tokens that have at least this share of the likeliest one's probability
  uint64_t seed = 0;
};
Status check(const Sampling& sampling);

// What is drawn depends on the logits, the seed and the token's position in its text alone, and is the same on every
// machine. Errors: a logit that is no number.
Result<TokenId> sample(std::span<const float> logits, const Sampling& sampling, uint64_t position);

}  // namespace nlsplit::inline text

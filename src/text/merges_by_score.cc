#include "text/merges_by_score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <unordered_map>

#include "text/utf8.h"

namespace nlsplit::inline text {
namespace {

// Each token is looked up in as many parts as it has characters, so the work grows with the square of its length.
// SentencePiece makes tokens of 16 characters unless told otherwise; Gemma's longest are 31 spaces.
constexpr size_t most_bytes_of_token = 1024;

}  // namespace

Result<std::vector<Merge>> merges_by_score(const Vocabulary& vocabulary, std::span<const double> scores) {
  std::unordered_map<std::string_view, TokenId> numbers;
  std::vector<double> distinct;
  for (size_t t = 0; t < vocabulary.size(); ++t) {
    if (!vocabulary[t].in_words) continue;
    if (!std::isfinite(scores[t])) return invalid_input(fmt::format("token {} has the score {}", t, scores[t]));
    if (vocabulary[t].bytes.size() > most_bytes_of_token) {
      return invalid_input(fmt::format("token {} has {} bytes; at most {} are read", t, vocabulary[t].bytes.size(),
                                       most_bytes_of_token));
    }
    numbers.emplace(vocabulary[t].bytes, static_cast<TokenId>(t));
    distinct.push_back(scores[t]);
  }
  std::ranges::sort(distinct, std::greater());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<Merge> merges;
  for (size_t t = 0; t < vocabulary.size(); ++t) {
    if (!vocabulary[t].in_words) continue;
    const std::string_view whole = vocabulary[t].bytes;
    const auto rank = std::ranges::lower_bound(distinct, scores[t], std::greater()) - distinct.begin();
    for (size_t cut = utf8_step(whole).size; cut < whole.size(); cut += utf8_step(whole.substr(cut)).size) {
      const auto left = numbers.find(whole.substr(0, cut)), right = numbers.find(whole.substr(cut));
      if (left == numbers.end() || right == numbers.end()) continue;
      merges.push_back({left->second, right->second, static_cast<TokenId>(t), static_cast<int32_t>(rank)});
    }
  }
  return merges;
}

}  // namespace nlsplit::inline text

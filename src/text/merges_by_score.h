// SentencePiece's byte-pair encodings have scores of tokens instead of a list of merges: of the neighbours whose texts
// together are a token, those are joined first whose token has the highest score, of equal ones the leftmost (Kudo,
// Richardson, "SentencePiece", EMNLP 2018).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/vocabulary.h"

namespace nlsplit::inline text {

// Each way in which a token that may be in words is two others, with the rank of its score. One score per token.
// Errors: a score that is no number; a token that is longer than pieces of words are.
Result<std::vector<Merge>> merges_by_score(const Vocabulary& vocabulary, std::span<const double> scores);

}  // namespace nlsplit::inline text

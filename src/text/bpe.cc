#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/byte_alphabet.h"

namespace nlsplit::inline text {

Result<Bpe> make_bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, bool ignore_merges) {
  Bpe bpe;
  bpe.byte_token.fill(-1);
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    const VocabularyToken& token = vocabulary[id];
    if (!token.in_words) continue;
    if (token.bytes.size() == 1) bpe.byte_token[static_cast<unsigned char>(token.bytes[0])] = static_cast<TokenId>(id);
    if (!bpe.whole_words.emplace(token.bytes, static_cast<TokenId>(id)).second)
      return invalid_input(fmt::format("the token '{}' has two numbers, {} and {}", spelling_of_bytes(token.bytes),
                                       bpe.whole_words.at(token.bytes), id));
  }
  int32_t rank = 0;
  for (const Merge& merge : merges) {
    const bool is_new =
        bpe.merges.insert(static_cast<uint32_t>(merge.left), static_cast<uint32_t>(merge.right), {rank, merge.whole});
    if (!is_new) return invalid_input(fmt::format("merge {} is listed before", rank));
    ++rank;
  }
  if (ignore_merges) return bpe;
  BpeEncoder encoder(bpe);
  std::vector<TokenId> tokens;
  std::erase_if(bpe.whole_words, [&](const auto& word) {
    tokens.clear();
    return encoder.merge(word.first, tokens) || tokens.size() != 1;
  });
  return bpe;
}

std::optional<unsigned char> BpeEncoder::encode(std::string_view word, std::vector<TokenId>& tokens) {
  if (const auto found = bpe_->whole_words.find(word); found != bpe_->whole_words.end()) {
    tokens.push_back(found->second);
    return std::nullopt;
  }
  return merge(word, tokens);
}

namespace {

// The heap's front is the merge that comes first, and of several the leftmost.
constexpr auto later = [](const auto& a, const auto& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
};

}  // namespace

void BpeEncoder::offer(int32_t left) {
  const Symbol& symbol = symbols_[static_cast<size_t>(left)];
  if (symbol.after < 0) return;
  const TokenId right = symbols_[static_cast<size_t>(symbol.after)].token;
  const Bpe::Ranked* merge = bpe_->merges.find(static_cast<uint32_t>(symbol.token), static_cast<uint32_t>(right));
  if (merge != nullptr) heap_.push_back({merge->rank, left, merge->whole});
}

std::optional<unsigned char> BpeEncoder::merge(std::string_view word, std::vector<TokenId>& tokens) {
  const auto count = static_cast<int32_t>(word.size());
  symbols_.clear();
  heap_.clear();
  for (int32_t at = 0; at < count; ++at) {
    const auto byte = static_cast<unsigned char>(word[static_cast<size_t>(at)]);
    if (bpe_->byte_token[byte] < 0) return byte;
    symbols_.push_back({bpe_->byte_token[byte], at - 1, at + 1 < count ? at + 1 : -1});
  }
  for (int32_t at = 0; at < count; ++at) offer(at);
  std::make_heap(heap_.begin(), heap_.end(), later);
  const auto offer_one = [&](int32_t left) {
    const size_t before = heap_.size();
    offer(left);
    if (heap_.size() > before) std::push_heap(heap_.begin(), heap_.end(), later);
  };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Candidate best = heap_.back();
    heap_.pop_back();
    Symbol& left = symbols_[static_cast<size_t>(best.left)];
    if (left.token < 0 || left.after < 0) continue;
    Symbol& right = symbols_[static_cast<size_t>(left.after)];
    // A neighbour may have been joined to something else since this was offered.
    const Bpe::Ranked* merge = bpe_->merges.find(static_cast<uint32_t>(left.token), static_cast<uint32_t>(right.token));
    if (merge == nullptr || merge->rank != best.rank) continue;
    left.token = best.whole;
    right.token = -1;
    left.after = right.after;
    if (left.after >= 0) {
      symbols_[static_cast<size_t>(left.after)].before = best.left;
      offer_one(best.left);
    }
    if (left.before >= 0) offer_one(left.before);
  }
  for (int32_t at = 0; at >= 0 && at < count; at = symbols_[static_cast<size_t>(at)].after)
    tokens.push_back(symbols_[static_cast<size_t>(at)].token);
  return std::nullopt;
}

}  // namespace nlsplit::inline text

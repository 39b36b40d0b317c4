#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace nlsplit::inline text {

namespace {

// A token of one byte or of one character is where merging begins.
void add_symbol(const VocabularyToken& token, TokenId id, Bpe& bpe) {
  if (bpe.symbols == Symbols::bytes ? token.in_words && token.bytes.size() == 1 : token.is_byte)
    bpe.byte_token[static_cast<unsigned char>(token.bytes[0])] = id;
  if (bpe.symbols == Symbols::bytes || !token.in_words) return;
  const Utf8Step step = utf8_step(token.bytes);
  if (step.size == token.bytes.size()) bpe.character_token.insert(0, static_cast<uint32_t>(step.character), id);
}

bool has_space_within(std::string_view text) {
  for (size_t at = 1; at < text.size(); ++at) {
    if (text[at] == ' ' && text[at - 1] != ' ') return true;
  }
  return false;
}

}  // namespace

Result<Bpe> make_bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, bool ignore_merges,
                     Symbols symbols) {
  Bpe bpe;
  bpe.symbols = symbols;
  bpe.byte_token.fill(-1);
  bpe.parts_at_spaces = symbols == Symbols::characters;
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    const VocabularyToken& token = vocabulary[id];
    add_symbol(token, static_cast<TokenId>(id), bpe);
    if (!token.in_words) continue;
    if (has_space_within(token.bytes)) bpe.parts_at_spaces = false;
    if (!bpe.whole_words.emplace(token.bytes, static_cast<TokenId>(id)).second)
      return invalid_input(fmt::format("the token '{}' has two numbers, {} and {}", spelling_of_bytes(token.bytes),
                                       bpe.whole_words.at(token.bytes), id));
  }
  for (size_t m = 0; m < merges.size(); ++m) {
    const Merge& merge = merges[m];
    const bool is_new = bpe.merges.insert(static_cast<uint32_t>(merge.left), static_cast<uint32_t>(merge.right),
                                          {merge.rank, merge.whole});
    if (!is_new) return invalid_input(fmt::format("merge {} is listed before", m));
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

std::optional<unsigned char> BpeEncoder::add_symbols(std::string_view word) {
  for (size_t at = 0; at < word.size();) {
    size_t size = 1;
    if (bpe_->symbols == Symbols::characters) {
      const Utf8Step step = utf8_step(word.substr(at));
      size = step.size;
      const TokenId* token =
          step.valid ? bpe_->character_token.find(0, static_cast<uint32_t>(step.character)) : nullptr;
      if (token != nullptr) {
        symbols_.push_back({*token, -1, -1});
        at += size;
        continue;
      }
    }
    for (const char c : word.substr(at, size)) {
      const auto byte = static_cast<unsigned char>(c);
      if (bpe_->byte_token[byte] < 0) return byte;
      symbols_.push_back({bpe_->byte_token[byte], -1, -1});
    }
    at += size;
  }
  return std::nullopt;
}

std::optional<unsigned char> BpeEncoder::merge(std::string_view word, std::vector<TokenId>& tokens) {
  symbols_.clear();
  heap_.clear();
  if (const auto byte = add_symbols(word)) return byte;
  const auto count = static_cast<int32_t>(symbols_.size());
  for (int32_t at = 0; at < count; ++at) {
    symbols_[static_cast<size_t>(at)].before = at - 1;
    symbols_[static_cast<size_t>(at)].after = at + 1 < count ? at + 1 : -1;
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
    if (merge == nullptr || merge->rank != best.rank || merge->whole != best.whole) continue;
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

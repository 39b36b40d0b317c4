#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "text/characters.h"
#include "text/utf8.h"

namespace nlsplit::inline text {
namespace {

size_t space_at_front(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (!step.valid || !is_white_space(step.character)) break;
    at += step.size;
  }
  return at;
}

// Where the white space at the end begins.
size_t space_at_end(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    size_t at = begin - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    const Utf8Step step = utf8_step(text.substr(at));
    if (!step.valid || at + step.size != begin || !is_white_space(step.character)) break;
    begin = at;
  }
  return begin;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), token_at_{-1} {
  for (size_t token = 0; token < tokens_.size(); ++token) {
    uint32_t node = 0;
    for (const char byte : tokens_[token].content) {
      const auto fresh = static_cast<uint32_t>(token_at_.size());
      if (next_.insert(node, static_cast<unsigned char>(byte), fresh)) token_at_.push_back(-1);
      node = *next_.find(node, static_cast<unsigned char>(byte));
    }
    if (node != 0) token_at_[node] = static_cast<int>(token);
  }
}

int AddedTokenFinder::longest_at(std::string_view text) const {
  int longest = -1;
  uint32_t node = 0;
  for (const char byte : text) {
    const uint32_t* next = next_.find(node, static_cast<unsigned char>(byte));
    if (next == nullptr) break;
    node = *next;
    if (token_at_[node] >= 0) longest = token_at_[node];
  }
  return longest;
}

std::vector<TextPiece> AddedTokenFinder::split(std::string_view text) const {
  std::vector<TextPiece> pieces;
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    const int found = longest_at(text.substr(at));
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    size_t begin = at, end = at + token.content.size();
    at = end;
    if (token.strips_before) begin = std::max(space_at_end(text.substr(0, begin)), done);
    if (token.strips_after) end += space_at_front(text.substr(end));
    if (done < begin) pieces.push_back({text.substr(done, begin - done), -1});
    pieces.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) pieces.push_back({text.substr(done), -1});
  return pieces;
}

}  // namespace nlsplit::inline text

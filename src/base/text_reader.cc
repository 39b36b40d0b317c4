#include "base/text_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <vector>

namespace nlsplit::inline base {

namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_./:%+-@$").find(c) != std::string_view::npos;
}

std::string_view trim_end(std::string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return trim_end(text);
}

// Past the closing quote of the string that opens at `from`; the end of the line if it is never closed.
size_t quoted_end(std::string_view line, size_t from) {
  for (size_t i = from + 1; i < line.size(); ++i) {
    if (line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      return i + 1;
    }
  }
  return line.size();
}

// Where the line's comment begins, or its end.
size_t comment_start(std::string_view line) {
  size_t i = 0;
  while (i < line.size() && line[i] != '#') i = line[i] == '"' ? quoted_end(line, i) : i + 1;
  return i;
}

// How a message names a token.
std::string found(std::string_view token) { return token.empty() ? "the end of the line" : fmt::format("'{}'", token); }

}  // namespace

TextReader::TextReader(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {}

bool TextReader::next_line() {
  at_ = 0;
  token_at_ = 0;
  if (pushed_back_) {
    pushed_back_ = false;
    return true;
  }
  line_ = {};
  comment_ = {};
  while (next_start_ < text_.size()) {
    const size_t end = std::min(text_.find('\n', next_start_), text_.size());
    const std::string_view whole = text_.substr(next_start_, end - next_start_);
    next_start_ = end + 1;
    ++number_;
    const size_t comment = comment_start(whole);
    const std::string_view content = trim_end(whole.substr(0, comment));
    if (content.empty()) continue;
    line_ = content;
    if (comment < whole.size()) comment_ = trim(whole.substr(comment + 1));
    return true;
  }
  return false;
}

// At the end of the text there is no line to give again (a line that was given is never empty).
void TextReader::push_back_line() { pushed_back_ = !line_.empty(); }

int TextReader::indent() const { return static_cast<int>(std::min(line_.find_first_not_of(' '), line_.size())); }

bool TextReader::at_end_of_line() { return peek().empty(); }

std::string_view TextReader::peek() {
  skip_space();
  token_at_ = at_;
  return line_.substr(at_, token_end(at_) - at_);
}

std::string_view TextReader::comment() const { return comment_; }

bool TextReader::accept(std::string_view token) {
  const std::string_view next = peek();
  if (next.empty() || next != token) return false;
  at_ += next.size();
  return true;
}

Status TextReader::expect(std::string_view token) {
  if (accept(token)) return ok_status();
  return error(fmt::format("expected '{}', found {}", token, found(peek())));
}

Result<std::string_view> TextReader::word(std::string_view what) {
  const std::string_view token = peek();
  if (token.empty() || !is_word_char(token[0])) return error(fmt::format("expected {}, found {}", what, found(token)));
  at_ += token.size();
  return token;
}

Result<std::string> TextReader::quoted(std::string_view what) {
  const std::string_view token = peek();
  if (!token.starts_with('"')) return error(fmt::format("expected {} in quotes, found {}", what, found(token)));
  std::string value;
  for (size_t i = 1; i < token.size(); ++i) {
    if (token[i] == '"') {
      at_ += token.size();
      return value;
    }
    if (token[i] != '\\') {
      value += token[i];
      continue;
    }
    if (++i == token.size()) break;
    if (token[i] == 'n') {
      value += '\n';
    } else if (token[i] == '"' || token[i] == '\\') {
      value += token[i];
    } else {
      token_at_ = at_ + i - 1;
      return error(fmt::format("unknown escape '\\{}'; there are \\\" \\\\ and \\n", token[i]));
    }
  }
  return error(fmt::format("{} has no closing quote", what));
}

Result<int64_t> TextReader::integer(std::string_view what) {
  const std::string_view token = peek();
  int64_t value = 0;
  const auto [end, code] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (token.empty() || code == std::errc::invalid_argument || end != token.data() + token.size()) {
    return error(fmt::format("expected {} (an integer), found {}", what, found(token)));
  }
  if (code != std::errc()) return error(fmt::format("{} '{}' does not fit 64 bits", what, token));
  at_ += token.size();
  return value;
}

Result<uint64_t> TextReader::hex(std::string_view what) {
  const std::string_view token = peek();
  uint64_t value = 0;
  const auto [end, code] = std::from_chars(token.data(), token.data() + token.size(), value, 16);
  if (token.empty() || token.size() > 16 || code != std::errc() || end != token.data() + token.size()) {
    return error(fmt::format("expected {} (1 to 16 hexadecimal digits), found {}", what, found(token)));
  }
  at_ += token.size();
  return value;
}

Result<double> TextReader::number(std::string_view what) {
  const std::string_view token = peek();
  double value = 0;
  const auto [end, code] = std::from_chars(token.data(), token.data() + token.size(), value);
  // from_chars also takes nan and several spellings of infinity.
  const std::string_view magnitude = token.starts_with('-') ? token.substr(1) : token;
  const bool named = !magnitude.empty() && magnitude[0] != '.' && !(magnitude[0] >= '0' && magnitude[0] <= '9');
  if (token.empty() || code == std::errc::invalid_argument || end != token.data() + token.size() ||
      (named && magnitude != "inf")) {
    return error(fmt::format("expected {} (a number), found {}", what, found(token)));
  }
  if (code != std::errc()) return error(fmt::format("{} '{}' does not fit a double", what, token));
  at_ += token.size();
  return value;
}

Status TextReader::end_of_line() {
  const std::string_view token = peek();
  if (token.empty()) return ok_status();
  return error(fmt::format("expected the end of the line, found {}", found(token)));
}

Error TextReader::error(std::string message) const {
  Error error = invalid_input(std::move(message));
  error.where = {file_, number_, line_.empty() ? 0 : static_cast<int>(token_at_) + 1};
  error.fragment = std::string(line_);
  return error;
}

void TextReader::skip_space() {
  while (at_ < line_.size() && is_space(line_[at_])) ++at_;
}

size_t TextReader::token_end(size_t from) const {
  if (from >= line_.size()) return from;
  if (line_[from] == '"') return quoted_end(line_, from);
  size_t end = from + 1;
  if (is_word_char(line_[from])) {
    while (end < line_.size() && is_word_char(line_[end])) ++end;
  } else {
    // The further bytes of a UTF-8 character, so that a message does not show half of one.
    while (end < line_.size() && (static_cast<unsigned char>(line_[end]) & 0xc0) == 0x80) ++end;
  }
  return end;
}

std::string quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n') {
      quoted += "\\n";
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string shortest(double value) { return fmt::format("{}", value); }

// Levenshtein's, one row of the table at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace nlsplit::inline base

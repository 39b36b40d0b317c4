#include "text/words.h"

#include <fmt/format.h>
#include <unicode/regex.h>
#include <unicode/utf16.h>

#include <cctype>
#include <utility>

#include "text/utf8.h"

namespace nlsplit::inline text {

struct WordCutter::Step {
  std::unique_ptr<icu::RegexPattern> pattern;  // none: a space in front
  Found found = Found::word;
};

WordCutter::WordCutter() = default;
WordCutter::WordCutter(WordCutter&&) noexcept = default;
WordCutter& WordCutter::operator=(WordCutter&&) noexcept = default;
WordCutter::~WordCutter() = default;

namespace {

// Of ICU's clock, for a whole text, each some half a millisecond: a pattern that goes back over and over is an error,
// not a hang. Patterns in use need a thirtieth of this.
int32_t most_ticks(int32_t characters) { return 2'000 + characters / 100; }
constexpr size_t most_text = size_t{1} << 30;  // ICU counts with 32 bits

struct Range {
  int32_t begin, end;
};

// The same pattern for ICU. The syntax that Oniguruma and ICU read alike is what the files use; anything else is
// refused. ICU repeats a class in a loop, but "\s" by going deeper with each character, so "\s" becomes "[\s]".
Result<std::string> for_icu(std::string_view pattern) {
  std::string made;
  const auto refuse = [&](size_t at, std::string_view what) {
    return unsupported(fmt::format("pattern '{}', byte {}: {} is not supported", pattern, at + 1, what));
  };
  bool in_class = false;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const std::string_view rest = pattern.substr(at);
    const char c = rest[0];
    if (c == '\\') {
      const char next = rest.size() > 1 ? rest[1] : '\0';
      const bool known = std::string_view("sSdDrnt").find(next) != std::string_view::npos && next != '\0';
      const size_t property = next == 'p' || next == 'P' ? rest.find('}') : std::string_view::npos;
      if (!known && property == std::string_view::npos && !std::ispunct(static_cast<unsigned char>(next)))
        return refuse(at, fmt::format("'{}'", rest.substr(0, 2)));
      const size_t more = known || property == std::string_view::npos ? 1 : property;
      const bool alone = !in_class && std::string_view("sSdD").find(next) != std::string_view::npos;
      made += alone ? fmt::format("[{}]", rest.substr(0, 2)) : std::string(rest.substr(0, more + 1));
      at += more;
      continue;
    } else if (in_class) {
      if (c == ']') in_class = false;
      if (c == '[') return refuse(at, "a class within a class");
      if (rest.starts_with("&&") || rest.starts_with("--")) return refuse(at, fmt::format("'{}'", rest.substr(0, 2)));
    } else if (c == '[') {
      in_class = true;
      if (rest.starts_with("[^")) {
        made += c;
        ++at;
      }
      if (pattern.substr(at + 1).starts_with("]")) return refuse(at, "an empty class");
    } else if (rest.starts_with("(?")) {
      bool known = false;
      for (const std::string_view opening : {"(?:", "(?i:", "(?!", "(?="}) known |= rest.starts_with(opening);
      if (!known) return refuse(at, fmt::format("'{}'", rest.substr(0, 3)));
    } else if (c == '.' || c == '^' || rest.starts_with("}+") || rest.starts_with("}?")) {
      return refuse(at, fmt::format("'{}'", rest.substr(0, c == '}' ? 2 : 1)));
    }
    made += pattern[at];
  }
  return made;
}

icu::UnicodeString utf16_of(std::string_view text) {
  return icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
}

void add_words(Range range, icu::RegexMatcher& matcher, Found found, UErrorCode& error, std::vector<Range>& words) {
  const auto add = [&](int32_t begin, int32_t end, bool is_match) {
    if (begin < end && found != (is_match ? Found::removed : Found::kept)) words.push_back({begin, end});
  };
  // A pattern sees no further than the word that it cuts.
  matcher.region(range.begin, range.end, error);
  int32_t at = range.begin;
  while (U_SUCCESS(error) && matcher.find(error)) {
    const int32_t begin = matcher.start(error), end = matcher.end(error);
    if (found == Found::end) {
      add(at, end, false);  // of several in a row each but the first is a word
    } else {
      add(at, begin, false);
      add(begin, end, true);
    }
    at = end;
  }
  add(at, range.end, false);
}

void put_spaces_in_front(icu::UnicodeString& text, std::vector<Range>& words) {
  icu::UnicodeString made;
  for (Range& word : words) {
    const int32_t begin = made.length();
    if (text.charAt(word.begin) != u' ') made.append(u' ');
    made.append(text, word.begin, word.end - word.begin);
    word = {begin, made.length()};
  }
  text = std::move(made);
}

}  // namespace

Result<WordCutter> make_word_cutter(const std::vector<CutStep>& steps) {
  WordCutter cutter;
  for (const CutStep& step : steps) {
    WordCutter::Step made;
    made.found = step.found;
    if (!step.space_in_front) {
      if (first_invalid_utf8(step.pattern) < step.pattern.size() || step.pattern.size() > most_text)
        return invalid_input("a pattern is no UTF-8");
      std::string pattern = step.pattern;
      if (!step.literal) {
        ASSIGN_OR_RETURN(pattern, for_icu(step.pattern));
      }
      // A "$" is the end of a line, and lines end in "\n" alone.
      const uint32_t flags = step.literal ? UREGEX_LITERAL : UREGEX_MULTILINE | UREGEX_UNIX_LINES;
      UErrorCode error = U_ZERO_ERROR;
      UParseError where;
      made.pattern.reset(icu::RegexPattern::compile(utf16_of(pattern), flags, where, error));
      if (U_FAILURE(error))
        return invalid_input(fmt::format("pattern '{}', character {}: {}", pattern, where.offset, u_errorName(error)));
    }
    cutter.steps_.push_back(std::move(made));
  }
  return cutter;
}

Result<Words> WordCutter::cut(std::string_view text) const {
  if (text.size() > most_text) return unsupported("texts above 1 GiB are not encoded in one piece");
  Words words;
  if (steps_.empty()) {
    words.bytes = text;
    words.ends.push_back(text.size());
    return words;
  }
  icu::UnicodeString wide = utf16_of(text);
  std::vector<Range> ranges{{0, wide.length()}}, next;
  for (const Step& step : steps_) {
    if (step.pattern == nullptr) {
      put_spaces_in_front(wide, ranges);
      continue;
    }
    UErrorCode error = U_ZERO_ERROR;
    const std::unique_ptr<icu::RegexMatcher> matcher(step.pattern->matcher(wide, error));
    if (U_SUCCESS(error)) matcher->setTimeLimit(most_ticks(wide.length()), error);
    next.clear();
    for (size_t at = 0; at < ranges.size() && U_SUCCESS(error); ++at)
      add_words(ranges[at], *matcher, step.found, error, next);
    if (U_FAILURE(error)) {
      std::string pattern;
      step.pattern->pattern().toUTF8String(pattern);
      return invalid_input(
          fmt::format("the pattern '{}' fails on a text of {} bytes: {}", pattern, text.size(), u_errorName(error)));
    }
    ranges.swap(next);
  }
  words.bytes.reserve(text.size());
  words.ends.reserve(ranges.size());
  const char16_t* const wide_text = wide.getBuffer();
  for (const Range& range : ranges) {
    for (int32_t at = range.begin; at < range.end;) {
      char32_t character = 0;
      U16_NEXT(wide_text, at, range.end, character);
      append_utf8(words.bytes, character);
    }
    words.ends.push_back(words.bytes.size());
  }
  return words;
}

}  // namespace nlsplit::inline text

// How a text that is to be understood is changed: numbers, words and lines rather than bytes. For libFuzzer programs;
// include it in the source of a target whose inputs are such texts.
#pragma once

#ifdef NLS_LIBFUZZER

#include <algorithm>
#include <cctype>
#include <cstring>
#include <random>
#include <string>
#include <vector>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace nlsplit::fuzz {

class TextMutator {
 public:
  TextMutator(std::string text, unsigned seed) : text_(std::move(text)), random_(seed) {}

  std::string change() {
    for (unsigned times = 1 + below(3); times > 0; --times) change_once();
    return std::move(text_);
  }

 private:
  struct Word {
    size_t begin, size;
  };

  unsigned below(size_t bound) { return static_cast<unsigned>(random_() % std::max<size_t>(bound, 1)); }

  static bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
  std::vector<Word> words(bool numbers) const {
    std::vector<Word> found;
    for (size_t i = 0; i < text_.size();) {
      size_t end = i;
      while (end < text_.size() && in_word(text_[end])) ++end;
      const std::string_view word(text_.data() + i, end - i);
      if (!word.empty() && (!numbers || std::ranges::all_of(word, [](char c) { return std::isdigit(c) != 0; })))
        found.push_back({i, word.size()});
      i = std::max(end, i + 1);
    }
    return found;
  }
  std::string at(const Word& word) const { return text_.substr(word.begin, word.size); }
  std::vector<Word> lines() const {
    std::vector<Word> found;
    for (size_t i = 0; i < text_.size();) {
      const size_t end = std::min(text_.find('\n', i), text_.size() - 1) + 1;
      found.push_back({i, end - i});
      i = end;
    }
    return found;
  }

  std::string other_number(const std::string& number) {
    const uint64_t value = number.size() < 19 ? std::stoull(number) : 0;
    switch (below(6)) {
      case 0:
        return std::to_string(value + 1);
      case 1:
        return std::to_string(value > 0 ? value - 1 : 0);
      case 2:
        return std::to_string(value << below(4));
      case 3:
        return std::to_string(value >> below(4));
      case 4:
        return std::to_string(uint64_t{1} << below(63));
      default:
        return std::to_string(below(70));
    }
  }

  void change_once() {
    const std::vector<Word> numbers = words(true), all = words(false), rows = lines();
    if (all.empty()) return;
    const Word number = numbers.empty() ? all[below(all.size())] : numbers[below(numbers.size())];
    switch (below(numbers.empty() ? 5 : 9)) {
      case 0: {  // a word instead of another
        const std::string word = at(all[below(all.size())]);
        const Word place = all[below(all.size())];
        text_.replace(place.begin, place.size, word);
        return;
      }
      case 1:
        if (const Word row = rows[below(rows.size())]; rows.size() > 1) text_.erase(row.begin, row.size);
        return;
      case 2: {  // a line once more, somewhere
        const std::string row = at(rows[below(rows.size())]);
        text_.insert(rows[below(rows.size())].begin, row);
        return;
      }
      case 3: {  // the end of a line instead of another's
        const Word from = rows[below(rows.size())], to = rows[below(rows.size())];
        const size_t kept = below(to.size);
        text_.replace(to.begin + kept, to.size - kept, at(from).substr(std::min<size_t>(below(from.size), from.size)));
        return;
      }
      case 4: {  // everywhere
        const std::string word = at(all[below(all.size())]), instead = at(all[below(all.size())]);
        return replace_all(word, instead);
      }
      case 5:
      case 6: {
        const std::string old = at(number);
        text_.replace(number.begin, number.size, other_number(old));
        return;
      }
      default: {
        const std::string old = at(number);
        return replace_all(old, other_number(old));
      }
    }
  }

  void replace_all(const std::string& word, const std::string& instead) {
    std::vector<Word> places = words(false);
    std::reverse(places.begin(), places.end());
    for (const Word& place : places) {
      if (at(place) == word) text_.replace(place.begin, place.size, instead);
    }
  }

  std::string text_;
  std::minstd_rand random_;
};

}  // namespace nlsplit::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (seed % 4 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string text =
      nlsplit::fuzz::TextMutator(std::string(reinterpret_cast<const char*>(data), size), seed / 4).change();
  const size_t kept = std::min(text.size(), max_size);
  std::memcpy(data, text.data(), kept);
  return kept;
}

#endif

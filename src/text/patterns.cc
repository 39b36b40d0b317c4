#include "text/patterns.h"

#include <algorithm>
#include <array>
#include <string>

namespace nlsplit::inline text {
namespace {

// Contractions, letters with what stands before them, up to three digits, signs with line ends, line ends, spaces.
constexpr std::string_view llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// The same, each digit alone.
constexpr std::string_view qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view each_digit = R"(\p{N})";

struct Row {
  std::string_view name;
  std::array<std::string_view, 2> patterns;
  bool composes = false, ignore_merges = false, begins = false;
};
// The names are those of llama.cpp (src/llama-vocab.cpp), which writes such files.
constexpr std::array rows = {
    Row{"gpt-2", {gpt2_pattern}},
    Row{"llama-bpe", {llama3_pattern}, false, true, true},
    Row{"qwen2", {qwen2_pattern}, true},
    Row{"smollm", {each_digit, gpt2_pattern}},
};

}  // namespace

std::optional<NamedCuts> named_cuts(std::string_view name) {
  const auto* row = std::ranges::find(rows, name, &Row::name);
  if (row == rows.end()) return std::nullopt;
  NamedCuts named{.name = row->name, .cuts = {}, .normal_forms = {}};
  for (const std::string_view pattern : row->patterns) {
    if (!pattern.empty()) named.cuts.push_back({.pattern = std::string(pattern)});
  }
  if (row->composes) named.normal_forms.push_back(NormalForm::nfc);
  named.ignore_merges = row->ignore_merges;
  named.begins = row->begins;
  return named;
}

std::vector<std::string_view> names_of_cuts() {
  std::vector<std::string_view> names;
  for (const Row& row : rows) names.push_back(row.name);
  return names;
}

}  // namespace nlsplit::inline text

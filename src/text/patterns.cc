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
// Letters with their marks (Qwen 3.5).
constexpr std::string_view qwen35_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Capitals, then small letters: a word in camel case is several.
constexpr std::string_view gpt4o_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view tekken_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// DeepSeek: signs with the Latin word behind them, letters with their marks.
constexpr std::string_view deepseek3_pattern =
    R"([!"#$%&'()*+,\-/:;<=>?@\[\\\]^_`{|}~\.][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view three_digits = R"(\p{N}{1,3})", each_digit = R"(\p{N})", each_line_end = R"([\r\n])",
                           kana_and_han = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                           han_and_hangul = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";

struct Row {
  std::string_view name;
  std::array<std::string_view, 5> patterns;
  bool composes = false, ignore_merges = false, begins = false;
};
// The names are those of llama.cpp (src/llama-vocab.cpp), which writes such files.
constexpr std::array rows = {
    Row{"gpt-2", {gpt2_pattern}},
    Row{"llama-bpe", {llama3_pattern}, false, true, true},
    Row{"qwen2", {qwen2_pattern}, true},
    Row{"smollm", {each_digit, gpt2_pattern}},
    Row{"llama3", {llama3_pattern}, false, true, true},
    Row{"llama-v3", {llama3_pattern}, false, true, true},
    Row{"falcon3", {llama3_pattern}, false, true, true},
    Row{"lfm2", {llama3_pattern}, false, true, true},
    Row{"llama4", {gpt4o_pattern}},
    Row{"gpt-4o", {gpt4o_pattern}},
    Row{"tekken", {tekken_pattern}, false, true, true},
    Row{"qwen35", {qwen35_pattern}},
    Row{"deepseek-r1-qwen", {qwen2_pattern}, true},
    Row{"megrez", {qwen2_pattern}},
    Row{"hunyuan", {qwen2_pattern}},
    Row{"stablelm2", {qwen2_pattern}},
    Row{"deepseek-v3", {three_digits, kana_and_han, deepseek3_pattern}},
    Row{"deepseek-coder", {each_line_end, R"(\s?\p{L}+)", R"(\s?\p{P}+)", han_and_hangul, each_digit}},
    Row{"dbrx", {llama3_pattern}},
    Row{"smaug-bpe", {llama3_pattern}},
    Row{"glm4", {llama3_pattern}, false, true},
    Row{"chatglm-bpe", {llama3_pattern}},
    Row{"phi-2", {gpt2_pattern}},
    Row{"olmo", {gpt2_pattern}},
    Row{"exaone4", {gpt2_pattern}},
    Row{"starcoder", {each_digit, gpt2_pattern}},
    Row{"refact", {each_digit, gpt2_pattern}},
    Row{"command-r", {each_digit, gpt2_pattern}},
    Row{"codeshell", {each_digit, gpt2_pattern}},
    Row{"exaone", {each_digit, gpt2_pattern}},
    Row{"minerva-7b", {each_digit, gpt2_pattern}},
};

}  // namespace

std::optional<NamedCuts> named_cuts(std::string_view name) {
  const auto* row = std::ranges::find(rows, name, &Row::name);
  if (row == rows.end()) return std::nullopt;
  NamedCuts named{.name = row->name, .cuts = {}, .normal_steps = {}};
  for (const std::string_view pattern : row->patterns) {
    if (!pattern.empty()) named.cuts.push_back({.pattern = std::string(pattern)});
  }
  if (row->composes) named.normal_steps.push_back({.form = NormalForm::nfc, .from = {}, .to = {}});
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

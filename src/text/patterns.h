// The patterns by which well-known models cut text into words, for files that only name them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/normalize.h"
#include "text/words.h"

namespace nlsplit::inline text {

inline constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// What a GGUF file's tokenizer.ggml.pre stands for: the model's own tokenizer.json has it written out.
struct NamedCuts {
  std::string_view name;
  std::vector<CutStep> cuts;
  std::vector<NormalStep> normal_steps;
  bool ignore_merges = false;
  bool begins = false;  // texts begin with the model's first token unless the file says otherwise
};
std::optional<NamedCuts> named_cuts(std::string_view name);
std::vector<std::string_view> names_of_cuts();

}  // namespace nlsplit::inline text

// The patterns by which well-known models cut text into words, for files that only name them.
#pragma once

#include <string_view>

namespace nlsplit::inline text {

inline constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace nlsplit::inline text

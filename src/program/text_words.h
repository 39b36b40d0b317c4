// Words the printer and the parser of a Program's text share.
#pragma once

#include <string>
#include <string_view>

namespace nlsplit::inline program {

inline constexpr std::string_view format_word = "nlsplit";
inline constexpr std::string_view kind_word = "program";
inline constexpr int format_version = 1;
inline constexpr std::string_view no_operand_word = "_";
inline constexpr std::string_view io_stage_word = "io";
inline constexpr std::string_view takes_word = "takes";  // types of operands where slices hold them
inline constexpr std::string_view makes_word = "makes";  // types of results where slices hold them

// A name as a token: itself where that is one word and no keyword, else quoted.
std::string name_word(std::string_view name);

}  // namespace nlsplit::inline program

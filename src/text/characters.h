// What Unicode says about characters, by ICU's tables.
#pragma once

#include <string>
#include <string_view>

namespace nlsplit::inline text {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

std::string normalized(std::string_view text, NormalForm form);  // the text is UTF-8

bool is_white_space(char32_t character);

}  // namespace nlsplit::inline text

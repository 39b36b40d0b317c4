// Text that stands in HTML, SVG or XML as it is.
#pragma once

#include <string>
#include <string_view>

namespace nlsplit::inline base {

std::string html_escaped(std::string_view text);  // & < > " and control characters

}  // namespace nlsplit::inline base

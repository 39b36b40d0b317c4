// Text that stands in HTML or SVG as it is.
#pragma once

#include <string>
#include <string_view>

namespace nlsplit::inline reports {

std::string html_escaped(std::string_view text);  // & < > " and control characters

}  // namespace nlsplit::inline reports

#include "base/html_text.h"

namespace nlsplit::inline base {

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;  // XML has no control characters
  }
  return out;
}

}  // namespace nlsplit::inline base

// Numbered names: "h0..h7" means h0, h1, … h7. Hosts and devices of large clusters are written so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nlsplit::inline base {

struct NameRange {
  std::string prefix;
  int64_t first = 0, last = 0;
  std::string name(int64_t number) const { return prefix + std::to_string(number); }
};

// None: no "..", other prefixes at its two ends, no numbers there, or the first above the last.
std::optional<NameRange> parse_name_range(std::string_view text);

// "h0..h3+x+h9": three or more names in a row that count upwards become a range.
std::string join_names(const std::vector<std::string>& names, std::string_view separator);

}  // namespace nlsplit::inline base

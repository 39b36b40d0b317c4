// Internal to the module: what a child found in a platform, as bytes for its parent.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cost/platform.h"

namespace nlsplit::inline sim {

std::string encode(const std::vector<std::string>& names);
std::string encode(const Platform& platform);

// Error: not what encode wrote.
Result<std::vector<std::string>> decode_names(std::string_view bytes);
Result<Platform> decode_platform(std::string_view bytes, size_t hosts);

}  // namespace nlsplit::inline sim

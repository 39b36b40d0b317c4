// A progress line on a terminal's stderr, nothing in a pipe.
#pragma once

#include <string_view>

namespace nlsplit::inline tools {

// "simulating 12/40"; overwrites itself. Cheap to call often: it draws at most ten times a second.
void show_progress(std::string_view phase, size_t done, size_t total);
void clear_progress();

}  // namespace nlsplit::inline tools

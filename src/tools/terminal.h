// A progress line on a terminal's stderr, nothing in a pipe; and Ctrl-C as a question.
#pragma once

#include <string_view>

namespace nlsplit {

// "simulating 12/40"; overwrites itself. Cheap to call often: it draws at most ten times a second.
void show_progress(std::string_view phase, size_t done, size_t total);
void clear_progress();

// After this the first Ctrl-C only makes interrupted() true; the second ends the program as always.
void catch_interrupts();
bool interrupted();

}  // namespace nlsplit

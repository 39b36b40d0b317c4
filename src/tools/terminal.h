// A progress line on a terminal's stderr, nothing in a pipe; and Ctrl-C as a question.
#pragma once

#include <string_view>

namespace nlsplit::inline tools {

// "simulating 12/40"; overwrites itself. Cheap to call often: it draws at most ten times a second.
void show_progress(std::string_view phase, size_t done, size_t total);
void clear_progress();

// After this the first SIGTERM, SIGUSR1 (what mpirun passes on at once) or SIGINT (Ctrl-C) only makes interrupted()
// true, and whoever works ends with what there is. A process that is still there `limit_s` later ends at once, whatever
// it does, with exit code 130; its children die with it (base/child_process.h). After Ctrl-C it has a minute: who sits
// at the terminal wants the best so far, and a second Ctrl-C ends it at once. speaks: says so then. Ranks do not:
// mpirun also ends those that are left when one has ended.
void catch_interrupts(double limit_s = 1, bool speaks = true);
bool interrupted();
// What was found so far is written now, which takes a bounded time: after an interrupt, a new limit from now on.
void write_after_interrupt(double limit_s = 5);

}  // namespace nlsplit::inline tools

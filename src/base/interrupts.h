// Ctrl-C and its like as a question: whoever works asks interrupted() and ends with what there is.
#pragma once

namespace nlsplit::inline base {

inline constexpr int exit_interrupted = 130;

// After this the first SIGTERM, SIGUSR1 (what mpirun passes on at once) or SIGINT (Ctrl-C) only makes interrupted()
// true, and whoever works ends with what there is. A process that is still there `limit_s` later ends at once, whatever
// it does, with exit code 130; its children die with it (base/child_process.h). After Ctrl-C it has a minute: who sits
// at the terminal wants the best so far, and a second Ctrl-C ends it at once. speaks: says so then. Ranks do not:
// mpirun also ends those that are left when one has ended.
void catch_interrupts(double limit_s = 1, bool speaks = true);
bool interrupted();
// What was found so far is written now, which takes a bounded time: after an interrupt, a new limit from now on.
void write_after_interrupt(double limit_s = 5);

}  // namespace nlsplit::inline base

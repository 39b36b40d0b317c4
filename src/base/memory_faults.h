// Memory that is gone ends the process with a message and exit code 3, as other faults do.
//
//   int main(…) { catch_memory_faults(); … }
//
// A mapped file that is truncated while it is in use, or whose disk fails: the message names the file (SIGBUS). An
// allocation that the system refuses: the message says how much the process holds. Of a process that the kernel kills
// for want of memory its parent learns (measure/child.h).
#pragma once

namespace nlsplit::inline base {

inline constexpr int exit_of_a_fault = 3;

void catch_memory_faults();

// `last_words` is told what happened, a few words, before the process ends: on the thread that met the fault, where
// nothing may be allocated and no lock taken.
void before_a_memory_fault_ends_it(void (*last_words)(const char* why));

}  // namespace nlsplit::inline base

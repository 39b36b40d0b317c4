// Faults: what a program does wrong. The first one stays, as on a GPU: every later call answers with it.
//
//   return refuse(cudaErrorInvalidValue, "cudaFree of what was never allocated");    // this call only
//   stop("reads 4 B behind an allocation");                                          // within a kernel
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace nlsplit::emulator {

cudaError_t refuse(cudaError_t status, std::string why);  // why: what cudaGetErrorString answers this thread next
const char* last_refusal();                               // of this thread; nullptr: none

void report(std::string what);  // a fault; the first one is kept
const std::string& fault();     // empty: none
void forget_fault();            // for tests of the emulator itself

// Ends the kernel that runs, with a fault of its running thread.
[[noreturn]] void stop(const std::string& what);

}  // namespace nlsplit::emulator

// CUDA's run time on the CPU: what is begun on a stream waits in its queue until somebody waits for it, or until chance
// wants it done earlier; streams wait for each other only where events say so. So what is not ordered runs in any
// order.
//
//   const std::lock_guard lock(mutex());
//   return enqueue(stream, [=] { … });      // what a library begins
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <mutex>

#include "base/random.h"
#include "gpu/emulator/fault.h"

namespace nlsplit::emulator {

// One call at a time, of all threads of the host. The rest of this file is called under it.
std::mutex& mutex();

cudaError_t outcome();  // of a call that did what it was to do: the first fault stays

// ---- streams (streams.cc)

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);
// Work that waits for something outside: tried again until it says that it is done; what is behind it on the stream
// waits.
cudaError_t enqueue_until(cudaStream_t stream, std::function<bool()> attempt);
int gpu_of(cudaStream_t stream);
void finish(int gpu);  // all that was begun on it
bool is_capturing();   // the calling thread: then some calls are not allowed
Random& draws();

// ---- the rest (runtime.cc)

int current_gpu();          // of the calling thread
void show_gpus(int count);  // of those that there are

// Descriptors and handles that exist: what was destroyed, or never made, is found out.
void made(const void* object);
bool is_made(const void* object);
bool destroyed(const void* object);  // false: there was none
size_t objects();                    // and page-locked ranges

}  // namespace nlsplit::emulator

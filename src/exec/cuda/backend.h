// What a GPU backend offers to the program that loads it: a table of functions with C's calling convention. Two exist:
// libbackend_cuda.so (exec/cuda/module), and the CPU that stands in where there is no GPU (exec/cuda/stand_in.h). Tests
// load a third, that runs late and fails on demand.
//
//   const Backend* cuda = nlsplit_cuda_backend();     // dlsym; its version must be interface_version
//   Device* gpu = nullptr;
//   if (const char* why = cuda->open(0, &gpu)) …      // the library's error text; nullptr: success
//
// Every function returns this. The text is valid until the thread's next call. Two threads may call functions of one
// device at a time: one computes (prepare, launch, move…, and the compute stream), the other copies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/module/kernel.h"

namespace nlsplit::cuda {

inline constexpr uint32_t interface_version = 3;

using Answer = const char*;  // nullptr: success; else the error text

// Work on one stream is done in order, on different ones at the same time.
enum class Stream : int32_t { compute, copy_in, copy_out, messages };
inline constexpr int stream_count = 4;

struct Device;  // an opened GPU
struct Event;   // a moment on a stream
struct Kernel;  // one prepared computation
struct Graph;   // a captured CUDA graph

struct Backend {
  uint32_t version;

  Answer (*count)(int* devices);  // number of devices; a machine without a driver is an error, not 0
  Answer (*open)(int number, Device** device);
  void (*close)(Device* device);  // waits for what runs
  // "NVIDIA H200, sm_90, 139 GiB"; holds as long as the device.
  Answer (*describe)(Device* device, const char** text);
  // "0000:3b:00.0", which tells it from all other GPUs of the machine; holds as long as the device.
  Answer (*bus_id)(Device* device, const char** text);
  // CUDA's own handle of a stream (cudaStream_t), for other libraries of CUDA. What the calling thread asks of them
  // from here on is for this GPU.
  Answer (*handle)(Device* device, Stream stream, void** handle);

  Answer (*allocate)(Device* device, uint64_t bytes, void** memory);  // of the device; aligned to 256
  Answer (*release)(Device* device, void* memory);
  // Page-locks host memory, so that copies run beside everything else. Whole pages, none locked before.
  Answer (*pin)(Device* device, void* host, uint64_t bytes);
  Answer (*unpin)(Device* device, void* host);

  // These three only begin the copy; host memory must hold until it is done.
  Answer (*copy_in)(Device* device, Stream stream, void* to, const void* from_host, uint64_t bytes);
  Answer (*copy_out)(Device* device, Stream stream, void* to_host, const void* from, uint64_t bytes);
  // `rows` pieces of `width` bytes within the device's memory, each a pitch behind the one before.
  Answer (*move)(Device* device, Stream stream, void* to, uint64_t to_pitch, const void* from, uint64_t from_pitch,
                 uint64_t width, uint64_t rows);
  // On the compute stream: sum[i] = terms[0][i] + terms[1][i] + …, in this order and in float32, whether they are f32,
  // f16 or bf16; sum may be one of the terms.
  Answer (*add)(Device* device, DType type, void* sum, const void* const* terms, uint64_t count, int64_t elements);

  // A computation of a level of gpu_levels(), not of kernel "host". The desc is borrowed until discard. `workspace`:
  // bytes that launch will have. Error also: the libraries have no algorithm for it.
  Answer (*prepare)(Device* device, const ComputeDesc* desc, uint64_t workspace, Kernel** kernel);
  void (*discard)(Device* device, Kernel* kernel);
  Answer (*launch)(Device* device, Kernel* kernel, const KernelCall* call);  // begins it, on the compute stream

  Answer (*create_event)(Device* device, Event** event);
  void (*destroy_event)(Device* device, Event* event);
  Answer (*record)(Device* device, Stream stream, Event* event);  // the moment when all before it is done
  Answer (*query)(Device* device, Event* event, int* reached);
  Answer (*wait)(Device* device, Event* event);                                     // the calling thread
  Answer (*elapsed)(Device* device, Event* first, Event* second, double* seconds);  // both reached

  // Until end_capture, work that the calling thread begins on the compute stream is captured, not run. record then adds
  // an event to the graph, recorded in each run of it; it must not be waited for before the first run. No copies to or
  // from the host, and no waits. A failed capture must be ended too, and leaves the stream unchanged.
  Answer (*begin_capture)(Device* device);
  Answer (*end_capture)(Device* device, Graph** graph);
  void (*destroy_graph)(Device* device, Graph* graph);
  Answer (*launch_graph)(Device* device, Graph* graph);  // begins it, on the compute stream

  // For profilers: what follows on the calling thread, until the end, under this name.
  void (*range_begin)(const char* name);
  void (*range_end)();
};

using BackendFunction = const Backend* (*)();
inline constexpr const char* backend_function = "nlsplit_cuda_backend";
inline constexpr const char* backend_file = "libbackend_cuda.so";

}  // namespace nlsplit::cuda

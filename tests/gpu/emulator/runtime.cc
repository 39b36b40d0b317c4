#include "gpu/emulator/runtime.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <set>
#include <string>

#include "gpu/emulator/memory.h"

using namespace nlsplit::emulator;

namespace {

struct Runtime {
  std::mutex mutex;
  std::set<const void*> objects;
  std::map<uintptr_t, size_t> pinned;  // where pages begin, bytes
  std::string fault;
  int shown = gpus;
};

Runtime& runtime() {
  static Runtime all;
  return all;
}

thread_local int current = 0;
thread_local std::string refusal;

#define RETURN_IF_FAULTY(wrong, status, why) \
  do {                                       \
    if (wrong) return refuse(status, why);   \
  } while (false)

struct Copy {
  std::byte* to;
  size_t to_pitch;
  const std::byte* from;
  size_t from_pitch, width, rows;
  cudaMemcpyKind kind;
};

void do_copy(int gpu, const Copy& c) {
  const bool writes_gpu = c.kind != cudaMemcpyDeviceToHost, reads_gpu = c.kind != cudaMemcpyHostToDevice;
  for (size_t row = 0; row < c.rows; ++row) {
    std::byte* to = c.to + row * c.to_pitch;
    const std::byte* from = c.from + row * c.from_pitch;
    if (writes_gpu && !check_room(gpu, to, c.width, "a copy writes")) return;
    if (reads_gpu && !check_room(gpu, from, c.width, "a copy reads")) return;
    std::memmove(to, from, c.width);
    if (writes_gpu && reads_gpu) mark_as(to, from, c.width);
    if (writes_gpu && !reads_gpu) mark_written(to, c.width);
  }
}

// Some of it lies in a registered range, and not all of it in that one: the driver takes no copy of it (seen on an H200
// with driver 580.159).
bool is_pinned_in_part(uintptr_t begin, size_t bytes) {
  for (const auto& [at, size] : runtime().pinned) {
    if (begin < at + size && at < begin + bytes) return begin < at || begin + bytes > at + size;
  }
  return false;
}

cudaError_t begin_copy(const Copy& c, cudaStream_t stream) {
  RETURN_IF_FAULTY(
      c.kind != cudaMemcpyHostToDevice && c.kind != cudaMemcpyDeviceToHost && c.kind != cudaMemcpyDeviceToDevice,
      cudaErrorInvalidMemcpyDirection, "a copy of a kind that the emulator does not know");
  RETURN_IF_FAULTY(c.to == nullptr || c.from == nullptr, cudaErrorInvalidValue, "a copy from or to nowhere");
  RETURN_IF_FAULTY(
      is_device(c.to) != (c.kind != cudaMemcpyDeviceToHost) || is_device(c.from) != (c.kind != cudaMemcpyHostToDevice),
      cudaErrorInvalidValue, "a copy whose kind does not fit its addresses");
  RETURN_IF_FAULTY(c.rows > 1 && (c.width > c.to_pitch || c.width > c.from_pitch), cudaErrorInvalidPitchValue,
                   "a copy of rows that are longer than what they lie in");
  for (size_t row = 0; row < c.rows; ++row) {
    RETURN_IF_FAULTY(overlap(c.to + row * c.to_pitch, c.width, c.from + row * c.from_pitch, c.width),
                     cudaErrorInvalidValue, "a copy onto itself");
  }
  if (c.kind != cudaMemcpyDeviceToDevice) {
    const auto host = reinterpret_cast<uintptr_t>(c.kind == cudaMemcpyHostToDevice ? c.from : c.to);
    const size_t pitch = c.kind == cudaMemcpyHostToDevice ? c.from_pitch : c.to_pitch;
    RETURN_IF_FAULTY(is_pinned_in_part(host, (c.rows - 1) * pitch + c.width), cudaErrorInvalidValue,
                     "a copy of memory that is page-locked in part");
  }
  return enqueue(stream, [c, gpu = gpu_of(stream)] { do_copy(gpu, c); });
}

}  // namespace

namespace nlsplit::emulator {

std::mutex& mutex() { return runtime().mutex; }

cudaError_t refuse(cudaError_t status, std::string why) {
  refusal = std::move(why);
  return status;
}
const char* last_refusal() { return refusal.empty() ? nullptr : refusal.c_str(); }

void report(std::string what) {
  if (runtime().fault.empty()) runtime().fault = std::move(what);
}
const std::string& fault() { return runtime().fault; }
void forget_fault() { runtime().fault.clear(); }

void made(const void* object) { runtime().objects.insert(object); }
bool is_made(const void* object) { return runtime().objects.contains(object); }
bool destroyed(const void* object) { return runtime().objects.erase(object) > 0; }
size_t objects() { return runtime().objects.size() + runtime().pinned.size(); }

cudaError_t outcome() { return fault().empty() ? cudaSuccess : cudaErrorLaunchFailure; }
int current_gpu() { return current; }
void show_gpus(int count) { runtime().shown = count; }

}  // namespace nlsplit::emulator

// ---- CUDA's functions, as its manual ("CUDA Runtime API") has them

cudaError_t cudaGetDeviceCount(int* count) {
  const std::lock_guard lock(mutex());
  *count = runtime().shown;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int gpu) {
  RETURN_IF_FAULTY(gpu < 0 || gpu >= gpus, cudaErrorInvalidDevice, "there is no such GPU");
  current = gpu;
  const std::lock_guard lock(mutex());
  return outcome();
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int gpu) {
  RETURN_IF_FAULTY(gpu < 0 || gpu >= gpus, cudaErrorInvalidDevice, "there is no such GPU");
  *properties = {};
  std::strcpy(properties->name, "a GPU emulated on the CPU");
  properties->major = 8;
  properties->totalGlobalMem = size_t{8} << 30;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* bus_id, int room, int gpu) {
  RETURN_IF_FAULTY(gpu < 0 || gpu >= gpus, cudaErrorInvalidDevice, "there is no such GPU");
  const std::string text = fmt::format("0000:{:02x}:00.0", gpu + 1);
  RETURN_IF_FAULTY(static_cast<size_t>(room) <= text.size(), cudaErrorInvalidValue, "no room for a bus id");
  std::strcpy(bus_id, text.c_str());
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(is_capturing(), cudaErrorStreamCaptureUnsupported,
                   "cudaDeviceSynchronize while a stream is captured");
  finish(current);
  return outcome();
}

cudaError_t cudaGetLastError() {
  const std::lock_guard lock(mutex());
  return outcome();
}

const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    default:
      return "cudaError";
  }
}

const char* cudaGetErrorString(cudaError_t status) {
  const std::lock_guard lock(mutex());
  thread_local std::string said;
  said = status == cudaErrorLaunchFailure && !fault().empty() ? fault() : refusal;
  return said.c_str();
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(is_capturing(), cudaErrorStreamCaptureUnsupported, "cudaMalloc while a stream is captured");
  *memory = nullptr;
  if (bytes == 0) return outcome();
  *memory = allocate(current, bytes);
  RETURN_IF_FAULTY(*memory == nullptr, cudaErrorMemoryAllocation, "out of memory");
  return outcome();
}

cudaError_t cudaFree(void* memory) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(is_capturing(), cudaErrorStreamCaptureUnsupported, "cudaFree while a stream is captured");
  if (memory == nullptr) return outcome();
  finish(current);  // as a GPU does
  RETURN_IF_FAULTY(!release(current, memory), cudaErrorInvalidValue,
                   "cudaFree of what is not an allocation of this GPU");
  return outcome();
}

// Whole pages: two registrations must not share one.
cudaError_t cudaHostRegister(void* host, size_t bytes, unsigned) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(host == nullptr || bytes == 0, cudaErrorInvalidValue, "cudaHostRegister of nothing");
  for (const auto& [begin, size] : runtime().pinned) {
    constexpr uintptr_t page = 4096;
    const uintptr_t first = reinterpret_cast<uintptr_t>(host) / page,
                    last = (reinterpret_cast<uintptr_t>(host) + bytes - 1) / page;
    RETURN_IF_FAULTY(first <= (begin + size - 1) / page && begin / page <= last, cudaErrorHostMemoryAlreadyRegistered,
                     "cudaHostRegister of a page that already is");
  }
  runtime().pinned[reinterpret_cast<uintptr_t>(host)] = bytes;
  return outcome();
}

cudaError_t cudaHostUnregister(void* host) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(runtime().pinned.erase(reinterpret_cast<uintptr_t>(host)) == 0, cudaErrorHostMemoryNotRegistered,
                   "cudaHostUnregister of what is not registered");
  return outcome();
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const std::lock_guard lock(mutex());
  if (bytes == 0) return outcome();
  return begin_copy({static_cast<std::byte*>(to), bytes, static_cast<const std::byte*>(from), bytes, bytes, 1, kind},
                    stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(width > to_pitch || width > from_pitch, cudaErrorInvalidPitchValue,
                   "a copy of rows that are longer than what they lie in");
  if (width == 0 || rows == 0) return outcome();
  return begin_copy(
      {static_cast<std::byte*>(to), to_pitch, static_cast<const std::byte*>(from), from_pitch, width, rows, kind},
      stream);
}

// Of the files of gpu_check: one computation with memory of its own.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "gpu/gpu_check.h"

#define RETURN_IF_REFUSED(call)                                                                    \
  do {                                                                                             \
    if (const ::nlsplit::cuda::Answer why = (call); why != nullptr) return ::nlsplit::failed(why); \
  } while (false)

namespace nlsplit::testing {

// The memory of one computation, and the computation.
struct Bench::Prepared {
  const cuda::Backend& backend;
  cuda::Device* device;
  cuda::Kernel* kernel = nullptr;
  std::vector<void*> memory;
  std::vector<const void*> inputs = {};
  std::vector<void*> outputs = {};
  void* workspace = nullptr;

  Prepared(const cuda::Backend& backend, cuda::Device* device) : backend(backend), device(device) {}
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  ~Prepared() {
    if (kernel != nullptr) backend.discard(device, kernel);
    for (void* one : memory) static_cast<void>(backend.release(device, one));
  }

  Result<void*> take(size_t size, const std::string& content) {
    void* one = nullptr;
    RETURN_IF_REFUSED(backend.allocate(device, std::max<size_t>(size, 1), &one));
    memory.push_back(one);
    if (size > 0) RETURN_IF_REFUSED(backend.copy_in(device, cuda::Stream::compute, one, content.data(), size));
    return one;
  }

  Status wait(cuda::Stream stream = cuda::Stream::compute) {
    cuda::Event* event = nullptr;
    RETURN_IF_REFUSED(backend.create_event(device, &event));
    cuda::Answer why = backend.record(device, stream, event);
    if (why == nullptr) why = backend.wait(device, event);
    const Status status = why == nullptr ? ok_status() : Status(failed(why));
    backend.destroy_event(device, event);
    return status;
  }

  // Poisoned: what is not written shows.
  Status prepare(const ComputeDesc& desc, const std::vector<std::string>& contents) {
    constexpr auto poison = static_cast<char>(0xff);  // all bits set is a NaN
    std::vector<std::string> poisoned;                // holds until the copies are done
    for (const std::string& content : contents) {
      ASSIGN_OR_RETURN(void* one, take(content.size(), content));
      inputs.push_back(one);
    }
    poisoned.reserve(desc.outputs.size() + 1);
    for (const TensorType& type : desc.outputs) {
      poisoned.emplace_back(static_cast<size_t>(size_of(type).value()), poison);
      ASSIGN_OR_RETURN(void* one, take(poisoned.back().size(), poisoned.back()));
      outputs.push_back(one);
    }
    const Bytes room = workspace_of(desc, 1);
    poisoned.emplace_back(static_cast<size_t>(room.value()), poison);
    ASSIGN_OR_RETURN(workspace, take(poisoned.back().size(), poisoned.back()));
    RETURN_IF_ERROR(wait());  // also where the computation cannot be prepared: the copies read what is here
    RETURN_IF_REFUSED(backend.prepare(device, &desc, static_cast<uint64_t>(room.value()), &kernel));
    return ok_status();
  }
};

}  // namespace nlsplit::testing

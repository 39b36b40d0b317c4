// The memory of a GPU, for the suite of all transports.
#pragma once

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "exec/cuda/backend.h"
#include "testing/transport_conformance.h"

namespace nlsplit::testing {

class GpuMemory final : public MessageMemory {
 public:
  GpuMemory(const cuda::Backend& backend, cuda::Device* gpu) : backend_(backend), gpu_(gpu) {
    succeed(backend_.create_event(gpu_, &event_));
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  ~GpuMemory() override {
    for (void* one : all_) succeed(backend_.release(gpu_, one));
    backend_.destroy_event(gpu_, event_);
  }

  std::span<std::byte> take(size_t bytes) override {
    void* at = nullptr;
    succeed(backend_.allocate(gpu_, std::max<size_t>(bytes, 1), &at));
    all_.push_back(at);
    return {static_cast<std::byte*>(at), bytes};
  }
  void put(std::span<std::byte> room, std::string_view bytes) override {
    succeed(backend_.copy_in(gpu_, cuda::Stream::compute, room.data(), bytes.data(), bytes.size()));
    settle();
  }
  std::string get(std::span<const std::byte> room) override {
    std::string bytes(room.size(), ' ');
    succeed(backend_.copy_out(gpu_, cuda::Stream::compute, bytes.data(), room.data(), room.size()));
    settle();
    return bytes;
  }

 private:
  static void succeed(cuda::Answer why) { CHECK(why == nullptr, why); }
  void settle() {
    succeed(backend_.record(gpu_, cuda::Stream::compute, event_));
    succeed(backend_.wait(gpu_, event_));
  }

  const cuda::Backend& backend_;
  cuda::Device* gpu_;
  cuda::Event* event_ = nullptr;
  std::vector<void*> all_;
};

}  // namespace nlsplit::testing

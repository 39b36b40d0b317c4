// DeviceFlight: what a DeviceRun notes for the flight recorder, and what it says of itself when that is written.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "exec/device_index.h"
#include "exec/flight_recorder.h"

namespace nlsplit::inline exec {

class DeviceFlight final : public FlightSource {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `recorder`: nullptr: nothing is kept. Both are borrowed and must outlive this.
  DeviceFlight(const DeviceIndex& index, FlightRecorder* recorder);
  ~DeviceFlight();
  DeviceFlight(const DeviceFlight&) = delete;
  DeviceFlight& operator=(const DeviceFlight&) = delete;

  // The thread that computes. no_instance: it waits for a slot that an online policy may choose.
  void computes(TimePoint at, FlightEvent event, uint32_t instance) {
    if (recorder_ != nullptr) recorder_->computations.note(at, event, instance);
  }

  // The owner of the transport: an execution begins or ends, no thread computes.
  void execution(bool runs);
  void posts(TimePoint at, uint32_t transfer) {
    if (recorder_ != nullptr) recorder_->transfers.note(at, FlightEvent::posts, transfer);
  }
  void completes(TimePoint at, uint32_t transfer) {
    if (recorder_ == nullptr) return;
    recorder_->transfers.note(at, FlightEvent::completes, transfer);
    std::atomic<uint32_t>& ended = fifos_[index_.fifo_index[transfer]].ended;
    ended.store(ended.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // The first of a FIFO that is under way now, and when it was posted; no_instance: none.
  void first_of(uint32_t fifo, uint32_t first, TimePoint since) {
    if (recorder_ == nullptr) return;
    fifos_[fifo].since_ns.store(since.time_since_epoch().count(), std::memory_order_relaxed);
    fifos_[fifo].first.store(first, std::memory_order_relaxed);
  }

  void write_state(FlightWriter& out, int64_t now_ns) const override;
  void write_instance(FlightWriter& out, uint32_t instance) const override;

 private:
  struct Fifo {
    std::vector<int> peers;
    int tag = -1;                         // -1: of all tags; of native collectives a number of the group
    std::string_view direction = "recv";  // or "send"; of native collectives "with"
    std::atomic<uint32_t> ended{0}, first{no_instance};
    std::atomic<int64_t> since_ns{0};
  };
  bool is_needed(uint32_t fifo, uint32_t first, uint32_t waiting) const;

  const DeviceIndex& index_;
  FlightRecorder* recorder_;
  std::vector<std::vector<std::string>> texts_;  // [segment][instruction]
  std::vector<Fifo> fifos_;
  std::atomic<bool> runs_{false};
};

}  // namespace nlsplit::inline exec

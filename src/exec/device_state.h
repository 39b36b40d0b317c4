// What DeviceRun is made of. Private to device_run.cc, device_compute.cc (the thread that computes) and
// device_transfers.cc (the thread that owns the transport).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "exec/device_flight.h"
#include "exec/device_index.h"
#include "exec/device_run.h"

namespace nlsplit::inline exec {

struct DeviceRun::State : DeviceIndex {
  using Clock = std::chrono::steady_clock;

  // One direction of traffic with one peer, in order; online that of one tag.
  struct Fifo {
    struct InFlight {
      uint32_t instance;
      Transport::Request request;
      Copy copy;  // under way, before a send or after a recv; none: the message is
      Clock::time_point posted;
    };
    std::deque<InFlight> in_flight;
    std::atomic<uint32_t> first{no_instance};  // of in_flight, for other threads

    void add(const InFlight& transfer);
    void remove_first();
  };

  Backend& backend;
  Transport& transport;
  DeviceRunOptions options;

  std::vector<Fifo> fifos;

  std::vector<int> waits_for;   // computes': under `mutex`; transfers': the caller's thread alone
  std::vector<double> there;    // emulated compute: when the last of what a compute waited for ended; under `mutex`
  std::vector<int> slot_waits;  // under `mutex`
  std::optional<DeviceTurns> turns;  // under `mutex`
  bool asked_again = false;          // under `mutex`: a slot has become ready since the policy was called
  std::vector<uint32_t> ran;         // computes, in the order in which they ran: `computed` of them can be read
  std::vector<int> decided;          // slots, in the same; the worker alone
  std::vector<Step> steps;           // given to the backend; the worker alone
  std::vector<Interval> times;
  std::vector<uint32_t> ready;                 // transfers to issue
  uint32_t left = 0;                           // instances that have not ended
  std::atomic<uint32_t> computed{0};           // how many of `ran` have ended
  std::atomic<uint32_t> current{no_instance};  // what the worker computes, or computed last
  std::atomic<pid_t> worker_thread{0};

  mutable std::mutex mutex;
  std::condition_variable condition;                                 // a compute's inputs have come, or go, or stop
  bool calibrating = false, go = false, stop = false, quit = false;  // requests to the worker
  std::atomic<bool> stopping{false};                                 // `stop`, for who holds no lock
  std::optional<Error> broken;                                       // why the backend does not go on; under `mutex`
  std::atomic<bool> is_broken{false};
  double calibration_s = 0;
  Clock::time_point calibrated_at = {};
  Clock::time_point zero;
  size_t overruns = 0;
  std::thread worker;
  DeviceFlight flight;

  State(const Program& program, const Dependencies& deps, int d, Backend& backend, Transport& transport,
        const DeviceRunOptions& options);

  double since_zero(Clock::time_point at) const { return std::chrono::duration<double>(at - zero).count(); }
  double now() const { return since_zero(Clock::now()); }
  // Now; and kept for the flight recorder.
  Clock::time_point note(FlightEvent event, uint32_t i);
  bool is_awaited(uint32_t i) const { return successor_begin[i] != successor_begin[i + 1]; }
  void slot_is_ready(int s);  // under `mutex`

  // The worker (device_compute.cc).
  void work();
  void compute();
  std::optional<int> next_slot(int turn, double& nominal);
  void end_slot(size_t s);
  uint32_t run_end(uint32_t c, uint32_t slot_end) const;
  bool run_some(std::span<const uint32_t> some, size_t k, bool ends_slot, double& nominal);
  Status give_to_backend(std::span<const uint32_t> some, bool settle);
  void give_up(const Error& why);
  void calibrate();
  double keep_time(uint32_t i, double begin, bool awaited);

  // The owner of the transport (device_transfers.cc).
  Status drive();
  Result<bool> turn(size_t& seen);
  Status issue(uint32_t i);
  Result<bool> has_ended(Fifo::InFlight& first);
  void release(uint32_t to, double at);
  void end(uint32_t i);
  void begin_native(uint32_t i, Fifo::InFlight& under_way);
  void end_covered(uint32_t i);
  const Operand& moved_by(uint32_t transfer) const;
  std::span<std::byte> message_of(uint32_t transfer) const;
  std::string missing();
  std::string next_work(uint32_t done) const;
  bool copies_under_way() const;
  void settle(bool stop_it);

  std::string waits_in(int peer) const;  // any thread, while this runs
};

}  // namespace nlsplit::inline exec

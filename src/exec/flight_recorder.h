// FlightRecorder: the last instructions and messages of one rank with their times, kept in memory while a Program runs
// and written to a file when the run ends before its time. `nlbench explain-failure` reads the files of all ranks
// (report/failure.h; the format stands in docs/running.md).
//
//   FlightRecords records("result.json.flight", run_id);
//   options.flight = &records;                 // run() makes a recorder for its rank
//   records.write("lost rank 1 on host b");    // any thread, also in a signal handler; once
//
// A note costs two stores, without locks or allocations. Each ring buffer (FlightLane) has one writer. A reader may see
// a note that is being overwritten, so it leaves out the oldest ones.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nlsplit::inline exec {

// Text for a file descriptor, without anything that a signal handler may not do.
class FlightWriter {
 public:
  explicit FlightWriter(int fd) : fd_(fd) {}
  ~FlightWriter() { flush(); }
  FlightWriter(const FlightWriter&) = delete;
  FlightWriter& operator=(const FlightWriter&) = delete;

  FlightWriter& text(std::string_view text);  // control characters become blanks; long texts are cut
  FlightWriter& number(int64_t number);
  FlightWriter& line() { return put('\n'); }
  bool flush();  // false: something could not be written

 private:
  FlightWriter& put(char c);
  int fd_;
  bool failed_ = false;
  size_t used_ = 0;
  std::array<char, 4096> buffer_;
};

enum class FlightEvent : uint8_t {
  begins,     // a computation
  ends,       // a computation
  waits,      // a computation: for what it needs
  posts,      // a transfer
  completes,  // a transfer
  finishes,   // the last computation of an execution has ended
};

// The last events of one thread: a ring buffer.
class FlightLane {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr uint32_t size = 512;
  struct Note {
    int64_t at_ns;  // of the steady clock
    FlightEvent event;
    uint32_t instance;  // of the device
  };

  void note(Clock::time_point at, FlightEvent event, uint32_t instance) {
    const uint32_t n = count_.load(std::memory_order_relaxed);
    Slot& slot = slots_[n % size];
    slot.at.store(at.time_since_epoch().count(), std::memory_order_relaxed);
    slot.what.store(uint64_t{instance} << 8 | static_cast<uint64_t>(event), std::memory_order_relaxed);
    count_.store(n + 1, std::memory_order_release);
  }
  uint32_t count() const { return count_.load(std::memory_order_acquire); }
  Note get(uint32_t n) const {
    const Slot& slot = slots_[n % size];
    const uint64_t what = slot.what.load(std::memory_order_relaxed);
    return {slot.at.load(std::memory_order_relaxed), static_cast<FlightEvent>(what & 0xff),
            static_cast<uint32_t>(what >> 8)};
  }

 private:
  struct Slot {
    std::atomic<int64_t> at{0};
    std::atomic<uint64_t> what{0};
  };
  std::atomic<uint32_t> count_{0};
  std::array<Slot, size> slots_;
};

// Knows the state of a device and the names of its instances. Both functions may be called in a signal handler.
class FlightSource {
 public:
  virtual void write_state(FlightWriter& out, int64_t now_ns) const = 0;
  virtual void write_instance(FlightWriter& out, uint32_t instance) const = 0;

 protected:
  ~FlightSource() = default;
};

class FlightRecorder {
 public:
  FlightRecorder(int rank, int ranks);

  void name_device(const std::string& device);

  FlightLane computations, transfers;  // the worker's; the transport owner's

  // What the owner of the transport does between executions, and for which rank it waits; -1: for none or any.
  void phase(std::string_view what, int peer);
  void works(bool works) { works_.store(works, std::memory_order_relaxed); }
  void repeat(int number) { repeat_.store(number, std::memory_order_relaxed); }

  // Sets the source; nullptr: none. After this returns the previous source is not used any more.
  void ask(const FlightSource* source);

  int rank() const { return rank_; }
  // Async-signal-safe. false: something could not be written.
  bool write(int fd, std::string_view run, std::string_view why) const;

 private:
  static constexpr size_t phase_words = 10;
  void write_lane(FlightWriter& out, const FlightLane& lane, const FlightSource* source, int64_t now_ns) const;

  const int rank_, ranks_;
  const std::string host_;
  std::vector<std::unique_ptr<std::string>> names_;  // all it had: a signal handler may still read one
  std::atomic<const std::string*> device_{nullptr};
  std::atomic<int> peer_{-1}, repeat_{0};
  std::atomic<bool> works_{false};
  std::atomic<int64_t> phase_since_{0};
  std::array<std::atomic<uint64_t>, phase_words> phase_{};
  std::atomic<const FlightSource*> source_{nullptr};
  mutable std::atomic<int> readers_{0};
};

// The recorders of this process, and where their records go: DIR/rank-N.flight.
class FlightRecords {
 public:
  // `run`: the same on all ranks of a run, another one for the next.
  FlightRecords(std::string dir, std::string run);
  void name_run(std::string run) { run_ = std::move(run); }  // before the first of()
  ~FlightRecords();

  FlightRecorder& of(int rank, int ranks);  // makes it at the first call
  // Makes the folder and writes what every rank of this process did last. Only the first call does. Async-signal-safe.
  // Whether all was written; also if this was not the first call, and nothing was to write.
  bool write(std::string_view why);
  bool empty() const { return count_.load(std::memory_order_acquire) == 0; }
  const std::string& dir() const { return dir_; }

 private:
  static constexpr int most = 1024;
  struct One {
    FlightRecorder recorder;
    std::string path, temporary;
  };
  const std::string dir_;
  std::string run_;
  std::mutex making_;
  std::atomic<int> count_{0};
  std::array<std::atomic<One*>, most> all_{};
  std::atomic<bool> written_{false};
};

}  // namespace nlsplit::inline exec

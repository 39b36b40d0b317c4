// A rank over gRPC while it connects with the others: the functions that start_grpc and a worker use before the rank is
// a Transport like others.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/grpc/credentials.h"
#include "exec/grpc/hello.h"
#include "exec/grpc/mailbox.h"
#include "exec/grpc/stream.h"
#include "exec/heartbeat/greeting.h"
#include "exec/transport_kind.h"

namespace nlsplit::inline exec {

using Clock = std::chrono::steady_clock;

inline constexpr std::chrono::milliseconds longest_pause(50);
inline constexpr double never_s = 1e8;  // some years
// Answers of a worker that is still ending its last run; it may also close the stream.
inline constexpr const char* in_other_run = "the worker takes part in another run";
inline constexpr const char* worker_ends = "the worker ends";
inline constexpr size_t largest_frame = header_bytes + std::max(piece_bytes, text_bytes);

class MeetingRank : public Transport {
 public:
  static std::unique_ptr<MeetingRank> make(int rank, int size, TransportOptions options, Credentials credentials);

  // The events of the stream with that peer.
  virtual StreamEvents events_of(int peer) = 0;
  virtual void dial_to(int peer, const std::string& address, const Hello& hello) = 0;
  // The stream that this peer has opened.
  virtual void attach(int peer, const std::shared_ptr<FrameStream>& stream, const AboutRank& about) = 0;
  // That peer's stream ended before it was attached.
  virtual void never_came(int peer, const std::string& why) = 0;
  // Waits until all ranks are connected with all others; no rank begins before.
  virtual Status meet(Clock::time_point until, bool (*cancelled)()) = 0;
  // The start has failed on this rank: sends the reason to the others.
  virtual void give_up(const std::string& why) = 0;
  // All are connected: the heartbeat begins.
  virtual void set_up() = 0;
};

std::string joined(std::span<const std::span<const std::byte>> parts);
std::vector<Fact> facts_of(const std::string& program);
// The system clock for waiting: see waker.h.
std::chrono::system_clock::time_point from_now(Clock::duration wait);
// share: of the start's patience.
Clock::time_point end_of_start(const TransportOptions& options, Clock::time_point begin, double share = 1);

}  // namespace nlsplit::inline exec

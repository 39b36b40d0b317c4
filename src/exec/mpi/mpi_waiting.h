// How the thread that owns MPI waits. Open MPI makes progress only inside its calls, and does not report progress. So
// the thread polls again at once while messages move. Else it sleeps until a socket has data; if some ranks are reached
// otherwise than over TCP, for longer the longer nothing moves. With a core to spare it only yields.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "exec/mpi/mpi_requests.h"
#include "exec/mpi/socket_waiter.h"
#include "exec/transport_kind.h"

namespace nlsplit::inline exec {

class MpiWaiting {
 public:
  using Clock = std::chrono::steady_clock;

  explicit MpiWaiting(SocketWaiter waiter) : waiter_(std::move(waiter)) {}

  // Before the first of the calls below. `control`: the communicator to poll. `not_ours`: sockets without messages.
  // `neighbours`: ranks of this machine, this one among them.
  void set_up(Polling polling, MPI_Comm control, std::vector<int> not_ours, size_t neighbours);

  void pause(int rounds);  // Transport::pause
  void rest();             // Transport::rest
  void wake();             // Transport::wake: any thread
  const uint64_t& pauses() const { return pauses_; }

  Clock::duration& longest_look() { return longest_look_; }  // in MPI since the last pause
  // Called when a request has ended. If sockets repeatedly did not announce that, they are no longer relied on.
  void ended(const MpiRequest& request);

 private:
  void look();
  void time_looks_at_nothing();
  bool sockets_tell();
  bool sockets_missed(const MpiRequest& request);

  SocketWaiter waiter_;
  MPI_Comm control_ = MPI_COMM_NULL;
  std::vector<int> not_ours_;
  bool alone_here_ = true;
  bool spins_ = false;
  std::atomic<bool> asleep_ = false;  // the thread that owns MPI, until a socket has news
  int quiet_ = 0;                     // sleeps since something moved
  Clock::duration longest_look_{};
  Clock::duration busy_look_{};
  Clock::time_point next_search_{};
  uint64_t pauses_ = 0;
  bool slept_in_vain_ = false;  // the sleep before ended without news; then nothing should have ended meanwhile
  int misses_ = 0;
};

// The thread that calls this sleeps most of the time, and a message waits for it when it wakes: before the thread that
// computes on the same core.
void ask_for_short_turns();

}  // namespace nlsplit::inline exec

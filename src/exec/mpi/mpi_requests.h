// What MPI is moving for us: one request of the transport is one or more of MPI's.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "exec/transport.h"

namespace nlsplit::inline exec {

std::string mpi_error_text(int code);

// What happens when something goes wrong: `end` ends the process.
struct MpiFailure {
  int rank = 0;
  std::function<void(const Error&)> end;

  // What MPI calls an error is nearly always a connection that broke.
  void check(int code, const char* what) const;
};

// Numbers of elements, and where each member's begin: MPI reads them until the collective has ended.
struct MemberCounts {
  std::vector<int> counts, begins;
};

struct MpiRequest {
  std::vector<MPI_Request> pieces;  // mostly one
  std::vector<int> sizes;           // bytes of each
  size_t next = 0;                  // the first that has not ended
  bool receives = false;
  bool collective = false;
  int peer = -1;                 // of a message
  bool counts = false;           // received by a Program: its sender may go on by as many bytes
  uint64_t begun = 0;            // before which pause
  MemberCounts sent, received;   // of a collective, each member's
  std::vector<std::byte> aside;  // of a collective: its value as it was

  size_t bytes() const {
    return std::accumulate(sizes.begin(), sizes.end(), size_t{0},
                           [](size_t sum, int size) { return sum + static_cast<size_t>(size); });
  }
};

class MpiRequests {
 public:
  using Request = Transport::Request;
  using Clock = std::chrono::steady_clock;

  explicit MpiRequests(const MpiFailure& failure) : failure_(failure) {}  // which outlives it

  MpiRequest& operator[](Request request) { return requests_[request]; }
  Request add(bool receives, uint64_t pause);
  // As the request says, which add() made and which has no pieces yet. `until_received`: it ends when the receiver has
  // it, not when its bytes are out of the way here.
  void send(Request request, int peer, int tag, MPI_Comm channel, std::span<const std::byte> data, bool until_received);
  Request receive(int peer, int tag, MPI_Comm channel, std::span<std::byte> room, uint64_t pause);

  // Has all of it ended? Not what has no pieces yet. `longest_look` grows to what MPI took to answer.
  bool test(Request request, Clock::duration& longest_look);
  // Its number may be another's from now on.
  void release(Request request);

 private:
  template <class Start>
  void start(Request request, int peer, size_t size, const Start& start_piece);

  const MpiFailure& failure_;
  std::vector<MpiRequest> requests_;
  std::vector<Request> free_;
};

}  // namespace nlsplit::inline exec

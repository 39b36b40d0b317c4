// How far a rank may send ahead of its receivers. MPI keeps what a rank does not expect yet, in memory that no plan
// counts: so a receiver tells each sender from time to time how many bytes it has received, and a sender that is too
// far ahead waits for that.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "exec/mpi/mpi_requests.h"

namespace nlsplit::inline exec {

class MpiCredits {
 public:
  explicit MpiCredits(const MpiFailure& failure) : failure_(failure) {}  // which outlives it

  // Before anything else, of all ranks of `ranks`.
  void open(MPI_Comm ranks);
  void close();

  // Whether a message may go to the peer: it has received all but 16 MiB of what was sent to it.
  bool may_send(int peer);
  void sent(int peer, size_t bytes) { ahead_[static_cast<size_t>(peer)] += bytes; }
  void received(int peer, size_t bytes);

 private:
  struct Told {
    MPI_Request request = MPI_REQUEST_NULL;
    uint64_t bytes = 0;
  };
  void hear();  // what peers have told
  void listen();

  const MpiFailure& failure_;
  MPI_Comm channel_ = MPI_COMM_NULL;
  std::vector<uint64_t> ahead_;   // by peer: bytes sent that it has not told to have
  std::vector<uint64_t> untold_;  // by peer: bytes received of it that it does not know of
  std::deque<Told> told_;         // under way; MPI reads them
  MPI_Request heard_ = MPI_REQUEST_NULL;
  uint64_t heard_bytes_ = 0;
};

}  // namespace nlsplit::inline exec

#include "exec/mpi/mpi_credits.h"

#include <algorithm>
#include <utility>

namespace nlsplit::inline exec {
namespace {

// What is told late must be little beside what may be under way.
constexpr uint64_t most_ahead = uint64_t{16} << 20, told_each = uint64_t{1} << 20;
constexpr int any_tag = 0;

}  // namespace

void MpiCredits::open(MPI_Comm ranks) {
  MPI_Comm_dup(ranks, &channel_);
  MPI_Comm_set_errhandler(channel_, MPI_ERRORS_RETURN);
  int size = 0;
  MPI_Comm_size(channel_, &size);
  ahead_.assign(static_cast<size_t>(size), 0);
  untold_.assign(static_cast<size_t>(size), 0);
  listen();
}

void MpiCredits::close() {
  MPI_Cancel(&heard_);
  MPI_Request_free(&heard_);
  for (Told& told : told_) MPI_Wait(&told.request, MPI_STATUS_IGNORE);  // small: they do not wait for their receivers
  MPI_Comm_free(&channel_);
}

bool MpiCredits::may_send(int peer) {
  const uint64_t& ahead = ahead_[static_cast<size_t>(peer)];
  if (ahead >= most_ahead) hear();
  return ahead < most_ahead;
}

void MpiCredits::received(int peer, size_t bytes) {
  uint64_t& untold = untold_[static_cast<size_t>(peer)];
  untold += bytes;
  if (untold < told_each) return;
  for (int done = 1; !told_.empty() && done != 0;) {
    failure_.check(MPI_Test(&told_.front().request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) told_.pop_front();
  }
  Told& told = told_.emplace_back();
  told.bytes = std::exchange(untold, 0);
  failure_.check(MPI_Isend(&told.bytes, 1, MPI_UINT64_T, peer, any_tag, channel_, &told.request), "MPI_Isend");
}

void MpiCredits::hear() {
  for (;;) {
    int done = 0;
    MPI_Status status;
    failure_.check(MPI_Test(&heard_, &done, &status), "MPI_Test");
    if (done == 0) return;
    uint64_t& ahead = ahead_[static_cast<size_t>(status.MPI_SOURCE)];
    ahead -= std::min(ahead, heard_bytes_);
    listen();
  }
}

void MpiCredits::listen() {
  failure_.check(MPI_Irecv(&heard_bytes_, 1, MPI_UINT64_T, MPI_ANY_SOURCE, any_tag, channel_, &heard_), "MPI_Irecv");
}

}  // namespace nlsplit::inline exec

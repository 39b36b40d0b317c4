#include "exec/mpi/mpi_requests.h"

#include <fmt/format.h>

#include <algorithm>

namespace nlsplit::inline exec {
namespace {

constexpr size_t largest_piece = size_t{1} << 30;  // MPI counts with int: larger messages go in pieces

template <class Piece>
void in_pieces(size_t size, const Piece& piece) {
  size_t at = 0;
  do {
    const size_t count = std::min(size - at, largest_piece);
    piece(at, static_cast<int>(count));
    at += count;
  } while (at < size);
}

}  // namespace

std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<size_t>(length)};
}

void MpiFailure::check(int code, const char* what) const {
  if (code != MPI_SUCCESS) end(lost(fmt::format("{} failed on rank {}: {}", what, rank, mpi_error_text(code))));
}

MpiRequests::Request MpiRequests::add(bool receives, uint64_t pause) {
  if (free_.empty()) {
    free_.push_back(static_cast<Request>(requests_.size()));
    requests_.emplace_back();
  }
  const Request request = free_.back();
  free_.pop_back();
  MpiRequest& it = requests_[request];
  it.pieces.clear();
  it.sizes.clear();
  it.next = 0;
  it.receives = receives;
  it.collective = false;
  it.peer = -1;
  it.counts = false;
  it.begun = pause;
  return request;
}

template <class Start>
void MpiRequests::start(Request request, int peer, size_t size, const Start& start_piece) {
  MpiRequest& it = requests_[request];
  it.peer = peer;
  in_pieces(size, [&](size_t at, int count) {
    start_piece(at, count, &it.pieces.emplace_back(MPI_REQUEST_NULL));
    it.sizes.push_back(count);
  });
}

void MpiRequests::send(Request request, int peer, int tag, MPI_Comm channel, std::span<const std::byte> data,
                       bool until_received) {
  const auto send = until_received ? MPI_Issend : MPI_Isend;
  start(request, peer, data.size(), [&](size_t at, int count, MPI_Request* piece) {
    failure_.check(send(data.data() + at, count, MPI_BYTE, peer, tag, channel, piece),
                   until_received ? "MPI_Issend" : "MPI_Isend");
  });
}

MpiRequests::Request MpiRequests::receive(int peer, int tag, MPI_Comm channel, std::span<std::byte> room,
                                          uint64_t pause) {
  const Request request = add(true, pause);
  start(request, peer, room.size(), [&](size_t at, int count, MPI_Request* piece) {
    failure_.check(MPI_Irecv(room.data() + at, count, MPI_BYTE, peer, tag, channel, piece), "MPI_Irecv");
  });
  return request;
}

bool MpiRequests::test(Request request, Clock::duration& longest_look) {
  MpiRequest& it = requests_[request];
  if (it.pieces.empty()) return false;
  for (; it.next < it.pieces.size(); ++it.next) {
    int done = 0, count = 0;
    MPI_Status status;
    const Clock::time_point before = Clock::now();
    failure_.check(MPI_Test(&it.pieces[it.next], &done, &status), "MPI_Test");
    longest_look = std::max(longest_look, Clock::now() - before);
    if (!done) return false;
    if (!it.receives) continue;
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (count != it.sizes[it.next]) {
      failure_.end(failed(fmt::format("rank {} sent {} B where rank {} expected {} B", status.MPI_SOURCE, count,
                                      failure_.rank, it.sizes[it.next])));
    }
  }
  return true;
}

void MpiRequests::release(Request request) {
  requests_[request].aside = {};  // as large as a value: not kept for whom the request is next
  free_.push_back(request);
}

}  // namespace nlsplit::inline exec

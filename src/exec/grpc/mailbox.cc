#include "exec/grpc/mailbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace nlsplit::inline exec {
namespace {

using State = Transport::State;
using Parts = std::span<const std::span<const std::byte>>;

size_t size_of(Parts parts) {
  size_t bytes = 0;
  for (const auto part : parts) bytes += part.size();
  return bytes;
}

void copy(Parts parts, std::byte* to) {
  for (const auto part : parts) {
    if (!part.empty()) std::memcpy(to, part.data(), part.size());
    to += part.size();
  }
}

// Of messages for which their receiver has no room yet: as much as Open MPI's sender may be ahead (mpi/mpi_credits.cc).
constexpr size_t most_ahead = size_t{16} << 20;

}  // namespace

Mailbox::Mailbox(int rank, Put put, std::function<void()> moved)
    : rank_(rank), put_(std::move(put)), moved_(std::move(moved)) {}

Mailbox::~Mailbox() {
  const std::lock_guard lock(alive_->mutex);
  alive_->here = false;
}

// Frames are put without the lock: put() may call back at once.
Transport::Request Mailbox::send(int peer, int tag, std::span<const std::byte> data) {
  const Transport::Request request = new_request();
  if (data.size() <= eager_bytes) {
    Frame frame{{FrameKind::eager, tag, 0, data.size()}, {reinterpret_cast<const char*>(data.data()), data.size()}};
    flags_[request] = State::done;
    put_(peer, std::move(frame));
    return request;
  }
  const size_t pieces = (data.size() + piece_bytes - 1) / piece_bytes;
  Frame frame{{FrameKind::ask, tag, 0, data.size()}, {}};
  {
    const std::lock_guard lock(mutex_);
    frame.header.message = next_++;
    sending_[frame.header.message] = {
        peer, data, 0, false, std::make_shared<std::atomic<size_t>>(pieces), &flags_[request]};
  }
  const uint64_t message = frame.header.message;
  put_(peer, std::move(frame));
  {
    const std::lock_guard lock(mutex_);
    peers_[peer].outgoing.push_back(message);
  }
  put_pieces(peer);
  return request;
}

Transport::Request Mailbox::receive(int peer, int tag, std::span<std::byte> room) {
  const Transport::Request request = new_request();
  uint64_t message = 0;
  std::string kept;
  {
    const std::lock_guard lock(mutex_);
    const auto found = arrived_.find({peer, tag});
    if (found == arrived_.end()) {
      posted_[{peer, tag}].push_back({room, &flags_[request]});
      return request;
    }
    const Arrived first = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) arrived_.erase(found);
    if (first.header.at != room.size()) {
      wrong_ = wrong_size(peer, first.header.at, room.size());
      return request;
    }
    if (first.header.kind == FrameKind::eager) {
      if (!room.empty()) std::memcpy(room.data(), first.bytes.data(), room.size());
      flags_[request] = State::done;
      return request;
    }
    message = first.header.message;
    Receiving& receiving = receiving_[{peer, message}];
    receiving.room = room;
    receiving.done = &flags_[request];
    kept = std::move(receiving.kept);
    peers_[peer].kept -= kept.size();
  }
  put_(peer, {{FrameKind::clear, 0, message, 0}, {}});
  if (!kept.empty()) {
    std::memcpy(room.data(), kept.data(), kept.size());
    written(peer, message, kept.size());
  }
  return request;
}

Transport::State Mailbox::test(Transport::Request request) {
  const State state = flags_[request].load(std::memory_order_acquire);
  if (state == State::done) free_.push_back(request);
  return state;
}

std::optional<Error> Mailbox::failure() {
  const std::lock_guard lock(mutex_);
  return wrong_;
}

Status Mailbox::take(int peer, const FrameHeader& header, Parts parts) {
  const size_t bytes = size_of(parts);
  switch (header.kind) {
    case FrameKind::eager:
      if (bytes > eager_bytes || header.at != bytes) return strange(peer, "a small message of another size");
      return arrive(peer, header, parts);
    case FrameKind::ask:
      if (bytes != 0 || header.at <= eager_bytes) return strange(peer, "a request for a small message");
      return arrive(peer, header, parts);
    case FrameKind::clear:
      if (bytes != 0) return strange(peer, "an answer with bytes");
      return clear(peer, header.message);
    case FrameKind::piece:
      return add_piece(peer, header, parts);
    default:
      return strange(peer, "a greeting twice");
  }
}

Status Mailbox::arrive(int peer, const FrameHeader& header, Parts parts) {
  {
    const std::lock_guard lock(mutex_);
    const bool is_announced = header.kind == FrameKind::ask;
    if (is_announced && !receiving_.try_emplace({peer, header.message}, Receiving{.size = header.at}).second)
      return strange(peer, "a request twice");
    const auto found = posted_.find({peer, header.tag});
    if (found == posted_.end()) {
      Arrived& arrived = arrived_[{peer, header.tag}].emplace_back();
      arrived.header = header;
      arrived.bytes.resize(size_of(parts));
      copy(parts, reinterpret_cast<std::byte*>(arrived.bytes.data()));
      return ok_status();
    }
    const Posted first = found->second.front();
    found->second.pop_front();
    if (found->second.empty()) posted_.erase(found);
    if (header.at != first.room.size()) return wrong_size(peer, header.at, first.room.size());
    if (!is_announced) {
      copy(parts, first.room.data());
      done(*first.done);
      return ok_status();
    }
    Receiving& receiving = receiving_[{peer, header.message}];
    receiving.room = first.room;
    receiving.done = first.done;
  }
  put_(peer, {{FrameKind::clear, 0, header.message, 0}, {}});
  return ok_status();
}

// The receiver has room: what is left of the message goes, however far ahead its sender is.
Status Mailbox::clear(int peer, uint64_t message) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = sending_.find(message);
    if (found == sending_.end() || found->second.peer != peer || found->second.cleared)
      return strange(peer, "an answer to no request");
    Sending& sending = found->second;
    peers_[peer].ahead -= sending.put;
    sending.cleared = true;
    if (sending.put == sending.data.size()) sending_.erase(found);
  }
  put_pieces(peer);
  return ok_status();
}

// One thread at a time, so that pieces go in their order. Who finds another one at it leaves the rest to that one.
void Mailbox::put_pieces(int peer) {
  std::unique_lock lock(mutex_);
  Peer& it = peers_[peer];
  if (std::exchange(it.putting, true)) return;
  while (std::optional<Frame> piece = next_piece(it)) {
    lock.unlock();
    put_(peer, std::move(*piece));
    lock.lock();
  }
  it.putting = false;
}

// Of the first message that may go on. The request is done when its last piece is no longer looked at.
std::optional<Frame> Mailbox::next_piece(Peer& peer) {
  const auto next = std::ranges::find_if(
      peer.outgoing, [&](uint64_t message) { return peer.ahead < most_ahead || sending_.at(message).cleared; });
  if (next == peer.outgoing.end()) return {};
  const uint64_t message = *next;
  Sending& sending = sending_.at(message);
  Frame frame{{FrameKind::piece, 0, message, sending.put}, {}};
  frame.borrowed = sending.data.subspan(sending.put, std::min(piece_bytes, sending.data.size() - sending.put));
  frame.released = [this, alive = alive_, left = sending.left, flag = sending.done] {
    if (left->fetch_sub(1) != 1) return;
    const std::lock_guard lock(alive->mutex);
    if (alive->here) done(*flag);
  };
  sending.put += frame.borrowed.size();
  if (!sending.cleared) peer.ahead += frame.borrowed.size();
  if (sending.put < sending.data.size()) return frame;
  peer.outgoing.erase(next);
  if (sending.cleared) sending_.erase(message);
  return frame;
}

// A peer's frames come one after the other. Into its room a message is written without the lock, by one thread its
// pieces and perhaps by another one what was kept of it.
Status Mailbox::add_piece(int peer, const FrameHeader& header, Parts parts) {
  const size_t bytes = size_of(parts);
  std::byte* to = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = receiving_.find({peer, header.message});
    if (found == receiving_.end()) return strange(peer, "a piece of no message");
    Receiving& into = found->second;
    if (bytes == 0 || bytes > piece_bytes || header.at != into.got || bytes > into.size - into.got)
      return strange(peer, "a piece that does not fit");
    if (into.done != nullptr) {
      to = into.room.data() + into.got;
    } else {
      size_t& kept = peers_[peer].kept;
      if (kept >= most_ahead) return strange(peer, "more than it may before there is room");
      kept += bytes;
      for (const auto part : parts) into.kept.append(reinterpret_cast<const char*>(part.data()), part.size());
    }
    into.got += bytes;
  }
  if (to == nullptr) {
    moved_();
    return ok_status();
  }
  copy(parts, to);
  written(peer, header.message, bytes);
  return ok_status();
}

void Mailbox::written(int peer, uint64_t message, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = receiving_.find({peer, message});
  Receiving& into = found->second;
  into.written += bytes;
  if (into.written < into.size) return moved_();
  done(*into.done);
  receiving_.erase(found);
}

Transport::Request Mailbox::new_request() {
  if (free_.empty()) {
    flags_.emplace_back(State::pending);
    return static_cast<Transport::Request>(flags_.size() - 1);
  }
  const Transport::Request request = free_.back();
  free_.pop_back();
  flags_[request] = State::pending;
  return request;
}

void Mailbox::done(Flag& flag) {
  flag.store(State::done, std::memory_order_release);
  moved_();
}

Error Mailbox::wrong_size(int peer, uint64_t sent, size_t expected) const {
  return failed(fmt::format("rank {} sent {} B where rank {} expected {} B", peer, sent, rank_, expected));
}

Error Mailbox::strange(int peer, const char* what) const {
  return lost(
      fmt::format("rank {} sent rank {} {}: the connection is not one of nlsplit, or damaged", peer, rank_, what));
}

}  // namespace nlsplit::inline exec

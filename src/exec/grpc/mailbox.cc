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
  Frame frame{{FrameKind::ask, tag, 0, data.size()}, {}};
  {
    const std::lock_guard lock(mutex_);
    frame.header.message = next_++;
    sending_[frame.header.message] = {peer, data, &flags_[request]};
  }
  put_(peer, std::move(frame));
  return request;
}

Transport::Request Mailbox::receive(int peer, int tag, std::span<std::byte> room) {
  const Transport::Request request = new_request();
  std::optional<Frame> answer;
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
    } else if (first.header.kind == FrameKind::eager) {
      if (!room.empty()) std::memcpy(room.data(), first.bytes.data(), room.size());
      flags_[request] = State::done;
    } else {
      receiving_[{peer, first.header.message}] = {room, 0, &flags_[request]};
      answer = Frame{{FrameKind::clear, 0, first.header.message, 0}, {}};
    }
  }
  if (answer) put_(peer, std::move(*answer));
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
  std::optional<Frame> answer;
  {
    const std::lock_guard lock(mutex_);
    if (header.kind == FrameKind::ask && !asked_.insert({peer, header.message}).second)
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
    if (header.kind == FrameKind::eager) {
      copy(parts, first.room.data());
      done(*first.done);
    } else {
      receiving_[{peer, header.message}] = {first.room, 0, first.done};
      answer = Frame{{FrameKind::clear, 0, header.message, 0}, {}};
    }
  }
  if (answer) put_(peer, std::move(*answer));
  return ok_status();
}

// The receiver has room: all pieces follow, and the request is done when the last one is no longer looked at.
Status Mailbox::clear(int peer, uint64_t message) {
  Sending sending{};
  {
    const std::lock_guard lock(mutex_);
    const auto found = sending_.find(message);
    if (found == sending_.end() || found->second.peer != peer) return strange(peer, "an answer to no request");
    sending = found->second;
    sending_.erase(found);
  }
  const size_t pieces = (sending.data.size() + piece_bytes - 1) / piece_bytes;
  const auto left = std::make_shared<std::atomic<size_t>>(pieces);
  for (size_t at = 0; at < sending.data.size(); at += piece_bytes) {
    Frame frame{{FrameKind::piece, 0, message, at}, {}};
    frame.borrowed = sending.data.subspan(at, std::min(piece_bytes, sending.data.size() - at));
    frame.released = [this, alive = alive_, left, flag = sending.done] {
      if (left->fetch_sub(1) != 1) return;
      const std::lock_guard lock(alive->mutex);
      if (alive->here) done(*flag);
    };
    put_(peer, std::move(frame));
  }
  return ok_status();
}

// A peer's frames come one after the other, so no other thread writes into this buffer.
Status Mailbox::add_piece(int peer, const FrameHeader& header, Parts parts) {
  const size_t bytes = size_of(parts);
  Receiving* into = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = receiving_.find({peer, header.message});
    if (found == receiving_.end()) return strange(peer, "a piece of no message");
    into = &found->second;  // stays where it is
  }
  if (bytes == 0 || bytes > piece_bytes || header.at != into->got || bytes > into->room.size() - into->got)
    return strange(peer, "a piece that does not fit");
  copy(parts, into->room.data() + into->got);
  into->got += bytes;
  if (into->got < into->room.size()) {
    moved_();
    return ok_status();
  }
  const std::lock_guard lock(mutex_);
  done(*into->done);
  receiving_.erase({peer, header.message});
  asked_.erase({peer, header.message});
  return ok_status();
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

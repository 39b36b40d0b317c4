#include "exec/collectives.h"

#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <cstring>
#include <thread>

namespace nlsplit::inline exec {
namespace {

// A choice that takes longer waits for something outside, or for the token of a large model: where sockets do not tell,
// a rank then notices it up to Transport::rest's few milliseconds late.
constexpr std::chrono::milliseconds until_rest(100);
constexpr uint64_t longest_text = uint64_t{1} << 33;  // a length beyond this is not one of ours

std::span<const std::byte> bytes_in(const std::string& text) { return std::as_bytes(std::span(text)); }

template <class T>
std::span<std::byte> bytes_in(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

Status wait_until_done(Transport& transport, int peer, Transport::Request request, bool spin, const Waiting& waiting) {
  Liveness& liveness = transport.liveness();
  const Liveness::Wait waits(liveness);
  liveness.begin(waiting.what, peer);
  const auto begin = std::chrono::steady_clock::now();
  for (int rounds = 0;; ++rounds) {
    switch (transport.test(request)) {
      case Transport::State::done:
        liveness.moved();
        return ok_status();
      case Transport::State::failed:
        return transport.error();
      case Transport::State::pending:
        break;
    }
    if (waiting.cancelled != nullptr && waiting.cancelled()) {
      const Error why = failed("interrupted");
      transport.abort(why);
      return why;
    }
    if (waiting.patience_s > 0 && liveness.idle_s() > waiting.patience_s && transport.idle_s() > waiting.patience_s) {
      const Error why =
          lost(fmt::format("rank {} waited {:.0f} s for the others at {}: nothing arrived, and no device computes",
                           transport.rank(), waiting.patience_s, waiting.what));
      transport.abort(why);
      return why;
    }
    if (spin)
      std::this_thread::yield();
    else if (waiting.may_last && std::chrono::steady_clock::now() - begin > until_rest)
      transport.rest();
    else
      transport.pause(rounds);
  }
}

}  // namespace

Status wait(Transport& transport, int peer, Transport::Request request, const Waiting& waiting) {
  return wait_until_done(transport, peer, request, false, waiting);
}

Status send_bytes(Transport& transport, int peer, std::span<const std::byte> data, const Waiting& waiting) {
  return wait(transport, peer, transport.isend(peer, control_tag, data), waiting);
}

Status recv_bytes(Transport& transport, int peer, std::span<std::byte> room, const Waiting& waiting) {
  return wait(transport, peer, transport.irecv(peer, control_tag, room), waiting);
}

Status send_text(Transport& transport, int peer, const std::string& text, const Waiting& waiting) {
  uint64_t length = text.size();
  RETURN_IF_ERROR(send_bytes(transport, peer, bytes_in(length), waiting));
  return send_bytes(transport, peer, bytes_in(text), waiting);
}

Result<std::string> recv_text(Transport& transport, int peer, const Waiting& waiting) {
  uint64_t length = 0;
  RETURN_IF_ERROR(recv_bytes(transport, peer, bytes_in(length), waiting));
  if (length > longest_text) {
    const Error why = failed(fmt::format("rank {} announced a text of {} B", peer, length));
    transport.abort(why);
    return why;
  }
  std::string text(length, '\0');
  RETURN_IF_ERROR(recv_bytes(transport, peer, std::as_writable_bytes(std::span(text)), waiting));
  return text;
}

Status recv_at_once(Transport& transport, int peer, std::span<std::byte> room, const Waiting& waiting) {
  return wait_until_done(transport, peer, transport.irecv(peer, control_tag, room), true, waiting);
}

Status barrier(Transport& transport, bool spin, const Waiting& waiting) {
  const int size = transport.size(), rank = transport.rank();
  for (int distance = 1; distance < size; distance *= 2) {
    std::byte out{}, in{};
    const int before = (rank - distance % size + size) % size, after = (rank + distance) % size;
    const auto receiving = transport.irecv(before, control_tag, bytes_in(in));
    const auto sending = transport.isend(after, control_tag, bytes_in(out));
    RETURN_IF_ERROR(wait_until_done(transport, after, sending, spin, waiting));
    RETURN_IF_ERROR(wait_until_done(transport, before, receiving, spin, waiting));
  }
  return ok_status();
}

Status broadcast(Transport& transport, std::string* text, const Waiting& waiting) {
  const auto rank = static_cast<unsigned>(transport.rank()), size = static_cast<unsigned>(transport.size());
  const unsigned reached_by = std::bit_floor(rank);
  if (rank != 0) {
    ASSIGN_OR_RETURN(*text, recv_text(transport, static_cast<int>(rank - reached_by), waiting));
  }
  for (unsigned step = rank == 0 ? 1 : 2 * reached_by; rank + step < size; step *= 2)
    RETURN_IF_ERROR(send_text(transport, static_cast<int>(rank + step), *text, waiting));
  return ok_status();
}

Result<std::vector<std::string>> gather(Transport& transport, const std::string& text, const Waiting& waiting) {
  std::vector<std::string> all;
  if (transport.rank() != 0) {
    RETURN_IF_ERROR(send_text(transport, 0, text, waiting));
    return all;
  }
  all.push_back(text);
  for (int peer = 1; peer < transport.size(); ++peer) {
    ASSIGN_OR_RETURN(all.emplace_back(), recv_text(transport, peer, waiting));
  }
  return all;
}

Status agree(Transport& transport, const Status& mine, const Waiting& waiting) {
  // One character for the kind, then the message: "0" is fine.
  std::string verdict = "0";
  if (!mine.ok()) verdict = fmt::format("{}{}", 1 + static_cast<int>(mine.error().kind), mine.error().message);
  ASSIGN_OR_RETURN(const std::vector<std::string> all, gather(transport, verdict, waiting));
  for (const std::string& one : all) {
    if (verdict == "0") verdict = one;
  }
  RETURN_IF_ERROR(broadcast(transport, &verdict, waiting));
  if (verdict == "0") return ok_status();
  if (verdict.empty()) return failed("a rank did not say whether it is well: its report is empty");
  if (!mine.ok() && verdict.substr(1) == mine.error().message) return mine.error();  // with its place in the text
  Error error = failed(verdict.substr(1));
  const int kind = verdict[0] - '1';
  if (kind >= 0 && kind <= static_cast<int>(ErrorKind::lost)) error.kind = static_cast<ErrorKind>(kind);
  return error;
}

}  // namespace nlsplit::inline exec

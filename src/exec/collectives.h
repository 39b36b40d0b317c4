// Collective operations of the executor itself, built on a Transport's messages. Every device must call them in the
// same order.
//
//   RETURN_IF_ERROR(agree(transport, mine));            // all continue, or all return the first device's error
//   RETURN_IF_ERROR(broadcast(transport, &text));       // all have rank 0's text
//
// Errors: the transport failed, or no device of the run did anything for `patience_s` seconds (0: wait for ever), which
// aborts the run.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/transport.h"

namespace nlsplit::inline exec {

struct Waiting {
  double patience_s = 0;          // 0: for ever
  bool (*cancelled)() = nullptr;  // the user pressed Ctrl-C; may be nullptr
  std::string what;               // for the message: "the start of repeat 3"
  bool may_last = false;          // it may take hours: soon it costs no core (Transport::rest)
};

// Waits for one request, of a message with `peer`. After an error the run is aborted: no request is in flight any more.
Status wait(Transport& transport, int peer, Transport::Request request, const Waiting& waiting);

Status send_bytes(Transport& transport, int peer, std::span<const std::byte> data, const Waiting& waiting);
Status recv_bytes(Transport& transport, int peer, std::span<std::byte> room, const Waiting& waiting);
// A text, whose length goes before it.
Status send_text(Transport& transport, int peer, const std::string& text, const Waiting& waiting);
Result<std::string> recv_text(Transport& transport, int peer, const Waiting& waiting);
// Polls without sleeping: for a message that is about to arrive, and whose time matters.
Status recv_at_once(Transport& transport, int peer, std::span<std::byte> room, const Waiting& waiting);

// No device leaves before all have arrived. Dissemination: Hensgen, Finkel, Manber, "Two algorithms for barrier
// synchronization", 1988. `spin` does not sleep: devices then leave within a few message times of each other.
Status barrier(Transport& transport, bool spin, const Waiting& waiting);

// By a binomial tree: each rank passes it on to at most log2 n others.
Status broadcast(Transport& transport, std::string* text, const Waiting& waiting);
// On rank 0 the texts of all ranks, by rank; elsewhere empty.
Result<std::vector<std::string>> gather(Transport& transport, const std::string& text, const Waiting& waiting);
Status agree(Transport& transport, const Status& mine, const Waiting& waiting);

// Plain values as the text of a message, and back: as many as fit.
template <class T>
std::string as_text(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::vector<T> from_text(const std::string& text) {
  std::vector<T> values(text.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), text.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace nlsplit::inline exec

// Frame: what travels between two ranks over a gRPC stream: a header of fixed size, and bytes.
//
//   eager   all bytes of a message that is small
//   ask     a larger message is ready: its tag, its number at the sender, its size. Pieces may follow at once
//   clear   the receiver has room for it: its number
//   piece   some of its bytes: its number, and where they begin
//   line    of the heartbeat
//   hello, welcome   the first of each side
//   ready   to rank 0: all others are there; from rank 0: all are ready
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace nlsplit::inline exec {

enum class FrameKind : uint8_t { hello = 1, welcome, ready, line, eager, ask, clear, piece };

struct FrameHeader {
  FrameKind kind = FrameKind::line;
  int32_t tag = 0;       // eager, ask
  uint64_t message = 0;  // ask, clear, piece: the sender's number of the message
  uint64_t at = 0;       // ask: bytes of the whole message; piece: where these begin
};

inline constexpr size_t header_bytes = 24;
// Larger messages are announced, and leave in pieces, which are the largest frames.
inline constexpr size_t eager_bytes = size_t{64} << 10, piece_bytes = size_t{256} << 10;
inline constexpr size_t text_bytes = size_t{256} << 10;  // of hello, welcome and line

std::array<std::byte, header_bytes> encode(const FrameHeader& header);
// nullopt: no header of this protocol.
std::optional<FrameHeader> decode(std::span<const std::byte, header_bytes> bytes);

struct Frame {
  FrameHeader header;
  std::string own;                           // its bytes, if they are not the caller's:
  std::span<const std::byte> borrowed = {};  // theirs, until `released` is called, on any thread
  std::function<void()> released = nullptr;
};

}  // namespace nlsplit::inline exec

#include "exec/grpc/frame.h"

#include <bit>
#include <cstring>

namespace nlsplit::inline exec {

// Ranks whose numbers lie otherwise in memory are refused when they meet (heartbeat/facts.h).
std::array<std::byte, header_bytes> encode(const FrameHeader& header) {
  std::array<std::byte, header_bytes> bytes{};
  bytes[0] = static_cast<std::byte>(header.kind);
  std::memcpy(&bytes[4], &header.tag, sizeof(header.tag));
  std::memcpy(&bytes[8], &header.message, sizeof(header.message));
  std::memcpy(&bytes[16], &header.at, sizeof(header.at));
  return bytes;
}

std::optional<FrameHeader> decode(std::span<const std::byte, header_bytes> bytes) {
  const auto kind = std::to_integer<uint8_t>(bytes[0]);
  if (kind < static_cast<uint8_t>(FrameKind::hello) || kind > static_cast<uint8_t>(FrameKind::piece)) return {};
  if ((bytes[1] | bytes[2] | bytes[3]) != std::byte{0}) return {};
  FrameHeader header;
  header.kind = static_cast<FrameKind>(kind);
  std::memcpy(&header.tag, &bytes[4], sizeof(header.tag));
  std::memcpy(&header.message, &bytes[8], sizeof(header.message));
  std::memcpy(&header.at, &bytes[16], sizeof(header.at));
  return header;
}

}  // namespace nlsplit::inline exec

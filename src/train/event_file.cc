#include "train/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <boost/crc.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

namespace nlsplit::inline train {
namespace {

// Protocol buffers' wire format: https://protobuf.dev/programming-guides/encoding
enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void add_varint(std::string& text, uint64_t value) {
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  text += static_cast<char>(value);
}
void add_key(std::string& text, int field, Wire wire) {
  add_varint(text, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
}
template <class T>
void add_number(std::string& text, T value) {  // little-endian
  std::array<char, sizeof(T)> bytes;
  std::memcpy(bytes.data(), &value, sizeof(T));
  text.append(bytes.data(), bytes.size());
}
void add_bytes(std::string& text, int field, std::string_view bytes) {
  add_key(text, field, Wire::bytes);
  add_varint(text, bytes.size());
  text += bytes;
}

// Event {double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;}
std::string event_of(int64_t step) {
  std::string event;
  add_key(event, 1, Wire::fixed64);
  add_number(event, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  add_key(event, 2, Wire::varint);
  add_varint(event, static_cast<uint64_t>(step));
  return event;
}

// CRC-32C, turned and shifted so that the checksum of bytes with a checksum in them is not trivial.
uint32_t masked_checksum(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  const uint32_t sum = crc.checksum();
  return ((sum >> 15) | (sum << 17)) + 0xa282ead8U;
}

}  // namespace

std::string event_frame(std::string_view event) {
  std::string length;
  add_number(length, static_cast<uint64_t>(event.size()));
  std::string frame = length;
  add_number(frame, masked_checksum(length));
  frame += event;
  add_number(frame, masked_checksum(event));
  return frame;
}

Result<EventFile> EventFile::open(const std::string& dir) {
  std::error_code failure;
  std::filesystem::create_directories(dir, failure);
  if (failure) return invalid_input(fmt::format("{}: {}", dir, failure.message()));
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  const std::string path =
      fmt::format("{}/events.out.tfevents.{}.{}.{}", dir, now.count(), host.data(), getpid());  // where it looks
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file.get() < 0) return invalid_input(fmt::format("{}: {}", path, std::strerror(errno)));
  EventFile events(path, std::move(file));
  std::string first = event_of(0);
  add_bytes(first, 3, "brain.Event:2");
  RETURN_IF_ERROR(events.write(event_frame(first)));
  return events;
}

// Summary {repeated Value value = 1;} Value {string tag = 1; float simple_value = 2;}
Status EventFile::add(std::string_view tag, int64_t step, double value) {
  std::string one;
  add_bytes(one, 1, tag);
  add_key(one, 2, Wire::fixed32);
  add_number(one, static_cast<float>(value));
  std::string summary;
  add_bytes(summary, 1, one);
  std::string event = event_of(step);
  add_bytes(event, 5, summary);
  return write(event_frame(event));
}

Status EventFile::write(std::string_view event) {
  while (!event.empty()) {
    const ssize_t written = ::write(file_.get(), event.data(), event.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed(fmt::format("{}: {}", path_, std::strerror(errno)));
    event.remove_prefix(static_cast<size_t>(written));
  }
  return ok_status();
}

}  // namespace nlsplit::inline train

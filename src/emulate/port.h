// Port: where the switch meets one place. Inside the place is an interface `nl0`; what is sent there can be read here,
// and what is written here arrives there. TCP's large pieces stay whole (up to 64 KiB): the kernel's checksum and
// segmentation orders travel along in a virtio_net_hdr, so nothing is cut up or summed.
//
// A TUN device, or, without /dev/net/tun, a pair of Ethernet ends (veth) with a packet socket on the outer one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "emulate/netlink.h"

namespace nlsplit::inline emulation {

inline constexpr const char* port_interface = "nl0";

class Port {
 public:
  // Largest packet with its headers: 64 KiB, an Ethernet header and the virtio header.
  static constexpr size_t largest_packet = 65536 + 64;

  // The calling thread is in the place's namespace. `outside` is that of the switch, where the outer end of a pair
  // goes.
  static Result<Port> open(const InterfaceOptions& options, int outside, size_t number);
  static bool has_tun();

  Port(Port&& other) noexcept;
  Port& operator=(Port&&) = delete;
  ~Port();

  int fd() const { return fd_; }
  // One packet with its headers; 0: none there.
  size_t read(std::span<std::byte> room);
  // false: the kernel did not take it.
  bool write(std::span<const std::byte> packet) const;
  // Packets that found no room to wait to be read; a TUN device counts them itself, as its interface's drops.
  uint64_t overrun() const;
  // Where the IP header begins.
  size_t ip_offset() const { return ip_offset_; }

 private:
  Port(int fd, size_t ip_offset) : fd_(fd), ip_offset_(ip_offset) {}
  static Result<Port> open_tun(const InterfaceOptions& options);
  static Result<Port> open_veth(const InterfaceOptions& options, int outside, size_t number);
  // Of a packet socket: frames that the kernel fills, one packet each. Its ordinary buffer would be too small for what
  // TCP has under way, and only the machine's root may enlarge it.
  Status map_ring();
  size_t read_ring(std::span<std::byte> room);

  int fd_;
  size_t ip_offset_;
  std::byte* ring_ = nullptr;
  size_t next_frame_ = 0;
};

}  // namespace nlsplit::inline emulation

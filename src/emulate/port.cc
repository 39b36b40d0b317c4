#include "emulate/port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace nlsplit::inline emulation {
namespace {

// struct virtio_net_hdr; its header file is not C++.
constexpr size_t virtio_header = 10;

// 32 MiB in frames that hold the largest packet; blocks of 15 frames fit the kernel's pages nearly without waste.
constexpr size_t frame_size = 17 * 4096, frames_in_block = 15, blocks = 32;
constexpr size_t frames = frames_in_block * blocks;

Status refused(const char* what) { return io_error(fmt::format("{}: {}", what, std::strerror(errno))); }

}  // namespace

bool Port::has_tun() {
  const int fd = ::open("/dev/net/tun", O_RDWR | O_CLOEXEC);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

Result<Port> Port::open(const InterfaceOptions& options, int outside, size_t number) {
  return has_tun() ? open_tun(options) : open_veth(options, outside, number);
}

Result<Port> Port::open_tun(const InterfaceOptions& options) {
  Port port(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), virtio_header);
  if (port.fd_ < 0) return refused("/dev/net/tun").error();
  ifreq request{};
  std::strncpy(request.ifr_name, port_interface, IFNAMSIZ - 1);
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  if (::ioctl(port.fd_, TUNSETIFF, &request) != 0) return refused("cannot make a TUN device").error();
  if (::ioctl(port.fd_, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) != 0)
    return refused("cannot keep TCP's pieces whole on a TUN device").error();
  RETURN_IF_ERROR(raise_interface(port_interface, options));
  return port;
}

Result<Port> Port::open_veth(const InterfaceOptions& options, int outside, size_t number) {
  const std::string outer = fmt::format("place{}", number);
  RETURN_IF_ERROR(add_veth(port_interface, outer, outside));
  const int inside = ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  if (inside < 0 || ::setns(outside, CLONE_NEWNET) != 0) return refused("cannot go to the switch's namespace").error();
  Port port(::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), virtio_header + ETH_HLEN);
  const auto set_up_outer = [&]() -> Status {
    if (port.fd_ < 0) return refused("cannot open a packet socket");
    InterfaceOptions plain;
    plain.mtu = options.mtu;
    plain.needs_neighbours = false;
    RETURN_IF_ERROR(raise_interface(outer, plain));
    const int yes = 1;
    if (::setsockopt(port.fd_, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof(yes)) != 0)
      return refused("cannot keep TCP's pieces whole on a packet socket");
    RETURN_IF_ERROR(port.map_ring());
    ::setsockopt(port.fd_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof(yes));  // else we would read what we write
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_IP);
    address.sll_ifindex = static_cast<int>(::if_nametoindex(outer.c_str()));
    if (::bind(port.fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
      return refused("cannot bind a packet socket");
    return ok_status();
  };
  const Status outer_status = set_up_outer();
  const bool back = ::setns(inside, CLONE_NEWNET) == 0;
  ::close(inside);
  if (!back) return refused("cannot go back to a place's namespace").error();
  RETURN_IF_ERROR(outer_status);
  InterfaceOptions mine = options;
  mine.needs_neighbours = false;
  RETURN_IF_ERROR(raise_interface(port_interface, mine));
  return port;
}

Status Port::map_ring() {
  const int version = TPACKET_V2;
  if (::setsockopt(fd_, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)) != 0)
    return refused("cannot set a packet socket's version");
  tpacket_req request{};
  request.tp_block_size = frame_size * frames_in_block;
  request.tp_block_nr = blocks;
  request.tp_frame_size = frame_size;
  request.tp_frame_nr = frames;
  if (::setsockopt(fd_, SOL_PACKET, PACKET_RX_RING, &request, sizeof(request)) != 0)
    return refused("cannot make a packet socket's buffer");
  void* mapped = ::mmap(nullptr, frames * frame_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (mapped == MAP_FAILED) return refused("cannot map a packet socket's buffer");
  ring_ = static_cast<std::byte*>(mapped);
  return ok_status();
}

size_t Port::read_ring(std::span<std::byte> room) {
  auto* header = reinterpret_cast<tpacket2_hdr*>(ring_ + next_frame_ * frame_size);
  std::atomic_ref<__u32> status(header->tp_status);
  if ((status.load(std::memory_order_acquire) & TP_STATUS_USER) == 0) return 0;
  const size_t size = std::min<size_t>(header->tp_snaplen + virtio_header, room.size());
  std::memcpy(room.data(), reinterpret_cast<std::byte*>(header) + header->tp_mac - virtio_header, size);
  status.store(TP_STATUS_KERNEL, std::memory_order_release);
  next_frame_ = (next_frame_ + 1) % frames;
  return size;
}

Port::Port(Port&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      ip_offset_(other.ip_offset_),
      ring_(std::exchange(other.ring_, nullptr)),
      next_frame_(other.next_frame_) {}

Port::~Port() {
  if (ring_ != nullptr) ::munmap(ring_, frames * frame_size);
  if (fd_ >= 0) ::close(fd_);
}

size_t Port::read(std::span<std::byte> room) {
  if (ring_ != nullptr) return read_ring(room);
  const ssize_t size = ::read(fd_, room.data(), room.size());
  return size > 0 ? static_cast<size_t>(size) : 0;
}

uint64_t Port::overrun() const {
  tpacket_stats statistics{};
  socklen_t size = sizeof(statistics);
  if (ring_ == nullptr || ::getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &statistics, &size) != 0) return 0;
  return statistics.tp_drops;
}

bool Port::write(std::span<const std::byte> packet) const {
  // A packet socket may have to wait until the last one has been taken in, which happens on this core or another.
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (::write(fd_, packet.data(), packet.size()) == static_cast<ssize_t>(packet.size())) return true;
    if (errno != EAGAIN && errno != ENOBUFS) return false;
    std::this_thread::yield();
  }
  return false;
}

}  // namespace nlsplit::inline emulation

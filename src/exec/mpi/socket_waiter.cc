#include "exec/mpi/socket_waiter.h"

#include <dirent.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace nlsplit::inline exec {
namespace {

constexpr size_t most_events = 16;

struct Address {
  std::array<unsigned char, 16> bytes{};
  bool loopback = false;
};

// False: not an Internet address, or none.
bool read_address(int fd, int (*get)(int, sockaddr*, socklen_t*), Address& address) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (get(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return false;
  if (storage.ss_family == AF_INET) {
    const auto& ip = reinterpret_cast<const sockaddr_in&>(storage).sin_addr;
    std::memcpy(address.bytes.data(), &ip, sizeof(ip));
    address.loopback = address.bytes[0] == 127;
    return true;
  }
  if (storage.ss_family == AF_INET6) {
    const auto& ip = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
    std::memcpy(address.bytes.data(), &ip, sizeof(ip));
    address.loopback = IN6_IS_ADDR_LOOPBACK(&ip);
    return true;
  }
  return false;
}

// A connection that leaves this machine.
bool leads_away(int fd) {
  Address own, peer;
  return read_address(fd, ::getpeername, peer) && read_address(fd, ::getsockname, own) && !peer.loopback &&
         peer.bytes != own.bytes;
}

}  // namespace

Result<SocketWaiter> SocketWaiter::open() {
  SocketWaiter waiter(::epoll_create1(EPOLL_CLOEXEC), ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  epoll_event wake{};
  wake.events = EPOLLIN;
  wake.data.fd = waiter.event_;
  if (waiter.epoll_ < 0 || waiter.event_ < 0 || ::epoll_ctl(waiter.epoll_, EPOLL_CTL_ADD, waiter.event_, &wake) != 0) {
    return io_error(fmt::format("cannot wait for messages: {}", std::strerror(errno)));
  }
  return waiter;
}

SocketWaiter::SocketWaiter(SocketWaiter&& other) noexcept
    : epoll_(std::exchange(other.epoll_, -1)),
      event_(std::exchange(other.event_, -1)),
      sockets_(other.sockets_),
      news_(other.news_) {}

SocketWaiter::~SocketWaiter() {
  if (epoll_ >= 0) ::close(epoll_);
  if (event_ >= 0) ::close(event_);
}

int SocketWaiter::find_sockets(const std::vector<int>& except) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  if (!folder) return 0;
  sockets_ = 0;
  int found = 0;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    int fd = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), fd).ec != std::errc()) continue;
    if (std::find(except.begin(), except.end(), fd) != except.end() || !leads_away(fd)) continue;
    epoll_event news{};
    news.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    news.data.fd = fd;
    const bool is_new = ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &news) == 0;
    if (is_new) ++found;
    if (is_new || errno == EEXIST) ++sockets_;
  }
  return found;
}

SocketWaiter::Woken SocketWaiter::sleep(std::chrono::microseconds longest) {
  if (std::exchange(news_, false)) return Woken::by_socket;
  std::array<epoll_event, most_events> events{};
  constexpr int64_t second = 1'000'000;
  const timespec limit{longest.count() / second, longest.count() % second * 1000};
  int count = ::epoll_pwait2(epoll_, events.data(), events.size(), &limit, nullptr);
  if (count < 0 && errno == ENOSYS) {  // before Linux 5.11: whole milliseconds, rounded up
    count = ::epoll_wait(epoll_, events.data(), events.size(), static_cast<int>((longest.count() + 999) / 1000));
  }
  Woken woken = Woken::by_time;
  for (int e = 0; e < count; ++e) {
    if (events[static_cast<size_t>(e)].data.fd != event_) {
      woken = Woken::by_socket;
      continue;
    }
    uint64_t times = 0;
    [[maybe_unused]] const ssize_t got = ::read(event_, &times, sizeof(times));
    if (woken == Woken::by_time) woken = Woken::by_wake;
  }
  return woken;
}

// The event of wake() stays: it is no edge.
bool SocketWaiter::has_news() {
  std::array<epoll_event, most_events> events{};
  const int count = ::epoll_wait(epoll_, events.data(), events.size(), 0);
  for (int e = 0; e < count; ++e) news_ = news_ || events[static_cast<size_t>(e)].data.fd != event_;
  return news_;
}

void SocketWaiter::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_, &one, sizeof(one));
}

}  // namespace nlsplit::inline exec

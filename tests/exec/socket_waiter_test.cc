#include "exec/mpi/socket_waiter.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>

namespace nlsplit {
namespace {

using Woken = SocketWaiter::Woken;
constexpr int no_namespaces = 77;
constexpr std::chrono::microseconds a_while(2000);

sockaddr_in address_of(const char* text, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, text, &address.sin_addr);
  return address;
}

// Gives the loopback card of this network namespace an address that is not a loopback one.
bool add_address(const char* alias, const char* text) {
  const int card = ::socket(AF_INET, SOCK_DGRAM, 0);
  ifreq request{};
  std::strncpy(request.ifr_name, alias, IFNAMSIZ - 1);
  const sockaddr_in address = address_of(text, 0);
  std::memcpy(&request.ifr_addr, &address, sizeof(address));
  bool fine = ::ioctl(card, SIOCSIFADDR, &request) == 0;
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  fine = fine && ::ioctl(card, SIOCSIFFLAGS, &request) == 0;
  ::close(card);
  return fine;
}

struct Connection {
  int here = -1, there = -1;
};

// Between two "hosts", whose names are addresses of one card.
Connection connect_hosts() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in own = address_of("10.9.0.1", 0), other = address_of("10.9.0.2", 7700);
  Connection made;
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&other), sizeof(other)) != 0 || ::listen(listener, 1) != 0)
    return made;
  made.here = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::bind(made.here, reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0 ||
      ::connect(made.here, reinterpret_cast<const sockaddr*>(&other), sizeof(other)) != 0)
    return made;
  made.there = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  return made;
}

// Runs in a process and a network of its own. The number of what failed, 0 if nothing.
int what_fails() {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return no_namespaces;
  if (!add_address("lo", "127.0.0.1") || !add_address("lo:1", "10.9.0.1") || !add_address("lo:2", "10.9.0.2"))
    return no_namespaces;
  const Connection connection = connect_hosts();
  auto opened = SocketWaiter::open();
  if (connection.there < 0 || !opened) return 1;
  SocketWaiter& waiter = *opened;

  // A connection is new once. That it can take data is news.
  if (waiter.find_sockets({}) != 2) return 2;
  if (waiter.find_sockets({}) != 0) return 3;
  if (!waiter.has_news()) return 4;
  if (waiter.sleep(a_while) != Woken::by_socket) return 5;
  if (waiter.sleep(a_while) != Woken::by_time) return 6;
  if (waiter.has_news()) return 7;

  // What comes after a sleep ended for its time is news, although it is read before anybody asks.
  std::array<char, 8> room{};
  if (::write(connection.here, "message", room.size()) != 8) return 8;
  if (::recv(connection.there, room.data(), room.size(), MSG_WAITALL) != 8) return 9;
  if (!waiter.has_news()) return 10;
  if (waiter.sleep(a_while) != Woken::by_socket) return 11;
  if (waiter.sleep(a_while) != Woken::by_time) return 12;

  // wake() is no news of a socket, and is not lost by asking for some.
  waiter.wake();
  if (waiter.has_news()) return 13;
  if (waiter.sleep(a_while) != Woken::by_wake) return 14;
  return 0;
}

TEST(SocketWaiter, KnowsWhatSocketsToldBetweenSleeps) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(what_fails());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == no_namespaces) GTEST_SKIP() << "no network namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace nlsplit

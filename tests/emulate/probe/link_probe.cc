// Measures a link as any program over TCP meets it.
//
//   link_probe serve                          answers one client, then ends
//   link_probe HOST ROUNDS BYTES              prints "shortest_us TIME median_us TIME bytes_per_s RATE first_s TIME"
//
// shortest, median: round trips of one byte. bytes_per_s: from the first byte sent to the receiver's answer that all
// have come, less the shortest round trip. first_s: the same for the first megabyte on the new connection.
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr const char* port = "4711";
constexpr size_t first_bytes = 1 << 20;

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void send_all(int fd, const void* data, size_t size) {
  for (const char* at = static_cast<const char*>(data); size > 0;) {
    const ssize_t sent = ::send(fd, at, size, MSG_NOSIGNAL);
    if (sent <= 0) fail("send");
    at += sent;
    size -= static_cast<size_t>(sent);
  }
}

// false: the other side is done.
bool receive_all(int fd, void* data, size_t size) {
  for (char* at = static_cast<char*>(data); size > 0;) {
    const ssize_t got = ::recv(fd, at, size, 0);
    if (got < 0) fail("recv");
    if (got == 0) return false;
    at += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

// Each request is a number of bytes, then these bytes; the answer is one byte.
void serve() {
  const int listening = ::socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  ::setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
  if (::bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 || ::listen(listening, 1) != 0)
    fail("listen");
  const int fd = ::accept(listening, nullptr, nullptr);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  std::vector<char> room(1 << 20);
  for (uint64_t size = 0; receive_all(fd, &size, sizeof(size));) {
    while (size > 0) {
      const size_t part = std::min<size_t>(size, room.size());
      if (!receive_all(fd, room.data(), part)) fail("recv");
      size -= part;
    }
    send_all(fd, "!", 1);
  }
}

int connect_to(const char* host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host, port, &hints, &found) != 0) fail(host);
  for (int attempt = 0; attempt < 500; ++attempt) {  // the server may still be starting
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (::connect(fd, found->ai_addr, found->ai_addrlen) == 0) {
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
      ::freeaddrinfo(found);
      return fd;
    }
    ::close(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  fail("connect");
}

double request_s(int fd, const std::vector<char>& data, uint64_t size) {
  const double begin = now_s();
  send_all(fd, &size, sizeof(size));
  send_all(fd, data.data(), size);
  char answer;
  if (!receive_all(fd, &answer, 1)) fail("recv");
  return now_s() - begin;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "serve") == 0) {
    serve();
    return 0;
  }
  if (argc != 4) {
    std::fputs("usage: link_probe serve | link_probe HOST ROUNDS BYTES\n", stderr);
    return 2;
  }
  const int fd = connect_to(argv[1]);
  const auto rounds = static_cast<size_t>(std::atoll(argv[2])), bytes = static_cast<size_t>(std::atoll(argv[3]));
  const std::vector<char> data(std::max(bytes, first_bytes), 'x');
  const double first = request_s(fd, data, first_bytes);
  std::vector<double> times;
  for (size_t r = 0; r < rounds; ++r) times.push_back(request_s(fd, data, 0));
  std::ranges::sort(times);
  const double shortest = times[0], all = request_s(fd, data, bytes);
  std::printf("shortest_us %.1f median_us %.1f bytes_per_s %.0f first_s %.6f\n", shortest * 1e6,
              times[rounds / 2] * 1e6, static_cast<double>(bytes) / (all - shortest), first - shortest);
}

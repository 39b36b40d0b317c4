// A client that says exactly what a test wants, over a socket of its own.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace nlsplit {

class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "nobody listens");
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) {
        broken_ = true;
        return;
      }
      text.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // What comes until `end` is there, the other side closes, or time is up.
  std::string receive(std::string_view end, double seconds = 20) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (end.empty() || got_.find(end) == std::string::npos) {
      const auto left = std::chrono::duration<double, std::milli>(until - std::chrono::steady_clock::now()).count();
      pollfd one{socket_, POLLIN, 0};
      if (left <= 0 || ::poll(&one, 1, static_cast<int>(left) + 1) <= 0) break;
      char room[4096];
      const ssize_t count = ::recv(socket_, room, sizeof room, 0);
      if (count <= 0) {
        closed_ = true;
        broken_ = broken_ || count < 0;
        break;
      }
      got_.append(room, static_cast<size_t>(count));
    }
    return std::exchange(got_, {});
  }
  bool closed() const { return closed_; }  // by the other side, as far as was received
  bool broken() const { return broken_; }  // the connection was reset

 private:
  int socket_;
  std::string got_;
  bool closed_ = false, broken_ = false;
};

inline std::string post(std::string_view path, std::string_view body, std::string_view headers = "") {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(headers) +
         "Content-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + std::string(body);
}
inline std::string get(std::string_view path, std::string_view headers = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(headers) +
         "Connection: close\r\n\r\n";
}

}  // namespace nlsplit

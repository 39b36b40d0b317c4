// Lines of text over TCP between processes that know each other's address and token. Linux; IPv4. Nothing here blocks
// but connect_to() and wait_line().
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nlsplit {

using Deadline = std::chrono::steady_clock::time_point;

inline std::chrono::steady_clock::duration of_seconds(double s) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(s));
}

// A descriptor that is closed with this value.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_;
};

struct Listener {
  Socket socket;  // not open: the system refused, `errno` says why
  uint16_t port = 0;
};
Listener listen_anywhere();
Socket accept_until(const Socket& listener, Deadline deadline);

// Of this machine's interfaces that are up, loopback first. `networks`: only of these, if there are any of them and
// apart from loopback: "eth0,10.0.0.0/24".
std::vector<std::string> own_addresses(const std::string& networks = "");
// Not open: refused, unreachable, or too slow.
Socket connect_to(const std::string& address, uint16_t port, Deadline deadline);

class LineSocket {
 public:
  explicit LineSocket(Socket socket = Socket()) : socket_(std::move(socket)) {}
  int fd() const { return socket_.fd(); }
  bool open() const { return socket_.open(); }

  // Never waits. A line that finds no room is dropped: the other side has not read for a long time.
  void send(const std::string& line);
  // What has arrived. `closed` becomes true at the end of the stream or after an error, once all lines are taken.
  std::vector<std::string> receive(bool& closed);
  std::optional<std::string> wait_line(Deadline deadline);

 private:
  Socket socket_;
  std::string buffer_;
  bool broken_ = false;  // half a line was sent
};

}  // namespace nlsplit

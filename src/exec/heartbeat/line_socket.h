// Lines of text over TCP between processes that know each other's address. Linux; IPv4. Nothing here blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nlsplit::inline exec {

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
Socket accept_now(const Socket& listener);  // not open: no connection waits, or `errno` says why

// Of this machine's interfaces that are up, loopback first. `networks`: only of these, if there are any of them and
// apart from loopback: "eth0,10.0.0.0/24".
std::vector<std::string> own_addresses(const std::string& networks = "");
// Not open: it fails at once. Once it is writable, is_connected() says whether it was not refused, unreachable or too
// slow.
Socket begin_to_connect(const std::string& address, uint16_t port);
bool is_connected(int fd);

class LineSocket {
 public:
  explicit LineSocket(Socket socket = Socket()) : socket_(std::move(socket)) {}
  int fd() const { return socket_.fd(); }
  bool open() const { return socket_.open(); }

  // Never waits. A line that finds no room is dropped: the other side has not read for a long time.
  void send(const std::string& line);
  // What has arrived, without the ends of the lines. `closed` becomes true at the end of the stream, after an error, or
  // at a line longer than `longest`; the lines before are taken.
  std::vector<std::string> receive(size_t longest, bool& closed);

 private:
  Socket socket_;
  std::string buffer_;
  bool broken_ = false;  // half a line was sent
};

}  // namespace nlsplit::inline exec

#include "exec/heartbeat/line_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <sstream>

namespace nlsplit::inline exec {
namespace {

// Small messages at once.
void no_delay(int fd) {
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// "eth0" or "10.0.0.0/24", one of several with commas between them.
bool is_among(const std::string& networks, const std::string& interface, in_addr address) {
  std::istringstream words(networks);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == interface) return true;
    const size_t slash = word.find('/');
    if (slash == std::string::npos) continue;
    in_addr network{};
    int bits = -1;
    const char* end = word.data() + word.size();
    const auto [rest, failure] = std::from_chars(word.data() + slash + 1, end, bits);
    if (failure != std::errc() || rest != end || bits < 0 || bits > 32) continue;
    if (::inet_pton(AF_INET, word.substr(0, slash).c_str(), &network) != 1) continue;
    const uint32_t mask = bits == 0 ? 0 : ~uint32_t{0} << (32 - bits);
    if (((ntohl(network.s_addr) ^ ntohl(address.s_addr)) & mask) == 0) return true;
  }
  return false;
}

constexpr int pieces_at_once = 16;
constexpr int flags = SOCK_NONBLOCK | SOCK_CLOEXEC;

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Listener listen_anywhere() {
  Listener listener{Socket(::socket(AF_INET, SOCK_STREAM | flags, 0)), 0};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  const int fd = listener.socket.fd();
  if (fd < 0 || ::bind(fd, any, size) != 0 || ::listen(fd, SOMAXCONN) != 0 || ::getsockname(fd, any, &size) != 0) {
    const int why = errno;
    listener.socket = Socket();
    errno = why;
    return listener;
  }
  listener.port = ntohs(address.sin_port);
  return listener;
}

Socket accept_now(const Socket& listener) {
  Socket socket(::accept4(listener.fd(), nullptr, nullptr, flags));
  if (socket.open()) no_delay(socket.fd());
  return socket;
}

std::vector<std::string> own_addresses(const std::string& networks) {
  std::vector<std::string> loopback, wanted, others;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr == nullptr || it->ifa_addr->sa_family != AF_INET || (it->ifa_flags & IFF_UP) == 0) continue;
    char text[INET_ADDRSTRLEN];
    const in_addr address = reinterpret_cast<const sockaddr_in*>(it->ifa_addr)->sin_addr;
    if (::inet_ntop(AF_INET, &address, text, sizeof(text)) == nullptr) continue;
    const bool is_loopback = (it->ifa_flags & IFF_LOOPBACK) != 0;
    (is_loopback ? loopback : is_among(networks, it->ifa_name, address) ? wanted : others).emplace_back(text);
  }
  ::freeifaddrs(list);
  const std::vector<std::string>& rest = wanted.empty() ? others : wanted;
  loopback.insert(loopback.end(), rest.begin(), rest.end());
  return loopback;
}

Socket begin_to_connect(const std::string& address, uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  if (::inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) return Socket();
  Socket socket(::socket(AF_INET, SOCK_STREAM | flags, 0));
  if (!socket.open()) return socket;
  no_delay(socket.fd());
  if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0 && errno != EINPROGRESS)
    return Socket();
  return socket;
}

bool is_connected(int fd) {
  int failure = 0;
  socklen_t size = sizeof(failure);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) == 0 && failure == 0;
}

void LineSocket::send(const std::string& line) {
  if (!open() || broken_) return;
  const std::string text = line + "\n";
  const ssize_t sent = ::send(fd(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  broken_ = sent > 0 && static_cast<size_t>(sent) < text.size();
}

std::vector<std::string> LineSocket::receive(size_t longest, bool& closed) {
  std::vector<std::string> lines;
  // However much is sent, so much is taken at once; of it never more than a line and a piece is kept.
  for (int pieces = 0; pieces < pieces_at_once; ++pieces) {
    char piece[4096];
    const ssize_t count = ::recv(fd(), piece, sizeof(piece), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      closed = closed || count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
      return lines;
    }
    buffer_.append(piece, static_cast<size_t>(count));
    size_t begin = 0;
    for (size_t end; (end = buffer_.find('\n', begin)) != std::string::npos && end - begin <= longest; begin = end + 1)
      lines.push_back(buffer_.substr(begin, end - begin));
    buffer_.erase(0, begin);
    if (buffer_.size() <= longest) continue;
    closed = true;
    return lines;
  }
  return lines;
}

}  // namespace nlsplit::inline exec

// SocketWaiter: sleeps until something comes in over this process' connections to other hosts, or there is room again
// to send more, or wake().
//
// Open MPI over TCP makes progress only inside its calls, and has no call that waits without spinning. So its sockets
// are found among the open files and watched (epoll, edge-triggered: only new data ends a sleep, not data that MPI has
// not read yet). A rank then computes undisturbed while nothing arrives, and reacts at once when something does.
#pragma once

#include <chrono>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline exec {

class SocketWaiter {
 public:
  enum class Woken : uint8_t { by_socket, by_wake, by_time };

  // Error: no more files can be opened.
  static Result<SocketWaiter> open();
  SocketWaiter(SocketWaiter&& other) noexcept;
  SocketWaiter& operator=(SocketWaiter&&) = delete;
  ~SocketWaiter();

  // Connections appear when the first message goes somewhere. Reads a folder: some 20 us. `except`: not MPI's. Says how
  // many are new.
  int find_sockets(const std::vector<int>& except);
  bool has_sockets() const { return sockets_ > 0; }

  Woken sleep(std::chrono::microseconds longest);
  void wake() const;  // any thread; one that comes before sleep() is not lost
  // Whether a socket had new data since the last sleep. If so, the next sleep ends at once.
  bool has_news();

 private:
  SocketWaiter(int epoll, int event) : epoll_(epoll), event_(event) {}

  int epoll_, event_;
  int sockets_ = 0;
  bool news_ = false;  // reported by has_news(): MPI may not have read all of it
};

}  // namespace nlsplit::inline exec

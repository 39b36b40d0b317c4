// StartWatch: says what a start waits for that takes more than some seconds, once: MPI_Init, a rank, or the system's
// answer to how this host's name is resolved, which Open MPI asks for several times.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace nlsplit::inline exec {

class StartWatch {
 public:
  using Notice = std::function<void(const std::string&)>;
  // Begins. `rank`: 0 speaks of what all wait for; `is_first_on_host`: speaks of the host.
  StartWatch(int rank, bool is_first_on_host, Notice notice);
  ~StartWatch();

  // Returns when the system has answered. Before MPI_Init, and in the same thread: MPI_Init sets environment variables,
  // getaddrinfo reads them, and a process that does both at once may crash.
  void resolve_name();
  void mpi_has_started();
  // Of what is missing now; said only if it is time, and once.
  void say_what_is_missing(const std::string& missing) const;
  // "; the name of this host, 'a', took 8.2 s to resolve", for messages; empty if it did not take long.
  std::string slow_name() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread that speaks may outlive this
};

}  // namespace nlsplit::inline exec

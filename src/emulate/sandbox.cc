// The outer process: makes the namespaces, starts the inner one (sandbox_inside.cc), passes signals on, waits.
#include "emulate/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "emulate/sandbox_inside.h"

namespace nlsplit::inline emulation {
namespace {

constexpr int patience_s = 5;  // from asking the command to end to killing it

constexpr const char* loopback_hint = "without that, --loopback runs the same on this machine's loopback, unshaped";

Status write_text(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return io_error(fmt::format("{}: {}", path, std::strerror(errno)));
  const bool whole = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int failure = errno;
  ::close(fd);
  if (!whole) return io_error(fmt::format("{}: {}", path, std::strerror(failure)));
  return ok_status();
}

// As root at once, else as root of a user namespace of our own.
Status enter_namespaces() {
  constexpr int kinds = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC;
  if (::unshare(kinds) == 0) return ok_status();
  const uid_t user = ::getuid();
  const gid_t group = ::getgid();
  if (::unshare(kinds | CLONE_NEWUSER) != 0) {
    return unsupported(fmt::format(
        "this machine does not let us make network namespaces ({}): that takes root, or user namespaces (sysctl "
        "kernel.unprivileged_userns_clone=1 or user.max_user_namespaces, in a container the right to unshare); {}",
        std::strerror(errno), loopback_hint));
  }
  RETURN_IF_ERROR(write_text("/proc/self/setgroups", "deny"));
  RETURN_IF_ERROR(write_text("/proc/self/uid_map", fmt::format("0 {} 1", user)));
  return write_text("/proc/self/gid_map", fmt::format("0 {} 1", group));
}

double seconds_since_boot() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Waits for the inner process; signals to us are requests to end.
int wait_for(pid_t inside, const SandboxOptions& options, const sigset_t& signals) {
  std::optional<double> deadline;
  int asked = 0, status = 0;
  while (::waitpid(inside, &status, WNOHANG) == 0) {
    siginfo_t info{};
    const timespec tick{deadline ? 0 : 3600, 100'000'000};
    const int signal = ::sigtimedwait(&signals, &info, &tick);
    if (signal > 0 && signal != SIGCHLD) {
      // From a terminal everyone has got it. A signal by kill(1) is for us alone.
      const bool from_terminal = info.si_code == SI_KERNEL;
      if (!from_terminal) ::kill(inside, signal);
      const bool shall_end = !from_terminal || signal == SIGHUP || (signal == SIGINT && options.ctrl_c_ends);
      if (shall_end && !deadline) {
        deadline = seconds_since_boot() + patience_s;
        asked = signal;
      }
    }
    if (deadline && seconds_since_boot() > *deadline) {
      std::fprintf(stderr, "%s has not ended within %d s: killed\n", options.command[0].c_str(), patience_s);
      ::kill(inside, SIGKILL);
      ::waitpid(inside, &status, 0);
      return 128 + asked;
    }
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Status can_sandbox() {
  int said[2];
  if (::pipe2(said, O_CLOEXEC) != 0) return io_error(fmt::format("pipe: {}", std::strerror(errno)));
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return io_error(fmt::format("fork: {}", std::strerror(errno)));
  if (child == 0) {
    const Status entered = enter_namespaces();
    const std::string why = entered.ok() ? "" : entered.error().message;
    ::_exit(::write(said[1], why.data(), why.size()) == static_cast<ssize_t>(why.size()) && entered.ok() ? 0 : 1);
  }
  ::close(said[1]);
  std::string why;
  char some[256];
  for (ssize_t size; (size = ::read(said[0], some, sizeof(some))) > 0;) why.append(some, static_cast<size_t>(size));
  ::close(said[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return ok_status();
  return unsupported(why);
}

Result<int> run_sandbox(const EmulatedNetwork& network, const SandboxOptions& options) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&signals, signal);
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  std::error_code failure;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", failure);  // inside it names another path
  if (failure) return io_error(fmt::format("/proc/self/exe: {}", failure.message()));
  RETURN_IF_ERROR(enter_namespaces());
  int alive[2];  // its writing end closes when we are gone
  if (::pipe2(alive, O_CLOEXEC | O_NONBLOCK) != 0) return io_error(fmt::format("pipe: {}", std::strerror(errno)));
  std::fflush(nullptr);
  const pid_t inside = ::fork();
  if (inside < 0) return io_error(fmt::format("fork: {}", std::strerror(errno)));
  if (inside == 0) {
    ::close(alive[1]);
    live_inside(network, options, program, before, alive[0]);
  }
  ::close(alive[0]);
  return wait_for(inside, options, signals);
}

}  // namespace nlsplit::inline emulation

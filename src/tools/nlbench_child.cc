#include "tools/nlbench_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "tools/terminal.h"

namespace nlsplit {
namespace fs = std::filesystem;

Result<TemporaryFolder> TemporaryFolder::create() {
  std::error_code failure;
  const fs::path base = fs::temp_directory_path(failure);
  if (failure) return io_error("no folder for temporary files: " + failure.message());
  std::string path = (base / "nlbench-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr)
    return io_error(fmt::format("cannot create {}: {}", path, std::strerror(errno)));
  TemporaryFolder folder;
  folder.path_ = path;
  return folder;
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

TemporaryFolder& TemporaryFolder::operator=(TemporaryFolder&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

TemporaryFolder::~TemporaryFolder() { remove(); }

void TemporaryFolder::remove() {
  std::error_code failure;
  if (!path_.empty()) fs::remove_all(path_, failure);
  path_.clear();
}

std::string own_program() {
  std::error_code failure;
  return fs::read_symlink("/proc/self/exe", failure).string();
}

std::string neighbour(const std::string& name) { return (fs::path(own_program()).parent_path() / name).string(); }

namespace {

// Keeps what the child says until it says no more, or has been killed for not ending after an error.
template <class PassOn>
void listen(int fd, pid_t child, const ChildOptions& options, const PassOn& pass_on, std::string& said) {
  using Clock = std::chrono::steady_clock;
  const auto after = [](double s) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
  };
  constexpr size_t kept = 4096;
  constexpr std::chrono::seconds to_obey(5);  // from being asked to end to being killed
  constexpr Clock::time_point never = Clock::time_point::max();
  Clock::time_point start_by = options.sign_of_start.empty() ? never : after(options.start_s);
  Clock::time_point ask_at = never, kill_at = never;
  for (char buffer[1024];;) {
    pollfd item{fd, POLLIN, 0};
    const int ready = ::poll(&item, 1, 500);
    pass_on();
    const Clock::time_point now = Clock::now();
    if (now > start_by) {
      start_by = never;
      std::error_code failure;
      if (ask_at == never && !fs::exists(options.sign_of_start, failure)) {
        said += fmt::format("error: its ranks had not started after {} s: can all hosts be reached?", options.start_s);
        ask_at = now;
      }
    }
    if (now > kill_at) {
      ::kill(child, SIGKILL);
      break;  // who else holds its stderr may go on
    }
    if (now >= ask_at && kill_at == never) {
      ::kill(child, SIGTERM);
      kill_at = now + to_obey;
    }
    if (ready <= 0) continue;
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    said.append(buffer, static_cast<size_t>(n));
    if (options.grace_s > 0 && ask_at == never && said.find("error: ") != std::string::npos)
      ask_at = after(options.grace_s);
    if (said.size() > 2 * kept) said.erase(0, said.size() - kept);
  }
  if (said.size() > kept) said.erase(0, said.size() - kept);
}

// Until it has ended. Error: it passed a limit, and is gone now.
template <class PassOn>
Status wait_for(pid_t child, const std::string& name, const ChildLimits& limits, const PassOn& pass_on, int& status) {
  constexpr std::chrono::milliseconds shortest(1), longest(100);
  const bool limited = limits.idle_s > 0 || limits.processor_s > 0 || limits.got_on;
  ChildWatch watch(child, limits);
  for (std::chrono::milliseconds rest = shortest;; rest = std::min(longest, rest * 2)) {
    const pid_t ended = ::waitpid(child, &status, limited ? WNOHANG : 0);
    if (ended == child) return ok_status();
    if (ended < 0 && errno != EINTR) return io_error(fmt::format("cannot wait for {}: {}", name, std::strerror(errno)));
    pass_on();
    if (!limited) continue;
    std::this_thread::sleep_for(rest);
    if (rest < longest) continue;
    if (const Status gets_on = watch.look(); !gets_on.ok()) {
      ::kill(child, SIGKILL);
      (void)::waitpid(child, &status, 0);
      return lost(fmt::format("{} was ended: {}", name, gets_on.error().message));
    }
  }
}

}  // namespace

Result<ChildEnd> run_child(const std::vector<std::string>& words, const ChildOptions& options) {
  const bool quietly = options.quietly;
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  int said[2] = {-1, -1};
  if (quietly && ::pipe2(said, O_CLOEXEC) != 0) return io_error(fmt::format("no pipe: {}", std::strerror(errno)));

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  if (quietly) posix_spawn_file_actions_adddup2(&actions, said[1], STDERR_FILENO);
  pid_t child = 0;
  const int refused = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (quietly) ::close(said[1]);
  if (refused != 0) {
    if (quietly) ::close(said[0]);
    return io_error(fmt::format("cannot start {}: {}", words[0], std::strerror(refused)));
  }

  ChildEnd end;
  bool told = false;
  const auto pass_on = [&] {
    if (interrupted() && !std::exchange(told, true)) ::kill(child, SIGINT);
  };
  if (quietly) {
    listen(said[0], child, options, pass_on, end.said);
    ::close(said[0]);
  }
  int status = 0;
  RETURN_IF_ERROR(wait_for(child, words[0], options.limits, pass_on, status));
  end.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

Status run_nlsim(const std::string& nlsim, const std::vector<std::string>& arguments, const ChildLimits& limits) {
  std::vector<std::string> words = {nlsim.empty() ? neighbour("nlsim") : nlsim};
  words.insert(words.end(), arguments.begin(), arguments.end());
  ChildOptions options;
  options.limits = limits;
  auto end = run_child(words, options);
  if (!end) {
    Error error = end.error();
    if (error.kind == ErrorKind::lost)
      error.message += " (--prepare-limit, --planning-limit)";
    else
      error.message += " (--nlsim PATH says where it is; a folder saved by nlsim needs none)";
    return error;
  }
  if (end->code == 0) return ok_status();
  if (end->code > 128) return failed(fmt::format("nlsim was ended by signal {}", end->code - 128));
  const std::string why = fmt::format("nlsim {} failed with exit code {}; what it said stands above",
                                      arguments.empty() ? "" : arguments[0], end->code);
  return end->code == 2 ? invalid_input(why) : failed(why);
}

}  // namespace nlsplit

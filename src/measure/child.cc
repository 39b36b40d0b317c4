#include "measure/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/child_process.h"
#include "base/descriptor.h"
#include "base/interrupts.h"
#include "base/which_mpi.h"

namespace nlsplit::inline measure {
namespace fs = std::filesystem;

std::string own_program() {
  std::error_code failure;
  return fs::read_symlink("/proc/self/exe", failure).string();
}

std::string neighbour(const std::string& name) { return (fs::path(own_program()).parent_path() / name).string(); }

std::string started_line(const std::string& token) { return fmt::format("nlbench[{}] started\n", token); }
std::string ended_line(const std::string& token, int code) {
  return fmt::format("nlbench[{}] ended with exit code {}\n", token, code);
}

namespace {

using Clock = std::chrono::steady_clock;
constexpr Clock::time_point never = Clock::time_point::max();
constexpr std::chrono::seconds to_obey(2);  // from being asked to end to being killed

Clock::time_point after(double s) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

// A child and what it said. One thread looks at both in turn.
class Watched {
 public:
  Watched(pid_t child, Descriptor words, const ChildOptions& options)
      : child_(child), words_(std::move(words)), options_(options), watch_(child, options.limits) {
    if (!options.token.empty()) start_by_ = after(options.start_s);
  }

  Result<ChildEnd> wait(const std::string& name) {
    // Somebody else may hold its stderr when it has ended.
    constexpr std::chrono::milliseconds last_words(500);
    Clock::time_point heard_until = never;
    while (words_.get() >= 0 || !ended_) {
      listen();
      if (!ended_ && ::waitpid(child_, &status_, WNOHANG) == child_) {
        ended_ = true;
        heard_until = Clock::now() + last_words;
      }
      if (ended_ && Clock::now() > heard_until) break;
      if (ended_) continue;
      obey_clock();
      if (const Status gets_on = look(); !gets_on.ok()) {
        ::kill(child_, SIGKILL);
        (void)::waitpid(child_, &status_, 0);
        return lost(fmt::format("{} was ended: {}", name, gets_on.error().message));
      }
    }
    const int code = WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
    return ChildEnd{built_for_mpich() ? code_of_mpich(code) : code, without_token_lines()};
  }

 private:
  // Rests until it says something, for a moment at most.
  void listen() {
    constexpr int with_words_ms = 100, without_words_ms = 10;
    pollfd item{words_.get(), POLLIN, 0};
    if (::poll(&item, 1, words_.get() >= 0 ? with_words_ms : without_words_ms) <= 0) return;
    char buffer[1024];
    const ssize_t n = ::read(words_.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) return;
    if (n <= 0) {
      words_ = Descriptor();
      return;
    }
    said_.append(buffer, static_cast<size_t>(n));
    if (!options_.token.empty()) {
      const auto seen = [this](const std::string& line) { return said_.find(line) != std::string::npos; };
      if (seen(started_line(options_.token))) start_by_ = never;
      if (ask_at_ == never && seen(fmt::format("nlbench[{}] ended", options_.token))) ask_at_ = after(options_.grace_s);
    }
    constexpr size_t kept = 4096;
    if (said_.size() > 2 * kept) said_.erase(0, said_.size() - kept);
  }

  // Ten times a second at most.
  Status look() {
    constexpr std::chrono::milliseconds rest(100);
    const bool limited = options_.limits.idle_s > 0 || options_.limits.processor_s > 0 || options_.limits.looked;
    if (!limited || Clock::now() < look_at_) return ok_status();
    look_at_ = Clock::now() + rest;
    return watch_.look();
  }

  void obey_clock() {
    const Clock::time_point now = Clock::now();
    if (interrupted() && !std::exchange(told_, true)) {
      ::kill(child_, options_.on_interrupt);
      kill_at_ = std::min(kill_at_, now + to_obey);
    }
    if (now > start_by_) {
      start_by_ = never;
      said_ += fmt::format("error: its ranks had not started after {} s: can all hosts be reached?", options_.start_s);
      ask_at_ = std::min(ask_at_, now);
    }
    if (now >= ask_at_) {
      ask_at_ = never;
      start_by_ = never;
      ::kill(child_, SIGTERM);
      kill_at_ = std::min(kill_at_, now + 2 * to_obey);
    }
    if (now > kill_at_) {
      kill_at_ = never;
      ::kill(child_, SIGKILL);
    }
  }

  // MPICH's launcher makes one number of all codes and signals. What a rank said counts; where that was dropped, a rank
  // was killed.
  int code_of_mpich(int code) const {
    const int of_lost = exit_code(lost(""));
    return code == 0 || options_.token.empty() ? code : code_of_ranks().value_or(code <= of_lost ? code : of_lost);
  }

  // None: nobody said it.
  std::optional<int> code_of_ranks() const {
    const std::string mark = fmt::format("nlbench[{}] ended with exit code ", options_.token);
    const size_t at = said_.rfind(mark);
    int code = 0;
    if (at == std::string::npos) return std::nullopt;
    const char* const begin = said_.data() + at + mark.size();
    return std::from_chars(begin, said_.data() + said_.size(), code).ec == std::errc() ? std::optional(code)
                                                                                       : std::nullopt;
  }

  std::string without_token_lines() const {
    std::string text;
    const std::string mark = fmt::format("nlbench[{}] ", options_.token);
    for (size_t at = 0; at < said_.size();) {
      const size_t end = std::min(said_.find('\n', at), said_.size() - 1) + 1;
      const std::string line = said_.substr(at, end - at);
      if (options_.token.empty() || line.find(mark) == std::string::npos) text += line;
      at = end;
    }
    return text;
  }

  pid_t child_;
  Descriptor words_;  // none: it has closed them
  const ChildOptions& options_;
  ChildWatch watch_;
  Clock::time_point look_at_ = Clock::now() + std::chrono::milliseconds(100);
  std::string said_;
  Clock::time_point start_by_ = never, ask_at_ = never, kill_at_ = never;
  bool told_ = false, ended_ = false;
  int status_ = 0;
};

}  // namespace

Result<ChildEnd> run_child(const std::vector<std::string>& words, const ChildOptions& options) {
  std::array<int, 2> said = {-1, -1};
  if (options.quietly && ::pipe2(said.data(), O_CLOEXEC) != 0)
    return io_error(fmt::format("no pipe: {}", std::strerror(errno)));
  Descriptor heard(said[0]), told(said[1]);
  ASSIGN_OR_RETURN(const pid_t child, start_child(words, {no_file, no_file, told.get(), options.on_parents_death}));
  told = Descriptor();
  return Watched(child, std::move(heard), options).wait(words[0]);
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
  if (end->code > 128) return lost("nlsim was ended by " + describe_signal(end->code - 128));
  const std::string why = fmt::format("nlsim {} failed with exit code {}; its messages are above",
                                      arguments.empty() ? "" : arguments[0], end->code);
  return end->code == 2 ? invalid_input(why) : end->code == 3 ? lost(why) : failed(why);
}

}  // namespace nlsplit::inline measure

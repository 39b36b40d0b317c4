#include "sim/simgrid/platform.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <utility>

#include "base/child_process.h"
#include "base/file.h"
#include "sim/simgrid/platform_answer.h"
#include "sim/simgrid/platform_child.h"

namespace nlsplit::inline sim {
namespace {

constexpr size_t max_used_hosts = 1000;                          // a million routes
constexpr rlim_t max_cpu = 60;                                   // s: for the child, whatever the file says
[[maybe_unused]] constexpr rlim_t max_memory = rlim_t{8} << 30;  // bytes; sanitizers reserve more

// A file without a name, which goes with its last descriptor.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : descriptor_(::memfd_create(name, MFD_CLOEXEC)) {}
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int descriptor() const { return descriptor_; }
  std::string content() const {
    std::string all;
    std::array<char, 65536> part{};
    ::lseek(descriptor_, 0, SEEK_SET);
    for (ssize_t got = 0; (got = ::read(descriptor_, part.data(), part.size())) > 0;)
      all.append(part.data(), static_cast<size_t>(got));
    return all;
  }

 private:
  int descriptor_;
};

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(descriptor, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(done));
  }
  return true;
}

void limit(decltype(RLIMIT_CPU) what, rlim_t most) {
  rlimit now{};
  ::getrlimit(what, &now);
  now.rlim_cur = std::min(now.rlim_cur, most);
  ::setrlimit(what, &now);
}

enum : char { answer_follows = 'a', invalid_follows = 'i', unsupported_follows = 'u' };

// Never returns, and runs none of the parent's exit handlers.
[[noreturn]] void child(const std::string& path, const std::vector<std::string>& hosts, bool loops, int answer,
                        int words, ProbeStage& stage) {
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(words, STDERR_FILENO);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, max_cpu);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  limit(RLIMIT_AS, max_memory);
#endif
  const auto found = probe_platform(path, hosts, loops, stage);
  std::string bytes(1, answer_follows);
  if (found.ok()) {
    bytes += *found;
  } else {
    bytes[0] = found.error().kind == ErrorKind::unsupported ? unsupported_follows : invalid_follows;
    bytes += found.error().message;
  }
  ::_exit(write_all(answer, bytes) ? 0 : 1);
}

// What SimGrid said before it died, without its backtrace, on one line.
std::string last_words(std::string words) {
  words.resize(std::min(words.find("Backtrace"), words.size()));
  constexpr size_t most = 1000;
  words.resize(std::min(words.size(), most));
  while (!words.empty() && words.back() == '\n') words.pop_back();
  std::ranges::replace(words, '\n', ' ');
  return words;
}

// "Not a valid model!" is all that SimGrid says of a zone's routing that it does not know.
std::string routings_in(const std::string& text) {
  std::set<std::string> found;
  constexpr std::string_view attribute = "routing=\"";
  for (size_t at = text.find(attribute); at != std::string::npos; at = text.find(attribute, at + 1)) {
    const size_t begin = at + attribute.size(), end = text.find('"', begin);
    if (end != std::string::npos && end - begin < 64) found.insert(text.substr(begin, end - begin));
  }
  return fmt::format("'{}'", fmt::join(found, "', '"));
}

Error death(const std::string& path, const std::string& text, const std::vector<std::string>& hosts,
            const ProbeStage& stage, int status, const std::string& said) {
  const std::string words = last_words(said);
  const std::string how = WIFSIGNALED(status)
                              ? fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)))
                              : fmt::format("exit status {}", WEXITSTATUS(status));
  const auto known = [&](int number) { return number >= 0 && static_cast<size_t>(number) < hosts.size(); };
  if (known(stage.from) && known(stage.to)) {
    return invalid_input(
        fmt::format("{}: no route from host '{}' to host '{}': SimGrid died with {}{}{} when asked "
                    "for one",
                    path, hosts[static_cast<size_t>(stage.from)], hosts[static_cast<size_t>(stage.to)], how,
                    words.empty() ? "" : ", saying: ", words));
  }
  if (words == "Not a valid model!") {
    return invalid_input(
        fmt::format("{}: SimGrid does not know the routing of a zone; the file has {}", path, routings_in(text)));
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) != SIGABRT)
    return invalid_input(
        fmt::format("{}: SimGrid died of this file with {}{}{}", path, how, words.empty() ? "" : ": ", words));
  return invalid_input(fmt::format("{}: {}", path, words.empty() ? "SimGrid ended with " + how : words));
}

// What would change during a run is not simulated, so it must not be there.
Status check_text(const std::string& path, std::string text) {
  for (size_t at = text.find("<!--"); at != std::string::npos; at = text.find("<!--", at)) {
    const size_t end = std::min(text.find("-->", at), text.size());
    std::replace_if(
        text.begin() + static_cast<std::ptrdiff_t>(at), text.begin() + static_cast<std::ptrdiff_t>(end),
        [](char c) { return c != '\n'; }, ' ');
  }
  for (const char* word :
       {"bandwidth_file", "latency_file", "state_file", "availability_file", "<trace_connect", "<trace"}) {
    const size_t at = text.find(word);
    if (at == std::string::npos) continue;
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    return unsupported(fmt::format("{}:{}: '{}': what changes during a run is not supported", path, line, word));
  }
  return ok_status();
}

Result<std::string> probe(const std::string& path, const std::vector<std::string>& hosts, bool loops = true) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  RETURN_IF_ERROR(check_text(path, text));
  const MemoryFile answer("platform"), words("words");
  void* shared = ::mmap(nullptr, sizeof(ProbeStage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (answer.descriptor() < 0 || words.descriptor() < 0 || shared == MAP_FAILED)
    return io_error(fmt::format("no memory to share with the process that reads a platform: {}", std::strerror(errno)));
  auto* stage = new (shared) ProbeStage;
  std::fflush(nullptr);  // else the child might write what is still in our buffers a second time
  const pid_t parent = ::getpid(), process = ::fork();
  if (process == 0) die_with(parent);
  if (process == 0) child(path, hosts, loops, answer.descriptor(), words.descriptor(), *stage);
  const int fork_errno = errno;
  int status = 0;
  while (process > 0 && ::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  const ProbeStage reached = *stage;
  ::munmap(shared, sizeof(ProbeStage));
  if (process < 0) return io_error(fmt::format("no child process to read a platform: {}", std::strerror(fork_errno)));
  const bool died = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  if (died && loops && reached.from >= 0 && reached.from == reached.to) return probe(path, hosts, false);
  if (died) return death(path, text, hosts, reached, status, words.content());
  std::string bytes = answer.content();
  if (bytes.empty()) return failed("the process that read the platform gave no answer");
  const char kind = bytes[0];
  bytes.erase(0, 1);
  if (kind == answer_follows) return bytes;
  const std::string message = bytes.starts_with(path) ? bytes : fmt::format("{}: {}", path, bytes);
  return kind == unsupported_follows ? unsupported(message) : invalid_input(message);
}

// "node-2" before "node-10".
bool by_number(const std::string& a, const std::string& b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      size_t x = i, y = j;
      while (x < a.size() && digit(a[x])) ++x;
      while (y < b.size() && digit(b[y])) ++y;
      while (i + 1 < x && a[i] == '0') ++i;
      while (j + 1 < y && b[j] == '0') ++j;
      if (x - i != y - j) return x - i < y - j;
      if (const int order = a.compare(i, x - i, b, j, y - j); order != 0) return order < 0;
      i = x;
      j = y;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  return a.size() - i != b.size() - j ? a.size() - i < b.size() - j : a < b;
}

Result<std::vector<std::string>> read_hosts(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, probe(path, {}));
  ASSIGN_OR_RETURN(std::vector<std::string> names, decode_names(bytes));
  std::ranges::sort(names, by_number);
  return names;
}

Result<Platform> read_routes(const std::string& path, const std::vector<std::string>& hosts) {
  if (hosts.empty()) return Platform{{}, {0}, {}};
  if (hosts.size() > max_used_hosts) {
    return invalid_input(
        fmt::format("{}: {} of its hosts are used; at most {} can be", path, hosts.size(), max_used_hosts));
  }
  ASSIGN_OR_RETURN(const std::string bytes, probe(path, hosts));
  return decode_platform(bytes, hosts.size());
}

}  // namespace

PlatformReader simgrid_platforms() { return {read_hosts, read_routes}; }

}  // namespace nlsplit::inline sim

#include "base/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <system_error>

#include "base/descriptor.h"

namespace nlsplit::inline base {
namespace {

constexpr int refused = 127;

Error cannot_start(const std::vector<std::string>& words, int code) {
  return io_error(fmt::format("cannot start {}: {}", words[0], std::generic_category().message(code)));
}

// In the child: nothing here allocates. false, with errno: it cannot be done.
bool put(int file, int as) {
  if (file == -1) return true;
  if (file == no_file) file = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  return file >= 0 && ::dup2(file, as) >= 0;
}

[[noreturn]] void become(char* const* argv, const ChildFiles& files, int tell) {
  if (put(files.in, STDIN_FILENO) && put(files.out, STDOUT_FILENO) && put(files.err, STDERR_FILENO))
    ::execvp(argv[0], argv);
  const int code = errno;
  [[maybe_unused]] const ssize_t told = ::write(tell, &code, sizeof(code));
  ::_exit(refused);
}

}  // namespace

void die_with(pid_t parent, int signal) {
  ::prctl(PR_SET_PDEATHSIG, signal);
  if (::getppid() != parent) ::_exit(1);
}

Result<pid_t> start_child(const std::vector<std::string>& words, const ChildFiles& files) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return cannot_start(words, errno);
  const Descriptor heard(pipe[0]);
  Descriptor tell(pipe[1]);
  std::fflush(nullptr);  // else the child might write what is still in our buffers a second time
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) return cannot_start(words, errno);
  if (child == 0) {
    die_with(parent, files.on_parents_death);
    become(argv.data(), files, tell.get());
  }
  tell = Descriptor();
  int code = 0;
  ssize_t told = 0;
  do {
    told = ::read(heard.get(), &code, sizeof(code));  // nothing: it has become the program
  } while (told < 0 && errno == EINTR);
  if (told != static_cast<ssize_t>(sizeof(code))) return child;
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return cannot_start(words, code);
}

bool is_in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

Result<ChildOutput> output_of(const std::vector<std::string>& words, Heard heard) {
  constexpr size_t most = size_t{64} << 20;
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return cannot_start(words, errno);
  const Descriptor hears(pipe[0]);
  Descriptor told(pipe[1]);
  ASSIGN_OR_RETURN(const pid_t child, start_child(words, {.out = told.get(),
                                                          .err = heard == Heard::out_and_err ? told.get() : -1,
                                                          .on_parents_death = SIGTERM}));
  told = Descriptor();
  ChildOutput output;
  std::array<char, 16384> some{};
  for (ssize_t size = 0; (size = ::read(hears.get(), some.data(), some.size())) != 0;) {
    if (size < 0 && errno != EINTR) break;
    if (size > 0 && output.text.size() < most) output.text.append(some.data(), static_cast<size_t>(size));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  output.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

std::string describe_signal(int signal) {
  const char* name = ::sigdescr_np(signal);
  std::string text = fmt::format("signal {} ({})", signal, name == nullptr ? "unknown" : name);
  if (signal == SIGKILL) text += ", by somebody or by the kernel for want of memory";
  return text;
}

}  // namespace nlsplit::inline base

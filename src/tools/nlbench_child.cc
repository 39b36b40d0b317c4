#include "tools/nlbench_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

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

Status run_nlsim(const std::string& nlsim, const std::vector<std::string>& arguments) {
  std::string program = nlsim;
  if (program.empty()) {
    std::error_code failure;
    program = (fs::read_symlink("/proc/self/exe", failure).parent_path() / "nlsim").string();
  }
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int refused = ::posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (refused != 0) {
    return io_error(
        fmt::format("cannot start {}: {} (--nlsim PATH says where it is; a folder saved by nlsim needs none)", program,
                    std::strerror(refused)));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return io_error(fmt::format("cannot wait for {}: {}", program, std::strerror(errno)));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return ok_status();
  if (WIFSIGNALED(status)) return failed(fmt::format("nlsim was ended by signal {}", WTERMSIG(status)));
  const int code = WEXITSTATUS(status);
  const std::string why = fmt::format("nlsim {} failed with exit code {}; what it said stands above",
                                      arguments.empty() ? "" : arguments[0], code);
  return code == 2 ? invalid_input(why) : failed(why);
}

}  // namespace nlsplit

// The programs as their users see them: arguments in; exit code, stdout and stderr out.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"

namespace nlsplit {

struct Ran {
  int code = -1;  // 128 + signal if one ended it; -1: did not start
  std::string out, err;
};

// A scratch folder for each test, which is also the programs' working directory; gone at its end.
class Programs : public ::testing::Test {
 protected:
  Programs() {
    std::string name = (std::filesystem::temp_directory_path() / "nlsplit-tools-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) dir_ = name;
  }
  ~Programs() override {
    std::error_code ignored;
    if (!dir_.empty()) std::filesystem::remove_all(dir_, ignored);
  }
  void SetUp() override { ASSERT_FALSE(dir_.empty()) << "no scratch folder"; }

  std::string path(const std::string& name) const { return dir_ + "/" + name; }
  void write(const std::string& name, std::string_view content) const {
    const Status status = write_file(path(name), content);
    ASSERT_TRUE(status.ok()) << status.error().to_string();
  }
  std::string read(const std::string& name) const {
    const auto text = read_file(path(name));
    return text.ok() ? *text : "(" + text.error().message + ")";
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(path(name)); }

  Ran nlsim(std::vector<std::string> arguments) const {
    return run(std::string(NLS_BIN_DIR) + "/nlsim", std::move(arguments));
  }
  Ran nlbench(std::vector<std::string> arguments) const {
    return run(std::string(NLS_BIN_DIR) + "/nlbench", std::move(arguments));
  }
  Ran nlbench_on(int ranks, const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {"--oversubscribe", "-np", std::to_string(ranks),
                                      std::string(NLS_BIN_DIR) + "/nlbench"};
    if (::geteuid() == 0) words.insert(words.begin(), "--allow-run-as-root");
    words.insert(words.end(), arguments.begin(), arguments.end());
    return run("mpirun", std::move(words));
  }

  Ran run(const std::string& program, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), program);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const std::string out = dir_ + ".out", err = dir_ + ".err";  // beside: the folder is the test's
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, dir_.c_str());
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t child = 0;
    const int refused = ::posix_spawnp(&child, program.c_str(), &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    Ran ran;
    if (refused == 0) {
      int status = 0;
      while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
      }
      ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (auto text = read_file(out); text.ok()) ran.out = *text;
    if (auto text = read_file(err); text.ok()) ran.err = *text;
    std::filesystem::remove(out);
    std::filesystem::remove(err);
    return ran;
  }

  std::string dir_;
};

}  // namespace nlsplit

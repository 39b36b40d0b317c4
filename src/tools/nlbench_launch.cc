#include "tools/nlbench_launch.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <sstream>

namespace nlsplit {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace

void add_launch_options(CLI::App& command, LaunchArguments& arguments) {
  command
      .add_option("--mpirun", arguments.mpirun,
                  "What starts the ranks, with its options (default \"mpirun --oversubscribe\")")
      ->envname("NLBENCH_MPIRUN");
  command
      .add_flag("--on-hosts", arguments.on_hosts,
                "Start each device's rank on the host of that name (default: where mpirun likes)")
      ->envname("NLBENCH_ON_HOSTS");
  command.add_option("--transport", arguments.transport, "mpi (default), or threads: all devices in one process")
      ->check(CLI::IsMember({"mpi", "threads"}));
  command.add_option("--polling", arguments.polling, "As of nlbench run (default auto)")
      ->check(CLI::IsMember({"auto", "spin", "sleep"}))
      ->envname("NLBENCH_POLLING");
}

Status check(const LaunchArguments& arguments) {
  if (words_of(arguments.mpirun).empty()) return invalid_input("--mpirun is empty");
  return ok_status();
}

Result<ChildEnd> launch(const LaunchArguments& arguments, const std::string& dir, const std::vector<std::string>& hosts,
                        const std::vector<std::string>& options) {
  std::vector<std::string> run = {own_program(),    "run", dir, "--transport", arguments.transport, "--polling",
                                  arguments.polling};
  run.insert(run.end(), options.begin(), options.end());
  if (arguments.transport == "threads") return run_child(run, true);
  std::vector<std::string> words = words_of(arguments.mpirun);
  const auto add = [&](const std::vector<std::string>& more) { words.insert(words.end(), more.begin(), more.end()); };
  if (arguments.on_hosts) {  // one by one, since hosts given together would be sorted
    for (size_t r = 0; r < hosts.size(); ++r) {
      if (r > 0) add({":"});
      add({"-np", "1", "--host", hosts[r]});
      add(run);
    }
  } else {
    add({"-np", fmt::format("{}", hosts.size())});
    add(run);
  }
  return run_child(words, true);
}

std::string why_it_failed(const ChildEnd& end) {
  return fmt::format("exit code {}: {}", end.code, end.said.empty() ? "it said nothing" : end.said);
}

}  // namespace nlsplit

#include "measure/launch.h"

#include <fmt/format.h>

#include <csignal>
#include <random>
#include <sstream>

#include "base/child_process.h"
#include "base/hash.h"

namespace nlsplit::inline measure {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// What nlbench said, without what mpirun says about it.
std::string own_words(const std::string& said) {
  const size_t begin = said.find("error: ");
  if (begin == std::string::npos) return said;
  const size_t end = said.find("\n----", begin);
  return said.substr(begin, end == std::string::npos ? end : end - begin);
}

}  // namespace

Status check(const LaunchArguments& arguments) {
  if (words_of(arguments.mpirun).empty()) return invalid_input("--mpirun is empty");
  return ok_status();
}

Result<ChildEnd> launch(const LaunchArguments& arguments, const std::string& dir, const std::vector<std::string>& hosts,
                        const std::vector<std::string>& options, const std::function<void()>& looked) {
  const ChildLimits limits = {.idle_s = 0, .looked = looked};
  std::vector<std::string> run = {
      own_program(), "run", dir, "--transport", std::string(arguments.transport->name), "--polling", arguments.polling};
  run.insert(run.end(), options.begin(), options.end());
  if (arguments.transport->make_world != nullptr)
    return run_child(run, {.quietly = true, .on_parents_death = SIGTERM, .limits = limits});
  // Nobody else can say what only our ranks know.
  const std::string token = hex16(std::random_device()() | uint64_t{std::random_device()()} << 32);
  run.insert(run.end(), {"--supervised", token});
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
  constexpr double grace_s = 15, start_s = 60;
  // mpirun passes SIGUSR1 on at once; SIGTERM only a second later.
  return run_child(words, {.quietly = true,
                           .on_interrupt = SIGUSR1,
                           .on_parents_death = SIGTERM,
                           .token = token,
                           .start_s = start_s,
                           .grace_s = grace_s,
                           .limits = limits});
}

Error launch_error(const ChildEnd& end, const std::string& doing) {
  std::string words = end.said.empty() ? "it said nothing" : own_words(end.said);
  if (end.code > 128 && words.find("error: ") == std::string::npos)
    words = fmt::format("ended by {}; {}", describe_signal(end.code - 128), words);
  const std::string message = fmt::format("{}{}exit code {}: {}", doing, doing.empty() ? "" : ": ", end.code, words);
  return end.code == exit_code(lost("")) || end.code > 128 ? lost(message) : failed(message);
}

}  // namespace nlsplit::inline measure

#include "tools/nlemulate_launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>

#include "base/child_process.h"
#include "base/descriptor.h"
#include "emulate/port.h"

namespace nlsplit::inline tools {
namespace {

namespace fs = std::filesystem;

// Open MPI counts 56 bytes of header of its own as part of what it sends eagerly.
constexpr int64_t eager_header = 56;

std::string file_in_sandbox(const std::string& name) { return fmt::format("{}/{}", sandbox_folder, name); }

// Of the scenario itself; a network's profile was measured with what nlbench chooses.
bool has_eager_limit(const Cluster& cluster) {
  return cluster.eager_limit > bytes(0) && cluster.network_profile.empty();
}
std::string eager_limit(const Cluster& cluster) {
  return fmt::format("{}", cluster.eager_limit.value() + eager_header);
}

std::map<std::string, std::string> mpi_settings(const Cluster& cluster) {
  std::map<std::string, std::string> settings = {
      {"pml", "ob1"},
      {"btl", "tcp,self"},
      {"btl_tcp_if_include", port_interface},  // else messages would also look for other ways
      {"oob_tcp_if_include", port_interface},
      {"plm_rsh_agent", file_in_sandbox("bin/on")},
      {"plm_rsh_no_tree_spawn", "1"},
      {"orte_default_hostfile", file_in_sandbox("all_hosts")},
      {"orte_keep_fqdn_hostnames", "1"},  // a.1 and a.2 are two hosts
      {"rmaps_base_mapping_policy", "seq"},
      {"hwloc_base_binding_policy", "none"},
      {"mpi_yield_when_idle", "1"},  // all hosts share this machine's cores
  };
  if (has_eager_limit(cluster)) settings["btl_tcp_eager_limit"] = eager_limit(cluster);
  return settings;
}

bool ranks_must_sleep(size_t ranks) {
  return static_cast<size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))) < 2 * ranks;
}

// More ranks than half the cores: a rank that polls without sleep would take another's core. nlbench cannot see that,
// every emulated host looks like a machine of its own.
void let_ranks_sleep(std::vector<std::string>& command, size_t ranks) {
  const bool chosen =
      std::ranges::any_of(command, [](const std::string& word) { return word.starts_with("--polling"); });
  if (!chosen && ranks_must_sleep(ranks)) command.insert(command.end(), {"--polling", "sleep"});
}

}  // namespace

bool starts_ranks(const std::vector<std::string>& command) {
  if (command.size() < 2 || fs::path(command[0]).filename() != "nlbench") return false;
  constexpr std::string_view starters[] = {"run", "session", "train", "generate", "serve"};
  return std::ranges::find(starters, command[1]) != std::end(starters);
}

Result<std::vector<std::string>> hosts_of_ranks(const std::vector<std::string>& command) {
  std::vector<std::string> words = command;
  words.insert(words.end(), {"--hosts", "--places"});
  int out[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return io_error(fmt::format("pipe: {}", std::strerror(errno)));
  const Descriptor heard(out[0]);
  Descriptor told(out[1]);
  ASSIGN_OR_RETURN(const pid_t child, start_child(words, {.out = told.get()}));
  told = Descriptor();
  std::string text;
  char some[4096];
  for (ssize_t size; (size = ::read(heard.get(), some, sizeof(some))) > 0;)
    text.append(some, static_cast<size_t>(size));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    const std::string why =
        fmt::format("{} {} cannot say on which hosts its ranks belong; its messages are above", command[0], command[1]);
    return WIFEXITED(status) && WEXITSTATUS(status) == 2 ? invalid_input(why) : failed(why);
  }
  std::vector<std::string> hosts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) hosts.push_back(line);
  return hosts;
}

Result<SandboxOptions> launch(const Cluster& cluster, const EmulatedNetwork& network,
                              const LaunchArguments& arguments) {
  SandboxOptions options;
  options.command = arguments.command;
  std::string all;
  for (const Place& place : network.places) all += place.name + "\n";
  options.files["all_hosts"] = all;
  for (const auto& [name, value] : mpi_settings(cluster)) options.environment["OMPI_MCA_" + name] = value;
  options.environment["OMPI_ALLOW_RUN_AS_ROOT"] = "1";  // root of this sandbox only, perhaps
  options.environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
  options.environment["HWLOC_COMPONENTS"] = "-gl";  // as in nlbench.cc
  // For programs that start mpirun themselves (nlbench network, nlbench validate).
  options.environment["NLBENCH_LAUNCHER"] = "mpirun";
  options.environment["NLBENCH_ON_HOSTS"] = "1";
  if (ranks_must_sleep(cluster.devices.size())) options.environment["NLBENCH_POLLING"] = "sleep";
  options.environment["TMPDIR"] = "/dev/shm";  // goes with the sandbox
  const char* path = std::getenv("PATH");
  options.environment["PATH"] = file_in_sandbox("bin") + (path != nullptr ? std::string(":") + path : "");

  const Device& first = cluster.devices[0];
  std::string head = arguments.on.empty() ? cluster.hosts[first.host.index()].name : arguments.on;
  if (!arguments.ranks_on.empty()) {
    const bool nlbench = starts_ranks(arguments.command);  // a rank is a device there: none shares a place
    ASSIGN_OR_RETURN(const std::vector<size_t> places, places_of(cluster, network, arguments.ranks_on, !nlbench));
    std::string ranks;
    for (const size_t place : places) ranks += network.places[place].name + "\n";
    options.files["ranks"] = ranks;
    if (nlbench) let_ranks_sleep(options.command, places.size());
    options.command.insert(options.command.begin(),
                           {"mpirun", "--hostfile", file_in_sandbox("ranks"), "-np", fmt::format("{}", places.size())});
    options.ctrl_c_ends = true;
    if (arguments.on.empty()) head = network.places[places[0]].name;
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> heads, places_of(cluster, network, {head}, true));
  options.head = heads[0];
  return options;
}

std::vector<std::string> loopback_command(const Cluster& cluster, const LaunchArguments& arguments) {
  std::vector<std::string> command = arguments.command;
  if (arguments.ranks_on.empty()) return command;
  std::vector<std::string> mpirun = {"mpirun",          "-np",       fmt::format("{}", arguments.ranks_on.size()),
                                     "--oversubscribe", "--bind-to", "none"};
  const auto set = [&mpirun](const std::string& name, const std::string& value) {
    mpirun.insert(mpirun.end(), {"--mca", name, value});
  };
  set("pml", "ob1");
  set("btl", "tcp,self");
  set("btl_tcp_if_include", "lo");
  set("mpi_yield_when_idle", "1");
  if (has_eager_limit(cluster)) set("btl_tcp_eager_limit", eager_limit(cluster));
  if (::geteuid() == 0) mpirun.emplace_back("--allow-run-as-root");
  command.insert(command.begin(), mpirun.begin(), mpirun.end());
  return command;
}

}  // namespace nlsplit::inline tools

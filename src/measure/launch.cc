#include "measure/launch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>

#include "base/child_process.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/which_mpi.h"

namespace nlsplit::inline measure {
namespace {

// What nlbench said, without what mpirun or Slurm say about it.
std::string own_words(const std::string& said) {
  std::string text;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("srun: ") && !line.starts_with("slurmstepd")) text += line + "\n";
  }
  const size_t begin = text.find("error: ");
  if (begin == std::string::npos) return said;
  const size_t end = text.find("\n----", begin);
  text = text.substr(begin, end == std::string::npos ? end : end - begin);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

namespace {

struct NamedWorker {
  std::string host, address;
};

// "b:7000" is on b, "b=10.0.0.2:7000" too.
NamedWorker named(const std::string& worker) {
  const size_t equals = worker.find('=');
  if (equals != std::string::npos) return {worker.substr(0, equals), worker.substr(equals + 1)};
  std::string host = worker.substr(0, worker.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {host, worker};
}

}  // namespace

namespace {

// Whether each rank is to be on its host: as asked, or where Slurm has given us all of them.
Result<bool> places(const LaunchArguments& arguments, const std::vector<std::string>& hosts) {
  if (arguments.on_hosts) return true;
  ASSIGN_OR_RETURN(const std::vector<std::string> nodes, allocated_nodes());
  return std::ranges::all_of(hosts,
                             [&](const std::string& host) { return std::ranges::find(nodes, host) != nodes.end(); });
}

Result<bool> srun_places(const LaunchArguments& arguments, const std::vector<std::string>& hosts) {
  if (arguments.transport->make_world != nullptr) return false;
  ASSIGN_OR_RETURN(const Launcher launcher, parse_launcher(arguments.launcher, "--launcher"));
  ASSIGN_OR_RETURN(const bool placed, places(arguments, hosts));
  return launcher.is_srun && placed;
}

// Indices into `hosts`: those of the first host, then those of the next one.
std::vector<size_t> host_by_host(const std::vector<std::string>& hosts) {
  std::vector<size_t> order;
  for (size_t first = 0; first < hosts.size(); ++first) {
    if (std::ranges::find(order, first) != order.end()) continue;
    for (size_t other = first; other < hosts.size(); ++other) {
      if (hosts[other] == hosts[first]) order.push_back(other);
    }
  }
  return order;
}

}  // namespace

Result<std::vector<int>> ranks_on(const LaunchArguments& arguments, const std::vector<std::string>& hosts) {
  std::vector<int> ranks;
  if (!arguments.transport->of_workers) {
    ASSIGN_OR_RETURN(const bool together, srun_places(arguments, hosts));
    for (size_t r = 0; r < hosts.size(); ++r) ranks.push_back(static_cast<int>(r));
    if (!together) return ranks;
    const std::vector<size_t> order = host_by_host(hosts);
    for (size_t r = 0; r < order.size(); ++r) ranks[order[r]] = static_cast<int>(r);
    return ranks;
  }
  std::map<std::string, std::vector<int>> free;
  for (size_t w = 0; w < arguments.workers.size(); ++w)
    free[named(arguments.workers[w]).host].push_back(static_cast<int>(w) + 1);
  std::string here;
  for (const std::string& host : hosts) {
    if (!free.contains(host)) {
      if (!here.empty() && here != host)
        return invalid_input(
            fmt::format("hosts {} and {} have no worker, and only one can be this machine: --workers {}=ADDRESS:PORT",
                        here, host, host));
      here = host;
      free[host] = {0};
    }
    std::vector<int>& left = free[host];
    if (left.empty())
      return invalid_input(
          fmt::format("{} devices on host {} need one rank each there: --workers {}=ADDRESS:PORT once "
                      "more",
                      std::ranges::count(hosts, host), host, host));
    ranks.push_back(left.front());
    left.erase(left.begin());
  }
  return ranks;
}

Status check(const LaunchArguments& arguments) {
  if (!arguments.transport->of_workers) {
    if (!arguments.workers.empty())
      return invalid_input(
          fmt::format("--workers are for --transport grpc, and this is {}", arguments.transport->name));
    const auto launcher = parse_launcher(arguments.launcher, "--launcher");
    return launcher ? ok_status() : Status(launcher.error());
  }
  if (arguments.workers.empty())
    return invalid_input(fmt::format("--transport {} needs --workers HOST:PORT,…", arguments.transport->name));
  return ok_status();
}

namespace {

// A plan's folder becomes a set with one turn, whose first rank may be any.
Result<ChildEnd> launch_over_workers(const LaunchArguments& arguments, const std::string& dir,
                                     const std::vector<std::string>& hosts, const std::vector<std::string>& options,
                                     const ChildLimits& limits) {
  namespace fs = std::filesystem;
  std::vector<std::string> addresses;
  for (const std::string& worker : arguments.workers) addresses.push_back(named(worker).address);
  std::vector<std::string> words = {own_program(), "run"};
  const auto add = [&words](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  const std::vector<std::string> transport = {"--transport", std::string(arguments.transport->name),
                                              "--workers",   fmt::format("{}", fmt::join(addresses, ",")),
                                              "--polling",   arguments.polling};
  const ChildOptions child = {.quietly = true, .on_parents_death = SIGTERM, .limits = limits};
  if (std::ranges::find(options, "--turns") != options.end()) {
    add({dir});
    add(transport);
    if (!arguments.credentials.empty()) add({"--tls", arguments.credentials});
    add(options);
    return run_child(words, child);
  }
  const fs::path plan(dir), set = plan.parent_path();
  const std::string name = plan.filename();
  ASSIGN_OR_RETURN(const std::vector<int> ranks, ranks_on(arguments, hosts));
  RETURN_IF_ERROR(write_file(dir + ".turns", fmt::format("run {0} {0} {1}\n", name, fmt::join(ranks, " "))));
  add({set, "--turns", dir + ".turns"});
  add(transport);
  if (!arguments.credentials.empty()) add({"--tls", arguments.credentials});
  std::string trace;
  for (size_t o = 0; o + 1 < options.size(); o += 2) {
    if (options[o] == "--trace")
      trace = options[o + 1];
    else if (options[o] != "--json")  // it stands where the turn's figures do
      add({options[o], options[o + 1]});
  }
  if (!trace.empty()) add({"--turn-traces"});
  std::error_code failure;
  for (const char* kind : {".json", ".trace", ".error"}) fs::remove(dir + kind, failure);
  ASSIGN_OR_RETURN(ChildEnd end, run_child(words, child));
  if (end.code != 0) return end;
  if (fs::exists(dir + ".error", failure)) {
    ASSIGN_OR_RETURN(const std::string why, read_file(dir + ".error"));
    return ChildEnd{exit_code(failed("")), "error: " + why};
  }
  if (!trace.empty()) {
    fs::rename(dir + ".trace", trace, failure);
    if (failure) return io_error(fmt::format("cannot rename {}.trace: {}", dir, failure.message()));
  }
  return end;
}

}  // namespace

Result<ChildEnd> launch(const LaunchArguments& arguments, const std::string& dir, const std::vector<std::string>& hosts,
                        const std::vector<std::string>& options, const std::function<void()>& looked) {
  const ChildLimits limits = {.idle_s = 0, .looked = looked};
  if (arguments.transport->of_workers) return launch_over_workers(arguments, dir, hosts, options, limits);
  std::vector<std::string> run = {
      own_program(), "run", dir, "--transport", std::string(arguments.transport->name), "--polling", arguments.polling};
  run.insert(run.end(), options.begin(), options.end());
  if (arguments.transport->make_world != nullptr)
    return run_child(run, {.quietly = true, .on_parents_death = SIGTERM, .limits = limits});
  // Nobody else can say what only our ranks know.
  const std::string token = hex16(std::random_device()() | uint64_t{std::random_device()()} << 32);
  run.insert(run.end(), {"--supervised", token});
  ASSIGN_OR_RETURN(const Launcher launcher, parse_launcher(arguments.launcher, "--launcher"));
  ASSIGN_OR_RETURN(const bool placed, places(arguments, hosts));
  std::vector<RanksTogether> ranks;
  if (!placed) {
    ranks = {{"", static_cast<int>(hosts.size()), run}};
  } else if (launcher.is_srun) {
    for (const size_t at : host_by_host(hosts)) {
      if (ranks.empty() || ranks.back().host != hosts[at]) ranks.push_back({hosts[at], 0, run});
      ++ranks.back().count;
    }
  } else {  // one by one, since hosts given together would be sorted
    for (const std::string& host : hosts) ranks.push_back({host, 1, run});
  }
  constexpr double grace_s = 15, start_s = 60;
  // mpirun and srun pass SIGUSR1 on at once; Open MPI's SIGTERM only a second later, MPICH's at once.
  return run_child(command_of(launcher, ranks), {.quietly = true,
                                                 .on_interrupt = built_for_mpich() ? SIGTERM : SIGUSR1,
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

// `nlsim init`: a scenario of the user's own machines. nlsim has no MPI and no kernels: it starts `nlbench survey` on
// them and writes down what that found.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "base/child_process.h"
#include "base/file.h"
#include "base/host_list.h"
#include "base/launcher.h"
#include "scenario/scenario.h"
#include "survey/scenario_text.h"
#include "survey/survey.h"
#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/next_command.h"

namespace nlsplit::inline tools {
namespace {

namespace fs = std::filesystem;

struct InitArguments {
  std::string hosts, hostfile, survey;
  std::vector<std::string> workers;
  std::string credentials, model, output = "-", nlbench, launcher = usual_launcher();
  bool force = false;
};

// Which machines, and who said so.
struct Machines {
  std::vector<ListedHost> hosts;  // with `workers` this machine first; empty: this machine alone
  bool by_workers = false;
  std::string said_by;  // the options that name them again
};

// "b:7000" is host b; two workers of a host are told apart by their ports.
Result<std::vector<ListedHost>> hosts_of_workers(const std::vector<std::string>& workers) {
  std::vector<ListedHost> hosts = {{""}};  // this machine: nobody has said its name
  std::set<std::string> taken;
  for (const std::string& worker : workers) {
    const size_t colon = worker.rfind(':');
    std::string name = worker.substr(0, colon);
    if (colon == std::string::npos || name.empty())
      return invalid_input(fmt::format("--workers: '{}' is no HOST:PORT", worker));
    if (name.front() == '[') name = name.substr(1, name.find(']') - 1);
    std::ranges::replace(name, ':', '-');  // of IPv6
    if (!taken.insert(name).second) {
      name += "-" + worker.substr(colon + 1);
      if (!taken.insert(name).second) return invalid_input(fmt::format("--workers: '{}' twice", worker));
    }
    const auto host = parse_hosts(name, "--workers");
    if (!host) return host.error();
    hosts.push_back(host->front());
  }
  return hosts;
}

Result<Machines> machines_of_slurm(const std::string& nodes) {
  Machines machines;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, parse_slurm_nodes(nodes, "SLURM_JOB_NODELIST"));
  std::vector<int> counts(names.size(), 0);
  if (const char* cpus = std::getenv("SLURM_JOB_CPUS_PER_NODE")) {
    ASSIGN_OR_RETURN(counts, parse_slurm_counts(cpus, "SLURM_JOB_CPUS_PER_NODE"));
    if (counts.size() != names.size())
      return invalid_input(fmt::format("SLURM_JOB_CPUS_PER_NODE '{}' is of {} nodes, and SLURM_JOB_NODELIST names {}",
                                       cpus, counts.size(), names.size()));
  }
  for (size_t i = 0; i < names.size(); ++i) machines.hosts.push_back({names[i], counts[i]});
  machines.said_by = fmt::format(" in the Slurm allocation {}", nodes);
  return machines;
}

Result<Machines> machines_of(const InitArguments& arguments) {
  Machines machines;
  if (!arguments.hosts.empty()) {
    ASSIGN_OR_RETURN(machines.hosts, parse_hosts(arguments.hosts, "--hosts"));
    machines.said_by = " --hosts " + arguments.hosts;
  } else if (!arguments.hostfile.empty()) {
    ASSIGN_OR_RETURN(const std::string text, read_file(arguments.hostfile));
    ASSIGN_OR_RETURN(machines.hosts, parse_hostfile(text, arguments.hostfile));
    machines.said_by = " --hostfile " + arguments.hostfile;
  } else if (!arguments.workers.empty()) {
    ASSIGN_OR_RETURN(machines.hosts, hosts_of_workers(arguments.workers));
    machines.by_workers = true;
    machines.said_by = fmt::format(" --workers {}", fmt::join(arguments.workers, ","));
  } else if (const char* nodes = std::getenv("SLURM_JOB_NODELIST")) {
    return machines_of_slurm(nodes);
  }
  return machines;
}

// What this machine calls itself, as a scenario may call a host.
std::string host_name(std::string name) {
  constexpr size_t longest = 64;
  std::ranges::replace_if(
      name, [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '_' && c != '.'; }, '-');
  return name.empty() ? "host" : name.substr(0, longest);
}

Result<std::vector<std::string>> survey_words(const InitArguments& arguments, const Machines& machines) {
  std::vector<std::string> words;
  const auto add = [&words](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  const std::string nlbench = arguments.nlbench.empty()
                                  ? (fs::read_symlink("/proc/self/exe").parent_path() / "nlbench").string()
                                  : arguments.nlbench;
  std::vector<std::string> survey = {nlbench, "survey", "-o", "-"};
  // Who sets up a cluster on one machine says that ranks must not spin.
  if (const char* polling = std::getenv("NLBENCH_POLLING")) survey.insert(survey.end(), {"--polling", polling});
  if (machines.hosts.empty()) {
    add(survey);
    add({"--transport", "threads"});
    return words;
  }
  if (machines.by_workers) {
    add(survey);
    add({"--transport", "grpc", "--workers", fmt::format("{}", fmt::join(arguments.workers, ","))});
    if (!arguments.credentials.empty()) add({"--tls", arguments.credentials});
    return words;
  }
  std::vector<std::string> names;
  std::vector<int> cores;
  for (const ListedHost& host : machines.hosts) {
    names.push_back(host.name);
    cores.push_back(host.cores);
  }
  ASSIGN_OR_RETURN(Launcher launcher, parse_launcher(arguments.launcher, "--launcher"));
  // All of a machine's cores compute, whatever mpirun thinks of so many ranks.
  if (!launcher.is_srun && arguments.launcher.find("bind-to") == std::string::npos)
    launcher.words.insert(launcher.words.end(), {"--bind-to", "none"});
  // One by one, since hosts given together would be sorted.
  std::vector<RanksTogether> ranks;
  for (const std::string& name : names) ranks.push_back({name, 1, survey});
  // Rank 0 alone asks for them: with every host's words they would be longer than a command may be.
  std::vector<std::string>& first = ranks.front().command;
  first.insert(first.end(), {"--names", fmt::format("{}", fmt::join(names, ",")), "--cores",
                             fmt::format("{}", fmt::join(cores, ","))});
  return command_of(launcher, ranks);
}

// Nothing of what stands there is lost.
Status check_output(const InitArguments& arguments) {
  if (arguments.output == "-") return ok_status();
  std::error_code failure;
  if (fs::is_directory(arguments.output, failure))
    return invalid_input(fmt::format("cannot write {}: it is a folder", arguments.output));
  if (fs::exists(arguments.output, failure) && !arguments.force)
    return invalid_input(fmt::format("{} is there already: --force writes over it", arguments.output));
  fs::path folder = fs::path(arguments.output).parent_path();
  if (folder.empty()) folder = ".";
  if (!fs::is_directory(folder, failure))
    return invalid_input(fmt::format("cannot write {}: there is no folder {}", arguments.output, folder.string()));
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return invalid_input(
        fmt::format("cannot write {}: the folder {}: {}", arguments.output, folder.string(), std::strerror(errno)));
  return ok_status();
}

// A file's name as the scenario has it, which looks for it in its own folder.
std::string model_text(const InitArguments& arguments) {
  std::string model = arguments.model;
  std::error_code failure;
  const size_t question = model.find('?');
  const std::string path = model.substr(0, question);
  if (!model.starts_with("zoo:") && fs::path(path).is_relative() && fs::exists(path, failure) &&
      arguments.output != "-") {
    const fs::path folder = fs::absolute(arguments.output).parent_path();
    model = fs::relative(fs::absolute(path), folder, failure).string() +
            (question == std::string::npos ? "" : model.substr(question));
  }
  std::string quoted = "'";
  for (const char c : model) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  quoted += "'";
  const bool plain = std::ranges::all_of(
      model, [](unsigned char c) { return std::isalnum(c) || std::strchr(":_-./?=", c) != nullptr; });
  return plain ? model : quoted;
}

Status check_names(const Survey& survey) {
  std::map<std::string_view, size_t> names;
  for (size_t m = 0; m < survey.machines.size(); ++m) {
    const Machine& machine = survey.machines[m];
    const size_t before = names.try_emplace(machine.name, m).first->second;
    if (before != m) {
      const bool are_one = std::ranges::any_of(survey.one_machine, [&](const std::vector<size_t>& shared) {
        return std::ranges::count(shared, m) + std::ranges::count(shared, before) == 2;
      });
      return invalid_input(
          fmt::format("ranks {} and {} of the survey are {} called '{}': {}", before, m,
                      are_one ? "on one machine, both" : "both", machine.name,
                      are_one ? "start one rank a host, mpirun --map-by ppr:1:node --bind-to none … nlbench survey"
                              : "nlbench survey --names tells them apart"));
    }
    if (machine.compute.value() <= 0 || machine.memory_rate.value() <= 0 || machine.levels.empty() ||
        machine.measured_cores < 1)
      return invalid_input(fmt::format("host {} has not been measured", machine.name));
  }
  return ok_status();
}

Result<Draft> draft_of(const InitArguments& arguments, const Machines& machines) {
  Draft draft;
  if (!arguments.model.empty()) {
    if (std::ranges::any_of(arguments.model, [](unsigned char c) { return c < ' ' || c == 127; }))
      return invalid_input("--model: a name with control characters cannot stand in a scenario");
    draft.model = model_text(arguments);
    draft.model_is_given = true;
  }
  draft.written_by = "nlsim init" + machines.said_by;
  draft.date = fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr)));
  return draft;
}

// The scenario as text, if it can be read, and its model too. Nobody has the file yet, so no error names a line of it.
Result<std::string> readable_scenario(const InitArguments& arguments, const Survey& survey, const Draft& draft) {
  std::string text = scenario_text(survey, draft);
  const Result<Scenario> scenario = parse_scenario(text, arguments.output == "-" ? "the scenario" : arguments.output);
  if (!scenario) {
    Error error = scenario.error();
    error.where = {};
    error.message = "such a scenario cannot be: " + error.message;
    return error;
  }
  if (const auto model = load_model(*scenario); !model) {
    Error error = model.error();
    if (error.where.file == arguments.output || error.where.file == "the scenario") {
      error.where = {};
      error.fragment = "";
    }
    error.message = fmt::format("--model {}: {}", arguments.model, error.message);
    return error;
  }
  return text;
}

// Before minutes of measuring: the model loads, and a scenario can have these names. The figures stand in for those to
// come.
Status check_first(const InitArguments& arguments, const Machines& machines) {
  Survey survey;
  for (const ListedHost& host : machines.hosts) {
    Machine& machine = survey.machines.emplace_back();
    machine.name = host.name;
  }
  if (survey.machines.empty()) survey.machines.emplace_back();
  if (survey.machines.front().name.empty()) survey.machines.front().name = "this-machine";
  for (Machine& machine : survey.machines) {
    machine.measured_cores = 1;
    machine.memory = bytes(int64_t{1} << 30);
    machine.levels = {Isa::v2};
    machine.compute = flops_per_second(1e9);
    machine.memory_rate = bytes_per_second(1e9);
  }
  const BytesPerSecond rate = bytes_per_second(1e8);
  for (const auto& [a, b] : pairs_to_measure(survey.machines.size()))
    survey.paths.push_back({a, b, seconds(1e-3), rate, rate, rate});
  ASSIGN_OR_RETURN(const Draft draft, draft_of(arguments, machines));
  if (const auto text = readable_scenario(arguments, survey, draft); !text) return text.error();
  return ok_status();
}

Status write_scenario(const InitArguments& arguments, const Machines& machines, Survey survey) {
  for (size_t m = 0; m < survey.machines.size(); ++m) survey.machines[m].name = host_name(survey.machines[m].name);
  if (machines.by_workers) {
    if (survey.machines.size() != machines.hosts.size()) return failed("a survey of other machines");
    for (size_t m = 1; m < survey.machines.size(); ++m) survey.machines[m].name = machines.hosts[m].name;
  }
  RETURN_IF_ERROR(check_names(survey));
  ASSIGN_OR_RETURN(const Draft draft, draft_of(arguments, machines));
  ASSIGN_OR_RETURN(const std::string text, readable_scenario(arguments, survey, draft));
  for (const std::string& warning : warnings_of(survey)) fmt::print(stderr, "warning: {}\n", warning);
  if (arguments.output == "-") {
    std::fputs(text.c_str(), stdout);
    return ok_status();
  }
  RETURN_IF_ERROR(write_file(arguments.output, text));
  size_t asked = 0;
  for (size_t at = 0; (at = text.find("# TODO", at)) != std::string::npos; ++at) ++asked;
  fmt::print("{}: {} host{}, {} path{} measured, {} questions (TODO)\nnext     {} rank {}\n", arguments.output,
             survey.machines.size(), survey.machines.size() == 1 ? "" : "s", survey.paths.size(),
             survey.paths.size() == 1 ? "" : "s", asked - 1, program_here("nlsim"), arguments.output);
  return ok_status();
}

int init(const InitArguments& arguments) {
  if (const Status status = check_output(arguments); !status.ok()) return report(status.error());
  Machines machines;
  std::string text, from = arguments.survey;
  if (!arguments.survey.empty()) {
    auto read = read_file(arguments.survey);
    if (!read) return report(read.error());
    text = std::move(*read);
    machines.said_by = " --survey " + arguments.survey;
  } else {
    auto found = machines_of(arguments);
    if (!found) return report(found.error());
    machines = std::move(*found);
    if (const Status status = check_first(arguments, machines); !status.ok()) return report(status.error());
    const auto words = survey_words(arguments, machines);
    if (!words) return report(words.error());
    auto said = output_of(*words);
    if (!said) return report(said.error());
    if (said->code != 0) {
      if (said->code != exit_interrupted) report(failed("nlbench survey failed, see above; nothing is written"));
      return said->code;
    }
    text = std::move(said->text);
    from = "nlbench survey";
  }
  auto survey = parse_survey(text, from);
  if (!survey) return report(survey.error());
  const Status written = write_scenario(arguments, machines, std::move(*survey));
  return written.ok() ? 0 : report(written.error());
}

}  // namespace

void add_init_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "init",
      "Measure your machines and the links between them, and write a scenario of them.\n"
      "  nlsim init -o mine.yaml                                         this machine; in a Slurm allocation its "
      "nodes\n"
      "  nlsim init --hosts a,b,c -o mine.yaml                           machines that mpirun or srun reaches\n"
      "  nlsim init --hostfile hosts --model net.onnx -o mine.yaml\n"
      "  nlsim init --workers b:7000,c:7000 --tls keys -o mine.yaml      this machine, and workers without MPI\n"
      "Then  nlsim rank mine.yaml.  What could not be measured is a comment with TODO.\n"
      "It starts `nlbench survey` on the machines, which need the same nlbench. Takes a few seconds for each machine "
      "and pair.\n"
      "A scenario holds some 2,700 hosts; for mpirun their names with commas must be shorter than 128 KiB; srun takes "
      "128 hosts.");
  const auto a = std::make_shared<InitArguments>();
  CLI::Option* hosts =
      command->add_option("--hosts", a->hosts, "Machines that the launcher can start ranks on")->type_name("HOST,...");
  CLI::Option* hostfile =
      command
          ->add_option("--hostfile", a->hostfile,
                       "The same from a file: a line a host, as `b slots=4` or `b:4`; slots are cores that may be used")
          ->type_name("FILE");
  CLI::Option* workers =
      command
          ->add_option("--workers", a->workers,
                       "Where `nlbench worker` waits on the other machines; this machine is the first host")
          ->delimiter(',')
          ->type_name("HOST:PORT,...");
  CLI::Option* survey =
      command->add_option("--survey", a->survey, "An existing survey: nlbench survey -o FILE")->type_name("FILE");
  for (CLI::Option* one : {hostfile, workers, survey}) one->excludes(hosts);
  for (CLI::Option* one : {workers, survey}) one->excludes(hostfile);
  survey->excludes(workers);
  command->add_option("--tls", a->credentials, "With --workers: the folder of certificates (nlbench certificates)")
      ->type_name("DIR")
      ->needs(workers);
  CLI::Option* model = command->add_option(
      "--model", a->model, "A file (.onnx, .gguf), a folder of safetensors, or zoo:NAME (default zoo:mobilenet_v2)");
  CLI::Option* output =
      command->add_option("-o,--output", a->output, "The scenario to write (default: standard output)")
          ->type_name("FILE");
  command->add_flag("--force", a->force, "Overwrite an existing file");
  command
      ->add_option(
          "--launcher", a->launcher,
          fmt::format("What starts the ranks, mpirun or srun, with its options (default here \"{}\")", a->launcher))
      ->type_name("COMMAND")
      ->envname("NLBENCH_LAUNCHER");
  command->add_option("--nlbench", a->nlbench, "Path of nlbench on all machines (default: beside nlsim)");
  // Empty, as a shell's unset variable is, would mean this machine, or a default.
  const CLI::Validator not_empty(
      [](std::string& text) { return text.empty() ? std::string("is empty") : std::string(); }, "", "");
  for (CLI::Option* one : {hosts, hostfile, workers, survey, model, output}) one->check(not_empty);
  command->callback([a, &code] { code = init(*a); });
}

}  // namespace nlsplit::inline tools

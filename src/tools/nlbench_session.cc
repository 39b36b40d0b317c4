#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/file.h"
#include "base/interrupts.h"
#include "base/temporary_folder.h"
#include "exec/collectives.h"
#include "report/table.h"
#include "tools/exit.h"
#include "tools/nlbench_check.h"
#include "tools/nlbench_commands.h"
#include "tools/nlbench_job.h"
#include "tools/nlbench_ranks.h"
#include "tools/nlbench_report.h"
#include "tools/outputs.h"

namespace nlsplit::inline tools {
namespace {

struct SessionArguments {
  JobArguments plan;
  std::string sequence, weights, output, json;
  bool check = false;
  double tolerance = -1;  // below 0: what the plan promises
  RanksArguments ranks;
};

// What rank 0 reads.
struct ReadySession {
  SavedSession saved;
  std::vector<Choice> choices;
  std::optional<WeightFile> weights;
  std::vector<NamedTensor> inputs;

  Job job() const {
    Job job;
    job.contents = [this](ContentId id) -> Result<std::string_view> {
      if (!weights) return invalid_input("the session has weights: name their folder with --weights");
      return weights->bytes(id);
    };
    if (weights) job.checksums = [this](ContentId id) { return weights->checksum(id); };
    job.inputs = inputs;
    job.clocks = saved.clocks;
    return job;
  }
};

Status can_check(const std::string& what, const SavedSession& saved) {
  if (saved.unsplit) return ok_status();
  if (saved.generation || saved.training)
    return unsupported(fmt::format(
        "--check: {} is for `nlbench {}`, which gives it its inputs while it runs: it has nothing unsplit to "
        "compare with",
        what, saved.generation ? "generate" : "train"));
  return unsupported(fmt::format(
      "--check: {} holds Programs, but not the network that they are made of; give its scenario, or a folder that "
      "`nlsim lower SCENARIO --session --save` wrote",
      what));
}

Result<ReadySession> ready_session(const SessionArguments& arguments) {
  RETURN_IF_ERROR(check_tolerance(arguments.tolerance));
  RETURN_IF_ERROR(check_outputs({arguments.output, arguments.json}));
  ReadySession loaded;
  std::optional<TemporaryFolder> folder;  // its weights are mapped, and nobody needs it afterwards
  ASSIGN_OR_RETURN(LoadedSession read, load_session(arguments.plan, folder));
  loaded.saved = std::move(read.saved);
  const Session& session = loaded.saved.session;
  if (arguments.check) RETURN_IF_ERROR(can_check(arguments.plan.what, loaded.saved));
  const std::string& weights_dir = arguments.weights.empty() ? read.weights : arguments.weights;
  RETURN_IF_ERROR(verify_session(session));
  ASSIGN_OR_RETURN(loaded.choices, parse_choices(session, arguments.sequence));
  if (arguments.check && std::ranges::all_of(loaded.choices, [](const Choice& choice) { return choice.times == 0; }))
    return invalid_input("--check: the --sequence runs nothing, so there is nothing to compare");
  if (!weights_dir.empty()) {
    ASSIGN_OR_RETURN(WeightFile weights, WeightFile::open(weights_dir));
    loaded.weights.emplace(std::move(weights));
  }
  ASSIGN_OR_RETURN(const Program joined, join(session));
  ASSIGN_OR_RETURN(loaded.inputs,
                   make_inputs(joined, arguments.plan.inputs, arguments.plan.seed, Entries::of_executions));
  return loaded;
}

// [execution]: the Program that ran.
std::vector<int> programs_of(const SessionResult& result) {
  std::vector<int> programs;
  for (const Choice& choice : result.chosen)
    programs.insert(programs.end(), static_cast<size_t>(choice.times), choice.program);
  return programs;
}

// "train  2.31 in execution 1, 1.02 in execution 20", a line for each Program that trains.
std::string losses_text(const Session& session, const SessionResult& result) {
  const std::vector<int> programs = programs_of(result);
  std::string text;
  for (size_t p = 0; p < session.programs.size(); ++p) {
    std::string line;
    for (const ExecutionLoss& loss : result.losses) {
      if (programs[static_cast<size_t>(loss.execution)] != static_cast<int>(p)) continue;
      line += fmt::format("{}{:.6g}", line.empty() ? "" : " ", loss.mean);
    }
    if (!line.empty()) text += fmt::format("losses of {}: {}\n", session.programs[p].name, line);
  }
  return text.empty() ? "" : "\n" + text;
}

std::string outputs_text(const SessionResult& result) {
  Table table(
      {{"output"}, {"device"}, {"type"}, {"least", Align::right}, {"mean", Align::right}, {"most", Align::right}});
  for (const OutputTensor& output : result.outputs) {
    const std::vector<float>& values = output.tensor.values;
    if (values.empty() || output.tensor.name.find('/') == std::string::npos) continue;  // states have no Program
    const auto [least, most] = std::ranges::minmax(values);
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    table.add({output.tensor.name, output.device, to_string(output.tensor.type), fmt::format("{:.6g}", least),
               fmt::format("{:.6g}", mean), fmt::format("{:.6g}", most)});
  }
  return "\n" + table.to_string();
}

std::string result_json(const Session& session, const SessionResult& result, const std::optional<Comparison>& check) {
  nlohmann::json choices = nlohmann::json::array(), outputs = nlohmann::json::array();
  for (size_t c = 0; c < result.chosen.size(); ++c) {
    const Choice& choice = result.chosen[c];
    choices.push_back({{"program", session.programs[static_cast<size_t>(choice.program)].name},
                       {"times", choice.times},
                       {"seconds", result.seconds[c]}});
  }
  for (const OutputTensor& output : result.outputs)
    outputs.push_back({{"device", output.device}, {"name", output.tensor.name}, {"values", output.tensor.values}});
  const std::vector<int> programs = programs_of(result);
  nlohmann::json losses = nlohmann::json::array();
  for (const ExecutionLoss& loss : result.losses) {
    losses.push_back(
        {{"execution", loss.execution},
         {"program", session.programs[static_cast<size_t>(programs[static_cast<size_t>(loss.execution)])].name},
         {"mean", loss.mean}});
    if (!std::isnan(loss.gradient_norm)) losses.back()["gradient_norm"] = loss.gradient_norm;
  }
  nlohmann::json file = {{"format", "nlsplit-session-run"}, {"version", 1},
                         {"session", session.name},         {"elapsed_s", result.elapsed_s},
                         {"choices", std::move(choices)},   {"losses", std::move(losses)},
                         {"results", std::move(outputs)},   {"check", nullptr}};
  if (check) file["check"] = check_json(*check);
  return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string result_text(const Session& session, const SessionResult& result) {
  Table table({{"program"},
               {"executions", Align::right},
               {"choices", Align::right},
               {"time", Align::right},
               {"an execution", Align::right}});
  size_t executions = 0;
  for (size_t p = 0; p < session.programs.size(); ++p) {
    int64_t times = 0, choices = 0;
    double took_s = 0;
    for (size_t c = 0; c < result.chosen.size(); ++c) {
      if (result.chosen[c].program != static_cast<int>(p)) continue;
      times += result.chosen[c].times;
      ++choices;
      took_s += result.seconds[c];
    }
    executions += static_cast<size_t>(times);
    table.add({session.programs[p].name, std::to_string(times), std::to_string(choices), to_string(seconds(took_s)),
               times == 0 ? "" : to_string(seconds(took_s / static_cast<double>(times)))});
  }
  return fmt::format(
      "session {} · {} on {} in {}\n\n{}\nTimes are of rank 0, from before a choice to the end of its own "
      "part.\n{}{}",
      session.name, counted(static_cast<int64_t>(executions), "execution"),
      counted(std::ssize(session.programs.front().devices), "device"), to_string(seconds(result.elapsed_s)),
      table.to_string(), losses_text(session, result), outputs_text(result));
}

// Error also if --check found a difference.
Status conclude(const SessionArguments& arguments, const ReadySession& ready, const SessionResult& result) {
  const Session& session = ready.saved.session;
  std::optional<Comparison> check;
  if (arguments.check) {
    ASSIGN_OR_RETURN(check, check_against_unsplit(ready.saved, ready.job(), ready.choices, result.outputs,
                                                  arguments.tolerance, run_options(arguments.ranks)));
  }
  if (!arguments.output.empty()) RETURN_IF_ERROR(write_outputs(arguments.output, result.outputs));
  if (!arguments.json.empty()) RETURN_IF_ERROR(write_file(arguments.json, result_json(session, result, check)));
  fmt::print("{}", result_text(session, result));
  if (check) fmt::print("\ncheck       {}\n", to_string(*check));
  if (check && !check->equal()) return failed("the plan's results are not those of the unsplit network");
  return ok_status();
}

int session_command(const SessionArguments& arguments) {
  if (arguments.ranks.hosts.asked) return print_session_hosts(arguments.plan, arguments.ranks);
  return run_session_command(
      arguments.ranks, run_options(arguments.ranks), [&] { return ready_session(arguments); },
      [&](const ReadySession& ready, const RunOnRanks& run) -> Status {
        ASSIGN_OR_RETURN(const SessionResult result, run(ready.saved.session, ready.job(), choose_from(ready.choices)));
        return conclude(arguments, ready, result);
      });
}

}  // namespace

void add_session_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "session",
      "Run several Programs over the same states, one after the other without a barrier between them.\n"
      "  nlbench session scenarios/counter.session --sequence \"init push*1000 read\" --transport threads\n"
      "  mpirun -np 3 nlbench session scenarios/counter.session --sequence \"init push*1000 read\" --json result.json\n"
      "  mpirun -np 2 nlbench session scenarios/train_and_evaluate.yaml --plan halves --sequence \"train*20 "
      "evaluate\"\n"
      "Rank r runs the r-th device. docs/program.md has the format.");
  const auto a = std::make_shared<SessionArguments>();
  add_session_options(*command, a->plan,
                      "A session's text; a folder saved by `nlsim lower --session --save`; a scenario (.yaml), whose "
                      "`programs` are a session");
  command->add_option("--sequence", a->sequence, "Programs to run, by name. NAME*N runs N executions, which overlap")
      ->required();
  add_ranks_options(*command, a->ranks);
  command->add_option("--weights", a->weights, "Folder of the session's weights, made by `nlsim lower --save`")
      ->type_name("DIR");
  command
      ->add_option("--input", a->plan.inputs,
                   "PROGRAM/NAME=FILE.npy, or of integers PROGRAM/NAME=4,2; inputs that are not given are random. The "
                   "same in every execution; with one axis\nmore in front an entry for each execution of the Program, "
                   "starting again after the last")
      ->type_name("FILE");
  add_check_options(*command, a->check, a->tolerance);
  command->add_option("--seed", a->plan.seed, "Seed of random inputs (default 1)");
  command->add_option("--output", a->output, "Write all outputs and states at the end (.npy)");
  command->add_option("--json", a->json, "Write times, outputs and states to FILE")->type_name("FILE");
  command->callback([a, &code] { code = session_command(*a); });
}

}  // namespace nlsplit::inline tools

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/npy.h"
#include "program/saved.h"
#include "program/scalars.h"
#include "program/session.h"
#include "ranking/session.h"
#include "report/chrome_trace.h"
#include "report/table.h"
#include "sim/tiers/tiers.h"
#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/rank_options.h"

namespace nlsplit::inline tools {
namespace {

struct SessionArguments {
  std::string what, on, sequence, json, trace, weights;
  std::vector<std::string> inputs;
  PlanChoice choice;
  bool known = false;
};

// Of integers, by what a Program calls it; all instances.
Result<std::string> input_bytes(const Program& joined, const std::string& name, const std::string& text) {
  std::string names;
  for (const DeviceProgram& device : joined.devices) {
    for (const Buffer& buffer : device.buffers) {
      if (buffer.kind != BufferKind::input || !is_whole(buffer.type.dtype)) continue;
      if (buffer.name != name) {
        names += (names.empty() ? "" : ", ") + buffer.name;
        continue;
      }
      const int64_t count = element_count(buffer.type.shape) * buffer.instances;
      ASSIGN_OR_RETURN(auto listed, listed_integers(buffer.type.dtype, count, text));
      if (listed) return std::move(*listed);
      ASSIGN_OR_RETURN(NpyRaw array, read_npy_raw(text));
      const std::string_view wanted = buffer.type.dtype == DType::i32 ? "<i4" : "<i8";
      if (array.type != wanted || element_count(array.shape) != count)
        return invalid_input(fmt::format("{} holds {} values of type '{}', but input {} is {}", text,
                                         element_count(array.shape), array.type, name, to_string(buffer.type)));
      return std::move(array.raw);
    }
  }
  return invalid_input(fmt::format("--input {}={}: there is no such input of integers; the session has {}", name, text,
                                   names.empty() ? "none" : names));
}

Result<GivenScalars> given_scalars(const Program& joined, const SessionArguments& arguments,
                                   const std::optional<WeightFile>& weights) {
  GivenScalars given;
  for (const std::string& input : arguments.inputs) {
    const size_t equals = std::min(input.find('='), input.size());
    const std::string name = input.substr(0, equals);
    ASSIGN_OR_RETURN(given.inputs[name], input_bytes(joined, name, input.substr(std::min(equals + 1, input.size()))));
  }
  if (weights) {
    given.contents = [&weights](ContentId id) -> Result<std::string> {
      ASSIGN_OR_RETURN(const std::string_view bytes, weights->bytes(id));
      return std::string(bytes);
    };
  }
  return given;
}

// The session, and the scenario whose machines time it.
struct SessionOn {
  Session session;
  Scenario scenario;
};

Result<SessionOn> read_session(const SessionArguments& arguments) {
  SessionOn read;
  if (is_scenario(arguments.what)) {
    if (!arguments.on.empty()) return invalid_input("--on is for a session's text: a scenario has its own machines");
    ASSIGN_OR_RETURN(Loaded loaded, load(arguments.what, 1));
    ASSIGN_OR_RETURN(const RankedPlan chosen, choose_plan_at_terminal(loaded, arguments.choice));
    ASSIGN_OR_RETURN(CompiledSession compiled, session_of(loaded.scenario, loaded.model, chosen.plan));
    read.session = std::move(compiled.session);
    read.scenario = std::move(loaded.scenario);
    return read;
  }
  if (arguments.on.empty()) return invalid_input("--on SCENARIO says on which machines a session's text is timed");
  ASSIGN_OR_RETURN(const std::string text, read_file(arguments.what));
  ASSIGN_OR_RETURN(read.session, parse_session(text, arguments.what));
  RETURN_IF_ERROR(verify_session(read.session));
  ASSIGN_OR_RETURN(read.scenario, read_scenario(arguments.on));
  return read;
}

// Of one tier.
struct Timed {
  double makespan_s = 0;
  std::vector<double> end_s;  // [execution]: when its last instruction ended
};

std::string result_text(const Session& session, const std::vector<Choice>& choices, const std::vector<Timed>& tiers) {
  std::vector<Table::Column> columns = {{"program"}, {"executions", Align::right}};
  for (const Tier* tier : all_tiers()) columns.push_back({fmt::format("ends after\n{}", tier->title()), Align::right});
  columns.push_back({"an execution", Align::right});
  Table table(std::move(columns));
  size_t last = 0;
  double before = 0;
  for (const Choice& choice : choices) {
    last += static_cast<size_t>(choice.times);
    std::vector<std::string> row = {session.programs[static_cast<size_t>(choice.program)].name,
                                    std::to_string(choice.times)};
    const auto end_by = [&](const Timed& tier) {
      return last > 0 && last <= tier.end_s.size() ? tier.end_s[last - 1] : before;
    };
    for (const Timed& tier : tiers) row.push_back(to_string(seconds(end_by(tier))));
    const double end = end_by(tiers[judging_tier()]);
    row.push_back(to_string(seconds((end - before) / std::max(1, choice.times))));
    table.add(std::move(row));
    before = end;
  }
  return fmt::format("session {} · {} on {} in {}\n\n{}", session.name,
                     counted(static_cast<int64_t>(last), "execution"),
                     counted(std::ssize(session.programs.front().devices), "device"),
                     to_string(seconds(tiers[judging_tier()].makespan_s)), table.to_string());
}

std::string result_json(const Session& session, const std::vector<Choice>& choices, const std::vector<Timed>& tiers,
                        const ScalarTable& scalars) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Choice& choice : choices)
    rows.push_back({{"program", session.programs[static_cast<size_t>(choice.program)].name}, {"times", choice.times}});
  nlohmann::json by_tier = nlohmann::json::object();
  for (size_t t = 0; t < tiers.size(); ++t) {
    by_tier[std::string(all_tiers()[t]->name())] = {{"makespan_s", tiers[t].makespan_s},
                                                    {"execution_end_s", tiers[t].end_s}};
  }
  const nlohmann::json file = {{"format", "nlsplit-session-simulation"},
                               {"version", 2},
                               {"session", session.name},
                               {"choices", std::move(rows)},
                               {"tiers", std::move(by_tier)},
                               {"unknown_scalars", scalars.unknown}};
  return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Status simulate(const SessionArguments& arguments) {
  ASSIGN_OR_RETURN(const SessionOn read, read_session(arguments));
  const Session& session = read.session;
  const Scenario& scenario = read.scenario;
  ASSIGN_OR_RETURN(const std::vector<Choice> choices, parse_choices(session, arguments.sequence));
  const CostTable costs = cost_table(scenario, session.name);
  ASSIGN_OR_RETURN(const Sequence sequence,
                   in_sequence(session, choices, arguments.known ? Choosing::known : Choosing::messages));
  std::optional<WeightFile> weights;
  if (!arguments.weights.empty()) {
    ASSIGN_OR_RETURN(WeightFile file, WeightFile::open(arguments.weights));
    weights.emplace(std::move(file));
  }
  ASSIGN_OR_RETURN(const GivenScalars given, given_scalars(sequence.program, arguments, weights));
  ASSIGN_OR_RETURN(const ScalarTable scalars, scalar_values(sequence.program, sequence.dependencies, given));
  ASSIGN_OR_RETURN(const TimedGraph graph,
                   build_timed_graph(sequence.program, sequence.dependencies, scenario.cluster, costs, scalars));
  std::vector<Timed> tiers;
  Trace trace;
  for (const Tier* tier : all_tiers()) {
    ASSIGN_OR_RETURN(const std::vector<Timing> simulated, simulate_all(*tier, scenario.cluster, {&graph}));
    trace = to_trace(sequence.program, sequence.dependencies, graph, simulated.front());
    tiers.push_back({trace.makespan, execution_ends(sequence, trace)});
  }
  if (!arguments.trace.empty()) RETURN_IF_ERROR(write_file(arguments.trace, chrome_trace(sequence.program, trace)));
  if (arguments.json == "-") {
    fmt::print("{}", result_json(session, choices, tiers, scalars));
    return ok_status();
  }
  if (!arguments.json.empty())
    RETURN_IF_ERROR(write_file(arguments.json, result_json(session, choices, tiers, scalars)));
  fmt::print("{}", result_text(session, choices, tiers));
  if (!scalars.unknown.empty())
    fmt::print("\nNot known, so taken at their maximum: {} (--input gives inputs of integers, --weights contents)\n",
               fmt::join(scalars.unknown, ", "));
  return ok_status();
}

}  // namespace

void add_session_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "session",
      "Time several Programs over the same states, one after the other, on a scenario's machines.\n"
      "  nlsim session scenarios/counter.session --on scenarios/simple_cnn_abc.yaml --sequence "
      "\"init push*1000 read\"\n"
      "  nlsim session scenarios/train_and_evaluate.yaml --plan halves --sequence \"train*20 evaluate\"\n"
      "Device 0's choice of what runs next is a message to every other device, timed like any. "
      "docs/program.md has the\n"
      "format.");
  const auto a = std::make_shared<SessionArguments>();
  command->add_option("WHAT", a->what, "A session's text; or a scenario (.yaml), whose `programs` are a session")
      ->type_name("FILE")
      ->required();
  command->add_option("--on", a->on, "For a session's text: the scenario with the devices (by name), links and costs")
      ->type_name("SCENARIO");
  CLI::Option* plan = command
                          ->add_option("--plan", a->choice.plan,
                                       "For a scenario: number in its ranking, or name of one of its plans (default 1)")
                          ->type_name("K|NAME");
  command->add_option("--plan-file", a->choice.file, "For a scenario: a plan in a file of its own")
      ->type_name("FILE")
      ->excludes(plan);
  command->add_option("--sequence", a->sequence, "Programs to run, by name. NAME*N runs N executions, which overlap")
      ->required();
  command
      ->add_option(
          "--input", a->inputs,
          "PROGRAM/NAME=4,2 or PROGRAM/NAME=FILE.npy: inputs of integers that lengths, offsets and counts come "
          "from.\nCosts follow these values; an input that is not given counts as its declared maximum")
      ->type_name("NAME=VALUES");
  command->add_option("--weights", a->weights, "The folder with the contents of states and weights")->type_name("DIR");
  command->add_flag("--known", a->known, "All devices know the sequence beforehand: no messages of choices");
  command->add_option("--json", a->json, "Write the times to FILE (-: to standard output)")->type_name("FILE");
  command->add_option("--trace", a->trace, "Write a Chrome trace, for https://ui.perfetto.dev or chrome://tracing")
      ->type_name("FILE");
  command->callback([a, &code] {
    const Status status = simulate(*a);
    code = status.ok() ? 0 : report(status.error());
  });
}

}  // namespace nlsplit::inline tools

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "program/caches.h"
#include "ranking/generation.h"
#include "ranking/session.h"
#include "report/serving_table.h"
#include "report/table.h"
#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/outputs.h"
#include "tools/rank_options.h"
#include "tools/serving_options.h"

namespace nlsplit::inline tools {
namespace {

struct ServeArguments {
  std::string what, json;
  PlanChoice choice;
  TraceArguments trace;
  int64_t waiting = -1;  // -1: as many as there are slots
  bool no_reuse = false;
};

struct SimulatedServer {
  BatchForm form;
  int64_t waiting = 0;
  ServerTimes times;
  ServingSummary summary;
};

// What the options say; else what the scenario's workload does.
Result<RequestTrace> trace_of(const ServeArguments& arguments, const Generation& of) {
  if (!of.arrivals || says_requests(arguments.trace)) return request_trace(arguments.trace);
  ASSIGN_OR_RETURN(const RequestTrace trace, drawn_trace({.rate = of.arrivals->rate,
                                                          .requests = of.arrivals->requests,
                                                          .prompt = {of.prompt, of.prompt},
                                                          .tokens = {of.tokens, of.tokens},
                                                          .seed = of.arrivals->seed}));
  RETURN_IF_ERROR(save_trace(arguments.trace, trace));
  return trace;
}

Result<SimulatedServer> simulate_server(const ServeArguments& arguments) {
  RETURN_IF_ERROR(check_outputs({arguments.json}));
  ASSIGN_OR_RETURN(Loaded loaded, load(arguments.what, 1));
  if (!loaded.scenario.generation)
    return invalid_input(fmt::format("{}: `workload: {{mode: generation, …}}` is what a server runs", arguments.what));
  ASSIGN_OR_RETURN(const RequestTrace trace, trace_of(arguments, *loaded.scenario.generation));
  ASSIGN_OR_RETURN(const RankedPlan chosen, choose_plan_at_terminal(loaded, arguments.choice));
  if (!chosen.plan.prefill.empty()) return prefill_is_not_served();
  ASSIGN_OR_RETURN(const CompiledSession compiled, session_of(loaded.scenario, loaded.model, chosen.plan));
  const Generation& of = *loaded.scenario.generation;
  SimulatedServer server;
  server.form = {.slots = loaded.scenario.batch,
                 .chunk = compiled.session.programs.size() > 1 ? of.chunk : 1,
                 .context = of.context,
                 .groups = cache_groups(compiled.session, loaded.scenario.batch),
                 .page = of.page,
                 .pages = pages_of(of, loaded.scenario.batch)};
  server.waiting = arguments.waiting < 0 ? server.form.slots : arguments.waiting;
  ASSIGN_OR_RETURN(server.times, time_server(loaded.scenario, compiled.session, *arguments.choice.tier));
  const bool reuses = !arguments.no_reuse && keeps_positions(compiled.session);
  server.summary = summary_of(
      simulate_serving(trace, server.form, server.waiting, server.times, reuses ? PrefixReuse::on : PrefixReuse::off));
  return server;
}

std::string time_text(const ExecutionTime& time, const BatchForm& form) {
  const double full = time.at_none_s + time.per_position_s * static_cast<double>(form.context);
  return fmt::format("{} to {}", to_string(seconds(time.at_none_s)), to_string(seconds(full)));
}

std::string server_text(const SimulatedServer& server) {
  const BatchForm& form = server.form;
  const std::string of_one = server.times.fewer.empty()
                                 ? std::string()
                                 : fmt::format(" (of one request {})", time_text(server.times.fewer[0].time, form));
  return fmt::format(
      "{} at once, {} may wait; a prefill of {} a request takes {}, a decode {}{}, by the positions that are "
      "seen\n\n{}",
      counted(form.slots, "request"), server.waiting, counted(form.chunk, "token"),
      time_text(server.times.prefill, form), time_text(server.times.decode, form), of_one,
      serving_text(server.summary));
}

std::string server_json(const SimulatedServer& server) {
  const auto time = [](const ExecutionTime& of) {
    return nlohmann::ordered_json{{"at_none_s", of.at_none_s}, {"per_position_s", of.per_position_s}};
  };
  nlohmann::ordered_json fewer = nlohmann::ordered_json::array();
  for (const auto& [sequences, of] : server.times.fewer) {
    fewer.push_back(time(of));
    fewer.back()["sequences"] = sequences;
  }
  const nlohmann::ordered_json file = {{"format", "nlsplit-serving-simulation"},
                                       {"version", 1},
                                       {"slots", server.form.slots},
                                       {"chunk", server.form.chunk},
                                       {"context", server.form.context},
                                       {"page", server.form.page},
                                       {"pages", server.form.pages},
                                       {"waiting", server.waiting},
                                       {"prefill", time(server.times.prefill)},
                                       {"decode", time(server.times.decode)},
                                       {"fewer_decodes", std::move(fewer)},
                                       {"copied_position_s", server.times.copied_position_s},
                                       {"summary", nlohmann::ordered_json::parse(summary_json(server.summary))}};
  return file.dump(2) + "\n";
}

Status serve(const ServeArguments& arguments) {
  ASSIGN_OR_RETURN(const SimulatedServer server, simulate_server(arguments));
  if (!arguments.json.empty() && arguments.json != "-")
    RETURN_IF_ERROR(write_file(arguments.json, server_json(server)));
  fmt::print("{}", arguments.json == "-" ? server_json(server) : server_text(server));
  const ServingSummary& summary = server.summary;
  return summary.answered > 0 || summary.turned_away > 0 ? ok_status() : Status(failed("no request was answered"));
}

}  // namespace

void add_serve_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "serve",
      "Simulate `nlbench serve` with these requests: its own queue and batch in simulated time (docs/serving.md).\n"
      "  nlsim serve S.yaml --plan 1 --rate 2/s --requests 500 --prompt-length 32..128 --tokens 64\n"
      "  nlsim serve S.yaml --plan 1 --trace requests.json\n"
      "Without --trace and --rate, requests come as the scenario's `workload: {arrivals: {rate: 2/s, requests: 500}}` "
      "says, with its `prompt` and `tokens`.");
  const auto a = std::make_shared<ServeArguments>();
  command->add_option("SCENARIO", a->what, "A scenario with `workload: {mode: generation, …}`")
      ->type_name("FILE")
      ->required();
  CLI::Option* plan =
      command->add_option("--plan", a->choice.plan, "Number in its ranking, or name of one of its plans (default 1)")
          ->type_name("K|NAME");
  command->add_option("--plan-file", a->choice.file, "A plan in a file of its own")->type_name("FILE")->excludes(plan);
  add_trace_options(*command, a->trace);
  command
      ->add_option(
          "--waiting", a->waiting,
          "Requests that may wait for a slot; further ones are turned away (default: the number that runs at once)")
      ->check(at_least(0));
  command->add_flag("--no-prefix-reuse", a->no_reuse, "Compute every prompt whole, without reusing shared prefixes");
  command->add_option("--json", a->json, "Write the answer to FILE (-: to standard output)")->type_name("FILE");
  command->callback([a, &code] {
    const Status status = serve(*a);
    code = status.ok() ? 0 : report(status.error());
  });
}

}  // namespace nlsplit::inline tools

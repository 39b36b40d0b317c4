#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/interrupts.h"
#include "report/serving_table.h"
#include "server/load_client.h"
#include "tools/exit.h"
#include "tools/nlbench_commands.h"
#include "tools/nlbench_job.h"
#include "tools/outputs.h"
#include "tools/serving_options.h"

namespace nlsplit::inline tools {
namespace {

struct LoadArguments {
  std::string url, token_file, json;
  TraceArguments trace;
  LoadOptions options;
};

std::string load_json(const std::vector<ServedRequest>& served, const ServingSummary& summary) {
  constexpr std::array<const char*, 3> outcomes = {"answered", "turned_away", "failed"};
  nlohmann::ordered_json requests = nlohmann::ordered_json::array();
  for (const ServedRequest& one : served) {
    nlohmann::ordered_json entry = {{"outcome", outcomes[static_cast<size_t>(one.outcome)]}, {"at_s", one.at_s}};
    if (one.tokens > 0)
      entry.update({{"first_s", one.first_s}, {"last_s", one.last_s}, {"tokens", one.tokens}, {"cached", one.cached}});
    if (!one.why.empty()) entry["why"] = one.why;
    requests.push_back(std::move(entry));
  }
  const nlohmann::ordered_json file = {{"format", "nlsplit-load"},
                                       {"version", 1},
                                       {"summary", nlohmann::ordered_json::parse(summary_json(summary))},
                                       {"requests", std::move(requests)}};
  return file.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Status load(const LoadArguments& arguments) {
  RETURN_IF_ERROR(check_outputs({arguments.json, arguments.trace.save}));
  LoadOptions options = arguments.options;
  ASSIGN_OR_RETURN(options.url, parse_url(arguments.url));
  if (!arguments.token_file.empty()) {
    ASSIGN_OR_RETURN(options.token, read_file(arguments.token_file));
    options.token.resize(std::min(options.token.size(), options.token.find_first_of("\r\n")));
  }
  options.cancelled = interrupted;
  ASSIGN_OR_RETURN(const RequestTrace trace, request_trace(arguments.trace));
  ASSIGN_OR_RETURN(const LoadResult result, run_load(trace, options));
  const std::vector<ServedRequest>& served = result.served;
  if (interrupted()) write_after_interrupt();
  const ServingSummary summary = summary_of(served);
  if (!arguments.json.empty() && arguments.json != "-")
    RETURN_IF_ERROR(write_file(arguments.json, load_json(served, summary)));
  fmt::print("{}", arguments.json == "-" ? load_json(served, summary) : serving_text(summary));
  if (result.missing > 0) {
    fmt::print(stderr, "nlbench: interrupted: {} of {} requests had not ended, and are not counted\n", result.missing,
               trace.requests.size());
    return ok_status();  // the exit code is that of the interrupt
  }
  return summary.answered > 0 || summary.turned_away > 0 ? ok_status() : Status(failed("no request was answered"));
}

}  // namespace

void add_load_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "load",
      "Send requests to a server of a language model at the times of a trace (open loop), and measure TTFT and TPOT\n"
      "(docs/serving.md).\n"
      "  nlbench load --url http://127.0.0.1:8080 --rate 2/s --requests 500 --prompt-length 32..128 --tokens 64\n"
      "  nlbench load --url http://127.0.0.1:8080 --trace requests.json --json load.json");
  const auto a = std::make_shared<LoadArguments>();
  command->add_option("--url", a->url, "The server: http://HOST:PORT")->type_name("URL")->required();
  add_trace_options(*command, a->trace);
  command
      ->add_option("--vocabulary", a->options.vocabulary,
                   "Prompts are drawn from the tokens below this number (default 256)")
      ->check(at_least(1));
  command->add_option("--token-file", a->token_file, "The first line of FILE is the server's secret")
      ->type_name("FILE");
  command
      ->add_option("--patience", a->options.patience_s,
                   "A request fails if it has not ended this many seconds after its arrival (default 600)")
      ->check(above_zero() & CLI::Range(latest_arrival_s));
  command->add_option("--json", a->json, "Write every request and the summary to FILE (-: to standard output)")
      ->type_name("FILE");
  command->callback([a, &code] {
    catch_interrupts(1, true);
    code = end_command(load(*a));
  });
}

}  // namespace nlsplit::inline tools

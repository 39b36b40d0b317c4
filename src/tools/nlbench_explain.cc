#include <CLI/CLI.hpp>
#include <memory>

#include "base/file.h"
#include "report/failure.h"
#include "tools/exit.h"
#include "tools/nlbench_commands.h"

namespace nlsplit::inline tools {
namespace {

struct ExplainArguments {
  std::string dir, json;
  size_t last = 5;
};

Status explain(const ExplainArguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<FlightRecord> records, read_flight_records(arguments.dir));
  const Failure failure = explain_failure(records);
  if (!arguments.json.empty()) RETURN_IF_ERROR(write_file(arguments.json, failure_json(failure)));
  std::fputs(failure_text(failure, arguments.last).c_str(), stdout);
  if (std::fflush(stdout) != 0) return io_error("cannot write to standard output");
  return ok_status();
}

}  // namespace

void add_explain_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "explain-failure",
      "Explain why a run failed, from the ranks' records: which rank waited for which, since when, and the cause.\n"
      "  nlbench explain-failure nlbench.flight\n"
      "  nlbench explain-failure result.json.flight --last 20 --json failure.json\n"
      "Each rank writes DIR/rank-N.flight on its own host (`nlbench run --flight DIR`): collect them in one folder\n"
      "first. A rank without a file was killed, or its machine failed (docs/running.md).");
  const auto a = std::make_shared<ExplainArguments>();
  command->add_option("DIR", a->dir, "The folder that the failed run named")->required();
  command->add_option("--last", a->last, "How many of each rank's last instructions and messages to show (default 5)");
  command->add_option("--json", a->json, "Write all records to FILE");
  command->callback([a, &code] { code = end_command(explain(*a)); });
}

}  // namespace nlsplit::inline tools

#include "tools/serving_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/file.h"
#include "tools/exit.h"

namespace nlsplit::inline tools {
namespace {

Result<RequestTrace> made_trace(const TraceArguments& arguments) {
  if (arguments.rate.empty() || arguments.requests == 0)
    return invalid_input("--rate and --requests say when requests arrive, or --trace FILE does");
  ArrivalOptions options{.requests = arguments.requests,
                         .prompt = {},
                         .tokens = {},
                         .seed = arguments.seed,
                         .prefix = arguments.prefix,
                         .texts = arguments.texts};
  ASSIGN_OR_RETURN(options.rate, parse_rate(arguments.rate));
  ASSIGN_OR_RETURN(options.prompt, parse_lengths(arguments.prompt));
  ASSIGN_OR_RETURN(options.tokens, parse_lengths(arguments.tokens));
  if (options.prompt.most > longest_text - options.prefix)
    return invalid_input(fmt::format("--shared-prefix {} and --prompt-length {} are together above {}", options.prefix,
                                     arguments.prompt, longest_text));
  return drawn_trace(options);
}

Result<RequestTrace> saved_trace(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  return parse_trace(text, path);
}

}  // namespace

Result<RequestTrace> drawn_trace(const ArrivalOptions& options) {
  RequestTrace trace = poisson_trace(options);
  if (!(trace.requests.back().at_s <= latest_arrival_s))
    return invalid_input(fmt::format("the last request arrives after {} s: beyond the latest, {} s",
                                     trace.requests.back().at_s, latest_arrival_s));
  return trace;
}

void add_trace_options(CLI::App& command, TraceArguments& arguments) {
  CLI::Option* const file =
      command
          .add_option("--trace", arguments.file, "Trace of the requests' arrivals and lengths: a file of --save-trace")
          ->type_name("FILE");
  CLI::Option* const rate =
      command.add_option("--rate", arguments.rate, "Requests arrive at random, this many on average: 2/s, 30/min")
          ->type_name("RATE")
          ->excludes(file);
  for (CLI::Option* option :
       {command.add_option("--requests", arguments.requests, "How many requests")
            ->check(at_least(1) & CLI::Range(1, 1'000'000)),
        command
            .add_option("--prompt-length", arguments.prompt,
                        "Tokens of a prompt: 64, or drawn from 32..128 (default 64)")
            ->type_name("LENGTH"),
        command
            .add_option("--shared-prefix", arguments.prefix,
                        "Shared tokens at the beginning of each prompt, like a system prompt (default 0)")
            ->check(CLI::Range(int64_t{0}, longest_text)),
        command
            .add_option("--shared-texts", arguments.texts,
                        "The shared prefix of each prompt is drawn from this many different ones (default 1)")
            ->check(CLI::Range(1, 1'000'000)),
        command.add_option("--tokens", arguments.tokens, "Tokens of an answer: 32, or drawn from 16..64 (default 32)")
            ->type_name("LENGTH"),
        command.add_option("--seed", arguments.seed, "Seed of the requests (default 0)")})
    option->excludes(file)->needs(rate);  // alone it would be passed over where the scenario says when requests come
  command.add_option("--save-trace", arguments.save, "Keep the trace in FILE, to send or simulate it again")
      ->type_name("FILE");
}

bool says_requests(const TraceArguments& arguments) { return !arguments.file.empty() || !arguments.rate.empty(); }

Status save_trace(const TraceArguments& arguments, const RequestTrace& trace) {
  return arguments.save.empty() ? ok_status() : write_file(arguments.save, trace_text(trace));
}

Result<RequestTrace> request_trace(const TraceArguments& arguments) {
  ASSIGN_OR_RETURN(RequestTrace trace, arguments.file.empty() ? made_trace(arguments) : saved_trace(arguments.file));
  RETURN_IF_ERROR(save_trace(arguments, trace));
  return trace;
}

Error prefill_is_not_served() {
  return unsupported(
      "a plan with prefill and decode of their own is for `generate`: requests that come while others go on need one "
      "plan");
}

Error pages_are_served() {
  return unsupported(
      "caches in pages are for `nlbench serve` and `nlsim serve`: leave `page` and `cache` out of the workload");
}

}  // namespace nlsplit::inline tools

// The trace of requests that `nlbench load` sends and `nlsim serve` simulates; what `nlbench serve` and `nlsim serve`
// both refuse.
#pragma once

#include <string>

#include "serving/arrivals.h"

namespace CLI {
class App;
}

namespace nlsplit::inline tools {

struct TraceArguments {
  std::string file, save;  // a trace; where to keep the one that was made
  std::string rate, prompt = "64", tokens = "32";
  int64_t requests = 0;
  int64_t prefix = 0, texts = 1;
  uint64_t seed = 0;
};
// --trace, or --rate, --requests, --prompt-length, --shared-prefix, --shared-texts, --tokens, --seed; --save-trace.
void add_trace_options(CLI::App& command, TraceArguments& arguments);

bool says_requests(const TraceArguments& arguments);  // by --trace or --rate
// Where --save-trace asks for it.
Status save_trace(const TraceArguments& arguments, const RequestTrace& trace);
// Poisson's. Error: the last request arrives beyond the latest moment of a trace.
Result<RequestTrace> drawn_trace(const ArrivalOptions& options);
// Read or made; kept where that was asked for. Errors: parse_trace's; options that are missing or wrong.
Result<RequestTrace> request_trace(const TraceArguments& arguments);

// Of a plan with a `prefill` of its own.
Error prefill_is_not_served();
// What runs no batch of requests that come and go refuses a cache in pages.
Error pages_are_served();

}  // namespace nlsplit::inline tools

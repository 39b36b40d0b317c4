// When requests arrive, and how long they are: made by a seed, or read from a file that says so. The same trace for the
// real server (`nlbench load`) and for the simulated one (`nlsim serve`).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline serving {

// 31 years. Clocks count nanoseconds in 64 bits, which last nine times as long.
inline constexpr double latest_arrival_s = 1e9;

// Tokens of a prompt or an answer, at most.
inline constexpr int64_t longest_text = int64_t{1} << 30;

struct ArrivingRequest {
  double at_s = 0;                 // since the first moment of the trace
  int64_t prompt = 1, tokens = 1;  // of the prompt, and of the answer
  // The prompt begins with so many tokens of a text that other requests begin with, too: a system prompt, or what was
  // said before in a conversation. 0: it shares nothing.
  int64_t prefix = 0;
  int64_t text = 0;  // which text; of one without a prefix 0
  friend bool operator==(const ArrivingRequest&, const ArrivingRequest&) = default;
};

struct RequestTrace {
  uint64_t seed = 0;  // of what the prompts say
  std::vector<ArrivingRequest> requests;
  friend bool operator==(const RequestTrace&, const RequestTrace&) = default;
};

struct LengthRange {
  int64_t least = 1, most = 1;  // drawn evenly
};
// "64" or "32..128".
Result<LengthRange> parse_lengths(const std::string& text);
// "2/s", "30/min", "0.5/s": in a second.
Result<double> parse_rate(const std::string& text);

struct ArrivalOptions {
  double rate = 1;  // in a second
  int64_t requests = 1;
  LengthRange prompt, tokens;
  uint64_t seed = 0;
  int64_t prefix = 0;  // tokens in front of the prompt that are those of one of the texts
  int64_t texts = 1;   // which one, is drawn
};
// A Poisson process: times between arrivals are exponential, and know nothing of how the server does (open loop).
RequestTrace poisson_trace(const ArrivalOptions& options);

// JSON {"format": "nlsplit-requests", "version": 1, "seed": …, "requests": [{"at_s": …, "prompt": …, "tokens": …}, …]},
// of a request that shares a prefix also "prefix" and, if it is not 0, "text". Errors name the file and the place: not
// that, times that go back or are beyond the latest, lengths below 1, a prefix below 1 or longer than its prompt, more
// than a million requests.
std::string trace_text(const RequestTrace& trace);
Result<RequestTrace> parse_trace(const std::string& text, const std::string& file);

// What the prompt of a request says: tokens below `vocabulary`.
std::vector<int32_t> prompt_of(const RequestTrace& trace, size_t request, int64_t vocabulary);
// How many first tokens the prompts of two requests share by what the trace says.
int64_t common_prefix(const ArrivingRequest& one, const ArrivingRequest& other);

}  // namespace nlsplit::inline serving

// The outcomes of requests, measured or simulated, and their summary.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace nlsplit::inline serving {

enum class Outcome : uint8_t {
  answered,
  turned_away,  // beyond capacity (429)
  failed,       // an error, a connection that broke
};

// Seconds since the first moment of the trace.
struct ServedRequest {
  Outcome outcome = Outcome::failed;
  double at_s = 0;                 // when it arrived, by the trace: what a client waited before it sent counts
  double first_s = 0, last_s = 0;  // its first token, its last one
  int64_t tokens = 0;              // that came
  int64_t prompt = 0, cached = 0;  // tokens of its prompt; those that were not computed anew
  int64_t preempted = 0;           // so often it lost its slot
  std::string why = {};            // it failed
};

struct Percentiles {
  double p50 = 0, p95 = 0, p99 = 0, mean = 0;
  int64_t count = 0;
};
// The least value that so many of 100 are not above (nearest rank); of no values all is 0.
Percentiles percentiles(std::vector<double> values);

struct ServingSummary {
  int64_t requests = 0, answered = 0, turned_away = 0, failed = 0;
  Percentiles first_token;  // TTFT: from the arrival to the first token, of requests that were answered
  Percentiles next_token;   // TPOT: from one token to the next, the mean of each request of two or more
  double seconds = 0;       // from the first arrival to the last token
  double tokens_per_s = 0, requests_per_s = 0;   // answered, over those seconds
  int64_t prompt_tokens = 0, cached_tokens = 0;  // of requests that were answered
  int64_t preempted = 0;                         // so often a request lost its slot; only a simulation knows
  std::map<std::string, int64_t> failures;       // why, and how many
};
ServingSummary summary_of(const std::vector<ServedRequest>& served);

// JSON of an object.
std::string summary_json(const ServingSummary& summary);

}  // namespace nlsplit::inline serving

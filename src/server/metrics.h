// What a server counts, and the text in which Prometheus reads it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace nlsplit::inline server {

// Seconds, by upper bounds.
struct Histogram {
  static constexpr std::array<double, 14> bounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                    0.25,  0.5,    1,     2.5,  5,     10,   30};
  std::array<uint64_t, bounds.size() + 1> counts{};  // the last one: above all
  double sum = 0;

  void add(double seconds);
  uint64_t count() const;
};

struct ServingCounts {
  int64_t slots = 0, running = 0, waiting = 0;
  uint64_t accepted = 0, turned_away = 0, finished = 0, cancelled = 0, failed = 0;
  uint64_t prompt_tokens = 0, answer_tokens = 0;
  uint64_t cached_tokens = 0;          // of prompts, which were in a slot already
  uint64_t copied_tokens = 0;          // of those, in another one than the request's
  uint64_t preempted = 0;              // so often a request lost its slot and its pages
  uint64_t prefills = 0, decodes = 0;  // executions
  double prefill_s = 0, decode_s = 0;  // in them, the choices between them included
  double request_s = 0;                // of those that finished, in their slots and waiting
  Histogram first_token;               // from the arrival (TTFT)
  Histogram next_token;                // from one token to the next, means of requests (TPOT)
};

// answers: HTTP answers by status.
std::string prometheus_text(const ServingCounts& counts, const std::map<int, uint64_t>& answers);

}  // namespace nlsplit::inline server

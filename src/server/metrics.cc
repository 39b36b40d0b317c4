#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>

namespace nlsplit::inline server {
namespace {

void add_metric(std::string& text, std::string_view name, std::string_view kind, std::string_view help) {
  text += fmt::format("# HELP nlsplit_{0} {1}\n# TYPE nlsplit_{0} {2}\n", name, help, kind);
}

template <class Value>
void add_value(std::string& text, std::string_view name, std::string_view kind, std::string_view help, Value value) {
  add_metric(text, name, kind, help);
  text += fmt::format("nlsplit_{} {}\n", name, value);
}

void add_histogram(std::string& text, std::string_view name, std::string_view help, const Histogram& histogram) {
  add_metric(text, name, "histogram", help);
  uint64_t below = 0;
  for (size_t b = 0; b < Histogram::bounds.size(); ++b) {
    below += histogram.counts[b];
    text += fmt::format("nlsplit_{}_bucket{{le=\"{}\"}} {}\n", name, Histogram::bounds[b], below);
  }
  text += fmt::format("nlsplit_{0}_bucket{{le=\"+Inf\"}} {1}\nnlsplit_{0}_sum {2}\nnlsplit_{0}_count {1}\n", name,
                      histogram.count(), histogram.sum);
}

}  // namespace

void Histogram::add(double seconds) {
  counts[static_cast<size_t>(std::ranges::lower_bound(bounds, seconds) - bounds.begin())] += 1;
  sum += seconds;
}

uint64_t Histogram::count() const { return std::accumulate(counts.begin(), counts.end(), uint64_t{0}); }

std::string prometheus_text(const ServingCounts& counts, const std::map<int, uint64_t>& answers) {
  std::string text;
  add_value(text, "slots", "gauge", "Sequences at once", counts.slots);
  add_value(text, "requests_running", "gauge", "Requests that have a slot", counts.running);
  add_value(text, "requests_waiting", "gauge", "Requests that wait for a slot", counts.waiting);
  add_value(text, "requests_accepted_total", "counter", "Requests that were taken", counts.accepted);
  add_value(text, "requests_turned_away_total", "counter", "Requests beyond capacity", counts.turned_away);
  add_value(text, "requests_finished_total", "counter", "Requests that ended", counts.finished);
  add_value(text, "requests_cancelled_total", "counter", "Requests whose client went away", counts.cancelled);
  add_value(text, "requests_failed_total", "counter", "Requests that the server broke off", counts.failed);
  add_value(text, "prompt_tokens_total", "counter", "Tokens of accepted prompts", counts.prompt_tokens);
  add_value(text, "cached_tokens_total", "counter", "Tokens of prompts that a slot kept of another request",
            counts.cached_tokens);
  add_value(text, "copied_tokens_total", "counter", "Of the cached tokens, those that were copied from slot to slot",
            counts.copied_tokens);
  add_value(text, "preemptions_total", "counter", "Requests that lost their pages to others, and were computed again",
            counts.preempted);
  add_value(text, "answer_tokens_total", "counter", "Tokens that were made", counts.answer_tokens);
  add_metric(text, "executions_total", "counter", "Executions of each Program");
  text += fmt::format("nlsplit_executions_total{{program=\"prefill\"}} {}\n", counts.prefills);
  text += fmt::format("nlsplit_executions_total{{program=\"decode\"}} {}\n", counts.decodes);
  add_metric(text, "execution_seconds_total", "counter", "Time in executions of each Program");
  text += fmt::format("nlsplit_execution_seconds_total{{program=\"prefill\"}} {}\n", counts.prefill_s);
  text += fmt::format("nlsplit_execution_seconds_total{{program=\"decode\"}} {}\n", counts.decode_s);
  add_histogram(text, "time_to_first_token_seconds", "From the arrival of a request to its first token",
                counts.first_token);
  add_histogram(text, "time_per_output_token_seconds", "From one token of a request to the next, its mean",
                counts.next_token);
  add_metric(text, "http_answers_total", "counter", "Answers by their status");
  for (const auto& [status, count] : answers)
    text += fmt::format("nlsplit_http_answers_total{{status=\"{}\"}} {}\n", status, count);
  return text;
}

}  // namespace nlsplit::inline server

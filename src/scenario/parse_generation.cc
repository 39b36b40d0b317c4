// Of a workload that generates: prompts, tokens and sequences, requests that arrive, what plans must reach.
#include <fmt/format.h>

#include <algorithm>

#include "scenario/parse.h"
#include "serving/arrivals.h"

namespace nlsplit::inline scenario {
namespace {

constexpr int64_t max_positions = 1 << 22;  // of a sequence
constexpr double most_tokens_per_second = 1e6;

constexpr std::string_view keys_of_generation[] = {"prompt",     "tokens",   "sequences", "chunk", "context",
                                                   "candidates", "arrivals", "page",      "cache"};

// {rate: 2/s, requests: 500, seed: 1}
Result<Generation::Arrivals> parse_arrivals(const Source& source, const Yaml& node) {
  constexpr int64_t most_requests = 1'000'000;
  ASSIGN_OR_RETURN(const Fields fields, Fields::open(source, node, "arrivals", {"rate", "requests", "seed"}));
  Generation::Arrivals arrivals;
  ASSIGN_OR_RETURN(const Yaml* rate, fields.need("rate"));
  ASSIGN_OR_RETURN(const std::string text, read_text(source, *rate, "a rate"));
  const Result<double> read = parse_rate(text);
  if (!read.ok()) return source.at(*rate, read.error().message);
  arrivals.rate = *read;
  ASSIGN_OR_RETURN(const Yaml* requests, fields.need("requests"));
  ASSIGN_OR_RETURN(arrivals.requests, read_integer(source, *requests, "requests", 1, most_requests));
  if (const Yaml* seed = fields.find("seed")) {
    ASSIGN_OR_RETURN(const int64_t value, read_integer(source, *seed, "seed", 0, INT64_MAX));
    arrivals.seed = static_cast<uint64_t>(value);
  }
  return arrivals;
}

// A number, or a list of them.
Status parse_sequences(const Source& source, const Fields& workload, Generation& of) {
  const Yaml* node = workload.find("sequences");
  if (node == nullptr) return ok_status();
  of.sequences.clear();
  if (node->is_list() && node->items.empty()) return source.at(*node, "a number of sequences is missing");
  for (const Yaml& item : node->is_list() ? node->items : std::vector<Yaml>{*node}) {
    ASSIGN_OR_RETURN(const int64_t count, read_integer(source, item, "sequences", 1, max_batch));
    if (std::ranges::find(of.sequences, count) != of.sequences.end())
      return source.at(item, fmt::format("{} sequences are given twice", count));
    of.sequences.push_back(count);
  }
  return ok_status();
}

// Of the caches that requests to a server share.
Status parse_pages(const Source& source, const Fields& workload, Generation& of) {
  const Yaml *page = workload.find("page"), *cache = workload.find("cache");
  if (page == nullptr && cache != nullptr)
    return source.at(*cache, "'cache' is of caches in pages: 'page' says how many positions a page has");
  if (page == nullptr) return ok_status();
  ASSIGN_OR_RETURN(of.page, read_integer(source, *page, "page", 1, max_positions));
  if (of.sequences.size() > 1) return source.at(*page, "with caches in pages 'sequences' is one number");
  if (of.chunk == 1) return source.at(*page, "with caches in pages prompts are taken in chunks: chunk is 2 or more");
  of.context = (of.context + of.page - 1) / of.page * of.page;
  if (cache == nullptr) return ok_status();
  ASSIGN_OR_RETURN(of.cache, read_integer(source, *cache, "cache", of.context, max_positions * max_batch));
  return ok_status();
}

}  // namespace

int64_t pages_of(const Generation& generation, int64_t sequences) {
  if (generation.page == 0) return 0;
  return (generation.cache > 0 ? generation.cache : sequences * generation.context) / generation.page;
}

std::span<const std::string_view> generation_keys() { return keys_of_generation; }

Status parse_generation(const Source& source, const Fields& workload, Scenario& scenario) {
  if (const Yaml* node = workload.find("batch"))
    return source.at(*node, "'batch' is not for generation: 'sequences' says how many go on at once");
  Generation& of = scenario.generation.emplace();
  const auto read = [&](std::string_view key, int64_t& value, int64_t least, int64_t most) -> Status {
    if (const Yaml* node = workload.find(key)) {
      ASSIGN_OR_RETURN(value, read_integer(source, *node, key, least, most));
    }
    return ok_status();
  };
  RETURN_IF_ERROR(read("prompt", of.prompt, 1, max_positions));
  RETURN_IF_ERROR(read("tokens", of.tokens, 1, max_positions));
  RETURN_IF_ERROR(parse_sequences(source, workload, of));
  scenario.batch = of.sequences.front();
  of.chunk = std::min(of.chunk, of.prompt);
  RETURN_IF_ERROR(read("chunk", of.chunk, 1, of.prompt));
  const int64_t in_chunks = (of.prompt + of.chunk - 1) / of.chunk * of.chunk;
  of.context = std::max(in_chunks, of.prompt + of.tokens - 1);  // the last token is never an input
  RETURN_IF_ERROR(read("context", of.context, of.context, max_positions * 3));
  RETURN_IF_ERROR(parse_pages(source, workload, of));
  RETURN_IF_ERROR(read("candidates", of.candidates, 1, max_positions));
  if (const Yaml* arrivals = workload.find("arrivals")) {
    ASSIGN_OR_RETURN(of.arrivals, parse_arrivals(source, *arrivals));
  }
  scenario.micro_batches = {1};
  if (const Yaml* counts = workload.find("micro_batches")) {
    ASSIGN_OR_RETURN(scenario.micro_batches, parse_micro_batches(source, *counts, scenario.batch));
    if (of.page > 0 && scenario.micro_batches != std::vector<int>{1})
      return source.at(*counts, "caches in pages are of all sequences: there are no micro-batches");
  }
  scenario.objective = Objective::latency;
  return ok_status();
}

Status parse_requirements(const Source& source, const Yaml& node, Scenario& scenario) {
  if (!scenario.generation) return source.at(node, "'require' is for generation: mode: generation");
  ASSIGN_OR_RETURN(const Fields fields,
                   Fields::open(source, node, "require", {"tpot", "ttft", "tokens_per_second", "context"}));
  Requirements& require = scenario.generation->require;
  const auto read_time = [&](std::string_view key, std::optional<double>& value) -> Status {
    const Yaml* at = fields.find(key);
    if (at == nullptr) return ok_status();
    ASSIGN_OR_RETURN(const Seconds most, read_quantity(source, *at, parse_time));
    if (most.value() <= 0) return source.at(*at, "nothing takes no time");
    value = most.value();
    return ok_status();
  };
  RETURN_IF_ERROR(read_time("tpot", require.tpot_s));
  RETURN_IF_ERROR(read_time("ttft", require.ttft_s));
  if (const Yaml* at = fields.find("tokens_per_second")) {
    ASSIGN_OR_RETURN(require.tokens_per_second,
                     read_number(source, *at, "tokens_per_second", 0, most_tokens_per_second));
  }
  if (const Yaml* at = fields.find("context")) {
    ASSIGN_OR_RETURN(require.context, read_integer(source, *at, "context", 1, max_positions * 3));
  }
  return ok_status();
}

}  // namespace nlsplit::inline scenario

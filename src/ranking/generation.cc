#include "ranking/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <span>

#include "base/cores.h"
#include "graph/gguf/import.h"
#include "graph/safetensors/import.h"
#include "kernels/layout.h"
#include "program/caches.h"
#include "serving/batch.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline ranking {
namespace {

// Where the sequences are: the first position of an execution, and the positions there are behind it.
struct At {
  int64_t begin, end;
};

void give(const Program& program, At at, GivenScalars& given) {
  for (const DeviceProgram& device : program.devices) {
    for (const Buffer& buffer : device.buffers) {
      if (buffer.kind != BufferKind::input || (buffer.name != "begins" && buffer.name != "lengths")) continue;
      const auto count = static_cast<size_t>(element_count(buffer.type.shape) * buffer.instances);
      const std::vector<int64_t> values(count, buffer.name == "begins" ? at.begin : at.end);
      given.inputs[fmt::format("{}/{}", program.name, buffer.name)].assign(reinterpret_cast<const char*>(values.data()),
                                                                           values.size() * sizeof(int64_t));
    }
  }
}

// The file with the model's tokenizer; empty: there is none.
std::string tokenizer_of(const std::string& model) {
  const size_t question = model.rfind('?');
  const std::string path = model.substr(0, question);
  if (is_gguf(model)) return std::filesystem::absolute(path.ends_with(".gguf") ? path : model).string();
  const std::string beside = path + "/tokenizer.json";
  std::error_code failure;
  return is_safetensors(model) && std::filesystem::exists(beside, failure) ? std::filesystem::absolute(beside).string()
                                                                           : std::string();
}

// Executions of one Program.
struct Timeable {
  Sequence sequence;
  TimedGraph graph;
};

Result<Timeable> timeable(const Scenario& scenario, const Session& session, At at, std::span<const Choice> choices) {
  GivenScalars given;
  give(session.programs[static_cast<size_t>(choices[0].program)], at, given);
  Timeable made;
  ASSIGN_OR_RETURN(made.sequence, in_sequence(session, choices, Choosing::messages));
  ASSIGN_OR_RETURN(const ScalarTable scalars, scalar_values(made.sequence.program, made.sequence.dependencies, given));
  const CostTable costs = cost_table(scenario, session.name.substr(0, session.name.find(' ')));
  ASSIGN_OR_RETURN(made.graph, build_timed_graph(made.sequence.program, made.sequence.dependencies, scenario.cluster,
                                                 costs, scalars));
  return made;
}

// [execution]: when it ends.
std::vector<double> ends_of(const Timeable& made, const Timing& timing) {
  return execution_ends(made.sequence, to_trace(made.sequence.program, made.sequence.dependencies, made.graph, timing));
}

// The first chunks of a prompt: until all stages are busy, from where on each takes as long as the one before.
std::vector<Choice> chunk_choices(const TimedSession& timed, int64_t chunks) {
  const Session& session = *timed.session;
  const bool overlap = timed.chunks_overlap && session.programs.size() > 1;
  if (!overlap) return {{0, 1}, {0, 1}};
  const int64_t until_busy = std::ssize(session.programs[0].devices) + 1;
  return {{0, static_cast<int>(std::min(chunks, until_busy)), Refill::read}};
}

// Tokens of a row, until all micro-batches have begun their next one once, and the first of the row behind it.
std::vector<Choice> token_choices(const Session& session) {
  const int decode = static_cast<int>(session.programs.size()) - 1;
  if (session.programs[0].micro_batches == 1) return {{decode, 1}, {decode, 1}};
  constexpr int until_steady = 3;
  return {{decode, until_steady, Refill::answered}, {decode, 1}};
}

// Of the ends of chunk_choices: when so many chunks that were chosen at once end.
double row_s(const std::vector<double>& ends, int64_t chunks) {
  if (chunks <= std::ssize(ends)) return ends[static_cast<size_t>(chunks - 1)];
  return ends.back() + static_cast<double>(chunks - std::ssize(ends)) * (ends.back() - ends[ends.size() - 2]);
}

double prompt_s(const std::vector<double>& ends, int64_t chunks) {
  const int64_t rows = (chunks - 1) / executions_at_once;  // besides the last one
  const double whole = rows == 0 ? 0 : static_cast<double>(rows) * row_s(ends, executions_at_once);
  return whole + row_s(ends, chunks - rows * executions_at_once);
}

// Of the ends of token_choices: between two tokens; with several micro-batches the time between two rows spread over a
// row's tokens.
double token_s(const std::vector<double>& ends, int64_t tokens) {
  const size_t last = ends.size() - 1;
  if (last == 1) return ends[1] - ends[0];
  const double steady = ends[last - 1] - ends[last - 2], between_rows = ends[last] - ends[last - 1];
  return steady + (between_rows - steady) / static_cast<double>(std::min<int64_t>(executions_at_once, tokens));
}

// Of the device that takes the longest.
Result<double> copied_position_s(const Scenario& scenario, const Session& session) {
  const Program& program = session.programs.front();
  const CostTable costs = cost_table(scenario, session.name.substr(0, session.name.find(' ')));
  double longest = 0;
  for (size_t d = 0; d < program.devices.size(); ++d) {
    const DeviceId device = scenario.cluster.find_device(program.devices[d].name);
    double all = 0;
    for (const Cache& cache : caches_of(program, d)) {
      const ComputeDesc& desc = program.descs[static_cast<size_t>(cache.desc)];
      const CacheUpdate writes = cache_update_of(desc);
      ASSIGN_OR_RETURN(const Cost cost, costs.cost(device, desc, program.devices[d].buffer(cache.buffer).name));
      all += cost.time.value() / static_cast<double>(writes.samples * writes.steps);
    }
    longest = std::max(longest, all);
  }
  return longest;
}

}  // namespace

Result<std::vector<GenerationTimes>> time_generation(const Scenario& scenario,
                                                     const std::vector<TimedSession>& sessions, const Tier& tier,
                                                     size_t workers) {
  const Generation& of = *scenario.generation;
  const auto chunk_of = [&](const Session& session) { return session.programs.size() > 1 ? of.chunk : 1; };
  // With caches in pages prompts come one after the other.
  const int64_t prompts = of.page > 0 ? scenario.batch : 1;
  const auto chunks_of = [&](const Session& session) {
    return (of.prompt + chunk_of(session) - 1) / chunk_of(session);
  };
  std::vector<std::optional<Result<Timeable>>> results(2 * sessions.size());  // of each session prompts, then tokens
  on_all_cores(
      results.size(),
      [&](size_t i) {
        const TimedSession& timed = sessions[i / 2];
        const int64_t chunk = chunk_of(*timed.session), chunks = chunks_of(*timed.session);
        const int64_t prompt = (chunks - 1) * chunk / 2, token = of.prompt + std::max<int64_t>(of.tokens - 2, 0) / 2;
        results[i] = i % 2 == 0
                         ? timeable(scenario, *timed.session, {prompt, prompt + chunk}, chunk_choices(timed, chunks))
                         : timeable(scenario, *timed.session, {token, token + 1}, token_choices(*timed.session));
      },
      workers);
  std::vector<Timeable> made;
  for (auto& result : results) {
    ASSIGN_OR_RETURN(made.emplace_back(), *std::move(result));
  }
  // The largest first: the last ones to end are small.
  std::vector<size_t> order(made.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return made[i].graph.activities.size(); });
  std::vector<const TimedGraph*> graphs;
  for (const size_t i : order) graphs.push_back(&made[i].graph);
  ASSIGN_OR_RETURN(std::vector<Timing> sorted, simulate_all(tier, scenario.cluster, graphs));
  std::vector<Timing> timings(made.size());
  for (size_t k = 0; k < order.size(); ++k) timings[order[k]] = std::move(sorted[k]);
  std::vector<GenerationTimes> times;
  for (size_t i = 0; i < made.size(); i += 2) {
    GenerationTimes& one = times.emplace_back();
    one.first_token_s = prompt_s(ends_of(made[i], timings[i]), prompts * chunks_of(*sessions[i / 2].session));
    one.next_token_s = token_s(ends_of(made[i + 1], timings[i + 1]), of.tokens);
  }
  return times;
}

namespace {

// Of a Program whose executions take so many tokens of each sequence: in a straight line from an empty context to a
// full one.
Result<ExecutionTime> time_execution(const Scenario& scenario, const Session& session, int program, int64_t row,
                                     const Tier& tier) {
  const std::array<Choice, 2> one_by_one = {Choice{program, 1}, {program, 1}};
  const std::array<int64_t, 2> begins = {0, std::max<int64_t>(scenario.generation->context - row, 1)};
  std::vector<Timeable> made;
  std::vector<const TimedGraph*> graphs;
  for (const int64_t begin : begins) {
    ASSIGN_OR_RETURN(made.emplace_back(), timeable(scenario, session, {begin, begin + row}, one_by_one));
  }
  for (const Timeable& one : made) graphs.push_back(&one.graph);
  ASSIGN_OR_RETURN(const std::vector<Timing> timings, simulate_all(tier, scenario.cluster, graphs));
  std::array<double, 2> took{};
  for (size_t i = 0; i < took.size(); ++i) {
    const std::vector<double> ends = ends_of(made[i], timings[i]);
    took[i] = ends[1] - ends[0];
  }
  ExecutionTime time;
  time.per_position_s = (took[1] - took[0]) / static_cast<double>(begins[1] - begins[0]);
  time.at_none_s = took[0] - time.per_position_s * static_cast<double>(row);
  return time;
}

}  // namespace

Result<ServerTimes> time_server(const Scenario& scenario, const Session& session, const Tier& tier) {
  const Generation& of = *scenario.generation;
  ServerTimes times;
  const auto program_called = [&](const std::string& name) {
    return static_cast<int>(std::ranges::find(session.programs, name, &Program::name) - session.programs.begin());
  };
  const auto time = [&](const std::string& name, int64_t row) {
    return time_execution(scenario, session, program_called(name), row, tier);
  };
  ASSIGN_OR_RETURN(times.decode, time(std::string(decode_name), 1));
  times.prefill = times.decode;
  if (session.programs.size() > 1) {
    ASSIGN_OR_RETURN(times.prefill, time(std::string(prefill_name), of.chunk));
  }
  for (const int64_t sequences : fewer_sequences(scenario)) {
    ASSIGN_OR_RETURN(const ExecutionTime fewer, time(decode_name_of(sequences), 1));
    times.fewer.push_back({sequences, fewer});
  }
  ASSIGN_OR_RETURN(times.copied_position_s, copied_position_s(scenario, session));
  return times;
}

double tokens_per_s(const Scenario& scenario, const GenerationTimes& times) {
  const Generation& of = *scenario.generation;
  const double all = static_cast<double>(scenario.batch * of.tokens);
  return all / (times.first_token_s + static_cast<double>(of.tokens - 1) * times.next_token_s);
}

double cost_of(const Scenario& scenario, const GenerationTimes& times) {
  switch (scenario.generation.value().objective) {
    case GenerationObjective::tpot:
      return times.next_token_s;
    case GenerationObjective::ttft:
      return times.first_token_s;
    case GenerationObjective::tokens_per_second:
      return 1 / tokens_per_s(scenario, times);
  }
  CHECK(false, "unknown objective");
}

Executions executions_of(const Scenario& scenario) {
  const Generation& of = scenario.generation.value();
  const int64_t whole = (of.prompt + of.chunk - 1) / of.chunk;
  const auto chunks = static_cast<double>(of.page > 0 ? whole * scenario.batch : whole);
  switch (of.objective) {
    case GenerationObjective::tpot:
      return {0, 1};
    case GenerationObjective::ttft:
      return {chunks, 0};
    case GenerationObjective::tokens_per_second:
      return {chunks, static_cast<double>(of.tokens - 1)};
  }
  CHECK(false, "unknown objective");
}

std::vector<Miss> misses_of(const Scenario& scenario, const GenerationTimes& times) {
  const Requirements& require = scenario.generation.value().require;
  std::vector<Miss> misses;
  const auto at_most = [&](std::string_view what, double is, const std::optional<double>& most) {
    if (most && is > *most)
      misses.push_back(
          {fmt::format("{} {} instead of {}", what, to_string(seconds(is)), to_string(seconds(*most))), is / *most});
  };
  at_most("TPOT", times.next_token_s, require.tpot_s);
  at_most("TTFT", times.first_token_s, require.ttft_s);
  if (require.tokens_per_second && times.tokens_per_s < *require.tokens_per_second)
    misses.push_back({fmt::format("{:.3g} tokens/s instead of {:.3g}", times.tokens_per_s, *require.tokens_per_second),
                      *require.tokens_per_second / times.tokens_per_s});
  if (require.context && times.largest_context < *require.context)
    misses.push_back(
        {fmt::format("a context of {} instead of {}", times.largest_context, *require.context),
         static_cast<double>(*require.context) / static_cast<double>(std::max<int64_t>(times.largest_context, 1))});
  return misses;
}

SavedGeneration saved_generation(const Scenario& scenario, const GenerationTimes& times) {
  const Generation& of = *scenario.generation;
  SavedGeneration saved{{}, of.prompt, of.tokens, times.first_token_s, times.next_token_s};
  saved.tokenizer = tokenizer_of(scenario.model);
  return saved;
}

}  // namespace nlsplit::inline ranking

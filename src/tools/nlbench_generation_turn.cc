#include "tools/nlbench_generation_turn.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/random.h"
#include "exec/run_threads.h"
#include "tools/nlbench_generation_job.h"
#include "tools/nlbench_ranks.h"
#include "tools/serving_options.h"

namespace nlsplit::inline tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t seed_of_prompts = 1;  // what the tokens are makes no difference to the times

// Texts one after the other, until the turn is over.
class Texts {
 public:
  Texts(const GenerationForm& form, const SavedGeneration& of, const RunOptions& options)
      : form_(form), of_(of), options_(options), random_(seed_of_prompts) {}

  ChooseNext choices() {
    return [this](const SessionState& state) -> Chosen {
      if (texts_.empty()) begin_text();
      Chosen choice = texts_.back().choices()(state);
      if (choice.times > 0 || is_over()) return choice;
      begin_text();
      return texts_.back().choices()(state);
    };
  }

  // [text]
  std::vector<double> next_token_s() const {
    std::vector<double> all;
    for (const GenerationRun& text : texts_) {
      double sum = 0;
      for (const GeneratedSequence& sequence : text.sequences())
        sum += (sequence.at_s.back() - sequence.at_s.front()) / static_cast<double>(of_.tokens - 1);
      all.push_back(sum / static_cast<double>(form_.sequences));
    }
    return all;
  }
  // Of the sequence that waits longest; the mean over the texts.
  double first_token_s() const {
    double sum = 0;
    for (const GenerationRun& text : texts_) sum += nlsplit::first_token_s(text.sequences());
    return sum / static_cast<double>(texts_.size());
  }

 private:
  void begin_text() {
    if (texts_.empty()) begun_ = Clock::now();
    std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(form_.sequences));
    for (std::vector<int32_t>& prompt : prompts) {
      for (int64_t i = 0; i < of_.prompt; ++i)
        prompt.push_back(static_cast<int32_t>(random_.below(static_cast<uint64_t>(form_.vocabulary))));
    }
    texts_.emplace_back(form_, std::move(prompts), of_.tokens,
                        GenerationHooks{[](size_t, std::span<const float>, uint64_t) { return size_t{0}; },
                                        [](size_t, int32_t) { return false; }});
  }
  bool is_over() const {
    return std::ssize(texts_) >= options_.repeats &&
           std::chrono::duration<double>(Clock::now() - begun_).count() >= options_.duration_s;
  }

  const GenerationForm& form_;
  const SavedGeneration& of_;
  const RunOptions& options_;
  Random random_;
  std::deque<GenerationRun> texts_;
  Clock::time_point begun_;
};

Result<GenerationJob> read_job(const RunArguments& arguments) {
  ASSIGN_OR_RETURN(GenerationJob job, read_generation_job(arguments.job));
  if (job.form.page > 0) return pages_are_served();
  const auto& of = job.loaded.saved.generation;
  if (!of || of->tokens < 2)
    return invalid_input("a text of one token has no time between tokens: `tokens` of the workload");
  return job;
}

std::string figures(const GenerationJob& job, const Texts& texts) {
  const nlohmann::json file = {{"format", "nlsplit-run"},
                               {"version", 1},
                               {"fingerprint", fingerprint_of(job.session())},
                               {"makespans_s", texts.next_token_s()},
                               {"latency_mean_s", texts.first_token_s()},
                               {"messages_s", 0},
                               {"devices", nlohmann::json::array()},
                               {"timeline", nullptr}};
  return file.dump() + "\n";
}

// run: as in nlbench_generate.cc.
template <class Run>
Status take_turn(const RunArguments& arguments, const RunOptions& options, const GenerationJob& job, const Run& run) {
  Texts texts(job.form, *job.loaded.saved.generation, options);
  const Result<SessionResult> result = run(&job.session(), job.job(), texts.choices());
  if (!result) return result.error();
  return write_file(arguments.json, figures(job, texts));
}

RunOptions without_states(RunOptions options) {
  options.leave_states = true;
  return options;
}

}  // namespace

Status run_generation_turn(const RunArguments& arguments, const RunOptions& options, Transport& transport) {
  ASSIGN_OR_RETURN(const std::optional<GenerationJob> job,
                   read_on_first(transport, [&] { return read_job(arguments); }));
  const auto run = [&](const Session* session, const Job& of_rank, const ChooseNext& choose) {
    return run_session(session, of_rank, choose, transport, without_states(options));
  };
  if (job) return agree_on(transport, take_turn(arguments, options, *job, run));
  const Result<SessionResult> result = run(nullptr, Job{}, choose_from({}));
  return agree_on(transport, result ? ok_status() : Status(result.error()));
}

Status run_generation_turn_here(const RunArguments& arguments, const RunOptions& options) {
  ASSIGN_OR_RETURN(const GenerationJob job, read_job(arguments));
  return take_turn(arguments, options, job, [&](const Session* session, const Job& of_run, const ChooseNext& choose) {
    return run_session_threads(*session, of_run, choose, without_states(options), arguments.transport->make_world);
  });
}

}  // namespace nlsplit::inline tools

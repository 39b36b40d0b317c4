#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/interrupts.h"
#include "exec/generation.h"
#include "report/table.h"
#include "text/answer_stream.h"
#include "text/chat_template.h"
#include "text/read_tokenizer.h"
#include "text/sample.h"
#include "tools/exit.h"
#include "tools/nlbench_commands.h"
#include "tools/nlbench_conditions.h"
#include "tools/nlbench_generation_job.h"
#include "tools/nlbench_ranks.h"
#include "tools/outputs.h"
#include "tools/serving_options.h"

namespace nlsplit::inline tools {
namespace {

struct GenerateArguments {
  JobArguments plan;
  RanksArguments ranks;
  std::vector<std::string> prompts;
  std::vector<std::string> prompt_tokens;
  std::vector<std::string> stops;
  std::string tokenizer, json, system;
  int64_t tokens = 0;  // 0: the workload's
  Sampling sampling{.temperature = 0};
  bool ignores_end = false, chats = false;
};

// What rank 0 reads.
struct Request {
  GenerationJob job;
  std::optional<Tokenizer> tokenizer;
  std::vector<std::vector<TokenId>> prompts;
  int64_t tokens = 0;

  const std::optional<SavedGeneration>& made_for() const { return job.loaded.saved.generation; }
};

// "504,3575,282"
Result<std::vector<TokenId>> listed_tokens(std::string_view list) {
  std::vector<TokenId> tokens;
  while (true) {
    const std::string_view word = list.substr(0, list.find(','));
    TokenId token = 0;
    const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (failure != std::errc() || end != word.data() + word.size() || word.empty())
      return invalid_input(fmt::format("--prompt-tokens: \"{}\" is not a token ID", word));
    tokens.push_back(token);
    if (word.size() == list.size()) return tokens;
    list.remove_prefix(word.size() + 1);
  }
}

Status read_prompts(const GenerateArguments& arguments, Request& request) {
  std::string tokenizer = arguments.tokenizer;
  if (tokenizer.empty()) tokenizer = request.job.tokenizer_path();
  if (!tokenizer.empty()) {
    Result<Tokenizer> read = read_tokenizer(tokenizer);
    const bool needed = !arguments.prompts.empty() || !arguments.tokenizer.empty();
    if (!read && needed) return read.error();
    if (read)
      request.tokenizer = std::move(*read);
    else
      fmt::print(stderr, "nlbench: tokens are shown as numbers: {}\n", read.error().to_string());
  }
  if (!request.tokenizer && !arguments.prompts.empty())
    return invalid_input(
        "--prompt needs a tokenizer, which this model has none of: --tokenizer FILE, or give the "
        "tokens themselves with --prompt-tokens");
  if (!request.tokenizer && !arguments.stops.empty())
    return invalid_input("--stop needs a tokenizer, which this model has none of: --tokenizer FILE");
  std::optional<ChatTemplate> chat;
  if (arguments.chats) {
    ASSIGN_OR_RETURN(chat, read_chat_template(tokenizer));
  }
  for (const std::string& prompt : arguments.prompts) {
    std::vector<TokenId> tokens;
    if (chat) {
      std::vector<ChatMessage> messages;
      if (!arguments.system.empty()) messages.push_back({"system", arguments.system});
      messages.push_back({"user", prompt});
      ASSIGN_OR_RETURN(const std::string text, chat_text(*chat, messages, today()));
      ASSIGN_OR_RETURN(tokens, encode(*request.tokenizer, text, Around::without));
    } else {
      ASSIGN_OR_RETURN(tokens, encode_beginning(*request.tokenizer, prompt));
    }
    request.prompts.push_back(std::move(tokens));
  }
  for (const std::string& list : arguments.prompt_tokens) {
    ASSIGN_OR_RETURN(std::vector<TokenId> tokens, listed_tokens(list));
    request.prompts.push_back(std::move(tokens));
  }
  if (request.prompts.empty()) return invalid_input("--prompt TEXT or --prompt-tokens N,N,… says what to go on from");
  return ok_status();
}

Status check_text_options(const GenerateArguments& arguments) {
  if (arguments.chats && arguments.prompts.empty()) return invalid_input("--chat is for a --prompt");
  if (!arguments.system.empty() && !arguments.chats) return invalid_input("--system is for --chat");
  if (std::ranges::find(arguments.stops, "") != arguments.stops.end())
    return invalid_input("--stop: the text is empty");
  return ok_status();
}

Status check_drawing(const GenerateArguments& arguments) {
  RETURN_IF_ERROR(check(arguments.sampling));
  const Sampling& of = arguments.sampling;
  if (of.temperature == 0 && (of.top_k != 0 || of.top_p != 1 || of.seed != 0))
    return invalid_input("--top-k, --top-p and --seed are for drawing: with --temperature above 0");
  return ok_status();
}

Result<Request> read_request(const GenerateArguments& arguments) {
  RETURN_IF_ERROR(check_outputs({arguments.json}));
  RETURN_IF_ERROR(check_drawing(arguments));
  RETURN_IF_ERROR(check_text_options(arguments));
  ASSIGN_OR_RETURN(GenerationJob job, read_generation_job(arguments.plan));
  if (job.form.page > 0) return pages_are_served();
  Request request{std::move(job), std::nullopt, {}, 0};
  request.tokens = arguments.tokens;
  if (request.tokens == 0) request.tokens = request.made_for() ? request.made_for()->tokens : 1;
  if (arguments.sampling.temperature > 0 &&
      std::max<int64_t>(arguments.sampling.top_k, 2) > request.job.form.candidates)
    return invalid_input(fmt::format("one of {} would be drawn, and the plan gives {}: `candidates` of the workload",
                                     std::max(arguments.sampling.top_k, 2), request.job.form.candidates));
  RETURN_IF_ERROR(read_prompts(arguments, request));
  RETURN_IF_ERROR(check_prompts(request.job.form, request.prompts, request.tokens));
  return request;
}

// Text as it comes of one sequence; of several each as a whole in the end.
class Speaker {
 public:
  Speaker(const GenerateArguments& arguments, const Request& request) : arguments_(arguments), request_(request) {
    for (size_t s = 0; s < request.prompts.size() && request.tokenizer; ++s) {
      answers_.emplace_back(*request.tokenizer,
                            arguments.ignores_end ? std::vector<TokenId>() : request.tokenizer->ends, arguments.stops,
                            arguments.chats ? TextBegin::here : TextBegin::before);
    }
    texts_.resize(request.prompts.size());
    if (speaks() && !arguments.prompts.empty() && !arguments.chats) say(arguments.prompts[0]);
  }

  GenerationHooks hooks() {
    return {[this](size_t s, std::span<const float> scores, uint64_t position) { return pick(s, scores, position); },
            [this](size_t s, int32_t token) { return ends(s, token); }};
  }
  const Status& status() const { return status_; }

  void finish() {
    for (size_t s = 0; s < answers_.size(); ++s) add(s, answers_[s].finish());
    if (speaks()) say("\n");
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  bool speaks() const { return request_.prompts.size() == 1 && arguments_.json != "-"; }
  static void say(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
  void add(size_t s, const std::string& text) {
    texts_[s] += text;
    if (speaks()) say(text);
  }

  // Sequences with the same prompt draw apart.
  size_t pick(size_t s, std::span<const float> scores, uint64_t position) {
    Sampling own = arguments_.sampling;
    own.seed += s;
    const Result<TokenId> drawn = sample(scores, own, position);
    if (drawn) return static_cast<size_t>(*drawn);
    if (status_.ok()) status_ = drawn.error();
    return 0;
  }

  bool ends(size_t s, int32_t token) {
    if (answers_.empty()) {
      add(s, fmt::format("{}{}", texts_[s].empty() ? "" : " ", token));
      return !status_.ok();
    }
    const Result<std::string> text = answers_[s].next(token);
    if (text)
      add(s, *text);
    else if (status_.ok())
      status_ = text.error();
    return answers_[s].ended() || !status_.ok();
  }

  const GenerateArguments& arguments_;
  const Request& request_;
  std::vector<AnswerStream> answers_;  // [sequence]; none: there is no tokenizer
  std::vector<std::string> texts_;     // [sequence]
  Status status_;
};

// Seconds between two tokens, of all sequences.
std::vector<double> steps_of(const GenerationRun& run) {
  std::vector<double> steps;
  for (const GeneratedSequence& sequence : run.sequences()) {
    for (size_t i = 1; i < sequence.at_s.size(); ++i) steps.push_back(sequence.at_s[i] - sequence.at_s[i - 1]);
  }
  return steps;
}

std::string times_text(const Request& request, const GenerationRun& run, const Conditions& conditions) {
  const std::vector<double> steps = steps_of(run);
  const double first = first_token_s(run.sequences());
  double mean = 0, end = first;
  int64_t tokens = 0;
  for (const GeneratedSequence& sequence : run.sequences()) {
    tokens += std::ssize(sequence.tokens);
    if (!sequence.at_s.empty()) end = std::max(end, sequence.at_s.back());
  }
  for (const double step : steps) mean += step / static_cast<double>(steps.size());
  Table table({{""}, {"measured", Align::right}, {"predicted", Align::right}});
  const auto& of = request.made_for();
  const auto predicted = [&](double seconds_then) { return of ? to_string(seconds(seconds_then)) : std::string("-"); };
  table.add({"first token (TTFT)", to_string(seconds(first)), predicted(of ? of->first_token_s : 0)});
  if (!steps.empty())
    table.add({"each next token (TPOT)", to_string(seconds(mean)), predicted(of ? of->next_token_s : 0)});
  std::string text = fmt::format("\n{} in {}, {:.1f} tokens/s\n\n{}", counted(tokens, "token"), to_string(seconds(end)),
                                 static_cast<double>(tokens) / end, table.to_string());
  text += conditions_text(conditions);
  if (of) text += fmt::format("The prediction is for a prompt of {} tokens and {} more.\n", of->prompt, of->tokens);
  return text;
}

std::string result_json(const Request& request, const GenerationRun& run, const Conditions& conditions,
                        const Speaker& speaker) {
  nlohmann::json sequences = nlohmann::json::array();
  for (size_t s = 0; s < request.prompts.size(); ++s) {
    const GeneratedSequence& made = run.sequences()[s];
    sequences.push_back({{"prompt_tokens", request.prompts[s]},
                         {"tokens", made.tokens},
                         {"text", request.tokenizer ? speaker.texts()[s] : ""},
                         {"at_s", made.at_s}});
  }
  nlohmann::json file = {{"format", "nlsplit-generation-run"},       {"version", 1},
                         {"session", request.job.session().name},    {"first_token_s", first_token_s(run.sequences())},
                         {"token_steps_s", steps_of(run)},           {"sequences", std::move(sequences)},
                         {"conditions", conditions_json(conditions)}};
  if (const auto& of = request.made_for())
    file["predicted"] = {{"prompt", of->prompt},
                         {"tokens", of->tokens},
                         {"first_token_s", of->first_token_s},
                         {"next_token_s", of->next_token_s}};
  return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Status conclude(const GenerateArguments& arguments, const Request& request, const GenerationRun& run,
                const RanOn& ran_on, Speaker& speaker) {
  const Conditions conditions =
      conditions_of(request.job.session().programs.front(), ran_on, request.job.loaded.saved.clocks);
  speaker.finish();
  RETURN_IF_ERROR(speaker.status());
  if (arguments.json == "-") {
    fmt::print("{}", result_json(request, run, conditions, speaker));
    return ok_status();
  }
  if (!arguments.json.empty())
    RETURN_IF_ERROR(write_file(arguments.json, result_json(request, run, conditions, speaker)));
  for (size_t s = 0; s < request.prompts.size() && request.prompts.size() > 1; ++s)
    fmt::print("[{}] {}{}\n", s + 1, s < arguments.prompts.size() && !arguments.chats ? arguments.prompts[s] : "",
               speaker.texts()[s]);
  fmt::print(stderr, "{}", times_text(request, run, conditions));
  return ok_status();
}

RunOptions options_of(const GenerateArguments& arguments) {
  RunOptions options = run_options(arguments.ranks);
  options.leave_states = true;  // nobody reads the caches of other machines
  return options;
}

Status generate(const GenerateArguments& arguments, const Request& request, const RunOnRanks& run) {
  Speaker speaker(arguments, request);
  GenerationRun generation(request.job.form, request.prompts, request.tokens, speaker.hooks());
  const Result<SessionResult> result = run(request.job.session(), request.job.job(), generation.choices());
  if (!result) return result.error();
  return conclude(arguments, request, generation, result->ran_on, speaker);
}

int generate_command(const GenerateArguments& arguments) {
  if (arguments.ranks.hosts.asked) return print_session_hosts(arguments.plan, arguments.ranks);
  return run_session_command(
      arguments.ranks, options_of(arguments), [&] { return read_request(arguments); },
      [&](const Request& request, const RunOnRanks& run) { return generate(arguments, request, run); });
}

}  // namespace

void add_generate_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "generate",
      "Generate text with a language model that is split over machines.\n"
      "  mpirun -np 2 nlbench generate S.yaml --plan 1 --prompt \"The capital of Italy is\" --tokens 64\n"
      "  nlbench generate S.yaml --plan mine --prompt-tokens 504,3575,282 --transport threads\n"
      "The scenario has `workload: {mode: generation, …}` (docs/generation.md). The text goes to standard output, "
      "times to standard error.");
  const auto a = std::make_shared<GenerateArguments>();
  add_session_options(*command, a->plan,
                      "A scenario (.yaml), or a folder saved by `nlsim lower S --session --save DIR`");
  add_ranks_options(*command, a->ranks);
  command->add_option("--prompt", a->prompts, "The text to continue; several: one sequence each, in one batch")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command->add_option("--prompt-tokens", a->prompt_tokens, "The same as tokens of the vocabulary: 504,3575,282")
      ->type_name("LIST")
      ->allow_extra_args(false);
  command->add_flag("--chat", a->chats,
                    "Each prompt is a user's message, formatted by the model's own chat template; the answer is shown");
  command->add_option("--system", a->system, "With --chat: the system's message")->type_name("TEXT");
  command
      ->add_option(
          "--stop", a->stops,
          "End before this text, as well as at the model's end-of-text tokens; several: before the first to appear")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command->add_option("--tokens", a->tokens, "Largest number of tokens (default: the workload's)")->check(above_zero());
  command->add_option("--tokenizer", a->tokenizer, "tokenizer.json or FILE.gguf (default: the model's own)")
      ->type_name("FILE");
  command
      ->add_option("--temperature", a->sampling.temperature,
                   "0: the likeliest token (default); else one is drawn from the `candidates` of the workload")
      ->check(not_negative());
  command
      ->add_option("--top-k", a->sampling.top_k,
                   "Draw from this many of the likeliest tokens (default: all candidates)")
      ->check(not_negative());
  command->add_option("--top-p", a->sampling.top_p,
                      "Draw from the fewest likeliest that have this share of the probability (default 1)");
  command->add_option("--seed", a->sampling.seed,
                      "Seed of the sampling (default 0); the second of several sequences has the next seed, and so on");
  command->add_flag("--ignore-end", a->ignores_end, "Go on after an end-of-text token");
  command->add_option("--json", a->json, "Write tokens, text and times to FILE (-: to standard output)")
      ->type_name("FILE");
  command->callback([a, &code] { code = generate_command(*a); });
}

}  // namespace nlsplit::inline tools

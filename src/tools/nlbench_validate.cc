// `nlbench validate`: the plans a ranking put first, and some others, run for real and held against their predictions.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>

#include "base/file.h"
#include "base/interrupts.h"
#include "base/output_lock.h"
#include "base/temporary_folder.h"
#include "base/units.h"
#include "measure/launch.h"
#include "report/table.h"
#include "report/validation/validation_report.h"
#include "tools/exit.h"
#include "tools/launch_options.h"
#include "tools/nlbench_campaign.h"
#include "tools/nlbench_commands.h"
#include "tools/nlbench_machine.h"
#include "tools/option_values.h"
#include "tools/terminal.h"
#include "validate/contest.h"

namespace nlsplit::inline tools {
namespace {

namespace fs = std::filesystem;

struct ValidateArguments {
  std::string scenario, output, nlsim;
  LaunchArguments launch;
  std::string duration = "300ms";
  int top = 10, also = 10, rounds = 3, final_rounds = 0, repeats = 1;
  uint64_t seed = 1;
  bool recalibrate = false, confident = false;
  double confidence = 0.9;
  int most_rounds = 40;
};

// With --confident so many rounds are run before it is asked again which plan is the best.
constexpr int rounds_a_look = static_cast<int>(least_pairs);

ContestOptions contest_options(const ValidateArguments& arguments) {
  return {arguments.confidence, (arguments.most_rounds + rounds_a_look - 1) / rounds_a_look};
}

std::vector<const PredictedPlan*> all_of(const PlanSet& set) {
  std::vector<const PredictedPlan*> plans;
  for (const PredictedPlan& plan : set.plans) plans.push_back(&plan);
  return plans;
}

// What a reader of the ranking would choose among, and what turned out about as good as the best in the rounds of all
// plans. (Later ones may be there already: the same command then finds nothing to do.)
std::vector<const PredictedPlan*> contenders(const PlanSet& set, const ResultsFile& results, int rounds) {
  constexpr size_t first_ones = 5;
  std::vector<PlanRun> before;
  std::ranges::copy_if(results.runs(), std::back_inserter(before),
                       [&](const PlanRun& run) { return run.round < rounds; });
  std::vector<ValidatedPlan> plans = join(set, before);
  std::erase_if(plans, [](const ValidatedPlan& plan) { return plan.runs.empty(); });
  std::ranges::stable_sort(plans, {}, [](const ValidatedPlan& plan) { return judged(plan).score.predicted; });
  double best = std::numeric_limits<double>::infinity();
  for (const ValidatedPlan& plan : plans) best = std::min(best, judged(plan).score.measured);
  std::vector<const PredictedPlan*> chosen;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (i < first_ones || judged(plans[i]).score.measured <= best * (1 + near_best))
      chosen.push_back(plans[i].predicted);
  }
  return chosen;
}

// Rounds of all plans, then of those that may be the best, until one is known or all left are equal.
Status run_until_confident(const ValidateArguments& arguments, const PlanSet& set, const ResultsFile& results,
                           Campaign& campaign) {
  std::vector<const PredictedPlan*> plans = all_of(set);
  for (int round = 0; round < arguments.most_rounds && !campaign.gives_up(); round += rounds_a_look) {
    const int end = std::min(round + rounds_a_look, arguments.most_rounds);
    RETURN_IF_ERROR(campaign.run(plans, {round, end},
                                 fmt::format("{} may be the best, rounds {} to {}",
                                             counted(static_cast<int64_t>(plans.size()), "plan"), round + 1, end)));
    const std::optional<Contest> contest = hold_contest(set, results.runs(), contest_options(arguments));
    if (!contest || contest->ends()) break;
    plans.clear();
    for (const Contestant& contestant : contest->left) plans.push_back(&set.plans[contestant.plan]);
  }
  return ok_status();
}

PlanDraw draw_of(const ValidateArguments& a) {
  return {static_cast<size_t>(a.top), static_cast<size_t>(a.also), a.seed, a.confident ? a.confidence : 0};
}

std::vector<std::string> set_words(const ValidateArguments& a, const std::string& dir) {
  std::vector<std::string> words = {"lower",
                                    a.scenario,
                                    "--validation-set",
                                    dir,
                                    "--top",
                                    fmt::format("{}", a.top),
                                    "--also",
                                    fmt::format("{}", a.also),
                                    "--seed",
                                    fmt::format("{}", a.seed)};
  if (a.confident) words.insert(words.end(), {"--confidence", fmt::format("{}", a.confidence)});
  return words;
}

Result<PlanSet> read_set(const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, read_file(file));
  return parse_plan_set(text, file);
}

// The plans of an earlier command with the same wishes stay, whatever a newer profile would rank first: their runs are
// there, and the predictions of today can be held against them.
Result<PlanSet> make_set(const ValidateArguments& a, const std::string& dir) {
  const std::string kept = a.output + "/plans.json";
  std::vector<std::string> words = set_words(a, dir);
  std::error_code failure;
  if (fs::exists(kept, failure)) {
    ASSIGN_OR_RETURN(const PlanSet before, read_set(kept));
    if (before.draw == draw_of(a)) words.insert(words.end(), {"--plans", kept});
  }
  RETURN_IF_ERROR(run_nlsim(a.nlsim, words));
  ASSIGN_OR_RETURN(PlanSet set, read_set(dir + "/plans.json"));
  RETURN_IF_ERROR(write_file(kept, to_json(set)));
  return set;
}

// Learns from the runs there are; the factors stay in a file that the scenario may name.
Result<Recalibration> recalibrate_with(const ValidateArguments& arguments, const PlanSet& set,
                                       const ResultsFile& results, const std::string& folder) {
  int sets = 0;
  const auto predict = [&](const Corrections& corrections) -> Result<PlanSet> {
    const std::string dir = fmt::format("{}/again{}", folder, ++sets), file = dir + ".json";
    RETURN_IF_ERROR(write_file(file, to_json(corrections)));
    std::vector<std::string> words = set_words(arguments, dir);
    words.insert(words.end(), {"--plans", arguments.output + "/plans.json", "--corrections", file});
    RETURN_IF_ERROR(run_nlsim(arguments.nlsim, words));
    return read_set(dir + "/plans.json");
  };
  ASSIGN_OR_RETURN(Recalibration recalibration, recalibrate(set, results.runs(), predict));
  RETURN_IF_ERROR(write_file(arguments.output + "/corrections.json", to_json(recalibration.corrections)));
  return recalibration;
}

// Everything measured so far, as files and on the terminal.
Status conclude(const ValidateArguments& arguments, const PlanSet& set, const ResultsFile& results, size_t losses,
                const std::string& folder) {
  const std::vector<ValidatedPlan> plans = join(set, results.runs());
  const std::optional<ControlRuns> runs_of_control = control_runs(set, results.runs());
  std::optional<Recalibration> learnt;
  if (arguments.recalibrate && !interrupted()) {
    ASSIGN_OR_RETURN(learnt, recalibrate_with(arguments, set, results, folder));
  }
  std::optional<Contest> contest;
  if (arguments.confident) contest = hold_contest(set, results.runs(), contest_options(arguments));
  const Findings findings{runs_of_control ? &*runs_of_control : nullptr, contest ? &*contest : nullptr,
                          learnt ? &*learnt : nullptr};
  RETURN_IF_ERROR(write_file(arguments.output + "/report.json", validation_json(set, plans, findings)));
  RETURN_IF_ERROR(write_file(arguments.output + "/report.html", validation_html(set, plans, findings)));
  std::fputs(validation_text(set, plans, findings).c_str(), stdout);
  if (learnt) {
    fmt::print(
        "\nfrom now on, in {}:  corrections: {}\n", arguments.scenario,
        fs::relative(arguments.output + "/corrections.json", fs::absolute(arguments.scenario).parent_path()).string());
  }
  fmt::print("\n{0}/report.html has the picture, {0}/report.json the figures, {0}/results.jsonl the runs\n",
             arguments.output);
  size_t failures = 0;
  for (const ValidatedPlan& plan : plans) failures += plan.error.empty() ? 0 : 1;
  if (losses > 0)
    return lost(fmt::format("{} lost a rank, and {} of {} plans have no figures; the same command tries those again",
                            counted(static_cast<int64_t>(losses), "run"), failures, plans.size()));
  if (failures > 0) return failed(fmt::format("{} of {} plans failed", failures, plans.size()));
  return ok_status();
}

Status validate(const ValidateArguments& arguments) {
  if (const auto duration = time_option("--duration", arguments.duration); !duration) return duration.error();
  RETURN_IF_ERROR(check(arguments.launch));
  std::error_code failure;
  fs::create_directories(arguments.output, failure);
  if (failure) return io_error(fmt::format("cannot create {}: {}", arguments.output, failure.message()));
  ASSIGN_OR_RETURN(const OutputLock lock, OutputLock::of_folder(arguments.output));
  ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::create());
  const std::string dir = folder.path() + "/set";
  ASSIGN_OR_RETURN(const PlanSet set, make_set(arguments, dir));
  if (set.generates && arguments.launch.transport->of_workers)
    return unsupported(
        fmt::format("{} generates text, and that is validated over mpi or threads: workers take turns in "
                    "plans that compute a batch",
                    arguments.scenario));
  if (set.generates && arguments.recalibrate)
    return unsupported(
        fmt::format("--recalibrate: {} generates text, and nothing is learnt from that yet", arguments.scenario));
  ASSIGN_OR_RETURN(ResultsFile results,
                   ResultsFile::open(arguments.output + "/results.jsonl", set, describe_machine()));
  Campaign campaign(arguments.launch, dir, set, results, {arguments.duration, arguments.repeats});
  if (arguments.confident) {
    RETURN_IF_ERROR(run_until_confident(arguments, set, results, campaign));
  } else {
    RETURN_IF_ERROR(campaign.run(all_of(set), {0, arguments.rounds}, "running plans"));
    RETURN_IF_ERROR(campaign.run(contenders(set, results, arguments.rounds),
                                 {arguments.rounds, arguments.rounds + arguments.final_rounds},
                                 "running the best plans"));
  }
  clear_progress();
  write_after_interrupt();
  return conclude(arguments, set, results, campaign.losses(), folder.path());
}

}  // namespace

void add_validate_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "validate",
      "Run the best plans of a scenario, its own, and some random ones, and compare predictions with measurements.\n"
      "  nlbench validate scenarios/mine.yaml -o validation --top 10 --also 40\n"
      "  nlbench validate scenarios/mine.yaml -o validation --top 5 --also 0 --confident\n"
      "  nlbench validate scenarios/mine.yaml -o validation --launcher 'mpirun --hostfile hosts' --on-hosts\n"
      "  nlbench validate scenarios/mine.yaml -o validation --transport grpc --workers b:7000,c:7000 --tls keys\n"
      "For a scenario that generates text it compares TPOT and TTFT.\n"
      "Do not start it with mpirun or srun: it starts one for all plans, with a rank for each device. Plans run in "
      "turns. Each round\n"
      "begins and ends with the control, the unsplit network on one device, to notice when the machine is slow.\n"
      "Results are saved at once: the same command continues after an interrupt, retries what\n"
      "failed, and predicts the same plans anew if costs have changed. A plan whose rank is lost is left out, and\n"
      "a new launch runs the next one (exit code 3). Three failures in a row end it.");
  const auto a = std::make_shared<ValidateArguments>();
  command->add_option("SCENARIO", a->scenario, "The scenario, with costs measured by nlbench profile")->required();
  command->add_option("-o,--output", a->output, "Folder for the results")->required();
  CLI::Option* top =
      command
          ->add_option("--top", a->top,
                       "How many of the best plans to run, besides the scenario's own (default 10; with --confident 5)")
          ->check(at_least(1));
  CLI::Option* also =
      command->add_option("--also", a->also, "How many random plans to run (default 10; with --confident 0)")
          ->check(at_least(0));
  command->add_option("--seed", a->seed, "Seed of the random plans (default 1)");
  CLI::Option* rounds =
      command
          ->add_option("--rounds", a->rounds, "How many rounds; each runs every plan once, in a new order (default 3)")
          ->check(at_least(1));
  CLI::Option* final_rounds =
      command
          ->add_option("--final", a->final_rounds,
                       "This many more rounds for the best plans: the first five of the ranking, and all that were "
                       "measured within\n10 % of the best (default 0)")
          ->check(at_least(0));
  CLI::Option* confident =
      command
          ->add_flag("--confident", a->confident,
                     "Run until the best plan is known: --top plans and, where costs have spreads, those of the "
                     "confidence set. After a few rounds of\nall only those go on that may be the best, until one is "
                     "left or all left are equal within 0.5 %")
          ->excludes(rounds, final_rounds);
  command
      ->add_option("--confidence", a->confidence,
                   "With --confident: probability that the plan is the best (default 0.9)")
      ->check(CLI::Range(0.5, 0.999))
      ->needs(confident);
  command->add_option("--most-rounds", a->most_rounds, "With --confident: largest number of rounds (default 40)")
      ->check(at_least(static_cast<int>(least_pairs)))
      ->needs(confident);
  command->add_option("--duration", a->duration, "Length of a plan's turn (default 300ms)");
  command->add_option("--repeats", a->repeats, "Executions of a plan's turn, at least (default 1)")->check(at_least(1));
  add_launch_options(*command, a->launch);
  command->add_flag(
      "--recalibrate", a->recalibrate,
      "Learn from these runs how much longer than predicted computing and messages take, show the effect on plans "
      "that were\nnot learnt from, and write DIR/corrections.json for the scenario (not for generation)");
  command->add_option("--nlsim", a->nlsim, "Path of nlsim (default: beside nlbench)");
  command->callback([a, top, also, &code] {
    constexpr int confident_top = 5;
    if (a->confident && top->count() == 0) a->top = confident_top;
    if (a->confident && also->count() == 0) a->also = 0;
    catch_interrupts(mpirun_ends_within_s);
    code = end_command(validate(*a));
  });
}

}  // namespace nlsplit::inline tools

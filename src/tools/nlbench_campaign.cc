#include "tools/nlbench_campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/interrupts.h"
#include "base/random.h"
#include "tools/nlbench_turns.h"
#include "tools/terminal.h"

namespace nlsplit::inline tools {
namespace {

namespace fs = std::filesystem;

std::string place_of(const std::string& folder, const std::string& figures, const char* kind) {
  return fmt::format("{}/{}.{}", folder, figures, kind);
}

template <class T>
void shuffle(std::vector<T>& values, size_t from, Random& random) {
  for (size_t i = values.size(); i > from + 1; --i) std::swap(values[i - 1], values[from + random.below(i - from)]);
}

}  // namespace

Campaign::Campaign(const LaunchArguments& launch, const std::string& folder, const PlanSet& set, ResultsFile& results,
                   Pace pace)
    : launch_(launch), folder_(folder), set_(set), results_(results), pace_(std::move(pace)) {
  // As many ranks on a host as the plan with the most devices there has. (Who feeds inputs is a device of its own where
  // a plan computes nothing on that host.)
  const auto add = [this](const PredictedPlan& plan) {
    for (const std::string& host : plan.hosts) {
      const auto wanted = std::ranges::count(plan.hosts, host);
      while (std::ranges::count(hosts_, host) < wanted) hosts_.push_back(host);
    }
  };
  for (const PredictedPlan& plan : set.plans) add(plan);
  if (set.control) add(*set.control);
}

std::vector<int> Campaign::ranks_of(const PredictedPlan& plan) const {
  std::vector<int> ranks;
  for (const std::string& host : plan.hosts) {
    size_t at = 0;
    while (hosts_[at] != host || std::ranges::count(ranks, ranks_[at]) > 0) ++at;
    ranks.push_back(ranks_[at]);
  }
  return ranks;
}

void Campaign::add_control(std::vector<Planned>& planned, int round) const {
  if (!set_.control) return;
  planned.push_back({&*set_.control, round, true, fmt::format("{}.{}", set_.control->folder, planned.size())});
}

std::vector<Campaign::Planned> Campaign::missing(const std::vector<const PredictedPlan*>& plans, Rounds rounds) const {
  std::vector<Planned> planned;
  for (int round = rounds.first; round < rounds.end; ++round) {
    std::vector<Planned> of_round;
    for (const PredictedPlan* plan : plans) {
      if (!results_.has(plan->fingerprint, round))
        of_round.push_back({plan, round, false, fmt::format("{}.{}", plan->folder, round)});
    }
    if (of_round.empty()) continue;
    Random random(set_.draw.seed + static_cast<uint64_t>(round));
    shuffle(of_round, 0, random);
    add_control(planned, round);
    planned.insert(planned.end(), of_round.begin(), of_round.end());
  }
  if (!planned.empty()) add_control(planned, planned.back().round);
  return planned;
}

bool Campaign::gives_up() const {
  // So many failures in a row, and the others will not run either: all need mpirun, and the same hosts.
  constexpr size_t patience = 3;
  return interrupted() || failures_ >= patience;
}

Status Campaign::keep(PlanRun run, const Planned& planned, int launch) {
  if (run.error.empty() && run.fingerprint != planned.plan->fingerprint)
    return failed(fmt::format("{}.json is of another program", planned.figures));
  run.fingerprint = planned.plan->fingerprint;
  run.round = planned.round;
  run.launch = launch;
  run.control = planned.control;
  failures_ = run.error.empty() ? 0 : failures_ + 1;
  kept_ += planned.control ? 0 : 1;
  return results_.append(run);
}

// The figures that have come since, in the order of their turns.
Status Campaign::collect(const std::vector<Planned>& planned, int launch, size_t& done) {
  for (; done < planned.size(); ++done) {
    const std::string figures = place_of(folder_, planned[done].figures, "json");
    const std::string trouble = place_of(folder_, planned[done].figures, "error");
    std::error_code failure;
    PlanRun run;
    if (fs::exists(figures, failure)) {
      ASSIGN_OR_RETURN(const std::string text, read_file(figures));
      ASSIGN_OR_RETURN(run, parse_run(text, figures));
    } else if (fs::exists(trouble, failure)) {
      ASSIGN_OR_RETURN(run.error, read_file(trouble));
      while (run.error.ends_with('\n')) run.error.pop_back();
    } else {
      return ok_status();
    }
    RETURN_IF_ERROR(keep(std::move(run), planned[done], launch));
  }
  return ok_status();
}

// Takes those off `planned` that were tried. Whether the last of them was the control, and failed.
Result<bool> Campaign::launch_once(std::vector<Planned>& planned, const std::string& doing) {
  std::vector<Turn> turns;
  for (const Planned& one : planned) {
    turns.push_back({set_.generates, one.plan->folder, one.figures, ranks_of(*one.plan)});
    std::error_code failure;
    for (const char* kind : {"json", "error"}) fs::remove(place_of(folder_, one.figures, kind), failure);
  }
  const std::string file = folder_ + "/turns";
  RETURN_IF_ERROR(write_file(file, to_text(turns)));
  const int number = results_.next_launch();
  size_t done = 0;
  Status collected;
  const auto look = [&] {
    if (collected.ok()) collected = collect(planned, number, done);
    show_progress(doing, kept_, all_);
  };
  ASSIGN_OR_RETURN(
      const ChildEnd end,
      launch(launch_, folder_, hosts_,
             {"--turns", file, "--duration", pace_.duration, "--repeats", fmt::format("{}", pace_.repeats)}, look));
  look();
  RETURN_IF_ERROR(collected);
  bool control_failed = false;
  if (done < planned.size() && !interrupted()) {
    const Error error = end.code == 0 ? failed("it has no figures") : launch_error(end);
    losses_ += error.kind == ErrorKind::lost ? 1 : 0;
    PlanRun run;
    run.error = error.message;
    RETURN_IF_ERROR(keep(std::move(run), planned[done], number));
    control_failed = planned[done].control;
    ++done;
  }
  planned.erase(planned.begin(), planned.begin() + static_cast<std::ptrdiff_t>(done));
  return control_failed;
}

Status Campaign::run(const std::vector<const PredictedPlan*>& plans, Rounds rounds, const std::string& doing) {
  ASSIGN_OR_RETURN(ranks_, ranks_on(launch_, hosts_));
  std::vector<Planned> planned = missing(plans, rounds);
  kept_ = 0;
  all_ = static_cast<size_t>(std::ranges::count(planned, false, &Planned::control));
  while (!gives_up()) {
    if (std::ranges::all_of(planned, &Planned::control)) break;
    ASSIGN_OR_RETURN(const bool control_failed, launch_once(planned, doing));
    // What is left begins with a control of its own launch, unless the control is what failed.
    if (!planned.empty() && !planned.front().control && !control_failed) {
      std::vector<Planned> rest;
      add_control(rest, planned.front().round);
      for (Planned& one : rest) one.figures += ".again";
      rest.insert(rest.end(), planned.begin(), planned.end());
      planned = std::move(rest);
    }
  }
  return ok_status();
}

}  // namespace nlsplit::inline tools

#include "planning/load.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "graph/passes/precision.h"
#include "kernels/cpu.h"
#include "scenario/read_model.h"
#include "scenario/yaml.h"
#include "sim/simgrid/platform.h"
#include "sim/tiers/tiers.h"

namespace nlsplit::inline planning {
namespace {

Bytes physical_memory() {
  return bytes(static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(::sysconf(_SC_PAGE_SIZE)));
}

// Where no kernels would run, planning still can: for a device's default level.
Isa machine_isa() {
  const Result<Isa> best = best_isa();
  return best.ok() ? *best : Device().level.isa;
}

}  // namespace

bool is_scenario(const std::string& what) { return what.ends_with(".yaml") || what.ends_with(".yml"); }

Result<Loaded> load(const std::string& what, int64_t batch, bool need_profiles, const std::string& precision) {
  Loaded loaded;
  if (is_scenario(what)) {
    ASSIGN_OR_RETURN(loaded.scenario,
                     read_scenario(what, {.need_profiles = need_profiles, .platforms = simgrid_platforms()}));
    if (!precision.empty())
      return invalid_input("--precision is for a model alone: a scenario says its model's itself");
  } else if (is_model(what)) {
    loaded.scenario = bare_scenario(what, batch, physical_memory(), machine_isa());
    if (!precision.empty()) {
      ASSIGN_OR_RETURN(loaded.scenario.precision, parse_precision(precision));
    }
  } else {
    return invalid_input(
        fmt::format("{}: neither a scenario (*.yaml) nor a model (*.onnx, *.gguf, zoo:NAME, or a folder with "
                    "config.json and safetensors)",
                    what));
  }
  ASSIGN_OR_RETURN(loaded.model, load_model(loaded.scenario));
  name_constants(loaded.model, loaded.scenario);
  return loaded;
}

Error in_scenario(Error error, const Scenario& scenario) {
  if (scenario.file.empty() || error.where.file != scenario.file || error.where.line > 0) return error;
  const Result<std::string> text = read_file(scenario.file);
  if (!text) return error;
  const Source source{scenario.file, *text};
  const Result<Yaml> tree = parse_yaml(source);
  if (!tree) return error;
  const bool too_large = error.kind == ErrorKind::invalid_input;
  for (const Yaml& key : tree->keys) {
    if (too_large ? key.text == "devices" : key.text == "workload" || key.text == "programs")
      return source.at(key, error);
  }
  return error;
}

Result<RankedPlan> choose_plan(Loaded& loaded, const PlanChoice& choice, RankOptions options) {
  std::string which = choice.plan.empty() ? "1" : choice.plan;
  if (!choice.file.empty()) {
    ASSIGN_OR_RETURN(UserPlan own, read_plan_file(choice.file));
    if (own.name.empty()) own.name = choice.file;
    which = own.name;
    loaded.scenario.plans = {std::move(own)};
    loaded.scenario.search.layers = false;  // nothing but this plan and its yardsticks
    loaded.scenario.search.replicate = false;
    loaded.scenario.search.axes.clear();
  }
  options.tier = choice.tier;
  const Result<Ranking> ranked = rank_plans(loaded.scenario, loaded.model, options);
  if (!ranked) return in_scenario(ranked.error(), loaded.scenario);
  const Ranking& ranking = *ranked;
  if (!choice.file.empty()) {
    for (const RankedPlan& plan : ranking.judged) {
      if (plan.own) return plan;
    }
    if (!ranking.own_refused.empty()) return ranking.own_refused.front().error;
    return at_plan(loaded.scenario.plans.front(),
                   invalid_input(ranking.own_misfits.empty() ? "the plan does not fit"
                                                             : "plan " + to_string(ranking.own_misfits.front())));
  }
  auto found = find_plan(ranking, which);
  if (found || !found.error().where.file.empty()) return found;
  Error error = found.error();
  const auto own = std::ranges::find(loaded.scenario.plans, which, &UserPlan::name);
  if (own != loaded.scenario.plans.end()) return at_plan(*own, std::move(error));
  error.where.file = loaded.scenario.file;
  return error;
}

}  // namespace nlsplit::inline planning

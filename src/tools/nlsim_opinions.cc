#include "tools/nlsim_opinions.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/table.h"
#include "sim/smpi/smpirun.h"
#include "sim/tiers/tiers.h"

namespace nlsplit::inline tools {
namespace {

double least(const Opinions& opinions) {
  return std::ranges::min_element(opinions.all, {}, &Opinion::makespan_s)->makespan_s;
}
double most(const Opinions& opinions) {
  return std::ranges::max_element(opinions.all, {}, &Opinion::makespan_s)->makespan_s;
}

}  // namespace

Result<Opinions> ask_opinions(const Scenario& scenario, const TimedPlan& timed, const std::string& folder) {
  Opinions opinions;
  opinions.judge = judging_tier();
  opinions.throughput = timed.estimate.throughput * timed.estimate.makespan_s;
  for (const Tier* tier : all_tiers()) {
    ASSIGN_OR_RETURN(const std::vector<Timing> timings, simulate_all(*tier, scenario.cluster, {&timed.graph}));
    opinions.all.push_back({std::string(tier->name()), std::string(tier->title()), timings[0].makespan});
  }
  ASSIGN_OR_RETURN(const double makespan, replay(folder));
  opinions.all.push_back({"smpi", "SMPI", makespan});
  return opinions;
}

double spread_of(const Opinions& opinions) {
  const double judged = opinions.all[opinions.judge].makespan_s;
  return judged > 0 ? (most(opinions) - least(opinions)) / judged : 0;
}

std::string opinions_text(const Opinions& opinions) {
  using enum Align;
  const Opinion& judge = opinions.all[opinions.judge];
  Table table({{"simulator", left}, {"makespan", right}, {"samples/s", right}, {"beside " + judge.title, right}});
  for (const Opinion& opinion : opinions.all) {
    const double beside = judge.makespan_s > 0 ? opinion.makespan_s / judge.makespan_s - 1 : 0;
    table.add({opinion.title, to_string(seconds(opinion.makespan_s)),
               rate_text(opinion.makespan_s > 0 ? opinions.throughput / opinion.makespan_s : 0),
               &opinion == &judge ? "" : fmt::format("{:+.2f} %", beside * 100)});
  }
  return fmt::format("\n{}\nuncertainty  {:.2f} %: makespans of {} to {}\n", table.to_string(),
                     spread_of(opinions) * 100, to_string(seconds(least(opinions))),
                     to_string(seconds(most(opinions))));
}

nlohmann::json opinions_json(const Opinions& opinions) {
  nlohmann::json simulators = nlohmann::json::array();
  for (const Opinion& opinion : opinions.all) {
    simulators.push_back({{"name", opinion.name}, {"makespan_s", opinion.makespan_s}});
    if (opinion.makespan_s > 0) simulators.back()["throughput_per_s"] = opinions.throughput / opinion.makespan_s;
  }
  return {{"simulators", std::move(simulators)}, {"spread", spread_of(opinions)}};
}

}  // namespace nlsplit::inline tools

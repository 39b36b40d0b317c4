#include "report/ranking/check_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "report/ranking/ranking_report.h"
#include "report/ranking/verdict_text.h"
#include "report/table.h"

namespace nlsplit::inline reports {
namespace {

using nlohmann::json;

std::string way_text(const Plan& plan) {
  return fmt::format("{}, {}", counted(plan.micro_batches, "micro-batch"), plan.schedule);
}

std::string speed_text(const Ranking& ranking, const RankedPlan& plan) {
  if (ranking.generates) {
    const GenerationTimes& times = plan.generation.value();
    return fmt::format("{} each token (TPOT), {} to the first token (TTFT), {} tokens/s of {}",
                       to_string(seconds(times.next_token_s)), to_string(seconds(times.first_token_s)),
                       rate_text(times.tokens_per_s), counted(ranking.batch, "sequence"));
  }
  const Estimate& e = plan.estimate;
  return fmt::format("{} samples/s, {} for the batch of {}; latency of a micro-batch {}", rate_text(e.throughput),
                     to_string(seconds(e.makespan_s)), ranking.batch, to_string(seconds(e.latency_mean_s)));
}

std::string memory_text(const RankedPlan& plan) {
  const auto& times = plan.generation;
  return fmt::format("{} at most, on {}", to_string(times ? times->fullest_memory : plan.estimate.largest_memory),
                     times ? times->fullest_device : plan.estimate.largest_device);
}

// What plan 1 does better by the objective.
std::string tokens_difference_text(const Ranking& ranking, const std::string& who, const GenerationTimes& best,
                                   const GenerationTimes& mine) {
  switch (ranking.generation_objective) {
    case GenerationObjective::tpot:
      return fmt::format("{} takes {} for each token, this one {}.", who, to_string(seconds(best.next_token_s)),
                         to_string(seconds(mine.next_token_s)));
    case GenerationObjective::ttft:
      return fmt::format("{} takes {} to the first token, this one {}.", who, to_string(seconds(best.first_token_s)),
                         to_string(seconds(mine.first_token_s)));
    case GenerationObjective::tokens_per_second:
      return fmt::format("{} makes {} tokens/s, this one {}.", who, rate_text(best.tokens_per_s),
                         rate_text(mine.tokens_per_s));
  }
  CHECK(false, "unknown objective");
}

// Of the device that has the most of it.
double most_work(const Estimate& estimate) { return estimate.busiest_device_share * estimate.makespan_s; }

// What the best plan does better.
std::string difference_text(const Ranking& ranking, size_t place) {
  const RankedPlan& best = ranking.judged[0];
  const Estimate &mine = ranking.judged[place].estimate, &other = best.estimate;
  const std::string who = fmt::format("Plan 1 ({}; {})", best.text, way_text(best.plan));
  if (ranking.generates)
    return tokens_difference_text(ranking, who, best.generation.value(), ranking.judged[place].generation.value());
  const double slower = mine.makespan_s / other.makespan_s;
  if (ranking.objective == Objective::latency || slower < 1) {
    return fmt::format("{} has a micro-batch under way for {}, this one for {}.", who,
                       to_string(seconds(other.latency_mean_s)), to_string(seconds(mine.latency_mean_s)));
  }
  std::string text = fmt::format("{} makes {:.2f}x as many samples/s", who, slower);
  const double mine_s = most_work(mine), other_s = most_work(other);
  // Of the factor between the two, more than half (in logarithms) is work.
  if (mine_s > other_s * std::sqrt(slower)) {
    return text + fmt::format(": here {} has to compute for {}, there no device for longer than {}.",
                              mine.busiest_device, to_string(seconds(mine_s)), to_string(seconds(other_s)));
  }
  text += fmt::format(": here {}, the busiest, computes {} of the time, there {} {}", mine.busiest_device,
                      percent(mine.busiest_device_share), other.busiest_device, percent(other.busiest_device_share));
  if (mine.busiest_link_share > other.busiest_link_share)
    text += fmt::format("; link {} is {} busy, there none more than {}", mine.busiest_link,
                        percent(mine.busiest_link_share), percent(other.busiest_link_share));
  return text + ".";
}

std::string promise_text(const Promise& promise) {
  if (promise.tolerance == 0) return "those of the unsplit network, bit for bit (between devices of one level)";
  return fmt::format("within {:g} of the unsplit network's largest value: {}", promise.tolerance, promise.why);
}

std::string trouble_text(const PlanTrouble& trouble) {
  return fmt::format("not in {}, {}: {}", counted(trouble.micro_batches, "micro-batch"), trouble.schedule,
                     trouble.error.message);
}

}  // namespace

std::string check_text(const CheckedPlan& checked) {
  CHECK(checked.ranking.has_value(), "a report of a plan that cannot be run");
  const Ranking& ranking = *checked.ranking;
  const RankedPlan& mine = ranking.judged[checked.place];
  std::string text = fmt::format("{}: {} · {}\n\n", checked.name, mine.text, way_text(mine.plan));
  text += fmt::format("speed    {}\n", speed_text(ranking, mine));
  text += fmt::format("memory   {}\n", memory_text(mine));
  text += fmt::format("results  {}\n", promise_text(mine.promise));
  text += fmt::format("place    {} of {} simulated plans, best {} first\n", checked.place + 1, ranking.judged.size(),
                      objective_name(ranking));
  text += fmt::format("bound    {}\n", bound_by_text(ranking, checked.place));
  text += fmt::format("best     {}\n", checked.place == 0 ? "No plan that was found is better."
                                                          : difference_text(ranking, checked.place));
  for (const PlanTrouble& trouble : checked.troubles) text += fmt::format("note     {}\n", trouble_text(trouble));
  for (const PlanNote& note : mine.notes) text += fmt::format("note     {}\n", note.text);
  return text;
}

json check_json(const CheckedPlan& checked, const Scenario& scenario, const Graph& graph) {
  json wrong = json::array();
  for (const PlanTrouble& trouble : checked.troubles) {
    wrong.push_back({{"message", trouble.error.to_string()}});
    if (trouble.micro_batches > 0) wrong.back()["micro_batches"] = trouble.micro_batches;
    if (!trouble.schedule.empty()) wrong.back()["schedule"] = trouble.schedule;
  }
  json answer = {{"name", checked.name},
                 {"plan", checked.text},
                 {"sound", checked.ranking.has_value()},
                 {"wrong", std::move(wrong)}};
  if (!checked.ranking) return answer;
  const Ranking& ranking = *checked.ranking;
  const RankedPlan& mine = ranking.judged[checked.place];
  const auto figures = [](const RankedPlan& plan) {
    const Estimate& e = plan.estimate;
    json all = {{"micro_batches", plan.plan.micro_batches},
                {"schedule", plan.plan.schedule},
                {"throughput_per_s", e.throughput},
                {"makespan_s", e.makespan_s},
                {"latency_mean_s", e.latency_mean_s},
                {"largest_device", e.largest_device},
                {"largest_memory_bytes", e.largest_memory.value()}};
    if (plan.generation) all["generation"] = generation_json(*plan.generation);
    return all;
  };
  answer["place"] = checked.place + 1;
  answer["simulated"] = ranking.judged.size();
  answer["stages"] = stage_parts(mine.plan, graph, scenario.cluster);
  answer["figures"] = figures(mine);
  answer["tolerance"] = mine.promise.tolerance;
  if (mine.promise.tolerance > 0) answer["tolerance_because"] = mine.promise.why;
  answer["bound"] = bound_by_text(ranking, checked.place);
  answer["best"] = {{"plan", ranking.judged[0].text}, {"figures", figures(ranking.judged[0])}};
  if (checked.place > 0) answer["difference"] = difference_text(ranking, checked.place);
  json notes = json::array();
  for (const PlanNote& note : mine.notes) notes.push_back(note.text);
  answer["notes"] = std::move(notes);
  return answer;
}

}  // namespace nlsplit::inline reports

#include "report/ranking/check_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "report/ranking/verdict_text.h"
#include "report/table.h"

namespace nlsplit::inline reports {
namespace {

using nlohmann::json;

std::string way_text(const Plan& plan) {
  return fmt::format("{}, {}", counted(plan.micro_batches, "micro-batch"), plan.schedule);
}

std::string objective_text(Objective objective) {
  switch (objective) {
    case Objective::throughput:
      return "throughput";
    case Objective::latency:
      return "latency";
    case Objective::weighted:
      return "of throughput and latency, weighted,";
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
  const Estimate& e = mine.estimate;
  std::string text = fmt::format("{}: {} · {}\n\n", checked.name, mine.text, way_text(mine.plan));
  text += fmt::format("speed    {} samples/s, {} for the batch of {}; latency of a micro-batch {}\n",
                      rate_text(e.throughput), to_string(seconds(e.makespan_s)), ranking.batch,
                      to_string(seconds(e.latency_mean_s)));
  text += fmt::format("memory   {} at most, on {}\n", to_string(e.largest_memory), e.largest_device);
  text += fmt::format("results  {}\n", promise_text(mine.promise));
  text += fmt::format("place    {} of {} simulated plans, best {} first\n", checked.place + 1, ranking.judged.size(),
                      objective_text(ranking.objective));
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
    return json{{"micro_batches", plan.plan.micro_batches},
                {"schedule", plan.plan.schedule},
                {"throughput_per_s", e.throughput},
                {"makespan_s", e.makespan_s},
                {"latency_mean_s", e.latency_mean_s},
                {"largest_device", e.largest_device},
                {"largest_memory_bytes", e.largest_memory.value()}};
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

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "partition/plan.h"
#include "ranking/generation.h"
#include "report/ranking/breakdown_report.h"
#include "report/ranking/explanation_text.h"
#include "report/ranking/ranking_report.h"

namespace nlsplit::inline reports {
namespace {

using nlohmann::json;

// Runs count from 1, as `nlsim simulate --noise-run` does.
json spread_json(const Spread& spread) {
  return {{"mean", spread.mean}, {"p95", spread.p95}, {"p95_run", spread.p95_run + 1}};
}

json error_bar_json(const Ranking& ranking, size_t index) {
  const Confidence& confidence = *ranking.confidence;
  const ErrorBar& bar = confidence.plans[index];
  return {{"cost", {bar.low, bar.high}},
          {"difference", {bar.difference_low, bar.difference_high}},
          {"best", bar.best},
          {"rank", bar.rank + 1},
          {"in_set", std::ranges::find(confidence.set, index) != confidence.set.end()}};
}

json confidence_json(const Ranking& ranking) {
  const Confidence& confidence = *ranking.confidence;
  std::vector<size_t> set;
  for (const size_t i : confidence.set) set.push_back(i + 1);
  return {{"level", confidence.level}, {"worlds", confidence.worlds}, {"set", set}, {"covered", confidence.covered}};
}

json plan_json(const Ranking& ranking, size_t index, const Scenario& scenario, const Graph& graph) {
  const RankedPlan& ranked = ranking.judged[index];
  const Estimate& e = ranked.estimate;
  json stages = json::array();
  for (const Stage& stage : ranked.plan.stages) {
    json layers = json::array(), devices = json::array();
    for (size_t n = stage.begin; n < stage.end; ++n) layers.push_back(graph.nodes[n].name);
    for (const DeviceId device : stage.devices) devices.push_back(scenario.cluster.device(device).name);
    stages.push_back({{"layers", std::move(layers)}, {"devices", std::move(devices)}});
    if (stage.recompute) stages.back()["recompute"] = true;
    if (stage.split) {
      stages.back()["split"] = {{"axis", name_of(stage.split->axis)},
                                {"shares", stage.split->shares},
                                {"recompute_halo", stage.split->recompute_halo}};
    }
  }
  json notes = json::array();
  for (const PlanNote& note : ranked.notes) notes.push_back(note.text);
  json devices = json::array();
  for (const DeviceEstimate& device : e.devices) {
    devices.push_back({{"name", device.name},
                       {"share", device.share},
                       {"memory_bytes", device.memory.value()},
                       {"compute_s", device.breakdown.computing},
                       {"exposed_communication_s", device.breakdown.exposed_communication},
                       {"waiting_s", device.breakdown.waiting}});
    if (scenario.training) devices.back()["phases_s"] = phases_json(device.phases);
  }
  json plan = {{"rank", index + 1},
               {"name", ranked.plan.name},
               {"own", ranked.own},
               {"plan", stage_parts(ranked.plan, graph, scenario.cluster)},
               {"stages", std::move(stages)},
               {"micro_batches", ranked.plan.micro_batches},
               {"schedule", ranked.plan.schedule},
               {"makespan_s", e.makespan_s},
               {"throughput_per_s", e.throughput},
               {"latency_mean_s", e.latency_mean_s},
               {"latency_max_s", e.latency_max_s},
               {"busiest_device", e.busiest_device},
               {"busiest_device_share", e.busiest_device_share},
               {"busiest_link", e.busiest_link},
               {"busiest_link_share", e.busiest_link_share},
               {"devices", std::move(devices)},
               {"links", links_json(e.links)},
               {"largest_device", e.largest_device},
               {"largest_memory_bytes", e.largest_memory.value()}};
  if (!notes.empty()) plan["notes"] = std::move(notes);
  if (ranked.promise.tolerance > 0) {
    plan["tolerance"] = ranked.promise.tolerance;
    plan["tolerance_because"] = ranked.promise.why;
  }
  if (ranked.generation) plan["generation"] = generation_json(*ranked.generation);
  if (!ranked.why_not.empty()) plan["cannot_run"] = ranked.why_not;
  for (const Miss& miss : ranked.misses) plan["misses"].push_back({{"what", miss.text}, {"times", miss.times}});
  if (ranking.confidence) plan["error_bar"] = error_bar_json(ranking, index);
  if (ranked.noisy) {
    plan["with_noise"] = {{"makespan_s", spread_json(ranked.noisy->makespan_s)},
                          {"latency_s", spread_json(ranked.noisy->latency_s)}};
  }
  return plan;
}

json baselines_json(const Ranking& ranking, const Scenario& scenario, const Graph& graph) {
  json all = json::array();
  for (const RankedBaseline& baseline : ranking.baselines) {
    json one = {{"name", baseline.name}, {"rule", baseline.rule}};
    if (!baseline.plan.stages.empty()) {
      one["plan"] = stage_parts(baseline.plan, graph, scenario.cluster);
      one["micro_batches"] = baseline.plan.micro_batches;
      one["schedule"] = baseline.plan.schedule;
    }
    if (baseline.estimate) {
      one["makespan_s"] = baseline.estimate->makespan_s;
      one["throughput_per_s"] = baseline.estimate->throughput;
      one["latency_mean_s"] = baseline.estimate->latency_mean_s;
      one["largest_memory_bytes"] = baseline.estimate->largest_memory.value();
      if (baseline.generation) one["generation"] = generation_json(*baseline.generation);
    } else {
      one["cannot_run"] = baseline.why_not;
    }
    all.push_back(std::move(one));
  }
  return all;
}

json objective_json(const Ranking& ranking) {
  if (ranking.generates) return generation_objectives[static_cast<size_t>(ranking.generation_objective)];
  switch (ranking.objective) {
    case Objective::throughput:
      return "throughput";
    case Objective::latency:
      return "latency";
    case Objective::weighted:
      return {{"throughput", ranking.goal.weights.throughput}, {"latency", ranking.goal.weights.latency}};
  }
  CHECK(false, "unknown objective");
}

json factor_or_null(const std::optional<double>& factor) { return factor ? json(*factor) : json(nullptr); }

json explanation_json(const Ranking& ranking, const Scenario& scenario, const Explanation& why) {
  static constexpr std::string_view kinds[] = {"stage", "link", "nothing"};
  return {{"rank", why.plan + 1},
          {"bottleneck", kinds[static_cast<size_t>(why.bottleneck)]},
          {"name", why.name},
          {"stage", why.stage ? json(*why.stage + 1) : json(nullptr)},
          {"busy_share", why.share},
          {"fullest_device", why.fullest_device},
          {"fullest_share", why.fullest_share},
          {"break_even_bandwidth_factor", factor_or_null(why.break_even_bandwidth)},
          {"break_even_latency_factor", factor_or_null(why.break_even_latency)},
          {"gain", why.gain},
          {"gain_without_network", why.gain_without_network},
          {"text", explanation_sentences(ranking, scenario, why)}};
}

json number_or_null(const std::optional<size_t>& index) { return index ? json(*index + 1) : json(nullptr); }

json yardsticks_json(const Yardsticks& best) {
  return {{"split", number_or_null(best.split)},
          {"single", number_or_null(best.single)},
          {"copies", number_or_null(best.copies)}};
}

json misfits_json(const std::vector<Misfit>& misfits) {
  json all = json::array();
  for (const Misfit& misfit : misfits) {
    all.push_back({{"device", misfit.device},
                   {"memory_bytes", misfit.has.value()},
                   {"least_needed_bytes", misfit.least_needed.value()},
                   {"plans", misfit.plans}});
  }
  return all;
}

json no_room_json(const std::vector<NoRoom>& devices) {
  json all = json::array();
  for (const NoRoom& device : devices) {
    all.push_back(
        {{"device", device.device}, {"memory_bytes", device.has.value()}, {"needed_bytes", device.needs.value()}});
  }
  return all;
}

json own_misfits_json(const std::vector<OwnMisfit>& misfits) {
  json all = json::array();
  for (const OwnMisfit& misfit : misfits) {
    all.push_back({{"name", misfit.name},
                   {"micro_batches", misfit.micro_batches},
                   {"device", misfit.device},
                   {"memory_bytes", misfit.has.value()},
                   {"least_needed_bytes", misfit.least_needed.value()}});
  }
  return all;
}

// What is not among the plans, and why.
void add_left_out(const Ranking& ranking, json& file) {
  if (ranking.left_out > 0) file["left_out"] = {{"plans", ranking.left_out}, {"first_because", ranking.why_left_out}};
  if (!ranking.why_not_inside.empty()) file["no_splits_inside_because"] = ranking.why_not_inside;
  if (!ranking.own_left_out.empty()) {
    json left_out = json::array();
    for (const OwnLeftOut& other : ranking.own_left_out) {
      left_out.push_back({{"name", other.name}, {"micro_batches", other.micro_batches}, {"because", other.why}});
      if (!other.schedule.empty()) left_out.back()["schedule"] = other.schedule;
    }
    file["own_left_out"] = std::move(left_out);
  }
  for (const OwnRefused& refused : ranking.own_refused)
    file["own_refused"].push_back({{"name", refused.name}, {"because", refused.error.to_string()}});
  for (const LeftOutCount& other : ranking.counts_left_out)
    file["counts_left_out"].push_back({{"micro_batches", other.micro_batches}, {"because", other.why}});
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

json generation_json(const GenerationTimes& times) {
  return {{"first_token_s", times.first_token_s},
          {"next_token_s", times.next_token_s},
          {"tokens_per_s", times.tokens_per_s},
          {"largest_device", times.fullest_device},
          {"largest_memory_bytes", times.fullest_memory.value()},
          {"largest_context", times.largest_context}};
}

std::string ranking_json(const Ranking& ranking, const Scenario& scenario, const Graph& graph) {
  json plans = json::array();
  for (const size_t i : told(ranking)) plans.push_back(plan_json(ranking, i, scenario, graph));
  const Verdict& v = ranking.verdict;
  json file = {{"format", "nlsplit-ranking"},
               {"version", 1},
               {"scenario", scenario.file},
               {"model", ranking.model},
               {"batch", ranking.batch},
               {"objective", objective_json(ranking)},
               {"tier", ranking.tier->name()},
               {"considered", ranking.considered},
               {"simulated", ranking.judged.size()},
               {"untimed", ranking.untimed},
               {"space", ranking.space},
               {"method", scenario.search.method},
               {"proved", ranking.proved},
               {"split_inside", ranking.split_inside},
               {"interrupted", ranking.interrupted},
               {"took_s", ranking.seconds},
               {"misfits", misfits_json(ranking.misfits)},
               {"no_room", no_room_json(ranking.no_room)},
               {"own_misfits", own_misfits_json(ranking.own_misfits)},
               {"costs",
                {{"measured", ranking.measured_costs},
                 {"predicted", ranking.predicted_costs},
                 {"predicted_spread", ranking.largest_spread},
                 {"roofline", ranking.estimated_costs}}},
               {"verdict",
                {{"throughput", yardsticks_json(v.throughput)},
                 {"latency", yardsticks_json(v.latency)},
                 {"memory", yardsticks_json(v.memory)},
                 {"break_even_bandwidth_factor", v.break_even ? json(*v.break_even) : json(nullptr)},
                 {"gain_without_network", v.gain_without_network ? json(*v.gain_without_network) : json(nullptr)}}},
               {"plans", std::move(plans)}};
  if (const std::optional<double> within = within_bound(ranking))
    file["bound"] = {{"cost", *ranking.bound}, {"within", *within}};
  if (ranking.confidence) file["confidence"] = confidence_json(ranking);
  if (!ranking.no_error_bars.empty()) file["no_error_bars"] = ranking.no_error_bars;
  add_left_out(ranking, file);
  for (const Explanation& why : ranking.explanations)
    file["explanations"].push_back(explanation_json(ranking, scenario, why));
  for (const OfSequences& of : ranking.by_sequences) {
    json one = {{"sequences", of.sequences}};
    if (of.best) one["plan"] = stage_parts(of.best->plan, graph, scenario.cluster);
    if (of.best && of.best->generation) one["generation"] = generation_json(*of.best->generation);
    if (!of.why_not.empty()) one["cannot_run"] = of.why_not;
    file["sequences"].push_back(std::move(one));
  }
  if (!ranking.baselines.empty()) file["baselines"] = baselines_json(ranking, scenario, graph);
  if (scenario.training) {
    file["training"] = {{"optimizer", name_of(scenario.training->optimizer)},
                        {"recompute", recompute_names[static_cast<size_t>(scenario.training->recompute)]},
                        {"loss", loss_names()[static_cast<size_t>(scenario.training->loss)]},
                        {"unscheduled", ranking.unscheduled}};
    if (ranking.unscheduled > 0) file["training"]["first_unscheduled_because"] = ranking.why_unscheduled;
  }
  if (ranking.noise_runs > 0) {
    file["noise"] = {{"seed", scenario.noise.value().seed}, {"runs", ranking.noise_runs}, {"robust", ranking.robust}};
  }
  return file.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string ranking_csv(const Ranking& ranking) {
  const bool noisy = ranking.noise_runs > 0;
  std::string out =
      "rank,name,plan,micro_batches,schedule,throughput_per_s,makespan_s,latency_mean_s,latency_max_s,busiest_device,"
      "busiest_device_share,busiest_link,busiest_link_share,largest_device,largest_memory_bytes";
  if (ranking.generates) out += ",first_token_s,next_token_s,tokens_per_s,largest_context,misses";
  if (noisy) out += ",noise_makespan_mean_s,noise_makespan_p95_s,noise_latency_mean_s,noise_latency_p95_s";
  if (ranking.confidence) out += ",shared_rank,cost_low,cost_high,difference_low,difference_high,best,in_set";
  out += "\n";
  for (const size_t i : told(ranking)) {
    const RankedPlan& ranked = ranking.judged[i];
    const Estimate& e = ranked.estimate;
    const std::string& largest_device = ranked.generation ? ranked.generation->fullest_device : e.largest_device;
    const Bytes largest_memory = ranked.generation ? ranked.generation->fullest_memory : e.largest_memory;
    out +=
        fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", i + 1, csv_field(ranked.plan.name),
                    csv_field(ranked.text), ranked.plan.micro_batches, ranked.plan.schedule, e.throughput, e.makespan_s,
                    e.latency_mean_s, e.latency_max_s, csv_field(e.busiest_device), e.busiest_device_share,
                    csv_field(e.busiest_link), e.busiest_link_share, csv_field(largest_device), largest_memory.value());
    if (ranked.generation) {
      const GenerationTimes& times = *ranked.generation;
      out += fmt::format(",{},{},{},{},{}", times.first_token_s, times.next_token_s, times.tokens_per_s,
                         times.largest_context, ranked.misses.size());
    } else if (ranking.generates) {
      out += ",,,,,";
    }
    if (noisy) {
      const NoisyEstimate& n = ranked.noisy.value();
      out += fmt::format(",{},{},{},{}", n.makespan_s.mean, n.makespan_s.p95, n.latency_s.mean, n.latency_s.p95);
    }
    if (ranking.confidence) {
      const ErrorBar& bar = ranking.confidence->plans[i];
      const std::vector<size_t>& set = ranking.confidence->set;
      out += fmt::format(",{},{},{},{},{},{},{}", bar.rank + 1, bar.low, bar.high, bar.difference_low,
                         bar.difference_high, bar.best, std::ranges::find(set, i) != set.end() ? 1 : 0);
    }
    out += "\n";
  }
  return out;
}

}  // namespace nlsplit::inline reports

#include "validate/plan_set.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_number.h"

namespace nlsplit::inline validation {

using nlohmann::json;

namespace {

json json_of(const PredictedPlan& p) {
  return {{"folder", p.folder},
          {"plan", p.text},
          {"stages", p.stages},
          {"micro_batches", p.micro_batches},
          {"schedule", p.schedule},
          {"fingerprint", p.fingerprint},
          {"number", p.number},
          {"sampled", p.sampled},
          {"in_confidence_set", p.in_confidence_set},
          {"devices", p.devices},
          {"hosts", p.hosts},
          {"makespan_s", p.makespan_s},
          {"throughput_per_s", p.throughput},
          {"latency_mean_s", p.latency_mean_s},
          {"makespan_by_computing", p.makespan_by_computing},
          {"latency_by_computing", p.latency_by_computing},
          {"compute_s", p.compute_s},
          {"messages_s", p.messages_s},
          {"timeline", json::parse(p.timeline)}};
}

Result<PredictedPlan> plan_of(const json& entry, const std::string& file) {
  PredictedPlan p;
  entry.at("folder").get_to(p.folder);
  entry.at("plan").get_to(p.text);
  entry.at("stages").get_to(p.stages);
  p.micro_batches = whole_number<int>(entry.at("micro_batches"));
  entry.at("schedule").get_to(p.schedule);
  entry.at("fingerprint").get_to(p.fingerprint);
  p.number = whole_number<size_t>(entry.at("number"));
  entry.at("sampled").get_to(p.sampled);
  p.in_confidence_set = entry.value("in_confidence_set", false);
  entry.at("devices").get_to(p.devices);
  entry.at("hosts").get_to(p.hosts);
  entry.at("makespan_s").get_to(p.makespan_s);
  entry.at("throughput_per_s").get_to(p.throughput);
  entry.at("latency_mean_s").get_to(p.latency_mean_s);
  p.makespan_by_computing = entry.value("makespan_by_computing", 1.0);
  p.latency_by_computing = entry.value("latency_by_computing", 1.0);
  entry.at("compute_s").get_to(p.compute_s);
  entry.at("messages_s").get_to(p.messages_s);
  p.timeline = entry.at("timeline").dump();
  if (p.hosts.size() != p.devices.size() || p.hosts.empty())
    return invalid_input(fmt::format("{}: plan {} does not say where each of its devices is", file, p.folder));
  return p;
}

}  // namespace

std::string to_json(const PlanSet& set) {
  json plans = json::array();
  for (const PredictedPlan& plan : set.plans) plans.push_back(json_of(plan));
  const json file = {
      {"format", "nlsplit-plan-set"},
      {"version", 3},
      {"scenario", set.scenario},
      {"model", set.model},
      {"batch", set.batch},
      {"generates", set.generates},
      {"draw",
       {{"top", set.draw.top}, {"also", set.draw.also}, {"seed", set.draw.seed}, {"confidence", set.draw.confidence}}},
      {"judge",
       {{"objective", set.judge.objective},
        {"per_makespan", set.judge.per_makespan},
        {"per_latency", set.judge.per_latency}}},
      {"plans", std::move(plans)},
      {"control", set.control ? json_of(*set.control) : json()},
      {"calibrations_s", set.calibrations_s}};
  return file.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<PlanSet> parse_plan_set(const std::string& text, const std::string& file) {
  try {
    const json value = json::parse(text);
    if (value.at("format") != "nlsplit-plan-set" || value.at("version") != 3)
      return invalid_input(
          fmt::format("{}: not a set of plans of version 3; give another --output or remove its folder", file));
    PlanSet set;
    value.at("scenario").get_to(set.scenario);
    value.at("model").get_to(set.model);
    set.batch = whole_number<int64_t>(value.at("batch"));
    set.generates = value.value("generates", false);
    value.at("calibrations_s").get_to(set.calibrations_s);
    const json& draw = value.at("draw");
    set.draw = {whole_number<size_t>(draw.at("top")), whole_number<size_t>(draw.at("also")),
                whole_number<uint64_t>(draw.at("seed")), draw.value("confidence", 0.0)};
    const json& judge = value.at("judge");
    set.judge = {judge.at("objective"), judge.at("per_makespan"), judge.at("per_latency")};
    for (const json& entry : value.at("plans")) {
      ASSIGN_OR_RETURN(set.plans.emplace_back(), plan_of(entry, file));
    }
    if (const json& control = value.at("control"); !control.is_null()) {
      ASSIGN_OR_RETURN(set.control, plan_of(control, file));
    }
    return set;
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", file, e.what()));
  }
}

}  // namespace nlsplit::inline validation

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/ranking/ranking_report.h"
#include "report/table.h"

namespace nlsplit {
namespace {

std::string percent(double share) { return fmt::format("{:.0f} %", share * 100); }

// 1,234,567
std::string grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string rate(double per_second) {
  if (per_second >= 1000) return fmt::format("{:.0f}", per_second);
  return fmt::format("{:.{}f}", per_second, per_second >= 100 ? 0 : per_second >= 10 ? 1 : 2);
}

std::string busiest(const Estimate& estimate) {
  if (estimate.busiest_link_share > estimate.busiest_device_share) {
    return fmt::format("link {} {}", estimate.busiest_link, percent(estimate.busiest_link_share));
  }
  return fmt::format("{} compute {}", estimate.busiest_device, percent(estimate.busiest_device_share));
}

std::string head(const Ranking& ranking, const Scenario& scenario) {
  const size_t machines = scenario.cluster.devices.size();
  std::string text = fmt::format("{}, batch {} on {} device{} · {} plans in {:.2g} s", ranking.model, ranking.batch, machines,
                                 machines == 1 ? "" : "s", grouped(static_cast<double>(ranking.considered)), ranking.seconds);
  if (ranking.space > static_cast<double>(ranking.considered)) text += fmt::format(" (of {:.2g} possible)", ranking.space);
  text += fmt::format(", {} simulated", ranking.judged.size());
  for (const Misfit& misfit : ranking.misfits) {
    text += fmt::format(" · {} do not fit in {}'s {} (they need {} or more)", grouped(static_cast<double>(misfit.plans)),
                        misfit.device, to_string(misfit.has), to_string(misfit.least_needed));
  }
  text += fmt::format(" · costs: {} measured, {} roofline estimates\n", ranking.measured_costs, ranking.estimated_costs);
  return text;
}

std::string table(const Ranking& ranking) {
  using enum Align;
  Table table({{"#", right},
               {"plan", left},
               {"micro-\nbatches", right},
               {"schedule", left},
               {"samples/s", right},
               {"vs best\nsingle", right},
               {"latency", right},
               {"busiest", left},
               {"memory", left}});
  const auto single = ranking.verdict.best_single;
  for (size_t i = 0; i < ranking.judged.size(); ++i) {
    const RankedPlan& ranked = ranking.judged[i];
    if (i >= ranking.keep && !ranked.own) continue;
    const Estimate& e = ranked.estimate;
    const std::string ratio =
        single ? fmt::format("{:.2f}x", e.throughput / ranking.judged[*single].estimate.throughput) : "-";
    table.add({fmt::format("{}", i + 1), (ranked.own ? ranked.plan.name + ": " : "") + ranked.text,
               fmt::format("{}", ranked.plan.micro_batches), ranked.plan.schedule, rate(e.throughput), ratio,
               to_string(seconds(e.latency_mean_s)), busiest(e),
               fmt::format("{} ({})", to_string(e.largest_memory), e.largest_device)});
  }
  return table.to_string();
}

std::string named(const Ranking& ranking, size_t index) {
  const RankedPlan& ranked = ranking.judged[index];
  return fmt::format("plan {} ({})", index + 1, ranked.text);
}

// The one bandwidth all links have, or none.
std::optional<BytesPerSecond> common_bandwidth(const Cluster& cluster) {
  std::optional<BytesPerSecond> common;
  for (const Link& link : cluster.links) {
    if (common && *common != link.bandwidth) return std::nullopt;
    common = link.bandwidth;
  }
  return common;
}

std::string bandwidth_at(const Scenario& scenario, double factor) {
  if (const auto common = common_bandwidth(scenario.cluster)) return to_string(*common * factor);
  return factor < 1 ? fmt::format("{:.2g} of today's bandwidth", factor) : fmt::format("{:.1f} times today's bandwidth", factor);
}

std::string verdict_text(const Ranking& ranking, const Scenario& scenario) {
  const Verdict& v = ranking.verdict;
  const auto estimate = [&](size_t i) -> const Estimate& { return ranking.judged[i].estimate; };
  std::string text;
  const auto line = [&](const std::string& sentence) { text += (text.empty() ? "verdict  " : "         ") + sentence + "\n"; };

  if (!v.best_split) {
    line(scenario.cluster.devices.size() > 1 ? "No layer split fits or was asked for, so there is nothing to compare."
                                             : "One device: there is nothing to split over.");
  } else if (!v.best_single) {
    line(fmt::format("Splitting is the only way: no single device holds the whole model. Best: {}, {} samples/s.",
                     named(ranking, *v.best_split), rate(estimate(*v.best_split).throughput)));
  } else {
    const double gain = estimate(*v.best_split).throughput / estimate(*v.best_single).throughput;
    line(fmt::format("{}: the best split, {}, makes {} samples/s, {:.2f}x the best single device ({}: {}/s).",
                     gain > 1.02   ? "Splitting pays"
                     : gain > 0.98 ? "Splitting changes little"
                                   : "Splitting does not pay",
                     named(ranking, *v.best_split), rate(estimate(*v.best_split).throughput), gain,
                     ranking.judged[*v.best_single].text, rate(estimate(*v.best_single).throughput)));
  }
  if (v.best_replicated) {
    const Estimate& copies = estimate(*v.best_replicated);
    std::string sentence = fmt::format("Copies of the whole model, {}, make {}/s and need {} on the fullest",
                                       named(ranking, *v.best_replicated), rate(copies.throughput), to_string(copies.largest_memory));
    if (v.best_split) {
      sentence += copies.throughput > estimate(*v.best_split).throughput * 1.02   ? ": more than the best split."
                  : copies.throughput < estimate(*v.best_split).throughput * 0.98 ? ": less than the best split."
                                                                                  : ": about as much as the best split.";
    } else {
      sentence += ".";
    }
    line(sentence);
  }
  if (v.best_latency) {
    line(fmt::format("For the latency of one sample {} is best: {}.", named(ranking, *v.best_latency),
                     to_string(seconds(estimate(*v.best_latency).latency_mean_s))));
  }
  if (v.best_split && v.best_single) {
    const Bytes split = estimate(*v.best_split).largest_memory, whole = estimate(*v.best_single).largest_memory;
    line(fmt::format("Memory of the fullest device: {} split, {} unsplit ({:.2f}x).", to_string(split), to_string(whole), split / whole));
  }

  const size_t top = v.best_split.value_or(0);
  const Estimate& e = estimate(top);
  std::string why;
  if (e.busiest_link_share > 0.9 && e.busiest_link_share >= e.busiest_device_share) {
    why = fmt::format("{} is bound by the link {} ({} busy); {} computes {} of the time.", named(ranking, top), e.busiest_link,
                      percent(e.busiest_link_share), e.busiest_device, percent(e.busiest_device_share));
  } else if (e.busiest_device_share > 0.9) {
    why = fmt::format("{} is bound by {}'s compute ({} busy)", named(ranking, top), e.busiest_device, percent(e.busiest_device_share));
    why += e.busiest_link.empty() ? "." : fmt::format("; its links are at most {} busy.", percent(e.busiest_link_share));
  } else {
    why = fmt::format("{} keeps nothing busy all the time: {} computes {}", named(ranking, top), e.busiest_device,
                      percent(e.busiest_device_share));
    if (!e.busiest_link.empty()) why += fmt::format(", link {} is {} busy", e.busiest_link, percent(e.busiest_link_share));
    why += "; the rest is filling and draining the pipeline and waiting for messages.";
  }
  if (v.best_split && v.best_single && v.break_even) {
    const bool pays = estimate(*v.best_split).throughput > estimate(*v.best_single).throughput;
    why += fmt::format(" {} {} {}.", pays ? "Below" : "It would pay above", bandwidth_at(scenario, *v.break_even),
                       pays ? "splitting stops paying" : "on every link");
  }
  return text + "why      " + why + "\n";
}

std::string next_step(const Ranking& ranking, const Scenario& scenario) {
  if (ranking.judged.empty()) return "";
  // Ranks: the plan's devices, and the source's and sink's hosts where no device of the plan is.
  const Plan& best = ranking.judged[0].plan;
  std::vector<DeviceId> devices;
  std::vector<HostId> hosts;
  for (const Stage& stage : best.stages) {
    for (const DeviceId device : stage.devices) {
      if (std::find(devices.begin(), devices.end(), device) != devices.end()) continue;
      devices.push_back(device);
      hosts.push_back(scenario.cluster.device(device).host);
    }
  }
  size_t ranks = devices.size();
  for (const HostId end : {scenario.endpoints.source, scenario.endpoints.sink}) {
    if (std::find(hosts.begin(), hosts.end(), end) != hosts.end()) continue;
    hosts.push_back(end);
    ++ranks;
  }
  return fmt::format("next     mpirun -np {} nlbench run {} --plan 1 --check\n", ranks, scenario.file);
}

}  // namespace

std::string ranking_text(const Ranking& ranking, const Scenario& scenario) {
  std::string text = head(ranking, scenario) + "\n" + table(ranking) + "\n";
  std::vector<std::string> notes = ranking.own_misfits;
  for (const RankedPlan& ranked : ranking.judged) {
    for (const PlanNote& note : ranked.notes) {
      const std::string sentence = fmt::format("{}: {}", ranked.plan.name, note.text);
      if (std::find(notes.begin(), notes.end(), sentence) == notes.end()) notes.push_back(sentence);
    }
  }
  for (const std::string& note : notes) text += "note     " + note + "\n";
  if (ranking.judged.empty()) return text;
  return text + verdict_text(ranking, scenario) + next_step(ranking, scenario);
}

}  // namespace nlsplit

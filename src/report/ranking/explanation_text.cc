#include "report/ranking/explanation_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ranking/generation.h"
#include "report/ranking/plan_drawing.h"
#include "report/ranking/verdict_text.h"
#include "report/table.h"

namespace nlsplit::inline reports {
namespace {

constexpr size_t indent = 9;         // as in the verdict
constexpr double nearly_full = 0.9;  // of a device's memory

// 0.35, 1.2, 46, 16,000
std::string times_text(double factor) {
  if (factor < 100) return fmt::format("{:.2g}", factor);
  const double unit = std::pow(10, std::floor(std::log10(factor)) - 1);
  return grouped(std::round(factor / unit) * unit);
}

std::string devices_of(const Stage& stage, const Cluster& cluster) {
  std::string text;
  for (const DeviceId device : stage.devices) text += (text.empty() ? "" : "+") + cluster.device(device).name;
  return text;
}

std::string shared_way(const Stage& stage) {
  if (!stage.split) return stage.devices.size() > 1 ? "round-robin" : "on one device";
  std::string shares;
  for (const int64_t share : stage.split->shares) shares += fmt::format("{}{}", shares.empty() ? "" : ":", share);
  return fmt::format("by {} {}{}", name_of(stage.split->axis), shares,
                     stage.split->recompute_halo ? ", halo recomputed" : "");
}

std::string way_of(const Stage& stage) { return shared_way(stage) + (stage.recompute ? ", recomputed" : ""); }

std::string bottleneck_sentence(const Ranking& ranking, const Explanation& why) {
  std::string text;
  switch (why.bottleneck) {
    case Explanation::Bottleneck::stage:
      text = why.stage && ranking.judged[why.plan].plan.stages.size() > 1
                 ? fmt::format("Bound by stage {} on {}, {} busy", *why.stage + 1, why.name, percent(why.share))
                 : fmt::format("Bound by {}, {} busy", why.name, percent(why.share));
      break;
    case Explanation::Bottleneck::link:
      text = fmt::format("Bound by link {}, {} busy", why.name, percent(why.share));
      break;
    case Explanation::Bottleneck::nothing:
      text = fmt::format("Nothing is always busy ({}, the busiest, {}): it waits for messages, and fills and drains",
                         why.name, percent(why.share));
      break;
  }
  if (why.fullest_share > nearly_full)
    text += fmt::format("; {} of {}'s memory is taken, so no more layers go there", percent(why.fullest_share),
                        why.fullest_device);
  return text + ".";
}

// What the links would have to be.
std::string break_even_sentence(const Ranking& ranking, const Scenario& scenario, const Explanation& why) {
  const Plan& plan = ranking.judged[why.plan].plan;
  if (why.gain == 0 || (plan.stages.size() == 1 && plan.stages[0].devices.size() == 1)) return "";
  std::vector<std::string> parts;
  if (why.break_even_bandwidth)
    parts.push_back(fmt::format("with more than {} on every link", bandwidth_at(scenario, *why.break_even_bandwidth)));
  if (why.break_even_latency)
    parts.push_back(fmt::format("with less than {} times today's latencies", times_text(*why.break_even_latency)));
  if (parts.empty()) {
    return why.gain > clearly_faster
               ? fmt::format("It makes {:.2f}x what the best single device makes, whatever the links.", why.gain)
               : fmt::format(
                     "It makes {:.2f}x what the best single device makes, and no better link alone changes "
                     "that: {:.2f}x if messages took no time.",
                     why.gain, why.gain_without_network);
  }
  std::string text =
      fmt::format("It makes {:.2f}x what the best single device makes, and beats it {}", why.gain, parts[0]);
  if (parts.size() > 1) text += (why.gain > clearly_faster ? " and " : " or ") + parts[1];
  return text + ".";
}

std::string next_sentence(const Ranking& ranking, const Scenario& scenario, const Explanation& why) {
  const std::vector<size_t> top = kept(ranking);
  const auto at = std::ranges::find(top, why.plan);
  if (at == top.end() || at + 1 == top.end()) return "";
  const RankedPlan &mine = ranking.judged[why.plan], &next = ranking.judged[*(at + 1)];
  const double ratio = mine.generation && next.generation
                           ? cost_of(scenario, *next.generation) / cost_of(scenario, *mine.generation)
                           : cost_of(ranking, next.estimate) / cost_of(ranking, mine.estimate);
  const std::string how_much = ratio >= 1.0005  ? fmt::format("is {:.1f} % worse", (ratio - 1) * 100)
                               : ratio > 0.9995 ? "is as good"
                                                : fmt::format("is {:.1f} % better without noise", (1 - ratio) * 100);
  return fmt::format("Plan {} {}: {}.", *(at + 1) + 1, how_much, difference(mine, next, scenario.cluster));
}

}  // namespace

std::string difference(const RankedPlan& a, const RankedPlan& b, const Cluster& cluster) {
  const std::vector<Stage>&x = a.plan.stages, &y = b.plan.stages;
  std::vector<std::string> parts;
  if (x.size() != y.size()) {
    parts.push_back(fmt::format("it has {} instead of {} ({})", counted(static_cast<int64_t>(y.size()), "stage"),
                                x.size(), b.text));
  } else {
    for (size_t s = 0; s < x.size() && parts.size() < 3; ++s) {
      if (s + 1 < x.size() && x[s].end != y[s].end) {
        parts.push_back(fmt::format("stage {} is {} instead of {}", s + 1, s < b.layers.size() ? b.layers[s] : "",
                                    s < a.layers.size() ? a.layers[s] : ""));
      }
      if (x[s].devices != y[s].devices) {
        parts.push_back(fmt::format("stage {} is on {} instead of {}", s + 1, devices_of(y[s], cluster),
                                    devices_of(x[s], cluster)));
      }
      if (x[s].split != y[s].split)
        parts.push_back(fmt::format("stage {} is worked on {} instead of {}", s + 1, way_of(y[s]), way_of(x[s])));
    }
  }
  if (a.plan.micro_batches != b.plan.micro_batches) {
    parts.push_back(
        fmt::format("it has {} instead of {}", counted(b.plan.micro_batches, "micro-batch"), a.plan.micro_batches));
  }
  if (a.plan.schedule != b.plan.schedule)
    parts.push_back(fmt::format("it runs under {} instead of {}", b.plan.schedule, a.plan.schedule));
  if (a.plan.prefill != b.plan.prefill)
    parts.push_back(b.plan.prefill.empty() ? "it computes prompts where it makes tokens"
                                           : fmt::format("it computes prompts elsewhere ({})", b.text));
  if (parts.empty()) return "it is the same";
  std::string text = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) text += (i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

std::vector<std::string> explanation_sentences(const Ranking& ranking, const Scenario& scenario,
                                               const Explanation& explanation) {
  std::vector<std::string> lines = {bottleneck_sentence(ranking, explanation)};
  for (std::string text :
       {break_even_sentence(ranking, scenario, explanation), next_sentence(ranking, scenario, explanation)}) {
    if (!text.empty()) lines.push_back(std::move(text));
  }
  return lines;
}

std::string explanations_text(const Ranking& ranking, const Scenario& scenario) {
  std::string text;
  for (const Explanation& explanation : ranking.explanations) {
    const RankedPlan& ranked = ranking.judged[explanation.plan];
    const std::string margin(indent, ' ');
    text += fmt::format("{:<9}{}, {}, {}{}\n", fmt::format("plan {}", explanation.plan + 1), ranked.text,
                        counted(ranked.plan.micro_batches, "micro-batch"), ranked.plan.schedule,
                        ranked.plan.prefill.empty() ? "" : "; drawn is decode");
    text += plan_drawing(margin, indent, drawn_stages(ranked, ranking.node_shares, scenario.cluster));
    for (const std::string& line : explanation_sentences(ranking, scenario, explanation)) text += margin + line + "\n";
    text += "\n";
  }
  return text;
}

}  // namespace nlsplit::inline reports

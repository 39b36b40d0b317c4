#include "report/ranking/verdict_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ranking/generation.h"
#include "report/table.h"

namespace nlsplit::inline reports {
namespace {

constexpr double clearly = clearly_faster;

// One respect in which plans are compared.
struct Respect {
  std::string name;
  Yardsticks best;
  double (*cost)(const RankedPlan&);  // smaller is better
  std::string (*text)(const RankedPlan&);
  bool more_is_better;    // of the figure shown
  std::string_view verb;  // what is said of a rival: "makes" 1.30x "as much", "needs" 0.70x
  std::string_view unit;
};

// Of generation, where those that cannot run are in no comparison.
std::vector<Respect> generation_respects(const Verdict& verdict) {
  return {
      {"tokens per second", verdict.throughput, [](const RankedPlan& p) { return 1 / p.generation->tokens_per_s; },
       [](const RankedPlan& p) { return rate_text(p.generation->tokens_per_s) + " tokens/s"; }, true, "makes",
       "as many"},
      {"each token (TPOT)", verdict.latency, [](const RankedPlan& p) { return p.generation->next_token_s; },
       [](const RankedPlan& p) { return to_string(seconds(p.generation->next_token_s)); }, false, "is", "as quick"},
      {"the first token (TTFT)", verdict.first_token, [](const RankedPlan& p) { return p.generation->first_token_s; },
       [](const RankedPlan& p) { return to_string(seconds(p.generation->first_token_s)); }, false, "is", "as quick"},
      {"memory", verdict.memory,
       [](const RankedPlan& p) { return static_cast<double>(p.generation->fullest_memory.value()); },
       [](const RankedPlan& p) { return to_string(p.generation->fullest_memory); }, false, "needs", "as much"}};
}

std::vector<Respect> respects(const Ranking& ranking, bool training) {
  const Verdict& verdict = ranking.verdict;
  if (ranking.generates) return generation_respects(verdict);
  std::vector<Respect> all = {
      {"throughput", verdict.throughput, [](const RankedPlan& p) { return p.estimate.makespan_s; },
       [](const RankedPlan& p) { return rate_text(p.estimate.throughput) + " samples/s"; }, true, "makes", "as much"},
      {"latency", verdict.latency, [](const RankedPlan& p) { return p.estimate.latency_mean_s; },
       [](const RankedPlan& p) { return to_string(seconds(p.estimate.latency_mean_s)); }, false, "is", "as quick"},
      {"memory", verdict.memory,
       [](const RankedPlan& p) { return static_cast<double>(p.estimate.largest_memory.value()); },
       [](const RankedPlan& p) { return to_string(p.estimate.largest_memory); }, false, "needs", "as much"}};
  // Nobody waits for a micro-batch of a training step.
  if (training) all.erase(all.begin() + 1);
  return all;
}

struct Comparison {
  bool beats_single = true, beats_copies = true;  // or there are none
  bool only_way = false;                          // there is neither
  double lead = 0;                                // of the best rival over the split: 1.3 is 1.3 times as good
  std::optional<size_t> rival;
  bool rival_is_copies = false;
};

Comparison compare(const Ranking& ranking, const Respect& respect) {
  Comparison c;
  const auto cost = [&](size_t i) { return respect.cost(ranking.judged[i]); };
  const double split = cost(*respect.best.split);
  const auto look = [&](const std::optional<size_t>& other, bool& beaten, bool copies) {
    if (!other) return;
    const double lead = split / cost(*other);
    beaten = lead < 1 / clearly;
    if (lead <= c.lead) return;
    c.lead = lead;
    c.rival = other;
    c.rival_is_copies = copies;
  };
  look(respect.best.single, c.beats_single, false);
  look(respect.best.copies, c.beats_copies, true);
  c.only_way = !respect.best.single && !respect.best.copies;
  return c;
}

std::string answer(const Comparison& c) {
  if (c.only_way) return "the only way";
  if (c.beats_single && c.beats_copies) return "yes";
  if (c.beats_single) return c.lead > clearly ? "not against replicas" : "not more than replicas";
  return c.lead > clearly ? "no" : "no difference";
}

std::string cell(const Ranking& ranking, const Respect& respect, const std::optional<size_t>& index) {
  if (!index) return "-";
  return fmt::format("{} (plan {})", respect.text(ranking.judged[*index]), *index + 1);
}

std::string joined(const std::vector<std::string>& parts, std::string_view between, std::string_view last) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? last : between;
    text += parts[i];
  }
  return text;
}

// "3.70x one device"; for times and sizes, where less is better, "0.61x of one device's".
std::string against(const Ranking& ranking, const Respect& respect, size_t rival, std::string_view name,
                    std::string_view possessive) {
  const double split = respect.cost(ranking.judged[*respect.best.split]);
  const double other = respect.cost(ranking.judged[rival]);
  return respect.more_is_better ? fmt::format("{:.2f}x {}", other / split, name)
                                : fmt::format("{:.2f}x of {}", split / other, possessive);
}

std::string against_one_device(const Ranking& ranking, const Respect& respect) {
  if (!respect.best.single) return "no device can hold the whole model";
  return against(ranking, respect, *respect.best.single, "one device", "one device's");
}

std::string against_both(const Ranking& ranking, const Respect& respect) {
  std::string text = against_one_device(ranking, respect);
  if (respect.best.copies) text += ", " + against(ranking, respect, *respect.best.copies, "replicas", "replicas'");
  return text;
}

std::string plural(std::string_view verb) {
  return verb == "is" ? "are" : std::string(verb.substr(0, verb.size() - 1));
}

std::string sentence(const Ranking& ranking, const std::vector<Respect>& all) {
  std::vector<std::string> worth, not_worth;
  for (const Respect& respect : all) {
    const Comparison c = compare(ranking, respect);
    if (c.only_way) {
      return "Splitting is the only way: no device can hold the whole model.";
    }
    if (c.beats_single && c.beats_copies) {
      worth.push_back(respect.name + " (" + against_both(ranking, respect) + ")");
    } else if (c.lead <= clearly && c.lead >= 1 / clearly) {
      not_worth.push_back(fmt::format("for {} ({} as good)", respect.name,
                                      c.rival_is_copies ? "replicas of the whole model are" : "one device is"));
    } else {
      not_worth.push_back(fmt::format("for {} ({}{} {:.2f}x {})", respect.name,
                                      c.beats_single ? against_one_device(ranking, respect) + ", but " : "",
                                      c.rival_is_copies ? "replicas of the whole model " + plural(respect.verb)
                                                        : fmt::format("one device {}", respect.verb),
                                      respect.verb == "needs" ? 1 / c.lead : c.lead, respect.unit));
    }
  }
  if (not_worth.empty()) return "Splitting is worth it for " + joined(worth, ", ", " and for ") + ".";
  if (worth.empty()) return "Splitting is not worth it, neither " + joined(not_worth, ", nor ", ", nor ") + ".";
  return "Splitting is worth it for " + joined(worth, ", ", " and for ") + ", but not " +
         joined(not_worth, ", nor ", ", nor ") + ".";
}

constexpr size_t longest_plan = 100;  // that is told in a sentence

double mean_share(const Estimate& estimate) {
  double sum = 0;
  for (const DeviceEstimate& device : estimate.devices) sum += device.share;
  return estimate.devices.empty() ? 0 : sum / static_cast<double>(estimate.devices.size());
}

}  // namespace

std::string bound_by_text(const Ranking& ranking, size_t index) {
  const Estimate& e = ranking.judged[index].estimate;
  const std::string& plan = ranking.judged[index].text;
  const std::string name =
      fmt::format("Plan {}{}", index + 1, plan.size() <= longest_plan ? fmt::format(" ({})", plan) : "");
  const std::string on_average =
      e.devices.size() > 1 ? fmt::format(", its devices {} on average", percent(mean_share(e))) : "";
  if (e.busiest_link_share > 0.9 && e.busiest_link_share >= e.busiest_device_share) {
    return fmt::format("{} is bound by link {}, {} busy; {} computes {} of the time{}.", name, e.busiest_link,
                       percent(e.busiest_link_share), e.busiest_device, percent(e.busiest_device_share), on_average);
  }
  const std::string links = e.busiest_link.empty() ? ""
                            : e.busiest_link_share < 0.005
                                ? "; links are busy less than 1 % of it"
                                : fmt::format("; no link is more than {} busy", percent(e.busiest_link_share));
  if (e.busiest_device_share > 0.9) {
    return fmt::format("{} is bound by {}, which computes {} of the time{}{}.", name, e.busiest_device,
                       percent(e.busiest_device_share), on_average, links);
  }
  return fmt::format("{} keeps nothing busy: {} computes {} of the time{}{}; the rest is {}.", name, e.busiest_device,
                     percent(e.busiest_device_share), on_average, links,
                     ranking.generates ? "waiting for the other stages and for messages"
                                       : "filling and draining the pipeline and waiting for messages");
}

namespace {

// The one bandwidth all links have, or none.
std::optional<BytesPerSecond> common_bandwidth(const Cluster& cluster) {
  std::optional<BytesPerSecond> common;
  for (const Link& link : cluster.links) {
    if (common && *common != link.bandwidth) return std::nullopt;
    common = link.bandwidth;
  }
  return common;
}

// What would make splitting pay against one device, or what would end that.
std::string network_says(const Ranking& ranking, const Scenario& scenario) {
  const Verdict& v = ranking.verdict;
  const Yardsticks& best = ranking.generates ? v.latency : v.throughput;  // of generation by a token
  const double gain =
      ranking.judged[*best.split].estimate.throughput / ranking.judged[*best.single].estimate.throughput;
  if (gain > clearly) {
    if (!v.break_even || *v.break_even >= 1) return "";
    return fmt::format("With less than {} on every link no split would beat one device.",
                       bandwidth_at(scenario, *v.break_even));
  }
  if (v.break_even && *v.break_even > 1) {
    return fmt::format("The links stand in the way: with more than {} on each, splitting would beat one device.",
                       bandwidth_at(scenario, *v.break_even));
  }
  if (!v.gain_without_network) return "";
  if (*v.gain_without_network > clearly) {
    return fmt::format(
        "The time messages need whatever the bandwidth (latency, handshakes) stands in the way: without "
        "it a split would make {:.2f}x what one device makes.",
        *v.gain_without_network);
  }
  return fmt::format(
      "The network is not what stands in the way: even if messages took no time, the best split would "
      "make {:.2f}x what one device makes; {}.",
      *v.gain_without_network,
      ranking.generates ? "a token passes the layers one after the other"
                        : "the devices' speeds and the layers' sizes leave no better cut, or there are too few "
                          "micro-batches");
}

std::vector<std::string> reasons(const Ranking& ranking, const Scenario& scenario, const std::vector<Respect>& all) {
  const Verdict& v = ranking.verdict;
  const bool by_latency = !ranking.generates && ranking.objective == Objective::latency;
  const Yardsticks& fastest = ranking.generates || by_latency ? v.latency : v.throughput;
  std::vector<std::string> lines = {bound_by_text(ranking, *fastest.split)};
  if (fastest.single && !by_latency) {  // what is said of links is about whole batches
    if (std::string text = network_says(ranking, scenario); !text.empty()) lines.push_back(std::move(text));
  }
  if (ranking.generates) {
    if (!has_splits(ranking.judged[*fastest.split].plan))
      lines.push_back(
          "A token passes the layers one after the other: a plan of layers holds larger models, and makes "
          "no sequence quicker.");
    return lines;
  }
  const Comparison throughput = compare(ranking, all[0]);
  if (throughput.rival && throughput.rival_is_copies && throughput.lead > clearly) {
    const Estimate& split = ranking.judged[*v.throughput.split].estimate;
    const Estimate& copies = ranking.judged[*throughput.rival].estimate;
    const double mine = mean_share(split), theirs = mean_share(copies);
    lines.push_back(
        theirs > mine ? fmt::format("Replicas keep their devices busier ({} on average): no cut into layers is as even "
                                    "as equal shares of the batch.",
                                    percent(theirs))
        : scenario.training
            ? "Replicas send only inputs and, once a batch, gradients over the links, and all of them work from "
              "the start."
            : "Replicas send only inputs and outputs over the links, and all of them work from the start.");
  }
  if (scenario.training) return lines;
  const Comparison latency = compare(ranking, all[1]);
  if (latency.rival && !latency.rival_is_copies && latency.lead > clearly) {
    lines.push_back(
        "A single sample passes the layers one after the other, so more devices give it more messages, not more "
        "speed.");
  }
  return lines;
}

}  // namespace

std::string bandwidth_at(const Scenario& scenario, double factor) {
  if (const auto common = common_bandwidth(scenario.cluster)) return to_string(*common * factor);
  return fmt::format("{:.2g} times today's bandwidth", factor);
}

std::string objective_name(const Ranking& ranking) {
  if (ranking.generates) {
    switch (ranking.generation_objective) {
      case GenerationObjective::tpot:
        return "time of each token (TPOT)";
      case GenerationObjective::ttft:
        return "time to the first token (TTFT)";
      case GenerationObjective::tokens_per_second:
        return "tokens per second";
    }
  }
  switch (ranking.objective) {
    case Objective::throughput:
      return "throughput";
    case Objective::latency:
      return "latency of a micro-batch";
    case Objective::weighted:
      return fmt::format("{} x throughput and {} x latency", ranking.goal.weights.throughput,
                         ranking.goal.weights.latency);
  }
  CHECK(false, "unknown objective");
}

std::string verdict_text(const Ranking& ranking, const Scenario& scenario) {
  const std::vector<Respect> all = respects(ranking, scenario.training.has_value());
  if (!ranking.verdict.throughput.split) {
    return fmt::format("verdict  {}\n", scenario.cluster.devices.size() > 1
                                            ? "No split into layers fits or was asked for: there is nothing to compare."
                                            : "One device: there is nothing to split over.");
  }
  using enum Align;
  std::vector<Table::Column> columns = {
      {"worth splitting for", left}, {"", left}, {"best split", left}, {"one device", left}};
  // A sequence has its caches in one place: replicas serve other micro-batches, if there are any.
  const bool copies =
      !ranking.generates || std::ranges::any_of(all, [](const Respect& r) { return r.best.copies.has_value(); });
  if (copies) columns.push_back({"replicas", left});
  Table table(columns);
  for (const Respect& respect : all) {
    std::vector<std::string> cells = {respect.name, answer(compare(ranking, respect)),
                                      cell(ranking, respect, respect.best.split),
                                      cell(ranking, respect, respect.best.single)};
    if (copies) cells.push_back(cell(ranking, respect, respect.best.copies));
    table.add(std::move(cells));
  }
  std::string text = table.to_string() + "\nverdict  " + sentence(ranking, all) + "\n";
  std::string_view head = "why      ";
  for (const std::string& line : reasons(ranking, scenario, all)) {
    text += fmt::format("{}{}\n", head, line);
    head = "         ";
  }
  return text;
}

}  // namespace nlsplit::inline reports

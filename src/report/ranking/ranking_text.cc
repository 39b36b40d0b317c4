#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>

#include "graph/gguf/import.h"
#include "graph/safetensors/import.h"
#include "ranking/generation.h"
#include "report/ranking/baselines_text.h"
#include "report/ranking/breakdown_report.h"
#include "report/ranking/confidence_text.h"
#include "report/ranking/explanation_text.h"
#include "report/ranking/plan_drawing.h"
#include "report/ranking/ranking_report.h"
#include "report/ranking/verdict_text.h"
#include "report/table.h"

namespace nlsplit::inline reports {
namespace {

constexpr size_t head_width = 9;     // of "verdict  "
constexpr size_t widest_plan = 100;  // beside its figures

// 1,234,567; beyond ten millions 3.2e+12
std::string about(double value) { return value < 1e7 ? grouped(value) : fmt::format("{:.1e}", value); }

// What 95 of 100 runs reach is a low percentile of a throughput, a high one of a time.
std::string_view percentile(const Ranking& ranking) { return ranking.objective == Objective::latency ? "p95" : "p5"; }

std::string noise_line(const Ranking& ranking, const Noise& noise) {
  if (ranking.noise_runs == 0) return "interrupted before all plans had met the noise once\n";
  std::string text;
  if (noise.runs == 1) {
    text = fmt::format(
        "with noise: what it does to each plan; nothing of it is left to chance, so mean and {} are the same",
        percentile(ranking));
  } else {
    text = fmt::format("with noise: {}{} of each plan, seed {}; 95 of 100 reach the {}", ranking.noise_runs,
                       ranking.noise_runs < noise.runs ? fmt::format(" of {} runs (interrupted)", noise.runs) : " runs",
                       noise.seed, percentile(ranking));
  }
  return text + (ranking.robust ? "; # is the place without noise, which --plan takes\n"
                                : "; order and other columns are without it\n");
}

// Devices of which the same is to be said share a line.
std::string misfits_text(const std::vector<Misfit>& misfits) {
  std::string text;
  std::vector<bool> said(misfits.size(), false);
  for (size_t i = 0; i < misfits.size(); ++i) {
    if (said[i]) continue;
    const Misfit& misfit = misfits[i];
    size_t plans = 0;
    int64_t others = -1;
    for (size_t k = i; k < misfits.size(); ++k) {
      if (misfits[k].has != misfit.has || misfits[k].least_needed != misfit.least_needed) continue;
      said[k] = true;
      plans += misfits[k].plans;
      ++others;
    }
    const std::string who = others == 0 ? fmt::format("{} has {}", misfit.device, to_string(misfit.has))
                                        : fmt::format("{} and {} have {} each", misfit.device, counted(others, "other"),
                                                      to_string(misfit.has));
    text += fmt::format("{} not fit: {}, the smallest of them needs {} more\n",
                        plans == 1 ? "1 plan does" : grouped(static_cast<double>(plans)) + " plans do", who,
                        to_string(bytes(misfit.least_needed.value() - misfit.has.value())));
  }
  return text;
}

std::string no_room_text(const std::vector<NoRoom>& devices) {
  std::string text;
  for (const NoRoom& device : devices) {
    text += fmt::format("{} not used: its host holds the whole batch's inputs or results, {}, and {} has {}\n",
                        device.device, to_string(device.needs), device.device, to_string(device.has));
  }
  return text;
}

// within: the part of plan 1's cost that could be saved at most.
std::string bound_line(double within, bool generates) {
  const double times = 1 / (1 - within);  // as long as the best possible
  const std::string_view of_what = generates ? ", for a token at the end of the context" : "";
  if (times < 1.1)
    return fmt::format("plan 1 is within {:.1f} % of the best possible under these costs{}\n",
                       std::max((times - 1) * 100, 0.1), of_what);
  return fmt::format("no plan can be more than {:.{}f}x as good as plan 1 under these costs{}: proved\n", times,
                     times < 10 ? 2 : 0, of_what);
}

std::string head(const Ranking& ranking, const Scenario& scenario) {
  const auto considered = static_cast<double>(ranking.considered);
  const std::string devices = counted(static_cast<int64_t>(scenario.cluster.devices.size()), "device");
  const std::string ordered = ranking.robust ? fmt::format("{} of ", percentile(ranking)) : "";
  std::string text = ranking.generates
                         ? fmt::format("{} generates, {} on {}, best {}{} first\n", ranking.model,
                                       counted(ranking.batch, "sequence"), devices, ordered, objective_name(ranking))
                         : fmt::format("{}{}, batch {} on {}, best {}{} first\n", scenario.training ? "training " : "",
                                       ranking.model, ranking.batch, devices, ordered, objective_name(ranking));
  text += ranking.space > considered ? fmt::format("{} of {} possible plans", grouped(considered), about(ranking.space))
                                     : fmt::format("{} plan{}", grouped(considered), considered == 1 ? "" : "s");
  text += fmt::format(" timed in {:.2g} s, ", ranking.seconds);
  if (ranking.split_inside > 0)
    text += fmt::format("{} of them split inside layers, ", grouped(static_cast<double>(ranking.split_inside)));
  text += fmt::format(
      "{}{} simulated{}", ranking.judged.size(), ranking.split_inside > 0 ? "" : " of them",
      ranking.tier->shares_links() ? "" : fmt::format(" by the {}, which shares no links", ranking.tier->title()));
  text += fmt::format("; kernel costs: {} measured, ", ranking.measured_costs);
  if (ranking.predicted_costs > 0)
    text += fmt::format("{} predicted (±{:.0f} % or better), ", ranking.predicted_costs, ranking.largest_spread * 100);
  text += fmt::format("{} by formula\n", ranking.estimated_costs);
  if (ranking.untimed > 0) {
    text += fmt::format(
        "{} more may be as good and were not timed, for large plans take long: search.max_candidates sets the limit\n",
        grouped(static_cast<double>(ranking.untimed)));
  }
  if (ranking.proved && ranking.space > considered)
    text += "no plan of layers and replicas has a better bound than the first of them: proved by the search\n";
  if (const std::optional<double> within = within_bound(ranking); within && !ranking.robust)
    text += bound_line(*within, ranking.generates);
  text += error_bars_line(ranking, scenario);
  text += no_room_text(ranking.no_room);
  text += misfits_text(ranking.misfits);
  for (const LeftOutCount& other : ranking.counts_left_out)
    text += fmt::format("{} not tried: {}\n", counted(other.micro_batches, "micro-batch"), other.why);
  if (ranking.unscheduled > 0) {
    text += fmt::format("{} without a schedule, the first because: {}\n",
                        counted(static_cast<int64_t>(ranking.unscheduled), "plan"), ranking.why_unscheduled);
  }
  if (!ranking.why_not_inside.empty())
    text += fmt::format("no plan found by search splits layers: {}\n", ranking.why_not_inside);
  if (ranking.left_out > 0) {
    text += fmt::format("{} with splits inside layers left out, the first because: {}\n",
                        counted(static_cast<int64_t>(ranking.left_out), "plan"), ranking.why_left_out);
  }
  if (ranking.devices > 0 && ranking.devices + ranking.no_room.size() < scenario.cluster.devices.size()) {
    text += fmt::format(
        "search looked at the {} fastest devices only (of equals the first); plans of your own may use all\n",
        ranking.devices);
  }
  if (scenario.noise) text += noise_line(ranking, *scenario.noise);
  if (ranking.interrupted) text += "interrupted: the best of the plans looked at so far\n";
  return text;
}

std::string busiest(const std::string& what, double share) {
  return what.empty() ? "-" : fmt::format("{} {}", what, percent(share));
}

// Of the busiest device.
std::string busiest_phases(const Estimate& estimate) {
  const auto at = std::ranges::find(estimate.devices, estimate.busiest_device, &DeviceEstimate::name);
  return at == estimate.devices.end() ? "-" : phases_text(at->phases, estimate.makespan_s);
}

struct PlanColumn {
  std::string title;
  Align align{};
  std::function<std::string(size_t)> cell;  // of a plan of `judged`
};
using PlanColumns = std::vector<PlanColumn>;

std::string memory_text(Bytes memory, const std::string& device) {
  return fmt::format("{} ({})", to_string(memory), device);
}

// Beside the figure that plans are ordered by: error bars, and what noise makes of it.
void add_bars(PlanColumns& columns, const Ranking& ranking) {
  if (ranking.confidence) {
    const auto bar = [&](size_t which) { return [&, which](size_t i) { return error_bar_cells(ranking, i)[which]; }; };
    columns.push_back({"rank", Align::right, bar(0)});
    columns.push_back({"90 %\ninterval", Align::right, bar(1)});
    columns.push_back({"worse than\nplan 1", Align::right, bar(2)});
  }
  if (ranking.noise_runs == 0) return;
  const auto noisy = [&](double Spread::*of) {
    return [&, of](size_t i) {
      const NoisyEstimate& n = ranking.judged[i].noisy.value();
      if (ranking.objective == Objective::latency) return to_string(seconds(n.latency_s.*of));
      const double makespan_s = n.makespan_s.*of;
      return rate_text(makespan_s > 0 ? static_cast<double>(ranking.batch) / makespan_s : 0);
    };
  };
  columns.push_back({"with noise\nmean", Align::right, noisy(&Spread::mean)});
  columns.push_back({fmt::format("with noise\n{}", percentile(ranking)), Align::right, noisy(&Spread::p95)});
}

PlanColumn versus_single(const Ranking& ranking, std::function<double(size_t)> cost) {
  const auto single = of_objective(ranking).single;
  return {"vs best\nsingle", Align::right, [single, cost = std::move(cost)](size_t i) {
            return single ? fmt::format("{:.2f}x", cost(*single) / cost(i)) : "-";
          }};
}

void add_busiest(PlanColumns& columns, const Ranking& ranking, bool training) {
  const auto of = [&](size_t i) -> const Estimate& { return ranking.judged[i].estimate; };
  columns.push_back({"busiest\ndevice", Align::left,
                     [of](size_t i) { return busiest(of(i).busiest_device, of(i).busiest_device_share); }});
  if (training) columns.push_back({"its phases", Align::left, [of](size_t i) { return busiest_phases(of(i)); }});
  columns.push_back(
      {"busiest\nlink", Align::left, [of](size_t i) { return busiest(of(i).busiest_link, of(i).busiest_link_share); }});
}

void add_micro_batches(PlanColumns& columns, const Ranking& ranking) {
  columns.push_back({"micro-\nbatches", Align::right,
                     [&](size_t i) { return fmt::format("{}", ranking.judged[i].plan.micro_batches); }});
}

void add_generation(PlanColumns& columns, const Ranking& ranking, const Scenario& scenario) {
  // Of a plan that cannot run there are no times.
  const auto time = [&](const std::function<std::string(const GenerationTimes&)>& text) {
    return [&ranking, text](size_t i) {
      const auto& times = ranking.judged[i].generation;
      return times ? text(*times) : "-";
    };
  };
  if (std::ranges::any_of(ranking.judged, [](const RankedPlan& ranked) { return ranked.plan.micro_batches > 1; }))
    add_micro_batches(columns, ranking);
  columns.push_back({"each token\n(TPOT)", Align::right,
                     time([](const GenerationTimes& times) { return to_string(seconds(times.next_token_s)); })});
  add_bars(columns, ranking);
  columns.push_back({"first token\n(TTFT)", Align::right,
                     time([](const GenerationTimes& times) { return to_string(seconds(times.first_token_s)); })});
  columns.push_back(
      {"tokens/s", Align::right, time([](const GenerationTimes& times) { return rate_text(times.tokens_per_s); })});
  const PlanColumn versus =
      versus_single(ranking, [&](size_t i) { return cost_of(scenario, ranking.judged[i].generation.value()); });
  columns.push_back({versus.title, versus.align, [&ranking, cell = versus.cell](size_t i) {
                       return ranking.judged[i].generation ? cell(i) : "-";
                     }});
  add_busiest(columns, ranking, false);
  columns.push_back({"largest\nmemory", Align::left, [&](size_t i) {
                       const RankedPlan& ranked = ranking.judged[i];
                       if (!ranked.generation)
                         return memory_text(ranked.estimate.largest_memory, ranked.estimate.largest_device);
                       return memory_text(ranked.generation->fullest_memory, ranked.generation->fullest_device);
                     }});
  columns.push_back({"longest\ncontext", Align::right, time([](const GenerationTimes& times) {
                       return times.largest_context > 0 ? grouped(static_cast<double>(times.largest_context)) : "-";
                     })});
}

void add_execution(PlanColumns& columns, const Ranking& ranking, bool training) {
  const auto of = [&](size_t i) -> const Estimate& { return ranking.judged[i].estimate; };
  const bool by_latency = ranking.objective == Objective::latency;
  add_micro_batches(columns, ranking);
  columns.push_back({"schedule", Align::left, [&](size_t i) { return ranking.judged[i].plan.schedule; }});
  columns.push_back({"samples/s", Align::right, [of](size_t i) { return rate_text(of(i).throughput); }});
  if (!by_latency) add_bars(columns, ranking);
  columns.push_back(versus_single(ranking, [&ranking, of](size_t i) { return cost_of(ranking, of(i)); }));
  columns.push_back(
      {"latency of a\nmicro-batch", Align::right, [of](size_t i) { return to_string(seconds(of(i).latency_mean_s)); }});
  if (by_latency) add_bars(columns, ranking);
  add_busiest(columns, ranking, training);
  columns.push_back({"largest\nmemory", Align::left,
                     [of](size_t i) { return memory_text(of(i).largest_memory, of(i).largest_device); }});
}

// Below the table.
std::string generation_lines(const Ranking& ranking) {
  if (!ranking.generates) return "";
  std::string text;
  std::vector<size_t> missing;
  for (const size_t i : shown(ranking)) {
    const RankedPlan& ranked = ranking.judged[i];
    if (!ranked.why_not.empty()) text += fmt::format("plan {} cannot run: {}\n", i + 1, ranked.why_not);
    if (!ranked.misses.empty()) missing.push_back(i);
  }
  if (missing.empty()) return text;
  const std::vector<Miss>& misses = ranking.judged[missing[0]].misses;
  std::string what = misses[0].text;
  for (size_t m = 1; m < misses.size(); ++m) what += ", " + misses[m].text;
  if (!ranking.judged[0].misses.empty())
    return text + fmt::format("no plan reaches what is required; plan {} comes nearest: {}\n", missing[0] + 1, what);
  return text + fmt::format("plan {} and those after it miss what is required ({})\n", missing[0] + 1, what);
}

std::string table(const Ranking& ranking, const Scenario& scenario) {
  PlanColumns columns = {
      {"#", Align::right,
       [&](size_t i) { return fmt::format("{}{}", ranking.judged[i].misses.empty() ? "" : "!", i + 1); }},
      {"plan", Align::left, [&](size_t i) { return named_text(ranking.judged[i]); }}};
  if (scenario.generation)
    add_generation(columns, ranking, scenario);
  else
    add_execution(columns, ranking, scenario.training.has_value());
  // Long plans come last, where they do not push the figures out of sight.
  if (std::ranges::any_of(kept(ranking), [&](size_t i) { return display_width(ranking.judged[i].text) > widest_plan; }))
    std::rotate(columns.begin() + 1, columns.begin() + 2, columns.end());
  std::vector<Table::Column> heads;
  for (const PlanColumn& column : columns) heads.push_back({column.title, column.align});
  Table table(heads);
  for (const size_t i : shown(ranking)) {
    std::vector<std::string> cells;
    for (const PlanColumn& column : columns) cells.push_back(column.cell(i));
    table.add(std::move(cells));
  }
  return table.to_string();
}

// What is best for other numbers of sequences.
std::string sequences_text(const Ranking& ranking) {
  if (ranking.by_sequences.empty()) return "";
  using enum Align;
  Table table({{"sequences\nat once", right},
               {"each token\n(TPOT)", right},
               {"first token\n(TTFT)", right},
               {"tokens/s", right},
               {"largest\nmemory", left},
               {"longest\ncontext", right},
               {"best plan", left}});
  for (const OfSequences& of : ranking.by_sequences) {
    const std::string count = grouped(static_cast<double>(of.sequences));
    if (!of.best || !of.best->generation) {
      const std::string& why = of.best ? of.best->why_not : of.why_not;
      table.add({count, "-", "-", "-", "-", "-", "none: " + why.substr(0, why.find('\n'))});
      continue;
    }
    const GenerationTimes& times = *of.best->generation;
    table.add(
        {count, to_string(seconds(times.next_token_s)), to_string(seconds(times.first_token_s)),
         rate_text(times.tokens_per_s), fmt::format("{} ({})", to_string(times.fullest_memory), times.fullest_device),
         times.largest_context > 0 ? grouped(static_cast<double>(times.largest_context)) : "-", named_text(*of.best)});
  }
  return table.to_string() + "\n";
}

// As a shell takes it.
std::string quoted(const std::string& word) {
  if (word.find_first_of(" \t\"'$&;|<>()*?[]#~`\\!{}") == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

bool has_tokenizer(const std::string& model) {
  if (is_gguf(model)) return true;
  std::error_code failure;
  return is_safetensors(model) &&
         std::filesystem::exists(model.substr(0, model.rfind('?')) + "/tokenizer.json", failure);
}

std::string next_step(const Ranking& ranking, const Scenario& scenario, const std::string& nlbench) {
  if (ranking.judged.empty()) return "";
  if (ranking.interrupted) {  // a complete ranking has other numbers
    return "next     let it finish, or keep these with --save-plans DIR and name one with --plan-file DIR/01.yaml\n";
  }
  const auto runs = [&](size_t i) { return !ranking.generates || ranking.judged[i].generation; };
  const auto found = std::ranges::find_if(ranking.order, runs);
  if (found == ranking.order.end()) return "";
  const size_t first = *found;
  const auto on_gpu = [&](const Stage& stage) {
    return std::ranges::any_of(
        stage.devices, [&](DeviceId device) { return scenario.cluster.device(device).kind == DeviceKind::cuda; });
  };
  if (scenario.training && std::ranges::any_of(ranking.judged[first].plan.stages, on_gpu))
    return "next     another plan: nlbench trains on no GPU (docs/cuda.md)\n";
  std::string_view with = "--check";
  if (ranking.generates)  // where there is no tokenizer a prompt is tokens
    with = has_tokenizer(scenario.model) ? "--prompt \"Once upon a time\"" : "--prompt-tokens 1,2,3";
  return fmt::format(
      "next     {} {} {} --plan {} --transport threads {}\n"
      "         all of it in one process; docs/running.md: with mpirun, on the plan's hosts\n",
      quoted(nlbench), ranking.generates ? "generate" : "run", quoted(scenario.file), first + 1, with);
}

constexpr size_t most_notes = 6;  // of one plan; a split of a deep network may have one for every layer

// "Softmax 'prob' is gathered" → "Softmax '' is gathered"
std::string without_name(std::string text) {
  const size_t begin = text.find('\''), end = begin == std::string::npos ? begin : text.find('\'', begin + 1);
  if (end != std::string::npos) text.erase(begin + 1, end - begin - 1);
  return text;
}

// Of layers of which the same is to be said, the first.
std::vector<std::string> grouped_notes(const std::vector<std::string>& notes) {
  std::vector<std::string> patterns, firsts;
  std::vector<int64_t> more;
  for (const std::string& note : notes) {
    const std::string pattern = without_name(note);
    const auto at = std::ranges::find(patterns, pattern);
    if (at != patterns.end()) {
      ++more[static_cast<size_t>(at - patterns.begin())];
      continue;
    }
    patterns.push_back(pattern);
    firsts.push_back(note);
    more.push_back(0);
  }
  for (size_t i = 0; i < firsts.size(); ++i) {
    if (more[i] > 0) firsts[i] += fmt::format(" (and so for {})", counted(more[i], "more layer"));
  }
  return firsts;
}

// What is to be known of the user's own plans.
std::vector<std::string> notes_of(const Ranking& ranking) {
  std::vector<std::string> sentences;
  for (const OwnMisfit& misfit : ranking.own_misfits) sentences.push_back(to_string(misfit));
  for (const OwnRefused& refused : ranking.own_refused) sentences.push_back(to_string(refused));
  for (const OwnLeftOut& other : ranking.own_left_out) sentences.push_back(to_string(other));
  std::vector<std::string> names;
  for (const RankedPlan& ranked : ranking.judged) {
    if (ranked.own && std::ranges::find(names, ranked.plan.name) == names.end()) names.push_back(ranked.plan.name);
  }
  for (const std::string& name : names) {
    std::vector<std::string> notes;
    for (const RankedPlan& ranked : ranking.judged) {
      if (!ranked.own || ranked.plan.name != name) continue;
      for (const PlanNote& note : ranked.notes) {
        const std::string sentence = fmt::format("{}: {}", name, note.text);
        if (std::ranges::find(notes, sentence) == notes.end()) notes.push_back(sentence);
      }
    }
    notes = grouped_notes(notes);
    const size_t more = notes.size() > most_notes + 1 ? notes.size() - most_notes : 0;
    if (more > 0) {
      notes.resize(most_notes);
      notes.push_back(fmt::format("{}: and {} more such notes, all of them with --json", name, more));
    }
    std::ranges::move(notes, std::back_inserter(sentences));
  }
  return sentences;
}

}  // namespace

std::string ranking_text(const Ranking& ranking, const Scenario& scenario, const std::string& nlbench) {
  std::string text = head(ranking, scenario);
  if (!ranking.judged.empty())
    text += "\n" + table(ranking, scenario) + generation_lines(ranking) + "\n" + sequences_text(ranking);
  const std::vector<std::string> notes = notes_of(ranking);
  for (const std::string& note : notes) text += "note     " + note + "\n";
  if (!notes.empty()) text += "\n";
  if (ranking.judged.empty()) return text;
  if (const std::string measure = confidence_text(ranking); !measure.empty()) text += measure + "\n";
  text += verdict_text(ranking, scenario) + "\n";
  if (ranking.explanations.empty()) {
    const size_t first = ranking.order[0];
    const RankedPlan& best = ranking.judged[first];
    const bool one_way = best.plan.prefill.empty();  // else the drawing would be of tokens only
    if (one_way && (best.plan.stages.size() > 1 || best.plan.stages[0].devices.size() > 1)) {
      text += plan_drawing(fmt::format("plan {}", first + 1), head_width,
                           drawn_stages(best, ranking.node_shares, scenario.cluster)) +
              "\n";
    }
  } else {
    text += explanations_text(ranking, scenario);
  }
  if (const std::string rules = baselines_text(ranking, scenario); !rules.empty()) text += rules + "\n";
  return text + next_step(ranking, scenario, nlbench);
}

}  // namespace nlsplit::inline reports

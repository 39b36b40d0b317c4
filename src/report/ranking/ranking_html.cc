#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/html_text.h"
#include "report/ranking/confidence_text.h"
#include "report/ranking/explanation_text.h"
#include "report/ranking/plan_drawing.h"
#include "report/ranking/ranking_report.h"
#include "report/ranking/verdict_text.h"
#include "report/table.h"

namespace nlsplit::inline reports {
namespace {

constexpr std::string_view page_head = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>nlsplit ranking</title>
<style>
body{font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:80em;color:#222}
table{border-collapse:collapse}td,th{padding:.15em .7em;text-align:right;border-bottom:1px solid #ddd}
td.l,th.l{text-align:left}svg text{font:12px system-ui,sans-serif;fill:#222}
h2{margin-top:1.6em}section{margin:1.6em 0}.dim{color:#777}pre{font-size:12px;overflow-x:auto}
</style></head><body>
)";

// words: a column of such, besides the plan; 0: there is none.
std::string row(std::string_view tag, const std::vector<std::string>& cells, size_t words) {
  std::string text = "<tr>";
  for (size_t i = 0; i < cells.size(); ++i) {
    text += fmt::format("<{0}{1}>{2}</{0}>", tag, i == 1 || (words > 0 && i == words) ? " class=\"l\"" : "",
                        html_escaped(cells[i]));
  }
  return text + "</tr>\n";
}

std::string html_escaped_lines(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out += html_escaped(text.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  return out;
}

std::string table(const Ranking& ranking, const std::vector<size_t>& plans) {
  std::vector<std::string> titles = {"#", "plan", "micro-batches", "schedule", "samples/s", "latency"};
  if (ranking.generates) titles = {"#", "plan", "each token (TPOT)", "first token (TTFT)", "tokens/s"};
  for (const char* title : {"busiest device", "busiest link", "largest memory"}) titles.emplace_back(title);
  if (ranking.generates) titles.emplace_back("longest context");
  if (ranking.confidence) titles.insert(titles.end(), {"rank", "90 % interval", "worse than plan 1"});
  const size_t words = ranking.generates ? 0 : 3;  // the schedule
  std::string text = "<table>\n" + row("th", titles, words);
  for (const size_t i : plans) {
    const RankedPlan& ranked = ranking.judged[i];
    const Estimate& e = ranked.estimate;
    const auto& times = ranked.generation;
    std::vector<std::string> cells = {fmt::format("{}", i + 1), named_text(ranked)};
    const auto add = [&](std::string cell) { cells.push_back(std::move(cell)); };
    if (ranking.generates) {
      add(times ? to_string(seconds(times->next_token_s)) : "-");
      add(times ? to_string(seconds(times->first_token_s)) : "-");
      add(times ? rate_text(times->tokens_per_s) : "-");
    } else {
      add(fmt::format("{}", ranked.plan.micro_batches));
      add(ranked.plan.schedule);
      add(rate_text(e.throughput));
      add(to_string(seconds(e.latency_mean_s)));
    }
    add(fmt::format("{} {:.0f} %", e.busiest_device, e.busiest_device_share * 100));
    add(e.busiest_link.empty() ? "-" : fmt::format("{} {:.0f} %", e.busiest_link, e.busiest_link_share * 100));
    add(fmt::format("{} ({})", to_string(times ? times->fullest_memory : e.largest_memory),
                    times ? times->fullest_device : e.largest_device));
    if (ranking.generates)
      add(times && times->largest_context > 0 ? grouped(static_cast<double>(times->largest_context)) : "-");
    if (ranking.confidence) {
      const std::vector<std::string> bars = error_bar_cells(ranking, i);
      cells.insert(cells.end(), bars.begin(), bars.end());
    }
    text += row("td", cells, words);
  }
  return text + "</table>\n";
}

}  // namespace

std::string ranking_html(const Ranking& ranking, const Scenario& scenario) {
  std::string page(page_head);
  page += fmt::format("<h1>{}{}, {} on {}</h1>\n<p class=\"dim\">{}: {} plans timed, {} of them simulated</p>\n",
                      scenario.training ? "training " : "", html_escaped(ranking.model),
                      ranking.generates ? counted(ranking.batch, "sequence") : fmt::format("batch {}", ranking.batch),
                      counted(static_cast<int64_t>(scenario.cluster.devices.size()), "device"),
                      html_escaped(scenario.file), ranking.considered, ranking.judged.size());
  if (ranking.judged.empty()) return page + "</body></html>\n";
  const std::vector<size_t> plans = shown(ranking);
  page += table(ranking, plans);
  if (ranking.confidence) page += "<pre>" + html_escaped_lines(confidence_text(ranking)) + "</pre>\n";
  page += "<h2>Is it worth it</h2>\n<pre>" + html_escaped_lines(verdict_text(ranking, scenario)) +
          "</pre>\n<h2>Plans</h2>\n";
  page +=
      "<p class=\"dim\">The network from its first layer to its last, as wide as their share of the time; stacked "
      "are the devices of a stage, by their shares of it.</p>\n";
  for (const size_t i : plans) {
    const RankedPlan& ranked = ranking.judged[i];
    std::string how =
        !ranking.generates  ? fmt::format("{}, {}, {} samples/s", counted(ranked.plan.micro_batches, "micro-batch"),
                                          html_escaped(ranked.plan.schedule), rate_text(ranked.estimate.throughput))
        : ranked.generation ? fmt::format("{} each token", to_string(seconds(ranked.generation->next_token_s)))
                            : html_escaped("cannot run: " + ranked.why_not);
    if (!ranked.plan.prefill.empty()) how += "; drawn is decode";
    page += fmt::format("<section id=\"plan{0}\"><h3>{0}: {1}</h3>\n<p class=\"dim\">{2}</p>\n", i + 1,
                        html_escaped(ranked.text), how);
    page += plan_svg(drawn_stages(ranked, ranking.node_shares, scenario.cluster));
    const auto why = std::ranges::find(ranking.explanations, i, &Explanation::plan);
    if (why != ranking.explanations.end()) {
      page += "<ul>\n";
      for (const std::string& line : explanation_sentences(ranking, scenario, *why))
        page += "<li>" + html_escaped(line) + "</li>\n";
      page += "</ul>\n";
    }
    page += "</section>\n";
  }
  return page + "</body></html>\n";
}

}  // namespace nlsplit::inline reports
